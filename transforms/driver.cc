// Applies one transform to a graph: snapshot the sites, rewrite each once, verify.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "ir/verify.h"
#include "transforms/transform.h"

namespace twinforge {
namespace {

using Selected = std::function<bool(const Site&)>;

// The node that a path or a role belongs to.
class Owners {
 public:
  explicit Owners(const Graph& graph) : graph_(graph) {
    for (const Node& node : graph.nodes()) {
      for (const auto& [slot, role] : node.params) nodes_.emplace(role, node.id);
    }
  }
  // -1 where the graph has no such place (an adapter for a layer that is not there).
  NodeId Of(const std::string& path) const {
    if (const Node* node = graph_.FindNode(path)) return node->id;
    const auto found = nodes_.find(path);
    return found == nodes_.end() ? -1 : found->second;
  }

 private:
  const Graph& graph_;
  absl::flat_hash_map<std::string, NodeId> nodes_;
};

// What was refused or native outside the selection is nobody's business.
void FileUnchanged(const Graph& graph, const Sites& sites, const Selected& selected, StepReport& report) {
  const Owners owners(graph);
  auto wanted = [&](const std::string& path) {
    if (!selected) return true;
    const NodeId node = owners.Of(path);
    return node < 0 || selected({node, path});
  };
  for (const Refusal& refusal : sites.refused) {
    if (wanted(refusal.path)) report.refused.push_back(refusal);
  }
  for (const std::string& path : sites.native) {
    if (wanted(path)) report.native.push_back(path);
  }
}

absl::StatusOr<Observed> Observe(const std::map<std::string, WeightPtr>& wants, const Observer& observe) {
  Observed observed;
  for (const auto& [name, program] : wants) {
    TWIN_ASSIGN_OR_RETURN(observed[name], observe(program));
  }
  return observed;
}

// One site. A refusal that only the values can tell is filed as one; a failure of reading is an error.
absl::Status RewriteSite(const Transform& transform, const Site& site, const Observer& observe,
                         Rewriter& rewriter, StepReport& report) {
  const auto wants = transform.Wants(rewriter.graph(), site);
  if (!wants.empty() && !observe) {
    report.refused.push_back({site.path, "it depends on the weights' values, and they are not at hand"});
    return absl::OkStatus();
  }
  TWIN_ASSIGN_OR_RETURN(const Observed observed, Observe(wants, observe));
  const Fidelity fidelity = transform.SiteFidelity(rewriter.graph(), site);
  const double bound = transform.SiteBound(rewriter.graph(), site);
  const absl::Status status = transform.Rewrite(site, observed, rewriter);
  if (absl::IsFailedPrecondition(status) && !DiagnosticOf(status)) {
    report.refused.push_back({site.path, std::string(status.message())});
    return absl::OkStatus();
  }
  TWIN_RETURN_IF_ERROR(status);
  report.fidelity = std::min(report.fidelity, fidelity);
  report.bound = std::max(report.bound, bound);
  report.sites.push_back(site.path);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StepReport> Apply(const Transform& transform, absl::string_view step, Graph& graph,
                                 const Selected& selected, const Observer& observe) {
  StepReport report;
  report.step = std::string(step);
  const Sites sites = transform.FindSites(graph);
  FileUnchanged(graph, sites, selected, report);
  std::vector<Site> chosen;
  for (const Site& site : sites.fit) {
    if (!selected || selected(site)) chosen.push_back(site);
  }
  if (chosen.empty()) return report;

  // A copy is cheap (programs are shared) and leaves the caller's graph whole when a site fails half-way.
  Graph changed = graph;
  Rewriter rewriter(changed, std::string(step));
  for (const Site& site : chosen) {
    TWIN_RETURN_IF_ERROR(RewriteSite(transform, site, observe, rewriter, report));
  }
  if (!rewriter.changed()) return report;
  rewriter.InferTypes();
  TWIN_RETURN_IF_ERROR(Verify(changed));
  report.elements_added = StoredElements(changed) - StoredElements(graph);
  graph = std::move(changed);
  return report;
}

}  // namespace twinforge
