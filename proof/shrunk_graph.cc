// One graph at a smaller form: layers left out, extents replaced, stored tensors named anew.
#include <algorithm>
#include <cmath>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "ir/builder.h"
#include "proof/layers.h"
#include "proof/shrink.h"
#include "weights/build.h"

namespace twinforge {
namespace {

constexpr int64_t kShortWindow = 5;

int64_t ProductOf(absl::Span<const ParamAxis> axes) {
  int64_t product = 1;
  for (const ParamAxis& axis : axes) product *= axis.size;
  return product;
}

// A fresh stored tensor that lies as `param` does, read as its canonical parameter.
WeightPtr FreshProgram(const Param& param) {
  const ParamType& type = param.type;
  const absl::Span<const ParamAxis> axes(type.axes);
  if (!type.is_kernel()) return Source(param.role, type.dtype, type.shape());
  const auto lead = axes.subspan(0, type.lead), in = axes.subspan(type.lead, type.in),
             out = axes.subspan(type.lead + type.in);
  const bool in_out = param.storage.orientation == Orientation::kInOut;
  Shape stored, split;
  std::vector<int64_t> perm;
  for (const ParamAxis& axis : lead) {
    perm.push_back(static_cast<int64_t>(perm.size()));
    stored.push_back(axis.size);
    split.push_back(axis.size);
  }
  stored.push_back(ProductOf(in_out ? in : out));
  stored.push_back(ProductOf(in_out ? out : in));
  for (const auto& side : {in_out ? in : out, in_out ? out : in}) {
    for (const ParamAxis& axis : side) split.push_back(axis.size);
  }
  const int64_t at_in = type.lead + (in_out ? 0 : static_cast<int64_t>(out.size()));
  const int64_t at_out = type.lead + (in_out ? static_cast<int64_t>(in.size()) : 0);
  for (size_t i = 0; i < in.size(); ++i) perm.push_back(at_in + static_cast<int64_t>(i));
  for (size_t i = 0; i < out.size(); ++i) perm.push_back(at_out + static_cast<int64_t>(i));
  return Transpose(Reshape(Source(param.role, type.dtype, stored), split), perm);
}

class GraphShrinker {
 public:
  GraphShrinker(const Graph& source, const SmallForm& form)
      : source_(source), form_(form), builder_(source.name()), map_(source.nodes().size(), -1) {}

  absl::StatusOr<Graph> Run() {
    for (const Node& node : source_.nodes()) {
      const int64_t layer = LayerIndex(node.path);
      if (layer >= 0 && form_.layers.count(layer) == 0) {
        TWIN_RETURN_IF_ERROR(PassOver(node, layer));
        continue;
      }
      TWIN_RETURN_IF_ERROR(Copy(node));
    }
    for (const auto& [name, value] : source_.outputs()) builder_.Output(name, map_[value]);
    for (const Bundle& bundle : source_.bundles()) {
      const bool kept = std::all_of(bundle.members.begin(), bundle.members.end(),
                                    [&](const std::string& role) { return kept_.count(role) > 0; });
      if (kept) builder_.AddBundle(bundle);
    }
    return builder_.Finish();
  }

 private:
  // A layer that is left out hands on what it was given: the value before its first node.
  absl::Status PassOver(const Node& node, int64_t layer) {
    if (layer != passed_) {
      passed_ = layer;
      TWIN_RETURN_IF_ERROR(CheckStream(node));
      entry_ = node.id == 0 ? -1 : map_[node.id - 1];
    }
    map_[node.id] = entry_;
    return absl::OkStatus();
  }

  // The layer begins with the value that stands just before it, as layers in a row do.
  absl::Status CheckStream(const Node& first) const {
    const auto& operands = first.operands;
    if (std::find(operands.begin(), operands.end(), first.id - 1) != operands.end()) return absl::OkStatus();
    return Error(1501, first.path,
                 "its layer does not go on from the value before it: layers can't be left out");
  }

  absl::Status Copy(const Node& node) {
    if (node.op == OpKind::kInput) {
      map_[node.id] = builder_.Input(node.path, node.type);
      return absl::OkStatus();
    }
    std::vector<NodeId> operands;
    for (NodeId id : node.operands) {
      const int64_t layer = LayerIndex(source_.node(id).path);
      const bool left_out = layer >= 0 && form_.layers.count(layer) == 0;
      if (left_out && !IsLastOfItsLayer(id))
        return Error(1501, node.path, "it reads the inside of a layer that would be left out");
      operands.push_back(map_[id]);
    }
    std::vector<std::pair<std::string, Param>> params;
    for (const auto& [slot, role] : node.params) params.emplace_back(slot, Shrink(*source_.FindParam(role)));
    map_[node.id] = builder_.Op(node.op, node.path, std::move(operands), Shrink(node), std::move(params));
    return builder_.status();
  }

  bool IsLastOfItsLayer(NodeId id) const {
    const size_t next = static_cast<size_t>(id) + 1;
    return next >= source_.nodes().size() ||
           LayerIndex(source_.nodes()[next].path) != LayerIndex(source_.node(id).path);
  }

  Param Shrink(const Param& param) {
    Param small = param;
    for (ParamAxis& axis : small.type.axes) {
      const auto found = form_.extents.find({axis.name, axis.size});
      if (found != form_.extents.end()) axis.size = axis.logical = found->second;
    }
    small.program = SharedProgram(param, small);
    kept_.insert(param.role);
    return small;
  }

  // Parameters that share one stored tensor go on sharing it, transposed or not.
  WeightPtr SharedProgram(const Param& param, const Param& small) {
    const auto same = programs_.find(param.program.get());
    if (same != programs_.end() && same->second->shape() == small.type.shape()) return same->second;
    if (param.program->rank() == 2) {
      const WeightPtr turned = Transpose(param.program, {1, 0});
      const auto other = programs_.find(turned.get());
      if (other != programs_.end()) {
        WeightPtr program = Transpose(other->second, {1, 0});
        if (program->shape() == small.type.shape()) return program;
      }
    }
    return programs_[param.program.get()] = FreshProgram(small);
  }

  OpAttrs Shrink(const Node& node) const {
    OpAttrs attrs = *node.attrs;
    if (!attrs.has_attention()) return attrs;
    AttentionAttrs& attention = *attrs.mutable_attention();
    if (attention.window() > kShortWindow) attention.set_window(kShortWindow);
    if (attention.chunk() > kShortWindow) attention.set_chunk(kShortWindow);
    if (attention.alibi_size() > 0) {
      const ParamAxis& heads = source_.param(node, "q").type.Get("heads");
      const auto found = form_.extents.find({"heads", heads.size});
      if (found != form_.extents.end())
        attention.mutable_alibi()->Truncate(
            static_cast<int>(std::min<int64_t>(found->second, attention.alibi_size())));
    }
    return attrs;
  }

  const Graph& source_;
  const SmallForm& form_;
  Builder builder_;
  std::vector<NodeId> map_;
  int64_t passed_ = -1;
  NodeId entry_ = -1;
  std::set<std::string> kept_;
  absl::flat_hash_map<const Weight*, WeightPtr> programs_;  // of the source -> small
};

}  // namespace

absl::StatusOr<Graph> Shrunk(const Graph& source, const SmallForm& form) {
  return GraphShrinker(source, form).Run();
}

}  // namespace twinforge
