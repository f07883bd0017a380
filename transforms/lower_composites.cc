// Before                                        After  lower_composites {}
//   n = rms_norm(x) @n {eps: 1e-06}               n = param() @n
//                                                 n.multiply_0 = multiply(x, x)
//                                                 n.reduce_1 = reduce(n.multiply_0) {kind: SUM axes: 2}
//                                                 ...
//                                                 n.multiply_9 = multiply(n.multiply_7, n.broadcast_8) of
//                                                 rms_norm {eps: 1e-06}
//
// `op` names the composites that are written out; without it all are, down to primitives. What stands in one
// of them is written out with it where `op` allows it: attention's rope, the router of a mixture.
//
// Why on a TPU. What a compiler is given are primitives: whoever prints a model in its language, or wants to
// see what it will fuse, starts here. The last primitive says what it comes of, so that raise_composites
// finds the way back.
//
// The twin computes what stands in its graph: a sequence from its first token. What attention remembers from
// call to call is no part of it, so it has no decode step.
//
// Refuses. A composite whose operand gives it no meaning (attention over a value without a sequence). One
// whose parts would have the name of another node.
//
// Fidelity. MOVED: a composite's meaning is its decomposition, and no parameter changes.
#include <memory>
#include <set>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/json_reader.h"
#include "ir/decompose.h"
#include "transforms/edit.h"
#include "transforms/transforms.pb.h"
#include "transforms/written_out.h"

namespace twinforge {
namespace {

class LowerCompositesTransform : public Transform {
 public:
  explicit LowerCompositesTransform(std::set<OpKind> ops) : ops_(std::move(ops)) {}

  absl::string_view name() const override { return "lower_composites"; }
  Fidelity fidelity() const override { return Fidelity::kMoved; }

  Sites FindSites(const Graph& graph) const override {
    absl::flat_hash_set<std::string> taken;
    return SitesOverNodes(graph, [&](const Node& node) { return Judge(graph, node, taken); });
  }

  absl::Status Rewrite(const Site& site, const Observed&, Rewriter& rewriter) const override {
    const Graph& graph = rewriter.graph();
    const Node& node = graph.node(site.node);
    auto origin = std::make_shared<Origin>();
    origin->set_op(std::string(Info(node.op).name));
    *origin->mutable_attrs() = *node.attrs;
    origin->mutable_attrs()->clear_origin();
    const auto emit = [this, &graph, id = site.node](Rewriter::Moved moved,
                                                     Builder& to) -> absl::StatusOr<NodeId> {
      const Node& composite = graph.node(id);
      DecompositionInputs inputs;
      for (NodeId operand : composite.operands) inputs.operands.push_back(moved(operand));
      const absl::StatusOr<Decomposition> done =
          EmitDecomposition(graph, composite, inputs, DepthOf(composite), to);
      if (!done.ok()) return done.status();
      return done->result;
    };
    rewriter.Replace(site.node, emit, std::move(origin));
    return absl::OkStatus();
  }

 private:
  bool Selects(OpKind op) const { return ops_.empty() || ops_.count(op) > 0; }

  // A composite holds no smaller one, ropes or a router.
  DecompositionDepth DepthOf(const Node& node) const {
    const bool all = Selects(node.op == OpKind::kMoe ? OpKind::kRouter : OpKind::kRope);
    return all ? DecompositionDepth::kPrimitives : DecompositionDepth::kOnce;
  }

  // `taken`: the names of what earlier sites become.
  Judgement Judge(const Graph& graph, const Node& node, absl::flat_hash_set<std::string>& taken) const {
    if (node.op == OpKind::kInput) return Judgement::Other();
    if (Info(node.op).composite == nullptr) return Judgement::Native();
    if (!Selects(node.op)) return Judgement::Other();
    const absl::StatusOr<Graph> parts = WrittenOut(graph, node, DepthOf(node));
    if (!parts.ok()) {
      const std::optional<Diagnostic> why = DiagnosticOf(parts.status());
      return Judgement::Refused(why ? why->message : std::string(parts.status().message()));
    }
    for (const Node& part : parts->nodes()) {
      if (part.op == OpKind::kInput) continue;
      const Node* other = graph.FindNode(part.path);
      if ((other != nullptr && other != &node) || !taken.insert(part.path).second)
        return Judgement::Refused(absl::StrCat("a part of it would be called ", part.path, ", as a node is"));
    }
    return Judgement::Fits();
  }

  std::set<OpKind> ops_;  // empty: all
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transform>> MakeLowerComposites(const TransformStep& step,
                                                               const TransformContext&) {
  std::set<OpKind> ops;
  for (const std::string& name : step.lower_composites().op()) {
    const std::optional<OpKind> op = OpKindFromName(name);
    if (!op || Info(*op).composite == nullptr) {
      return Error(1505, "lower_composites.op", absl::StrCat(JsonQuoted(name, 64), " is no composite"),
                   "docs/graph.md names them; without `op` all are written out");
    }
    ops.insert(*op);
  }
  return std::make_unique<LowerCompositesTransform>(std::move(ops));
}

}  // namespace twinforge
