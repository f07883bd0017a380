// Before                                  After  shard_by_role { shards: 8 }
//   q       [d_model -> heads=32, ..]        [d_model -> heads=32/8, ..]        a device holds 4 heads
//   k, v    [d_model -> kv_heads=8, ..]      [d_model -> kv_heads=8/8, ..]
//   o       [heads=32, .. -> d_model]        [heads=32/8, .. -> d_model]        partial sums, one reduction
//   up      [d_model -> d_ff=14336]          [d_model -> d_ff=14336/8]
//   embed   [vocab=128256 -> d_model]        [vocab=128256/8 -> d_model]
//                                         After  shard_by_role { axis: "expert" shards: 16 }
//   gate    [expert=128; d_model -> d_ff]    [expert=128/16; d_model -> d_ff]   the router stays whole
//
// Why on a TPU. A model that spans chips is cut by the loader at run time, and what divides badly is found
// there: as padding by the compiler, or as an all-to-all in every layer. Here the cut is part of the model.
// It is made along axes that mean something (heads, channels, words, experts), so a block's first kernels are
// split by columns and its last by rows, and one reduction per block is all that crosses the wires.
//
// Axes that are not named are heads, kv_heads, d_ff, shared_ff and vocab. A parameter that has none of them
// is held whole by every device. `role` narrows it to parameters whose last part matches. An expert axis is
// split where it stacks kernels; where it is a router's result it stays. Steps add up: experts over 16 and
// channels over 2 make 32 parts. No value moves: the type says how many parts, the text and the manifest
// carry it.
//
// Refuses. An axis that the shards do not divide; one that is split already into another number of parts;
// parameters fused into one tensor that is not interleaved for as many shards.
//
// Fidelity. MOVED.
#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "re2/re2.h"
#include "transforms/edit.h"
#include "transforms/names.h"
#include "transforms/transforms.pb.h"

namespace twinforge {
namespace {

constexpr absl::string_view kTensorParallel[] = {"heads", "kv_heads", "d_ff", "shared_ff", "vocab"};

// The step that makes an axis divide, or "".
std::string RemedyFor(absl::string_view axis, int64_t shards) {
  if (axis == "heads") return absl::StrCat("pad_heads { multiple: ", shards, " }");
  if (axis == "kv_heads") return absl::StrCat("replicate_kv_heads { to_multiple: ", shards, " }");
  if (axis == "d_ff" || axis == "shared_ff") return absl::StrCat("pad_ffn { multiple: ", shards, " }");
  if (axis == "vocab") return absl::StrCat("pad_vocab { multiple: ", shards, " }");
  return "";
}

class ShardByRoleTransform : public Transform {
 public:
  ShardByRoleTransform(std::vector<std::string> axes, std::unique_ptr<RE2> role, int64_t shards)
      : axes_(std::move(axes)), role_(std::move(role)), shards_(shards) {}

  absl::string_view name() const override { return "shard_by_role"; }
  Fidelity fidelity() const override { return Fidelity::kMoved; }

  Sites FindSites(const Graph& graph) const override {
    return SitesOverNodes(graph, [&](const Node& node) {
      Judgement verdict = Judgement::Other();
      for (const auto& [slot, role] : node.params) {
        verdict = Join(std::move(verdict), JudgeParam(graph, *graph.FindParam(role)));
      }
      return verdict;
    });
  }

  absl::Status CheckNames(const Graph& graph) const override {
    const std::set<std::string> known = AxisNames(graph);
    for (const std::string& axis : axes_) TWIN_RETURN_IF_ERROR(CheckName("shard_by_role.axis", axis, known));
    if (role_ != nullptr)
      TWIN_RETURN_IF_ERROR(CheckPatternNames("shard_by_role.role", *role_, ParameterNames(graph)));
    for (const auto& [role, param] : graph.params()) {
      if (!SplitsOf(param).empty()) return absl::OkStatus();
    }
    return Error(1105, "shard_by_role", "no parameter of this model has its role and one of its axes",
                 "leave the step out, or write `where { expect: NONE }`");
  }

  absl::Status Rewrite(const Site& site, const Observed&, Rewriter& rewriter) const override {
    const auto params = rewriter.graph().node(site.node).params;
    for (const auto& [slot, role] : params) {
      const Param param = *rewriter.graph().FindParam(role);
      const std::vector<size_t> splits = SplitsOf(param);
      if (splits.empty()) continue;
      ParamType type = param.type;
      for (const size_t axis : splits) type.axes[axis].shards = shards_;
      rewriter.SetParam(role, std::move(type), param.program);
    }
    return absl::OkStatus();
  }

 private:
  // Positions of the axes of `param` that this step splits.
  std::vector<size_t> SplitsOf(const Param& param) const {
    std::vector<size_t> splits;
    const absl::string_view last = LastPart(param.role);
    if (role_ != nullptr && !RE2::FullMatch({last.data(), last.size()}, *role_)) return splits;
    const ParamType& type = param.type;
    for (size_t i = 0; i < type.axes.size(); ++i) {
      const std::string& name = type.axes[i].name;
      if (name == "expert" && static_cast<int>(i) >= type.lead) continue;
      if (std::find(axes_.begin(), axes_.end(), name) != axes_.end()) splits.push_back(i);
    }
    return splits;
  }

  Judgement JudgeParam(const Graph& graph, const Param& param) const {
    Judgement verdict = Judgement::Other();
    for (const size_t at : SplitsOf(param)) {
      verdict = Join(std::move(verdict), JudgeAxis(param.type.axes[at]));
      const int joined = param.type.lead + param.type.in;
      const Bundle* bundle = graph.BundleOf(param.role);
      if (bundle != nullptr && static_cast<int>(at) == joined) {
        verdict = Join(std::move(verdict), JudgeFused(graph, *bundle));
      }
    }
    return verdict;
  }

  Judgement JudgeAxis(const ParamAxis& axis) const {
    if (axis.shards == shards_) return Judgement::Native();
    if (axis.shards != 1) {
      return Judgement::Refused(absl::StrCat(axis.name, " is split into ", axis.shards, " already"));
    }
    if (axis.size % shards_ == 0) return Judgement::Fits();
    const std::string remedy = RemedyFor(axis.name, shards_);
    return Judgement::Refused(absl::StrCat(axis.name, " ", axis.size, " does not divide over ", shards_,
                                           " shards",
                                           remedy.empty() ? "" : absl::StrCat(": ", remedy, " would do")));
  }

  // Members lie one after the other along the axis that would be cut.
  Judgement JudgeFused(const Graph& graph, const Bundle& bundle) const {
    if (bundle.arrangement != Bundle::Arrangement::kConcat) return Judgement::Other();
    if (bundle.shards != shards_) {
      return Judgement::Refused(absl::StrCat(bundle.role, " is one tensor, laid for ", bundle.shards,
                                             " shards: fuse for ", shards_));
    }
    for (const std::string& role : bundle.members) {
      const Param& member = *graph.FindParam(role);
      const size_t joined = member.type.lead + member.type.in;
      const std::vector<size_t> splits = SplitsOf(member);
      if (std::find(splits.begin(), splits.end(), joined) == splits.end()) {
        return Judgement::Refused(
            absl::StrCat(bundle.role, " is one tensor, and ", role, " would not be split"));
      }
    }
    return Judgement::Other();
  }

  std::vector<std::string> axes_;
  std::unique_ptr<RE2> role_;  // null: every parameter
  int64_t shards_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transform>> MakeShardByRole(const TransformStep& step,
                                                           const TransformContext& context) {
  const ShardByRole& params = step.shard_by_role();
  TWIN_ASSIGN_OR_RETURN(const int64_t shards, NumberOrFact("shard_by_role.shards", params.shards(),
                                                           params.shards_of_chip(), context.facts));
  TWIN_ASSIGN_OR_RETURN(auto role, RolePattern("shard_by_role.role", params.role()));
  std::vector<std::string> axes(params.axis().begin(), params.axis().end());
  for (absl::string_view axis : kTensorParallel) {
    if (params.axis().empty()) axes.emplace_back(axis);
  }
  return std::make_unique<ShardByRoleTransform>(std::move(axes), std::move(role), shards);
}

}  // namespace twinforge
