#include "cli/score_sweep.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "cli/open.h"
#include "cli/score_table.h"
#include "cli/sweep_report.h"
#include "cost/score.h"

namespace twinforge {
namespace {

// Axes of the command line: a key that is given again has more values.
absl::StatusOr<std::vector<SweepAxis>> VariedAxes(const std::vector<std::string>& words) {
  std::vector<SweepAxis> axes;
  for (const std::string& word : words) {
    TWIN_ASSIGN_OR_RETURN(SweepAxis axis, ParseVary(word, "--vary"));
    const auto same = std::find_if(axes.begin(), axes.end(),
                                   [&](const SweepAxis& earlier) { return earlier.key == axis.key; });
    if (same == axes.end()) {
      axes.push_back(std::move(axis));
      continue;
    }
    for (std::string& value : axis.values) {
      if (std::find(same->values.begin(), same->values.end(), value) != same->values.end())
        return Error(1113, absl::StrCat("--vary: ", JsonQuoted(axis.key, 100)),
                     absl::StrCat(JsonQuoted(value, 100), " is among its values twice"));
      same->values.push_back(std::move(value));
    }
  }
  return axes;
}

// The command line's word on a key comes before the recipe's.
void Override(std::vector<SweepAxis> varied, std::vector<SweepAxis>& axes) {
  for (SweepAxis& axis : varied) {
    const auto same = std::find_if(axes.begin(), axes.end(),
                                   [&](const SweepAxis& earlier) { return earlier.key == axis.key; });
    if (same == axes.end())
      axes.push_back(std::move(axis));
    else
      *same = std::move(axis);
  }
}

// The step with these cells in place of the flags of the axes' names.
absl::StatusOr<ScoreRequest> StepOf(const Model& model, const ScoreFlags& step,
                                    const std::vector<SweepAxis>& axes,
                                    const std::vector<std::string>& values) {
  CsvTable table;
  for (const SweepAxis& axis : axes) table.columns.push_back(axis.key);
  std::string config;
  TWIN_ASSIGN_OR_RETURN(const ScoreFlags flags, FlagsOfRow(step, table, {.cells = values}, config));
  return RequestOf(flags, model.config);
}

// A value that is none whatever the others are: no number, no mesh, no format.
absl::Status CheckAxisValues(const Model& model, const ScoreFlags& step, const SweepAxis& axis) {
  for (const std::string& value : axis.values) {
    if (value == "0" && (axis.key == "batch" || axis.key == "chips"))
      return Error(1113, absl::StrCat(axis.place, ": ", JsonQuoted(axis.key, 100)),
                   "is 0; it must be positive");
    absl::Status status = axis.key == "mesh" ? ParseMesh(value).status() : absl::OkStatus();
    if (status.ok()) status = StepOf(model, step, {axis}, {value}).status();
    const std::optional<Diagnostic> d = DiagnosticOf(status);
    if (status.ok() || (d && d->code == 1702 && axis.key != "mesh")) continue;
    if (d && d->code == 1702 && ParseMesh(value).ok()) continue;  // of other chips than --chips says
    if (!d) return status;
    return Error(d->code, absl::StrCat(axis.place, ": ", JsonQuoted(axis.key, 100)),
                 absl::StrCat(JsonQuoted(value, 100), ": ", d->message), d->hint);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Outcome> ScoreSweep(const Model& model, const ScoreFlags& step, const RecipeFlags& recipe,
                                   const std::string& against, const SweepFlags& flags) {
  if (!against.empty()) TWIN_RETURN_IF_ERROR(FindChip(against).status());
  LoadedRecipe loaded;
  if (!recipe.recipe.empty()) {
    TWIN_ASSIGN_OR_RETURN(loaded, LoadRecipe(recipe.recipe));
  }
  TWIN_ASSIGN_OR_RETURN(std::vector<SweepAxis> varied, VariedAxes(flags.vary));
  Override(std::move(varied), loaded.sweeps);
  if (loaded.sweeps.empty())
    return Error(1003, "--sweep", "nothing varies",
                 "give --vary KEY=VALUE,VALUE, or a recipe with `sweep { key: ... }`");
  SweepQuestion question{
      .target = TargetOf(recipe), .against = against, .stack = step.stack, .threads = flags.threads};
  question.target.chip = step.chip;
  for (const SweepAxis& axis : loaded.sweeps) {
    if (!IsStepAxis(axis)) continue;
    TWIN_RETURN_IF_ERROR(CheckAxisValues(model, step, axis));
    question.step_axes.push_back(axis);
  }
  TWIN_ASSIGN_OR_RETURN(const int64_t steps, CountVariants(question.step_axes));
  std::string format;
  for (int64_t i = 0; i < steps; ++i) {
    SweptStep asked{.values = ValuesOf(question.step_axes, i)};
    const absl::StatusOr<ScoreRequest> request = StepOf(model, step, question.step_axes, asked.values);
    asked.refused = request.status();
    if (request.ok()) {
      asked.workload = request->workload;
      asked.format = request->format;
    }
    question.steps.push_back(std::move(asked));
  }
  const std::string name = loaded.name;
  TWIN_ASSIGN_OR_RETURN(const SweepReport report, SweepVariants(model, std::move(loaded), question));
  Outcome outcome{.human = SweepText(name, step, question, report),
                  .json = SweepJson(name, step, question, report)};
  if (outcome.json["scored"] == 0) outcome.exit = ExitCode::kUnsupported;
  return outcome;
}

}  // namespace twinforge
