#include "proof/function.h"

#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "proof/algebra.h"
#include "proof/cut_out.h"
#include "proof/moduli.h"
#include "proof/shrink.h"
#include "proof/values.h"

namespace twinforge {
namespace {

constexpr uint64_t kSeed = 20260101;
// What keeps us from looking; any other failure of a twin whose source can be computed is the twin's fault.
constexpr int kTooLarge = 1902, kNoEvaluation = 1903;

std::string InWords(const absl::Status& status) {
  const std::optional<Diagnostic> d = DiagnosticOf(status);
  if (!d.has_value()) return std::string(status.message());
  return d->place.empty() ? d->message : absl::StrCat(d->place, ": ", d->message);
}

bool KeepsFromLooking(const absl::Status& status) {
  const std::optional<Diagnostic> d = DiagnosticOf(status);
  return d.has_value() && (d->code == kTooLarge || d->code == kNoEvaluation);
}

FunctionProof Incomplete(FunctionProof proof, std::string reason) {
  proof.verdict = Verdict::kIncomplete;
  proof.reason = std::move(reason);
  return proof;
}

void Locate(const StepTrace& trace, const Graph& twin, uint64_t seed, FunctionProof& proof) {
  absl::StatusOr<FaultPlace> place = LocateFault(trace, twin, seed);
  proof.fault = place.ok() ? *std::move(place) : FaultPlace{.what = InWords(place.status())};
  proof.smallest_case = SmallestCase(trace.graphs[0], twin, proof.fault->node, seed);
}

class FunctionProver {
 public:
  explicit FunctionProver(const FunctionRequest& request) : request_(request) {}

  FunctionProof Run() {
    std::set<std::string> left_out = IdleSteps();
    for (std::string& step : PurposefulSteps()) {
      left_out.insert(step);
      proof_.left_out.push_back(std::move(step));
    }
    if (StoredElements(request_.source.graph) > request_.computed_whole ||
        StoredElements(request_.twin) > 2 * request_.computed_whole)
      return OnShrunkModel(left_out);
    absl::StatusOr<StepTrace> trace = Trace(left_out, request_.source);
    if (!trace.ok()) return Incomplete(std::move(proof_), InWords(trace.status()));
    return Finish("the graphs themselves", *trace,
                  proof_.left_out.empty() ? request_.twin : trace->graphs.back());
  }

 private:
  absl::StatusOr<StepTrace> Trace(const std::set<std::string>& left_out, const Model& model) const {
    return TraceSteps(request_.recipe, request_.options, left_out, model);
  }

  // Steps that did nothing to this model: switched off, undone for the published config's sake, or without
  // a place.
  std::set<std::string> IdleSteps() const {
    std::set<std::string> idle;
    for (const RecipeStep& step : request_.recipe.steps) idle.insert(step.name);
    for (const StepReport& step : request_.report.steps) {
      if (!step.sites.empty()) idle.erase(step.step);
    }
    return idle;
  }

  // Steps whose name says that they change the function.
  std::vector<std::string> PurposefulSteps() const {
    std::vector<std::string> steps;
    for (const StepReport& step : request_.report.steps) {
      const bool merges = step.step.find(" merge_lora") != std::string::npos;
      if (!step.sites.empty() && (step.fidelity == Fidelity::kRetrain || merges)) steps.push_back(step.step);
    }
    return steps;
  }

  static Model MadeModel(const Graph& graph) {
    Model model;
    model.graph = graph;
    model.reader = std::make_shared<MadeTensors>(kSeed);
    return model;
  }

  // The model is cut to a few layers before anything else: of a large one no second graph is made.
  absl::StatusOr<ShrunkModel> Shrink(const std::set<std::string>& left_out) {
    const std::set<int64_t> layers = LayersOfEachKind(request_.source.graph, request_.twin);
    TWIN_ASSIGN_OR_RETURN(const Graph cut, Shrunk(request_.source.graph, {.layers = layers}));
    TWIN_ASSIGN_OR_RETURN(const StepTrace trace, Trace(left_out, MadeModel(cut)));
    const Graph& twin = proof_.left_out.empty() ? request_.twin : trace.graphs.back();
    const auto run = [&](const Graph& graph) -> absl::StatusOr<Graph> {
      TWIN_ASSIGN_OR_RETURN(StepTrace again, Trace(left_out, MadeModel(graph)));
      return std::move(again.graphs.back());
    };
    RecipeModuli moduli = ModuliOf(request_.recipe, request_.options.context.facts, trace);
    return ShrinkModel(
        {request_.source.graph, twin, layers, std::move(moduli.all), std::move(moduli.held), run});
  }

  FunctionProof OnShrunkModel(const std::set<std::string>& left_out) {
    absl::StatusOr<ShrunkModel> shrunk = Shrink(left_out);
    if (!shrunk.ok()) return Incomplete(std::move(proof_), InWords(shrunk.status()));
    proof_.on = absl::StrCat("a shrunk model: ", shrunk->text);
    const int64_t elements = StoredElements(shrunk->source);
    if (elements > kComputedShrunk) {
      return Incomplete(std::move(proof_), absl::StrCat("it still has ", elements, " elements; at most ",
                                                        kComputedShrunk, " are computed"));
    }
    absl::StatusOr<StepTrace> trace = Trace(left_out, MadeModel(shrunk->source));
    if (!trace.ok()) return Incomplete(std::move(proof_), InWords(trace.status()));
    const std::string on = proof_.on;
    return Finish(on, *trace, trace->graphs.back());
  }

  FunctionProof Finish(const std::string& on, const StepTrace& trace, const Graph& twin) {
    FunctionProof found = CompareAlongTrace(trace, twin, kSeed);
    found.on = on;
    found.left_out = std::move(proof_.left_out);
    found.computed_source = trace.graphs[0];
    found.computed_twin = twin;
    return found;
  }

  const FunctionRequest& request_;
  FunctionProof proof_;
};

}  // namespace

FunctionProof CompareAlongTrace(const StepTrace& trace, const Graph& twin, uint64_t seed) {
  FunctionProof proof;
  proof.tolerance = kSameInRealArithmetic;
  const absl::StatusOr<std::vector<ProofTrial>> trials = TrialsFor(trace.graphs[0], twin, seed);
  if (!trials.ok()) return Incomplete(std::move(proof), InWords(trials.status()));
  const absl::StatusOr<FunctionValues> source = ValuesOf(trace.graphs[0], *trials);
  if (!source.ok()) return Incomplete(std::move(proof), InWords(source.status()));
  const absl::StatusOr<FunctionValues> values = ValuesOf(twin, *trials);
  if (!values.ok() && KeepsFromLooking(values.status()))
    return Incomplete(std::move(proof), InWords(values.status()));
  if (!values.ok()) {
    proof.verdict = Verdict::kRefuted;
    proof.reason = absl::StrCat("the twin can't be computed: ", InWords(values.status()));
    Locate(trace, twin, seed, proof);
    return proof;
  }
  const FunctionDifference found = CompareOutputs(*trials, *source, *values);
  proof.values = found.values;
  proof.largest = found.largest;
  proof.reason = found.differs ? found.what : found.reason;
  proof.verdict = found.differs          ? Verdict::kRefuted
                  : found.reason.empty() ? Verdict::kProven
                                         : Verdict::kIncomplete;
  if (found.differs) Locate(trace, twin, seed, proof);
  return proof;
}

FunctionProof ProveFunction(const FunctionRequest& request) { return FunctionProver(request).Run(); }

}  // namespace twinforge
