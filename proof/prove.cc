#include "proof/prove.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "proof/departure.h"
#include "proof/layers.h"
#include "proof/plan_again.h"
#include "proof/recipe_again.h"

namespace twinforge {
namespace {

constexpr uint64_t kThreeWaySeed = 20260102;

Verdict Worse(Verdict a, Verdict b) {
  if (a == Verdict::kRefuted || b == Verdict::kRefuted) return Verdict::kRefuted;
  return a == Verdict::kIncomplete || b == Verdict::kIncomplete ? Verdict::kIncomplete : Verdict::kProven;
}

// The block that has `role`, or nullptr.
const Node* OwnerOf(const Graph& graph, absl::string_view role) {
  for (const Node& node : graph.nodes()) {
    for (const auto& [slot, own] : node.params) {
      if (own == role) return &node;
    }
  }
  return nullptr;
}

FaultPlace PlaceOf(const Node& node, std::string role, std::string what) {
  FaultPlace place;
  place.step = node.step;
  place.layer = LayerName(node.path);
  place.node = node.path;
  place.role = std::move(role);
  place.what = std::move(what);
  return place;
}

FaultPlace PlaceOf(const GraphDeparture& odd, absl::string_view what) {
  return PlaceOf(odd.node, odd.role, absl::StrCat(what, odd.what.empty() ? "" : ": ", odd.what));
}

class TwinProver {
 public:
  explicit TwinProver(TwinProofRequest request) : request_(std::move(request)) {}

  absl::StatusOr<TwinProof> Run() {
    again_ = RunRecipeAgain(request_.manifest, request_.adapters, request_.source);
    absl::StatusOr<Graph> graph = ParseGraph(request_.manifest.graph);
    if (graph.ok() && Verify(*graph).ok()) twin_ = *std::move(graph);
    ProveAlgebra();
    if (again_.twin) {  // with the adapters' tensors
      request_.source.sources = again_.twin->model.sources;
      request_.source.reader = again_.twin->model.reader;
    }
    TWIN_ASSIGN_OR_RETURN(proof_.rows, Prove(request_.source, request_.manifest, request_.stored,
                                             request_.options, request_.progress));
    for (ProofRow& row : again_.rows) AddProofRow(std::move(row), proof_.rows);
    if (again_.twin) {
      for (ProofRow& row : PlanAgain(request_.manifest, again_.twin->model, request_.stored.root))
        AddProofRow(std::move(row), proof_.rows);
    }
    for (const ProofRow& row : proof_.rows.rows) {
      Verdict& part = IsStructure(row.check) ? proof_.structure : proof_.bytes;
      part = Worse(part, row.verdict);
    }
    TWIN_RETURN_IF_ERROR(ProveClaims());
    proof_.verdict =
        Worse(Worse(proof_.structure, proof_.bytes), Worse(proof_.algebra.verdict, proof_.claims.verdict));
    if (proof_.verdict == Verdict::kRefuted) proof_.fault = FindFault();
    return std::move(proof_);
  }

 private:
  void ProveAlgebra() {
    if (!twin_) {
      proof_.algebra.reason = "the manifest's graph is not well formed";
      return;
    }
    if (again_.twin) {
      const Twin& twin = *again_.twin;
      proof_.algebra = ProveFunction({request_.source, *twin_, twin.recipe, twin.options, twin.report});
      return;
    }
    for (const ProofRow& row : again_.rows) {
      if (row.verdict != Verdict::kIncomplete) continue;
      proof_.algebra.reason = row.detail;
      return;
    }
    const int64_t elements = StoredElements(request_.source.graph);
    if (elements > kComputedWhole) {
      proof_.algebra.reason =
          "the recipe does not run on the source, which is too large to be computed as it is";
      return;
    }
    StepTrace trace;
    trace.graphs.push_back(request_.source.graph);
    proof_.algebra = CompareAlongTrace(trace, *twin_, kThreeWaySeed);
    proof_.algebra.on = "the graphs themselves";
  }

  absl::Status ProveClaims() {
    RoundingProof& claims = proof_.claims;
    claims.bound = again_.twin ? again_.twin->report.bound : 0;
    if (!request_.source.has_bytes()) {
      claims.reason = "the source was opened from a config alone";
      return absl::OkStatus();
    }
    if (proof_.structure == Verdict::kRefuted || proof_.algebra.verdict == Verdict::kRefuted) {
      claims.reason = "the twin is refuted before its rounding matters";
      return absl::OkStatus();
    }
    if (const std::string missing = MissingSource(); !missing.empty()) {
      claims.reason = absl::StrCat("the twin reads ", missing, ", which the source does not have");
      return absl::OkStatus();
    }
    TWIN_ASSIGN_OR_RETURN(claims.rounded,
                          MeasureRounding(request_.manifest.tensors, *request_.source.reader));
    claims.verdict = Verdict::kProven;
    for (RoundedTensor& tensor : claims.rounded) {
      if (again_.twin) HoldAgainstClaim(claims.bound, tensor);
      if (claims.verdict == Verdict::kProven && tensor.verdict != Verdict::kProven)
        claims.reason = absl::StrCat(tensor.name, ": ", tensor.detail);
      claims.verdict = Worse(claims.verdict, tensor.verdict);
    }
    if (proof_.algebra.verdict != Verdict::kProven) return absl::OkStatus();
    const FunctionProof& algebra = proof_.algebra;
    claims.three_way = CompareThreeWays(algebra.computed_source, algebra.computed_twin, kThreeWaySeed);
    claims.verdict = Worse(claims.verdict, claims.three_way.verdict);
    if (claims.reason.empty()) claims.reason = claims.three_way.reason;
    return absl::OkStatus();
  }

  // A bound is joined step by step, a tensor's from its whole program: the last bits may differ.
  static void HoldAgainstClaim(double bound, RoundedTensor& tensor) {
    if (tensor.verdict != Verdict::kProven || tensor.claimed <= bound * (1 + 1e-12)) return;
    tensor.verdict = Verdict::kRefuted;
    tensor.detail = absl::StrCat("its roundings may take ", tensor.claimed, " of its magnitude, and ", bound,
                                 " is claimed");
  }

  // A tensor that programs read and that is not at hand: an adapter's, where none was given. "" if all are.
  std::string MissingSource() const {
    std::set<std::string> there;
    for (const SourceTensor& tensor : request_.source.sources) there.insert(tensor.name);
    for (const ManifestTensor& tensor : request_.manifest.tensors) {
      for (const std::string& name : SourcesOf(tensor.program)) {
        if (there.count(name) == 0) return name;
      }
    }
    return "";
  }

  std::optional<FaultPlace> FindFault() const {
    if (proof_.algebra.fault) return proof_.algebra.fault;
    std::optional<FaultPlace> place = FaultOfGraph();
    for (const ProofRow& row : proof_.rows.rows) {
      if (place || row.verdict != Verdict::kRefuted) continue;
      place = FaultOfTensor(row);
    }
    for (const ProofRow& row : proof_.rows.rows) {
      if (place || row.verdict != Verdict::kRefuted) continue;
      place = FaultPlace{.what = absl::StrCat(row.check, ": ", row.subject, ": ", row.detail)};
    }
    for (const RoundedTensor& tensor : proof_.claims.rounded) {
      if (!place && tensor.verdict == Verdict::kRefuted)
        place = FaultOfTensor({"claims", tensor.name, Verdict::kRefuted, tensor.detail});
    }
    if (!place) place = FaultPlace{.what = proof_.claims.reason};
    return place;
  }

  // The first block in which the recorded graph is not what the recipe makes, or the recorded source graph
  // not the source's.
  std::optional<FaultPlace> FaultOfGraph() const {
    if (twin_ && again_.twin) {
      const std::optional<GraphDeparture> odd = FirstDeparture(*twin_, again_.twin->model.graph);
      if (odd) return PlaceOf(*odd, "the recipe makes another of it");
    }
    const absl::StatusOr<Graph> said = ParseGraph(request_.manifest.provenance.source_graph);
    if (!said.ok() || !Verify(*said).ok()) return std::nullopt;
    const std::optional<GraphDeparture> odd = FirstDeparture(*said, request_.source.graph);
    if (!odd) return std::nullopt;
    return PlaceOf(*odd, "the manifest's source_graph has another of it than the source");
  }

  // A row about a tensor of the twin, or about one of the source that the twin holds.
  std::optional<FaultPlace> FaultOfTensor(const ProofRow& row) const {
    if (!twin_) return std::nullopt;
    for (const ManifestTensor& tensor : request_.manifest.tensors) {
      const std::vector<std::string> sources = SourcesOf(tensor.program);
      const bool holds = std::find(sources.begin(), sources.end(), row.subject) != sources.end();
      if ((tensor.name != row.subject && !holds) || tensor.roles.empty()) continue;
      const Node* node = OwnerOf(*twin_, tensor.roles[0]);
      if (node != nullptr)
        return PlaceOf(*node, tensor.roles[0], absl::StrCat(row.subject, ": ", row.detail));
    }
    return std::nullopt;
  }

  TwinProofRequest request_;
  RecipeAgain again_;
  std::optional<Graph> twin_;
  TwinProof proof_;
};

}  // namespace

bool IsStructure(absl::string_view check) { return check == "structure" || check == "recipe"; }

absl::StatusOr<TwinProof> ProveTwin(TwinProofRequest request) { return TwinProver(std::move(request)).Run(); }

}  // namespace twinforge
