#include "recipes/sweep.h"

#include <algorithm>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "cost/pareto.h"

namespace twinforge {
namespace {

using Choice = std::vector<size_t>;

// Number `at` in mixed radix, the first axis slowest.
Choice ChoiceAt(const std::vector<SweepAxis>& axes, int64_t at) {
  Choice choice(axes.size());
  for (size_t i = axes.size(); i-- > 0;) {
    const int64_t values = static_cast<int64_t>(axes[i].values.size());
    choice[i] = static_cast<size_t>(at % values);
    at /= values;
  }
  return choice;
}

double Tokens(const Workload& workload) {
  const double batch = static_cast<double>(workload.batch);
  return workload.phase == Phase::kDecode ? batch : batch * static_cast<double>(workload.context);
}

// Twins of one number of shards, made in the order of their numbers: steps that the last one shares are kept.
class TwinMaker {
 public:
  TwinMaker(const Model& model, const SweptRecipe& recipe, const RecipeOptions& options) : recipe_(recipe) {
    runs_.push_back(std::make_shared<const RecipeRun>(model, options, recipe.recipe().require));
  }

  absl::StatusOr<std::shared_ptr<const RecipeRun>> Of(const Choice& choice) {
    const size_t shared = last_.empty() ? 0 : recipe_.SharedSteps(last_, choice);
    runs_.resize(std::min(runs_.size(), shared + 1));
    TWIN_ASSIGN_OR_RETURN(const auto steps, recipe_.Steps(choice));
    last_ = choice;
    while (runs_.size() <= steps.size()) {
      const RecipeStep* step = steps[runs_.size() - 1].get();
      auto run = runs_.back();
      if (step != nullptr && run.ok()) run = After(**run, *step);
      runs_.push_back(std::move(run));
    }
    return runs_.back();
  }

 private:
  static absl::StatusOr<std::shared_ptr<const RecipeRun>> After(const RecipeRun& before,
                                                                const RecipeStep& step) {
    auto run = std::make_shared<RecipeRun>(before);
    TWIN_RETURN_IF_ERROR(run->Add(step));
    return run;
  }

  const SweptRecipe& recipe_;
  Choice last_;
  std::vector<absl::StatusOr<std::shared_ptr<const RecipeRun>>> runs_;  // after so many steps
};

class Sweeper {
 public:
  // `base`: of any number of shards.
  Sweeper(const Model& model, const SweptRecipe& recipe, const RecipeOptions& base,
          const SweepQuestion& question)
      : model_(model), recipe_(recipe), base_(base), question_(question) {}

  absl::StatusOr<SweepReport> Run();

 private:
  // A step of the question, with what the source takes: what gains are gains over.
  struct Source {
    absl::StatusOr<double> here = 0.0;
    absl::StatusOr<double> there = 0.0;
  };
  // Variants of one choice of the recipe's keys on the steps of one number of shards.
  struct Group {
    int64_t shards = 1;
    int64_t recipe = 0;  // the choice's number
  };

  absl::StatusOr<double> SecondsOf(const Graph& graph, const std::string& chip, const SweptStep& step) const;
  absl::Status Prepare();
  void RunGroups(size_t first, size_t last);
  void RunGroup(const Group& group, const absl::StatusOr<std::shared_ptr<const RecipeRun>>& run);
  absl::Status Score(const RecipeRun& run, size_t step, Variant& variant) const;
  std::vector<double> Point(const Variant& variant) const;
  void AddBest(SweepReport& report) const;

  const Model& model_;
  const SweptRecipe& recipe_;
  const RecipeOptions& base_;
  const SweepQuestion& question_;
  std::map<int64_t, RecipeOptions> options_;  // by shards
  std::vector<Source> sources_;               // by step
  std::vector<Group> groups_;
  std::vector<Variant> variants_;
};

absl::StatusOr<double> Sweeper::SecondsOf(const Graph& graph, const std::string& chip,
                                          const SweptStep& step) const {
  TWIN_ASSIGN_OR_RETURN(const Forecast forecast, ForecastStep(graph, &model_.graph, chip, step.workload,
                                                              question_.stack, step.format));
  return forecast.seconds.mid;
}

absl::Status Sweeper::Prepare() {
  TWIN_ASSIGN_OR_RETURN(const int64_t choices, CountVariants(recipe_.axes()));
  std::vector<SweepAxis> axes = recipe_.axes();
  axes.insert(axes.end(), question_.step_axes.begin(), question_.step_axes.end());
  TWIN_ASSIGN_OR_RETURN(const int64_t variants, CountVariants(axes));
  variants_.resize(static_cast<size_t>(variants));
  for (size_t i = 0; i < variants_.size(); ++i) variants_[i].number = static_cast<int64_t>(i);
  for (const SweptStep& step : question_.steps) {
    sources_.emplace_back();
    if (!step.refused.ok()) continue;
    sources_.back().here = SecondsOf(model_.graph, question_.target.chip, step);
    if (!question_.against.empty()) sources_.back().there = SecondsOf(model_.graph, question_.against, step);
    TwinTarget target = question_.target;
    target.shards = step.workload.shards;
    if (options_.count(target.shards) > 0) continue;
    RecipeOptions options = base_;
    TWIN_ASSIGN_OR_RETURN(options.context.facts, FactsFor(target));
    options_.emplace(target.shards, std::move(options));
  }
  for (const auto& [shards, options] : options_) {
    for (int64_t i = 0; i < choices; ++i) groups_.push_back({shards, i});
  }
  return absl::OkStatus();
}

absl::Status Sweeper::Score(const RecipeRun& run, size_t step, Variant& variant) const {
  const SweptStep& asked = question_.steps[step];
  const Workload& workload = asked.workload;
  TWIN_ASSIGN_OR_RETURN(const Forecast forecast,
                        ForecastStep(run.graph(), &model_.graph, question_.target.chip, workload,
                                     question_.stack, asked.format));
  variant.seconds = forecast.seconds;
  variant.bound = forecast.bound;
  variant.chip_seconds_per_token =
      forecast.seconds.mid * static_cast<double>(workload.devices()) / Tokens(workload);
  variant.parameter_bytes = forecast.capacity.parameter_bytes;
  variant.cache_bytes = forecast.capacity.cache_bytes;
  if (sources_[step].here.ok()) variant.gain = *sources_[step].here / forecast.seconds.mid;
  if (question_.against.empty() || !variant.gain || !sources_[step].there.ok()) return absl::OkStatus();
  const absl::StatusOr<double> there = SecondsOf(run.graph(), question_.against, asked);
  if (there.ok()) variant.advantage = *variant.gain / (*sources_[step].there / *there);
  return absl::OkStatus();
}

void Sweeper::RunGroup(const Group& group, const absl::StatusOr<std::shared_ptr<const RecipeRun>>& run) {
  for (size_t step = 0; step < question_.steps.size(); ++step) {
    if (!question_.steps[step].refused.ok() || question_.steps[step].workload.shards != group.shards)
      continue;
    Variant& variant = variants_[static_cast<size_t>(group.recipe) * question_.steps.size() + step];
    variant.refused = run.status();
    if (!run.ok()) continue;
    const RecipeReport& report = (*run)->report();
    variant.fidelity = report.fidelity;
    variant.rounding = report.bound;
    variant.rewritten = report.sites;
    variant.places_refused = report.refused;
    for (const StepReport& row : report.steps) variant.elements_added += row.elements_added;
    variant.refused = Score(**run, step, variant);
  }
}

void Sweeper::RunGroups(size_t first, size_t last) {
  std::unique_ptr<TwinMaker> maker;
  for (size_t i = first; i < last; ++i) {
    const Group& group = groups_[i];
    if (maker == nullptr || group.shards != groups_[i - 1].shards)
      maker = std::make_unique<TwinMaker>(model_, recipe_, options_.at(group.shards));
    RunGroup(group, maker->Of(ChoiceAt(recipe_.axes(), group.recipe)));
  }
}

std::vector<double> Sweeper::Point(const Variant& variant) const {
  const SweptStep& step = question_.steps[static_cast<size_t>(variant.number) % question_.steps.size()];
  const Precision& precision = step.workload.precision;
  // As stored is as good as can be; within a sweep either all variants say a format or none does.
  const auto bits = [](const std::optional<DType>& dtype) {
    return dtype ? -static_cast<double>(BitWidth(*dtype)) : 0.0;
  };
  return {variant.seconds.mid,
          variant.chip_seconds_per_token,
          static_cast<double>(variant.parameter_bytes + variant.cache_bytes),
          static_cast<double>(Fidelity::kMoved) - static_cast<double>(variant.fidelity) +
              std::min(variant.rounding, 0.5),
          static_cast<double>(variant.elements_added),
          precision.weights ? bits(precision.weights->stored) : 0.0,
          bits(precision.activations),
          bits(precision.cache),
          -variant.advantage.value_or(0)};
}

void Sweeper::AddBest(SweepReport& report) const {
  std::vector<const Variant*> scored;
  std::vector<std::vector<double>> points;
  for (const Variant& variant : variants_) {
    if (!variant.refused.ok()) continue;
    scored.push_back(&variant);
    points.push_back(Point(variant));
  }
  report.scored = static_cast<int64_t>(scored.size());
  for (const ParetoMember& member : ParetoSet(points))
    report.best.push_back({.variant = *scored[member.point], .alike = member.alike});
  std::stable_sort(report.best.begin(), report.best.end(), [](const BestVariant& a, const BestVariant& b) {
    return a.variant.seconds.mid < b.variant.seconds.mid;
  });
  for (BestVariant& best : report.best) {
    if (!best.variant.advantage) continue;
    const size_t steps = question_.steps.size();
    const SweptStep& step = question_.steps[static_cast<size_t>(best.variant.number) % steps];
    TwinMaker maker(model_, recipe_, options_.at(step.workload.shards));
    const auto run = maker.Of(ChoiceAt(recipe_.axes(), best.variant.number / static_cast<int64_t>(steps)));
    const absl::StatusOr<Asymmetry> asymmetry =
        AsymmetryOf(model_.graph, (*run)->graph(), question_.target.chip, question_.against, step.workload,
                    question_.stack, step.format);
    if (asymmetry.ok()) best.asymmetry = *asymmetry;
  }
}

absl::StatusOr<SweepReport> Sweeper::Run() {
  TWIN_RETURN_IF_ERROR(Prepare());
  const size_t threads = std::max<size_t>(1, std::min<size_t>(question_.threads, groups_.size()));
  std::vector<std::thread> others;
  const auto end_of = [&](size_t part) { return groups_.size() * part / threads; };
  for (size_t part = 1; part < threads; ++part)
    others.emplace_back([&, part] { RunGroups(end_of(part), end_of(part + 1)); });
  RunGroups(0, end_of(1));
  for (std::thread& other : others) other.join();

  SweepReport report{.axes = recipe_.axes(), .variants = static_cast<int64_t>(variants_.size())};
  report.axes.insert(report.axes.end(), question_.step_axes.begin(), question_.step_axes.end());
  for (Variant& variant : variants_) {
    const SweptStep& step = question_.steps[static_cast<size_t>(variant.number) % question_.steps.size()];
    if (!step.refused.ok()) variant.refused = step.refused;
    if (!variant.refused.ok()) report.refused.push_back({variant.number, variant.refused});
  }
  AddBest(report);
  return report;
}

}  // namespace

std::vector<std::string> ValuesOf(const std::vector<SweepAxis>& axes, int64_t number) {
  const Choice choice = ChoiceAt(axes, number);
  std::vector<std::string> values;
  for (size_t i = 0; i < axes.size(); ++i) values.push_back(axes[i].values[choice[i]]);
  return values;
}

absl::StatusOr<int64_t> CountVariants(const std::vector<SweepAxis>& axes) {
  int64_t product = 1;
  for (const SweepAxis& axis : axes) {
    product *= static_cast<int64_t>(axis.values.size());
    if (product > kMostVariants)
      return Error(1113, axis.place, absl::StrCat("more than ", kMostVariants, " combinations of all values"),
                   "sweep fewer keys, or fewer values of each");
  }
  return product;
}

absl::StatusOr<SweepReport> SweepVariants(Model model, LoadedRecipe recipe, const SweepQuestion& question) {
  std::vector<SweepAxis> axes = recipe.sweeps;
  TWIN_ASSIGN_OR_RETURN(const RecipeOptions options, OptionsFor(recipe, question.target, model));
  TWIN_RETURN_IF_ERROR(CheckSkipped(recipe, options));
  TWIN_ASSIGN_OR_RETURN(const SweptRecipe swept,
                        SweptRecipe::Of(std::move(recipe), std::move(axes), options.context));
  return Sweeper(model, swept, options, question).Run();
}

}  // namespace twinforge
