// Applies one transform to a graph: snapshot the sites, rewrite each once, verify.
#include <algorithm>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "ir/verify.h"
#include "transforms/transform.h"
#include "weights/rounding.h"

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

// How far off the roundings put a weight that the site's programs make, beyond what they did before it.
double BoundOfChanges(const Rewriter& rewriter, size_t first) {
  double bound = 0;
  const auto& changes = rewriter.program_changes();
  for (size_t i = first; i < changes.size(); ++i) {
    const Param* param = rewriter.graph().FindParam(changes[i].role);
    const WeightPtr program = changes[i].announced != nullptr ? changes[i].announced
                              : param != nullptr              ? param->program
                                                              : nullptr;
    if (program == nullptr) continue;
    const Roundings after = StatedRoundings(program);
    if (after.narrower_than_f64() == 0) continue;
    Roundings before;
    if (changes[i].before != nullptr) before = StatedRoundings(changes[i].before);
    bound = std::max(bound, after.Beyond(before).Bound());
  }
  return bound;
}

// Sites that claim less than the recipe requires; once one is found the attempt is thrown away.
struct Requirement {
  Fidelity fidelity;
  std::vector<Refusal> missed;
};

std::string WhyTooWeak(Fidelity claim, double bound, Fidelity required) {
  return absl::StrCat("what is computed there is rounded", bound > 0 ? " within " : "", BoundText(bound),
                      " when it is stored again, ", FidelityName(claim), ", and the recipe requires ",
                      FidelityName(required), ": `require: ", FidelityName(claim), "` allows it");
}

// One site. A refusal that only the values can tell is filed as one; a failure of reading is an error.
absl::Status RewriteSite(const Transform& transform, const Site& site, const Observer& observe,
                         Rewriter& rewriter, StepReport& report, Requirement& require) {
  const auto wants = transform.Wants(rewriter.graph(), site);
  if (!wants.empty() && !observe) {
    report.refused.push_back({site.path, "it depends on the weights' values, and they are not at hand"});
    return absl::OkStatus();
  }
  TWIN_ASSIGN_OR_RETURN(const Observed observed, Observe(wants, observe));
  Fidelity fidelity = transform.SiteFidelity(rewriter.graph(), site);
  const size_t first_change = rewriter.program_changes().size();
  const absl::Status status = transform.Rewrite(site, observed, rewriter);
  if (absl::IsFailedPrecondition(status) && !DiagnosticOf(status)) {
    report.refused.push_back({site.path, std::string(status.message())});
    return absl::OkStatus();
  }
  TWIN_RETURN_IF_ERROR(status);
  const double bound = fidelity == Fidelity::kRetrain ? 0 : BoundOfChanges(rewriter, first_change);
  if (bound > 0) fidelity = std::min(fidelity, Fidelity::kBounded);
  if (fidelity < require.fidelity)
    require.missed.push_back({site.path, WhyTooWeak(fidelity, bound, require.fidelity)});
  report.fidelity = std::min(report.fidelity, fidelity);
  report.bound = std::max(report.bound, bound);
  report.sites.push_back(site.path);
  return absl::OkStatus();
}

// The parameters of a stored tensor: a bundle's members, or the one.
std::vector<std::string> RolesOf(const Graph& graph, const std::string& tensor) {
  for (const Bundle& bundle : graph.bundles()) {
    if (bundle.role == tensor) return bundle.members;
  }
  return {tensor};
}

// ---- what spans layers and devices

// Parameters that a step changed out of step with the rest of their stack, or to a size that their shards do
// not divide; each with the reason. A site alone can't know: which of its likes are chosen, it does not see.
std::map<std::string, std::string> Torn(const Graph& graph) {
  std::map<std::string, std::string> torn;
  for (const auto& [role, param] : graph.params()) {
    for (const ParamAxis& axis : param.type.axes) {
      if (axis.size % axis.shards == 0) continue;
      torn[role] = absl::StrCat(axis.name, " ", axis.size, " of ", role, " would not divide over its ",
                                axis.shards, " shards");
    }
  }
  for (const Bundle& bundle : graph.bundles()) {
    const std::optional<Diagnostic> fault = DiagnosticOf(VerifyBundle(graph, bundle));
    for (const std::string& role : bundle.members) {
      if (fault) torn[role] = absl::StrCat("it lies fused in ", bundle.role, ", and ", fault->message);
    }
  }
  for (const LayerStack& stack : graph.stacks()) {
    std::vector<std::vector<std::string>> layers;
    for (const std::string& member : stack.members) layers.push_back(RolesOf(graph, member));
    bool alike = true;
    for (const std::vector<std::string>& roles : layers) {
      for (size_t i = 0; i < roles.size(); ++i) {
        const Param& first = *graph.FindParam(layers[0][i]);
        const Param& param = *graph.FindParam(roles[i]);
        alike = alike && first.type == param.type && first.storage == param.storage;
      }
    }
    for (const std::vector<std::string>& roles : layers) {
      for (const std::string& role : roles) {
        if (!alike) torn.emplace(role, absl::StrCat("only some layers of ", stack.role, " would change"));
      }
    }
  }
  return torn;
}

// The sites that tear nothing; the others are refused. One that changes the whole graph answers for all of
// it.
std::vector<Site> WithoutTorn(const Graph& graph, const std::map<std::string, std::string>& torn,
                              std::vector<Site> chosen, StepReport& report) {
  std::vector<Site> whole;
  const size_t refused = report.refused.size();
  for (Site& site : chosen) {
    std::string reason;
    if (const auto own = torn.find(site.path); own != torn.end()) reason = own->second;
    if (graph.FindParam(site.path) == nullptr || graph.FindNode(site.path) != nullptr) {
      for (const auto& [slot, role] : graph.node(site.node).params) {
        if (const auto found = torn.find(role); reason.empty() && found != torn.end()) reason = found->second;
      }
    }
    if (reason.empty()) {
      whole.push_back(std::move(site));
    } else {
      report.refused.push_back({site.path, std::move(reason)});
    }
  }
  if (report.refused.size() > refused) return whole;
  for (const Site& site : whole) report.refused.push_back({site.path, torn.begin()->second});
  return {};
}

// Both in the order of the sites.
std::vector<Site> WithoutMissed(std::vector<Site> chosen, const std::vector<Refusal>& missed) {
  size_t next = 0;
  const auto is_next = [&](const Site& site) {
    const bool is = next < missed.size() && missed[next].path == site.path;
    next += is ? 1 : 0;
    return is;
  };
  chosen.erase(std::remove_if(chosen.begin(), chosen.end(), is_next), chosen.end());
  return chosen;
}

}  // namespace

absl::StatusOr<StepReport> Apply(const Transform& transform, absl::string_view step, Graph& graph,
                                 const Selected& selected, const Observer& observe, Fidelity require) {
  StepReport report;
  report.step = std::string(step);
  const Sites sites = transform.FindSites(graph);
  FileUnchanged(graph, sites, selected, report);
  std::vector<Site> chosen;
  for (const Site& site : sites.fit) {
    if (!selected || selected(site)) chosen.push_back(site);
  }
  while (!chosen.empty()) {
    // A copy is cheap (programs are shared) and leaves the caller's graph whole when a site fails half-way.
    Graph changed = graph;
    StepReport attempt = report;
    Rewriter rewriter(changed, std::string(step));
    Requirement required{require, {}};
    for (const Site& site : chosen) {
      TWIN_RETURN_IF_ERROR(RewriteSite(transform, site, observe, rewriter, attempt, required));
    }
    if (!required.missed.empty()) {
      chosen = WithoutMissed(std::move(chosen), required.missed);
      report.refused.insert(report.refused.end(), required.missed.begin(), required.missed.end());
      continue;
    }
    if (!rewriter.changed()) return attempt;
    TWIN_RETURN_IF_ERROR(rewriter.Rebuild());
    if (const auto torn = Torn(changed); !torn.empty()) {
      chosen = WithoutTorn(graph, torn, std::move(chosen), report);
      continue;
    }
    rewriter.InferTypes();
    TWIN_RETURN_IF_ERROR(Verify(changed));
    attempt.elements_added = StoredElements(changed) - StoredElements(graph);
    graph = std::move(changed);
    return attempt;
  }
  return report;
}

}  // namespace twinforge
