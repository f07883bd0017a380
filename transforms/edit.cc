#include "transforms/edit.h"

#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/diagnostic.h"
#include "ir/largest.h"
#include "transforms/transforms.pb.h"
#include "weights/build.h"

namespace twinforge {
namespace {

// The parameter's bytes in one canonical way to lie, so that a tied head and its embedding meet.
const Weight* Lying(const WeightPtr& program) {
  if (program->kind() == WeightKind::kTranspose && program->rank() == 2) return program->child().get();
  return program.get();
}

void File(Judgement verdict, NodeId node, const std::string& path, Sites& sites) {
  switch (verdict.kind) {
    case Judgement::Kind::kOther:
      return;
    case Judgement::Kind::kFits:
      sites.fit.push_back({node, path});
      return;
    case Judgement::Kind::kNative:
      sites.native.push_back(path);
      return;
    case Judgement::Kind::kRefused:
      sites.refused.push_back({path, std::move(verdict.reason)});
      return;
  }
}

}  // namespace

Judgement Join(Judgement a, Judgement b) {
  auto rank = [](const Judgement& v) {
    switch (v.kind) {
      case Judgement::Kind::kOther:
        return 0;
      case Judgement::Kind::kNative:
        return 1;
      case Judgement::Kind::kFits:
        return 2;
      case Judgement::Kind::kRefused:
        return 3;
    }
    return 0;
  };
  return rank(b) > rank(a) ? std::move(b) : std::move(a);
}

Judgement JudgeGrowth(absl::string_view axis, int64_t size) {
  const int64_t most = LargestSize(axis);
  if (size <= most) return Judgement::Fits();
  return Judgement::Refused(
      absl::StrCat(axis, " would become ", size, ", and no model is read with more than ", most));
}

Sites SitesOverNodes(const Graph& graph, absl::FunctionRef<Judgement(const Node&)> judge) {
  Sites sites;
  for (const Node& node : graph.nodes()) File(judge(node), node.id, node.path, sites);
  return sites;
}

Sites SitesOverParams(const Graph& graph,
                      absl::FunctionRef<Judgement(const Node&, absl::string_view, const Param&)> judge) {
  Sites sites;
  for (const Node& node : graph.nodes()) {
    for (const auto& [slot, role] : node.params) {
      File(judge(node, slot, *graph.FindParam(role)), node.id, role, sites);
    }
  }
  return sites;
}

const ParamAxis* FindAxis(const Graph& graph, const Node& node, absl::string_view name) {
  for (const auto& [slot, role] : node.params) {
    const ParamType& type = graph.FindParam(role)->type;
    const int at = type.Find(name);
    if (at >= 0) return &type.axes[at];
  }
  return nullptr;
}

int64_t AxisSize(const Graph& graph, const Node& node, absl::string_view name) {
  const ParamAxis* axis = FindAxis(graph, node, name);
  TWIN_CHECK(axis != nullptr, absl::StrCat(node.path, " has no axis ", name));
  return axis->size;
}

absl::string_view LastPart(absl::string_view role) { return role.substr(role.rfind('.') + 1); }

int64_t RoundUp(int64_t size, int64_t multiple) { return (size + multiple - 1) / multiple * multiple; }

Sharing::Sharing(const Graph& graph) {
  for (const auto& [role, param] : graph.params()) roles_[Lying(param.program)].push_back(role);
}

std::string Sharing::Partner(const Param& param) const {
  // A constant is no one's bytes.
  if (param.program->kind() == WeightKind::kFill) return "";
  const auto found = roles_.find(Lying(param.program));
  if (found == roles_.end()) return "";
  for (const std::string& role : found->second) {
    if (role != param.role) return role;
  }
  return "";
}

bool IsStorageFloat(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 || dtype == DType::kF64;
}

void MapAxis(Rewriter& rewriter, absl::string_view role, absl::string_view axis, const IndexMap& map,
             double fill) {
  const Param* param = rewriter.graph().FindParam(role);
  TWIN_CHECK(param != nullptr, role);
  ParamType type = param->type;
  const int at = type.Find(axis);
  TWIN_CHECK(at >= 0, absl::StrCat(role, " has no axis ", axis));
  type.axes[at].size = map.size();
  rewriter.SetParam(std::string(role), type, Take(param->program, at, map, fill));
}

void MapAxisEverywhere(Rewriter& rewriter, NodeId node, absl::string_view axis, const IndexMap& map) {
  const auto params = rewriter.graph().node(node).params;
  for (const auto& [slot, role] : params) {
    if (rewriter.graph().FindParam(role)->type.Find(axis) >= 0) MapAxis(rewriter, role, axis, map);
  }
}

IndexMap TailPad(int64_t size, int64_t padded) {
  return IndexMap::Join({IndexMap::Identity(size), IndexMap::Fill(padded - size)});
}

void ScaleParam(Rewriter& rewriter, absl::string_view role, double factor) {
  if (factor == 1) return;
  SetProgram(rewriter, role, Scale(rewriter.graph().FindParam(role)->program, factor));
}

// In f64, so that the sum is rounded once. Without an offset a plain multiply, which turns back.
void ScaleNorm(Rewriter& rewriter, absl::string_view role, double offset, double factor) {
  if (offset == 0 || factor == 1) return ScaleParam(rewriter, role, factor);
  const Param param = *rewriter.graph().FindParam(role);
  const WeightPtr gain = AddConstant(Cast(param.program, DType::kF64), offset);
  SetProgram(rewriter, role, Cast(AddConstant(Scale(gain, factor), -offset), param.type.dtype));
}

void SetProgram(Rewriter& rewriter, absl::string_view role, WeightPtr program) {
  const Param* param = rewriter.graph().FindParam(role);
  TWIN_CHECK(param != nullptr, role);
  rewriter.SetParam(std::string(role), param->type, std::move(program));
}

// No tile, shard count or head count is near this; it keeps products of parameters and sizes within int64.
constexpr int64_t kMostMultiple = int64_t{1} << 20;

absl::StatusOr<int64_t> NumberOrFact(absl::string_view field, int64_t number, int fact,
                                     const ChipFacts& facts, int64_t fallback) {
  if (number != 0 && fact != CHIP_FACT_UNSET) {
    return Error(1505, field, "both a number and a fact of the chip are given", "keep one of the two");
  }
  if (number < 0) return Error(1505, field, absl::StrCat("is ", number, "; it must be positive"));
  if (number > kMostMultiple)
    return Error(1505, field, absl::StrCat("is ", number, "; at most ", kMostMultiple, " makes sense"));
  if (number > 0) return number;
  if (fact == LANES) return facts.lanes;
  if (fact == MXU) return facts.mxu;
  if (fact == SHARDS) return facts.shards;
  if (fact == KERNEL) return facts.kernel;
  if (fact != CHIP_FACT_UNSET)
    return Error(1505, field, absl::StrCat("no fact of a chip has the number ", fact));
  if (fallback > 0) return fallback;
  return Error(1505, field, "is missing",
               "give a positive number, or a fact of the chip: LANES, MXU, SHARDS or KERNEL");
}

absl::StatusOr<std::unique_ptr<RE2>> RolePattern(absl::string_view field, const std::string& text) {
  if (text.empty()) return nullptr;
  RE2::Options quiet;
  quiet.set_log_errors(false);
  auto pattern = std::make_unique<RE2>(text, quiet);
  if (!pattern->ok()) return Error(1505, field, absl::StrCat("is no regular expression: ", pattern->error()));
  return pattern;
}

}  // namespace twinforge
