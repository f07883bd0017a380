#include "cost/compiled_table.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "cost/compiled_cycles.h"

namespace twinforge {
namespace {

constexpr double kSame = 0.01;

struct Tally {
  int right = 0;
  int rows = 0;
  int same = 0;

  void Add(const CompiledTrial& trial) {
    if (trial.same()) {
      ++same;
      return;
    }
    ++rows;
    if (trial.right()) ++right;
  }
};

// The value that `share` of the values do not exceed.
double Quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t rank = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
  return values[std::max<size_t>(rank, 1) - 1];
}

std::vector<double> Errors(absl::Span<const CompiledTrial> trials, double (*error)(const CompiledTrial&)) {
  std::vector<double> errors;
  for (const CompiledTrial& trial : trials) errors.push_back(std::abs(error(trial)));
  return errors;
}

double ChangeError(const CompiledTrial& trial) { return trial.predicted - trial.said; }
double LevelError(const CompiledTrial& trial) { return trial.level; }

std::string Cell(const Tally& tally) {
  if (tally.rows == 0) return tally.same > 0 ? "same" : "";
  return absl::StrCat(tally.right, "/", tally.rows);
}

// A peer without any model: the commoner sign of the same rewrite, phase and generation among the other
// models.
Tally Peer(absl::Span<const CompiledTrial> trials, int& ours) {
  Tally peer;
  for (const CompiledTrial& trial : trials) {
    if (trial.same()) continue;
    int votes = 0;
    for (const CompiledTrial& other : trials) {
      if (other.row->model == trial.row->model || other.row->rewrite != trial.row->rewrite) continue;
      if (other.phase != trial.phase || other.row->generation != trial.row->generation || other.same())
        continue;
      votes += other.said > 0 ? 1 : -1;
    }
    if (votes == 0) continue;
    ++peer.rows;
    if ((votes > 0) == (trial.said > 0)) ++peer.right;
    if (trial.right()) ++ours;
  }
  return peer;
}

std::string PhaseTable(Phase phase, absl::Span<const CompiledTrial> trials) {
  std::map<std::string, std::map<std::string, Tally>> cells;
  std::map<std::string, Tally> sums;
  for (const CompiledTrial& trial : trials) {
    if (trial.phase != phase) continue;
    for (const std::string& generation : {trial.row->generation, std::string("all")}) {
      cells[trial.row->rewrite][generation].Add(trial);
      sums[generation].Add(trial);
    }
  }
  if (cells.empty()) return "";
  std::string head = absl::StrCat("| ", Name(phase), " |");
  std::string rule = "| --- |";
  std::vector<std::string> columns;
  for (const CompiledGenerationFile& generation : Facts().generation()) columns.push_back(generation.name());
  columns.push_back("all");
  for (const std::string& column : columns) {
    absl::StrAppend(&head, " ", column, " |");
    absl::StrAppend(&rule, " --- |");
  }
  std::string text = absl::StrCat(head, " same |\n", rule, " --- |\n");
  const auto line = [&](const std::string& name, const std::map<std::string, Tally>& tallies) {
    absl::StrAppend(&text, "| ", name, " |");
    for (const std::string& column : columns) {
      const auto found = tallies.find(column);
      absl::StrAppend(&text, " ", found == tallies.end() ? "" : Cell(found->second), " |");
    }
    absl::StrAppend(&text, " ", tallies.at("all").same, " |\n");
  };
  for (const auto& [rewrite, tallies] : cells) line(absl::StrCat("`", rewrite, "`"), tallies);
  line("all", sums);
  return text;
}

std::string WrongSigns(absl::Span<const CompiledTrial> trials) {
  std::string text;
  for (const CompiledTrial& trial : trials) {
    if (trial.same() || trial.right()) continue;
    absl::StrAppendFormat(&text, "    %s: %+.1f %%, predicted %+.1f %%\n", trial.row->Key(), 100 * trial.said,
                          100 * trial.predicted);
  }
  return text;
}

// A model that entered the fit is predicted by the constants that were made without it.
bool EnteredFit(const CompiledFit& fit, absl::string_view model) {
  return std::any_of(fit.constants().begin(), fit.constants().end(),
                     [&](const CompiledConstants& constants) { return constants.left_out() == model; });
}

}  // namespace

bool CompiledTrial::same() const { return std::abs(said) <= kSame; }

bool CompiledTrial::right() const { return (said > 0 && predicted > 0) || (said < 0 && predicted < 0); }

std::vector<CompiledTrial> Trials(const CompiledFit& fit, absl::Span<const CompiledRow> rows) {
  std::vector<CompiledTrial> trials;
  for (const CompiledRow& row : rows) {
    const std::optional<CompiledForm> form = FormOfRow(row);
    if (!form.has_value() || row.source < 0) continue;
    const CompiledRow& source = rows[row.source];
    if (&source == &row) continue;
    const CompiledStep step = StepOfPhase(row.phase);
    const std::string left_out = EnteredFit(fit, row.model) ? row.model : "";
    const auto after = LayerCycles(fit, row.generation, *form, step, left_out);
    const auto before = LayerCycles(fit, row.generation, *FormOfRow(source), step, left_out);
    TWIN_CHECK(after.has_value() && before.has_value(), row.Key());
    trials.push_back({.row = &row,
                      .phase = step.phase,
                      .said = row.cycles / source.cycles - 1,
                      .predicted = *after / *before - 1,
                      .level = *after / row.cycles - 1});
  }
  return trials;
}

void AddRecords(absl::Span<const CompiledTrial> trials, CompiledFit& fit) {
  std::map<std::pair<std::string, std::string>, std::vector<const CompiledTrial*>> groups;
  for (const CompiledTrial& trial : trials) {
    const absl::string_view phase = Name(trial.phase);
    groups[{trial.row->rewrite, std::string(phase.data(), phase.size())}].push_back(&trial);
  }
  for (const auto& [key, group] : groups) {
    Tally tally;
    std::vector<double> errors;
    for (const CompiledTrial* trial : group) {
      tally.Add(*trial);
      errors.push_back(std::abs(ChangeError(*trial)));
    }
    CompiledRecord& record = *fit.add_record();
    record.set_rewrite(key.first);
    record.set_phase(key.second);
    record.set_right(tally.right);
    record.set_rows(tally.rows);
    record.set_spread(Quantile(errors, 0.8));
  }
}

std::string CompiledTable(absl::Span<const CompiledTrial> trials) {
  Tally all;
  for (const CompiledTrial& trial : trials) all.Add(trial);
  std::string text = PhaseTable(Phase::kDecode, trials);
  const std::string prefill = PhaseTable(Phase::kPrefill, trials);
  if (!prefill.empty()) absl::StrAppend(&text, text.empty() ? "" : "\n", prefill);
  int ours = 0;
  const Tally peer = Peer(trials, ours);
  absl::StrAppendFormat(&text, "\nRight signs: %d of %d (%.1f %%); %d rows are within 1 %%.\n", all.right,
                        all.rows, 100.0 * all.right / all.rows, all.same);
  absl::StrAppendFormat(
      &text,
      "The commoner sign of the other models: right in %d of the %d rows that have one, where the prediction "
      "is in %d.\n",
      peer.right, peer.rows, ours);
  const std::vector<double> change = Errors(trials, ChangeError);
  const std::vector<double> level = Errors(trials, LevelError);
  absl::StrAppendFormat(&text,
                        "Error of the predicted change: median %.1f %%, 90 %% of rows within %.1f %%.\n",
                        100 * Quantile(change, 0.5), 100 * Quantile(change, 0.9));
  absl::StrAppendFormat(&text,
                        "Error of the predicted cycles: median %.1f %%, 90 %% of rows within %.1f %%.\n",
                        100 * Quantile(level, 0.5), 100 * Quantile(level, 0.9));
  const std::string wrong = WrongSigns(trials);
  absl::StrAppend(&text, "\nWrong signs:", wrong.empty() ? " none.\n" : "\n\n", wrong);
  return text;
}

}  // namespace twinforge
