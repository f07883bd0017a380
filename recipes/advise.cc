#include "recipes/advise.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "recipes/layout_term.h"
#include "recipes/rewrite_words.h"
#include "recipes/run.h"

namespace twinforge {
namespace {

constexpr size_t kBoundRung = 3;

// The rung that a transform is for (docs/cost.md); kernels and layouts where nothing else is said.
size_t RungOf(const std::string& transform) {
  static const auto& rungs = *new std::map<std::string, size_t>{
      {"cast_weights", 1},    {"pad_head_dim", 2}, {"pad_hidden", 2},    {"pad_vocab", 2},
      {"pad_ffn", 2},         {"pad_heads", 2},    {"group_experts", 2}, {"absorb_mla", 3},
      {"keep_n_of_m", 3},     {"merge_lora", 3},   {"shard_by_role", 5}, {"replicate_kv_heads", 2},
      {"lower_composites", 4}};
  const auto found = rungs.find(transform);
  return found == rungs.end() ? 4 : found->second;
}

std::string Words(const absl::Status& status) {
  const Diagnostic d = DiagnosticOf(status).value_or(Diagnostic());
  return absl::StrCat(d.place, ": ", d.message);
}

std::vector<RefusedPlaces> RefusedOf(const RecipeReport& report) {
  std::vector<RefusedPlaces> rows;
  for (const StepReport& step : report.steps) {
    for (const Refusal& refusal : step.refused) {
      const auto same = std::find_if(rows.begin(), rows.end(), [&](const RefusedPlaces& row) {
        return row.step == step.step && row.reason == refusal.reason;
      });
      if (same == rows.end())
        rows.push_back({step.step, refusal.reason, 1});
      else
        ++same->places;
    }
  }
  return rows;
}

// The kernel that serves: what it says of the head_dim before and after.
void NoteKernel(const std::string& kernel, const Graph& source, const Graph& twin, Advice& advice) {
  if (kernel != "paged") return;
  const auto head_dim = [](const Graph& graph) -> int64_t {
    for (const Node& node : graph.nodes()) {
      if (node.op == OpKind::kAttention && node.Has("q"))
        return graph.param(node, "q").type.Get("head_dim").size;
    }
    return 0;
  };
  const int64_t before = head_dim(source), after = head_dim(twin);
  if (KernelAccepts("paged_attention", before) != KernelAnswer::kRefuses || before == after) return;
  if (KernelAccepts("paged_attention", after) != KernelAnswer::kAccepts) return;
  advice.notes.push_back(absl::StrCat("paged attention refuses head_dim ", before, " and takes ", after));
}

std::string Changed(double ratio) {
  return ratio == 1 ? std::string("no change") : absl::StrFormat("%+.1f %% time", 100 * (1 / ratio - 1));
}

std::string CompilerText(const std::optional<int>& sign) {
  if (!sign) return "the compiler's word is unknown";
  return *sign < 0   ? "the compiler sees a gain"
         : *sign > 0 ? "the compiler sees a loss"
                     : "the compiler sees no change";
}

// Bound, estimate and compiler, in that order.
void Judge(Advice& advice) {
  const bool bound = *advice.gain_at_bounds >= 1;
  const bool layouts = advice.layout_gain && advice.layout_gain->low > 1;
  const bool estimate = advice.gain->low > 1 || layouts;
  const bool compiler = advice.compiler.value_or(0) <= 0;
  advice.verdict =
      bound && estimate && compiler ? AdviceVerdict::kRecommended : AdviceVerdict::kNotRecommended;
  advice.reason = absl::StrCat(
      "bounds: ", Changed(*advice.gain_at_bounds), "; estimate: ", Changed(advice.gain->mid),
      estimate || advice.gain->mid <= 1 ? "" : ", within its doubt",
      advice.layout_gain ? absl::StrCat(", with the compiler's word on layouts ",
                                        Changed(advice.layout_gain->mid), layouts ? "" : ", within its doubt")
                         : "",
      "; ", CompilerText(advice.compiler));
}

class Adviser {
 public:
  Adviser(const Model& model, const AdviceRequest& request) : model_(model), request_(request) {}

  Advice Of(const std::string& recipe, const absl::Status& source) const;

 private:
  absl::Status Try(const std::string& recipe, const absl::Status& source, Advice& advice) const;
  absl::Status Compare(const Graph& twin, const std::vector<size_t>& rungs, Advice& advice) const;
  void CountBytes(const Graph& twin, Advice& advice) const;

  const Model& model_;
  const AdviceRequest& request_;
};

// What both take of memory, whether or not it fits. A source whose sizes do not divide is not counted.
void Adviser::CountBytes(const Graph& twin, Advice& advice) const {
  const auto before = ScoreGraph(model_.graph, nullptr, request_.chip, request_.workload);
  const auto after = ScoreGraph(twin, &model_.graph, request_.chip, request_.workload);
  if (!before.ok() || !after.ok()) return;
  advice.parameter_bytes = after->parameter_bytes - before->parameter_bytes;
  advice.cache_bytes = after->cache_bytes - before->cache_bytes;
}

absl::Status Adviser::Compare(const Graph& twin, const std::vector<size_t>& rungs, Advice& advice) const {
  const AdviceRequest& r = request_;
  TWIN_ASSIGN_OR_RETURN(const StepGain gain,
                        StepGain::Of(model_.graph, twin, r.chip, r.workload, r.stack, r.format));
  for (const size_t rung : rungs) {
    if (advice.gain_at && gain.AtRung(rung) <= *advice.gain_at) continue;
    advice.gain_at = gain.AtRung(rung);
    advice.attacks = absl::StrCat("R", rung);
  }
  advice.gain_at_bounds = gain.AtRung(kBoundRung);
  advice.gain = gain.ratio();
  advice.twin_seconds = gain.twin().seconds.mid;
  // Neither a bound nor a fitted constant moves: what is left are layouts.
  if (*advice.gain_at_bounds == 1 && advice.gain->low == 1 && advice.gain->high == 1)
    advice.layout_gain = LayoutGain(advice.words, gain.twin());
  Judge(advice);
  if (r.against.empty()) return absl::OkStatus();
  const absl::StatusOr<StepGain> other =
      StepGain::Of(model_.graph, twin, r.against, r.workload, r.stack, r.format);
  if (other.ok())
    advice.asymmetry = CompareGains(gain, *other);
  else
    advice.notes.push_back(absl::StrCat("no asymmetry against ", r.against, ": ", Words(other.status())));
  return absl::OkStatus();
}

absl::Status Adviser::Try(const std::string& recipe, const absl::Status& source, Advice& advice) const {
  TwinTarget target{.chip = request_.chip, .shards = request_.workload.shards, .kernel = request_.kernel};
  TWIN_ASSIGN_OR_RETURN(const Twin twin, MakeTwin(recipe, target, model_));
  advice.recipe = twin.recipe.name;
  advice.fidelity = twin.report.fidelity;
  advice.rounding = twin.report.bound;
  advice.refused = RefusedOf(twin.report);
  std::vector<size_t> rungs;
  for (const StepReport& step : twin.report.steps) {
    advice.elements_added += step.elements_added;
    if (step.sites.empty()) continue;
    advice.steps.push_back(TransformOf(step));
    rungs.push_back(RungOf(advice.steps.back()));
  }
  std::sort(rungs.begin(), rungs.end());
  if (twin.report.sites == 0) {
    advice.verdict = AdviceVerdict::kNothingToDo;
    advice.reason = twin.report.refused > 0 ? "every place that it knows is refused" : "already native";
    return absl::OkStatus();
  }
  const Graph& graph = twin.model.graph;
  CountBytes(graph, advice);
  advice.words = WordsOf(twin.report, model_.graph, graph, request_);
  advice.compiler = SignOfWords(advice.words);
  NoteKernel(request_.kernel, model_.graph, graph, advice);
  if (source.ok()) return Compare(graph, rungs, advice);
  TWIN_ASSIGN_OR_RETURN(
      const Forecast forecast,
      ForecastStep(graph, &model_.graph, request_.chip, request_.workload, request_.stack, request_.format));
  advice.twin_seconds = forecast.seconds.mid;
  advice.attacks = absl::StrCat("R", rungs.front());
  advice.verdict = AdviceVerdict::kEnables;
  advice.reason =
      absl::StrCat("the chip refuses the model as it is (", Words(source), ") and takes the twin");
  return absl::OkStatus();
}

Advice Adviser::Of(const std::string& recipe, const absl::Status& source) const {
  Advice advice{.recipe = recipe};
  const absl::Status tried = Try(recipe, source, advice);
  if (tried.ok()) return advice;
  advice.verdict = AdviceVerdict::kRefused;
  advice.refusal = tried;
  advice.reason = Words(tried);
  return advice;
}

// Refusals that sizes or memory make, which another form of the model may lift.
bool MayBeLifted(const absl::Status& status) {
  const std::optional<Diagnostic> d = DiagnosticOf(status);
  return d && (d->code == 1702 || d->code == 1704 || d->code == 1712);
}

}  // namespace

absl::string_view Name(AdviceVerdict verdict) {
  switch (verdict) {
    case AdviceVerdict::kRecommended:
      return "recommended";
    case AdviceVerdict::kEnables:
      return "makes it run";
    case AdviceVerdict::kNotRecommended:
      return "not recommended";
    case AdviceVerdict::kNothingToDo:
      return "nothing to do";
    case AdviceVerdict::kRefused:
      return "refused";
  }
  return "";
}

absl::StatusOr<AdviceReport> Advise(const Model& model, const AdviceRequest& request) {
  if (!request.against.empty()) TWIN_RETURN_IF_ERROR(FindChip(request.against).status());
  AdviceReport report;
  const absl::StatusOr<Forecast> source =
      ForecastStep(model.graph, nullptr, request.chip, request.workload, request.stack, request.format);
  report.source = source.status();
  if (source.ok()) report.source_seconds = source->seconds.mid;
  if (!source.ok() && !MayBeLifted(source.status())) return source.status();
  std::vector<std::string> recipes;
  for (const LibraryRecipe& recipe : LibraryRecipes()) recipes.push_back(recipe.name);
  for (const std::string& recipe : request.recipes) {
    TWIN_RETURN_IF_ERROR(LoadRecipe(recipe).status());
    if (std::find(recipes.begin(), recipes.end(), recipe) == recipes.end()) recipes.push_back(recipe);
  }
  const Adviser adviser(model, request);
  for (const std::string& recipe : recipes) report.advice.push_back(adviser.Of(recipe, report.source));
  std::stable_sort(report.advice.begin(), report.advice.end(), [](const Advice& a, const Advice& b) {
    if (a.verdict != b.verdict) return a.verdict < b.verdict;
    if (a.gain && b.gain) return a.gain->mid > b.gain->mid;
    return a.twin_seconds && b.twin_seconds && *a.twin_seconds < *b.twin_seconds;
  });
  return report;
}

}  // namespace twinforge
