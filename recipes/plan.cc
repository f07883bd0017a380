#include "recipes/plan.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "recipes/select.h"
#include "transforms/transforms.pb.h"

namespace twinforge {
namespace {

// Every place that the transform has an opinion on.
std::vector<std::string> KnownPlaces(const Sites& sites) {
  std::vector<std::string> places;
  for (const Site& site : sites.fit) places.push_back(site.path);
  for (const Refusal& refusal : sites.refused) places.push_back(refusal.path);
  places.insert(places.end(), sites.native.begin(), sites.native.end());
  return places;
}

// "nothing matched" with the clause that excluded the most likely places.
absl::Status NothingSelected(const RecipeStep& step, const Graph& graph, const Selector& selector,
                             const std::vector<std::string>& places, absl::string_view transform) {
  if (places.empty()) {
    return Error(1105, step.place,
                 absl::StrCat("step ", step.name, ": this model has no place for ", transform),
                 "leave the step out, or write `expect: NONE`");
  }
  const std::string& path = step.parameters->where().path();
  std::string nearest = path.empty() ? places.front() : Nearest(path, places);
  if (nearest.empty()) nearest = places.front();
  return Error(
      1105, step.place,
      absl::StrCat("step ", step.name, ": `where` selects none of ", places.size(), " places; ",
                   selector.Excluded(graph, nearest)),
      absl::StrCat("nearest places: ",
                   absl::StrJoin(places.begin(), places.begin() + std::min<size_t>(places.size(), 4), ", ")));
}

absl::Status CheckExpectation(const RecipeStep& step, const Graph& graph, const Selector& selector,
                              const std::vector<std::string>& places, absl::string_view transform) {
  const Where& where = step.parameters->where();
  const int64_t selected = std::count_if(
      places.begin(), places.end(), [&](const std::string& place) { return selector.Selects(graph, place); });
  const int64_t known = static_cast<int64_t>(places.size());
  const auto unmet = [&](absl::string_view expected) {
    return Error(1109, step.place,
                 absl::StrCat("step ", step.name, ": expected ", expected, ", `where` selects ", selected,
                              " of ", known, " places"));
  };
  switch (where.expect()) {
    case Where::ALL:
      return selected == known && known > 0 ? absl::OkStatus() : unmet("all");
    case Where::NONE:
      return selected == 0 ? absl::OkStatus() : unmet("none");
    case Where::COUNT:
      return selected == where.count() ? absl::OkStatus() : unmet(absl::StrCat(where.count()));
    default:
      if (selected > 0 || selector.selects_all()) return absl::OkStatus();
      return NothingSelected(step, graph, selector, places, transform);
  }
}

// A step all of whose places an earlier step of the same transform already rewrote does nothing.
absl::Status CheckShadow(const RecipeStep& step, const StepReport& report,
                         const std::map<std::string, StepReport>& earlier, absl::string_view transform) {
  const auto found = earlier.find(std::string(transform));
  if (found == earlier.end() || !report.sites.empty() || !report.refused.empty() || report.native.empty()) {
    return absl::OkStatus();
  }
  for (const std::string& place : report.native) {
    const std::vector<std::string>& done = found->second.sites;
    if (std::find(done.begin(), done.end(), place) == done.end()) return absl::OkStatus();
  }
  return Error(1106, step.place,
               absl::StrCat("step ", step.name, " does nothing: step ", found->second.step,
                            " already rewrote all of its places"),
               "remove the step, or put it before the other");
}

bool IsDisabled(const RecipeOptions& options, const RecipeStep& step, absl::string_view transform) {
  const std::string position = step.name.substr(0, step.name.find(' '));
  return options.disabled.count(std::string(transform)) > 0 || options.disabled.count(position) > 0;
}

// Streams a wanted program, whole: its result is small by contract.
absl::StatusOr<std::vector<double>> Observe(const Model& model, const WeightPtr& program) {
  if (!model.has_bytes()) {
    return Error(1003, "--from-config", "the step must look at values, and a config alone has none",
                 "open the checkpoint instead of its config");
  }
  std::vector<std::byte> bytes(program->element_count() * ElementBytes(program->dtype()));
  Scratch scratch;
  TWIN_RETURN_IF_ERROR(Read(program, WholeBox(program->shape()), *model.reader, bytes.data(), scratch));
  std::vector<double> values(program->element_count());
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = ToDouble(program->dtype(), bytes.data() + i * ElementBytes(program->dtype()));
  }
  return values;
}

// `before` is the graph as `graph` still is when this begins: what `where` selects from.
absl::StatusOr<StepReport> RunStep(const RecipeStep& step, const Transform& transform, const Model& model,
                                   Fidelity require, const Graph& before, Graph& graph) {
  const Selector selector(step.parameters->where());
  const Sites sites = transform.FindSites(graph);
  if (step.parameters->where().expect() != Where::NONE)
    TWIN_RETURN_IF_ERROR(WithPlace(transform.CheckNames(graph), step.place));
  TWIN_RETURN_IF_ERROR(CheckExpectation(step, graph, selector, KnownPlaces(sites), transform.name()));
  const auto selected = [&](const Site& site) { return selector.Selects(before, site.path); };
  const auto observe = [&](const WeightPtr& program) { return Observe(model, program); };
  absl::StatusOr<StepReport> report = Apply(transform, step.name, graph, selected, observe, require);
  if (!report.ok()) return WithPlace(report.status(), step.place);
  const auto excluded = [&](absl::string_view path) { return !selector.Selects(before, path); };
  auto& refused = report->refused;
  refused.erase(
      std::remove_if(refused.begin(), refused.end(), [&](const Refusal& r) { return excluded(r.path); }),
      refused.end());
  auto& native = report->native;
  native.erase(std::remove_if(native.begin(), native.end(), excluded), native.end());
  return report;
}

}  // namespace

namespace {

// A step after which the target's config can no longer be said is undone; its places are refused with that
// reason.
StepReport Undone(StepReport report, const absl::Status& why) {
  const Diagnostic d = DiagnosticOf(why).value_or(Diagnostic());
  for (const std::string& path : report.sites)
    report.refused.push_back({path, d.message.empty() ? std::string(why.message()) : d.message});
  report.sites.clear();
  report.fidelity = Fidelity::kMoved;
  report.bound = 0;
  report.elements_added = 0;
  return report;
}

}  // namespace

std::vector<std::string> StepLines(const RecipeReport& report) {
  std::vector<std::string> lines;
  for (const StepReport& step : report.steps) {
    lines.push_back(absl::StrCat(step.step, ": ", step.sites.size(), " rewritten, ", step.refused.size(),
                                 " refused, ", step.native.size(), " native"));
  }
  return lines;
}

absl::Status CheckSkipped(const LoadedRecipe& recipe, const RecipeOptions& options) {
  for (const std::string& word : options.disabled) {
    std::vector<std::string> known;
    for (const RecipeStep& step : recipe.steps) {
      const size_t space = step.name.find(' ');
      known.push_back(step.name.substr(0, space));
      known.push_back(step.name.substr(space + 1));
    }
    if (std::find(known.begin(), known.end(), word) != known.end()) continue;
    const std::string nearest = Nearest(word, known);
    return Error(1111, "--skip-step", absl::StrCat("the recipe ", recipe.name, " has no step \"", word, "\""),
                 nearest.empty() ? "`twinforge recipe check` lists its steps"
                                 : absl::StrCat("did you mean \"", nearest, "\"?"));
  }
  return absl::OkStatus();
}

RecipeRun::RecipeRun(const Model& model, const RecipeOptions& options, Fidelity require)
    : model_(&model), options_(&options), require_(require), graph_(model.graph) {}

absl::Status RecipeRun::Add(const RecipeStep& step) {
  TWIN_ASSIGN_OR_RETURN(std::unique_ptr<Transform> transform,
                        MakeTransform(*step.parameters, options_->context));
  if (IsDisabled(*options_, step, transform->name())) return absl::OkStatus();
  const Graph before = graph_;
  TWIN_ASSIGN_OR_RETURN(StepReport report, RunStep(step, *transform, *model_, require_, before, graph_));
  if (options_->sayable && !report.sites.empty()) {
    if (const absl::Status said = options_->sayable(graph_); !said.ok()) {
      graph_ = before;
      report = Undone(std::move(report), said);
    }
  }
  TWIN_RETURN_IF_ERROR(CheckShadow(step, report, earlier_, transform->name()));
  if (!report.sites.empty()) {
    report_.fidelity = std::min(report_.fidelity, report.fidelity);
    report_.bound = JoinBounds(report_.bound, report.bound);
    earlier_[std::string(transform->name())] = report;
  }
  report_.sites += static_cast<int64_t>(report.sites.size());
  report_.refused += static_cast<int64_t>(report.refused.size());
  report_.steps.push_back(std::move(report));
  return absl::OkStatus();
}

absl::StatusOr<RecipeReport> RunRecipe(const LoadedRecipe& recipe, const RecipeOptions& options,
                                       Model& model) {
  if (!recipe.sweeps.empty())
    return Error(1114, recipe.sweeps[0].place, "the recipe has a sweep, and one twin is made at a time",
                 "`twinforge score --sweep` scores every combination; write down the one that you choose");
  TWIN_RETURN_IF_ERROR(CheckRecipe(recipe, options.context));
  TWIN_RETURN_IF_ERROR(CheckSkipped(recipe, options));
  RecipeRun run(model, options, recipe.require);
  for (const RecipeStep& step : recipe.steps) TWIN_RETURN_IF_ERROR(run.Add(step));
  model.graph = run.graph();
  return run.report();
}

}  // namespace twinforge
