// Before                                    After  fold_norm_scale {}
//   y = x / rms(x) * g;  q = W y              y = x / rms(x);  q = (W diag(g)) y
//
// Why on a TPU. A multiply of the whole activation by a vector goes away, and what is left of the norm is
// one number per token, which later rewrites (rotation, padding d_model) can move through a kernel.
//
// Every reader of the norm must be a kernel over d_model: then scaling the columns of all of them is
// scaling its result. The scale becomes 1 (0 where it is stored as w for 1 + w).
//
// Refuses. A layer_norm with a bias. A norm whose result also goes elsewhere: into an add, an activation, an
// output. A reader whose kernel shares its bytes with another parameter (a tied head).
//
// Fidelity. REASSOCIATED: equal in real arithmetic. BOUNDED by half a unit where a kernel is stored in bf16
// or f16, since the product is rounded to that.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "transforms/edit.h"
#include "transforms/transforms.pb.h"
#include "weights/build.h"

namespace twinforge {
namespace {

// The slots of `node` that read its operand; empty where something else than kernels reads it.
std::vector<std::string> ReadingSlots(const Node& node) {
  std::vector<absl::string_view> slots;
  switch (node.op) {
    case OpKind::kLinear:
      slots = {"kernel"};
      break;
    case OpKind::kLmHead:
      slots = {"head"};
      break;
    case OpKind::kAttention:
      slots = {"q", "k", "v"};
      break;
    case OpKind::kLatentAttention:
      slots = {"q_a", "kv_a", "k_rope"};
      if (!node.Has("q_a")) slots = {"q_nope", "q_rope", "kv_a", "k_rope"};
      break;
    case OpKind::kMlp:
      slots = {"up"};
      break;
    case OpKind::kGatedMlp:
      slots = {"gate", "up"};
      break;
    case OpKind::kMoe:
      slots = {"router", "gate", "up", "shared_gate", "shared_up"};
      break;
    default:
      break;  // the others read it otherwise than through kernels
  }
  std::vector<std::string> present;
  for (absl::string_view slot : slots) {
    if (node.Has(slot)) present.emplace_back(slot);
  }
  return present;
}

class FoldNormScaleTransform : public Transform {
 public:
  absl::string_view name() const override { return "fold_norm_scale"; }
  Fidelity fidelity() const override { return Fidelity::kReassociated; }
  Sites FindSites(const Graph& graph) const override {
    const Sharing sharing(graph);
    return SitesOverNodes(graph, [&](const Node& node) { return Judge(graph, sharing, node); });
  }

  absl::Status Rewrite(const Site& site, const Observed&, Rewriter& rewriter) const override {
    const Graph& graph = rewriter.graph();
    const Node& norm = graph.node(site.node);
    const Param scale = graph.param(norm, "scale");
    const double offset = norm.attrs->norm().offset();
    // In f64, so that the product is rounded once and 1 + w not before it.
    const WeightPtr gain = AddConstant(Cast(scale.program, DType::kF64), offset);
    for (const NodeId id : graph.UsersOf(site.node)) {
      for (const std::string& slot : ReadingSlots(graph.node(id))) {
        const Param kernel = graph.param(graph.node(id), slot);
        Shape shape(kernel.type.axes.size(), 1);
        shape[kernel.type.lead] = gain->shape()[0];
        SetProgram(rewriter, kernel.role, Map(MapFn::kMul, kernel.program, Reshape(gain, shape)));
      }
    }
    SetProgram(rewriter, scale.role, Fill(1 - offset, scale.type.dtype, scale.type.shape()));
    return absl::OkStatus();
  }

 private:
  static Judgement Judge(const Graph& graph, const Sharing& sharing, const Node& norm) {
    if (norm.op != OpKind::kRmsNorm && norm.op != OpKind::kLayerNorm) return Judgement::Other();
    const Param& scale = graph.param(norm, "scale");
    if (scale.program->kind() == WeightKind::kFill &&
        scale.program->fill() == 1 - norm.attrs->norm().offset()) {
      return Judgement::Native();
    }
    if (norm.Has("bias")) return Judgement::Refused("its bias does not pass through a kernel");
    for (const auto& [name, value] : graph.outputs()) {
      if (value == norm.id) return Judgement::Refused(absl::StrCat("its result is the output ", name));
    }
    for (const NodeId id : graph.UsersOf(norm.id)) {
      Judgement verdict = JudgeReader(graph, sharing, graph.node(id));
      if (verdict.refused()) return verdict;
    }
    return Judgement::Fits();
  }

  static Judgement JudgeReader(const Graph& graph, const Sharing& sharing, const Node& reader) {
    const std::vector<std::string> slots = ReadingSlots(reader);
    if (slots.empty())
      return Judgement::Refused(absl::StrCat(reader.path, " reads its result, and is no kernel"));
    for (const std::string& slot : slots) {
      const Param& kernel = graph.param(reader, slot);
      const std::string partner = sharing.Partner(kernel);
      if (!partner.empty()) {
        return Judgement::Refused(
            absl::StrCat(kernel.role, " reads its result and shares its bytes with ", partner));
      }
      if (!IsFloat(kernel.type.dtype) || kernel.type.in != 1) {
        return Judgement::Refused(absl::StrCat(kernel.role, " is not a kernel of floats over one axis"));
      }
    }
    return Judgement::Fits();
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transform>> MakeFoldNormScale(const TransformStep&, const TransformContext&) {
  return std::make_unique<FoldNormScaleTransform>();
}

}  // namespace twinforge
