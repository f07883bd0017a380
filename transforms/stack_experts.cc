// Before                                        After  stack_experts {}
//   experts.0.gate [d_ff, d_model]                gate [expert, d_ff, d_model]
//   experts.1.gate [d_ff, d_model]  ...
//
// Why on a TPU. A grouped multiply walks one tensor by its first axis. Experts that lie apart have to be
// stacked at load time, which holds every expert twice in memory and, under a compiler that traces
// arguments one by one, makes the program's signature hundreds of tensors long.
//
// Refuses. Nothing: a layer's experts have one shape by construction of the graph.
//
// Fidelity. MOVED: Storage changes, values and mathematics do not.
#include "transforms/edit.h"
#include "transforms/transforms.pb.h"

namespace twinforge {
namespace {

class StackExpertsTransform : public Transform {
 public:
  absl::string_view name() const override { return "stack_experts"; }
  Fidelity fidelity() const override { return Fidelity::kMoved; }

  Sites FindSites(const Graph& graph) const override {
    return SitesOverNodes(graph, [&](const Node& node) {
      if (node.op != OpKind::kMoe) return Judgement::Other();
      for (const auto& [slot, role] : node.params) {
        if (graph.FindParam(role)->storage.per_expert) return Judgement::Fits();
      }
      return Judgement::Native();
    });
  }

  absl::Status Rewrite(const Site& site, const Observed&, Rewriter& rewriter) const override {
    const auto params = rewriter.graph().node(site.node).params;
    for (const auto& [slot, role] : params) {
      Storage storage = rewriter.graph().FindParam(role)->storage;
      storage.per_expert = false;
      rewriter.SetStorage(role, storage);
    }
    return absl::OkStatus();
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transform>> MakeStackExperts(const TransformStep&, const TransformContext&) {
  return std::make_unique<StackExpertsTransform>();
}

}  // namespace twinforge
