// calibrate_cost DATA [OUT]: fits the named constants of cost/calibration.textproto from measured tables, by
// itself.
//
//   build/release/bench/calibrate_cost ../shared/data cost/calibration.textproto
//
// With `--table` prints the errors instead: in this fit, of rows left out by fifths, of partitions left out
// whole, beside a baseline of three constants per partition.
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/file.h"
#include "bench/measured_rows.h"

namespace twinforge {
namespace {

double Quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = q * static_cast<double>(values.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (at - static_cast<double>(low)) * (values[high] - values[low]);
}

struct Errors {
  std::vector<double> fitted, folded, left, baseline;  // relative, absolute value
  std::vector<double> folded_log, first_log, left_log, left_first_log;
};

// Three constants of one partition: decode's and prefill's derates and a constant per step; relative least
// squares.
std::vector<double> Baseline(const std::vector<const FitRow*>& train) {
  double h[3][3] = {{1e-9, 0, 0}, {0, 1e-9, 0}, {0, 0, 1e-9}}, g[3] = {};
  for (const FitRow* row : train) {
    const auto bound = [](const StepTerms& terms) {
      double seconds = 0;
      for (size_t i = 0; i < terms.kinds.size(); ++i)
        seconds += static_cast<double>(terms.uses[i]) * std::max(terms.kinds[i].shape, terms.kinds[i].memory);
      return seconds;
    };
    const double x[3] = {bound(row->serving.decode) / row->seconds,
                         row->kind == FitRow::Kind::kStep
                             ? 0
                             : bound(row->serving.prefill) * row->serving.batch /
                                   static_cast<double>(row->serving.decode.groups) / row->serving.output_len /
                                   row->seconds,
                         1e-3 / row->seconds};
    for (int i = 0; i < 3; ++i) {
      g[i] += x[i];
      for (int j = 0; j < 3; ++j) h[i][j] += x[i] * x[j];
    }
  }
  // Gauss's method; the diagonal is positive.
  for (int j = 0; j < 3; ++j) {
    for (int i = j + 1; i < 3; ++i) {
      const double f = h[i][j] / h[j][j];
      for (int k = j; k < 3; ++k) h[i][k] -= f * h[j][k];
      g[i] -= f * g[j];
    }
  }
  std::vector<double> x(3);
  for (int i = 2; i >= 0; --i) {
    x[i] = g[i];
    for (int k = i + 1; k < 3; ++k) x[i] -= h[i][k] * x[k];
    x[i] /= h[i][i];
  }
  return x;
}

double BaselineSeconds(const FitRow& row, const std::vector<double>& x) {
  const auto bound = [](const StepTerms& terms) {
    double seconds = 0;
    for (size_t i = 0; i < terms.kinds.size(); ++i)
      seconds += static_cast<double>(terms.uses[i]) * std::max(terms.kinds[i].shape, terms.kinds[i].memory);
    return seconds;
  };
  double seconds = x[0] * bound(row.serving.decode) + x[2] * 1e-3;
  if (row.kind == FitRow::Kind::kServe) {
    seconds += x[1] * bound(row.serving.prefill) * row.serving.batch /
               static_cast<double>(row.serving.decode.groups) / row.serving.output_len;
  }
  return seconds;
}

bool IsDense(const FitRow& row) {
  return row.partition.find("DeepSeek") == std::string::npos &&
         row.partition.find("235B") == std::string::npos;
}

int Calibrate(const std::string& folder, const std::string& out, bool table) {
  Calibration priors;
  const absl::StatusOr<std::string> text = ReadTextFile("cost/priors.textproto", int64_t{1} << 20);
  if (!text.ok() || !google::protobuf::TextFormat::ParseFromString(*text, &priors)) {
    std::cerr << "run in the repository: cost/priors.textproto cannot be read\n";
    return 2;
  }
  absl::StatusOr<MeasuredRows> measured = ReadMeasuredRows(folder, priors);
  if (!measured.ok()) {
    std::cerr << measured.status() << "\n";
    return 2;
  }
  const std::vector<std::string> reasons = Quarantine(measured->rows);
  std::vector<FitRow> rows;
  for (size_t i = 0; i < reasons.size(); ++i) {
    if (reasons[i].empty()) rows.push_back(measured->rows[i]);
  }
  Calibration fitted = FitConstants(priors, rows);

  std::map<std::string, Errors> errors;
  for (const FitRow& row : rows)
    errors[row.partition].fitted.push_back(std::abs(Predict(fitted, row).seconds / row.seconds - 1));
  for (int fold = 0; fold < 5; ++fold) {
    std::vector<FitRow> train;
    std::map<std::string, std::vector<const FitRow*>> of_partition;
    for (const FitRow& row : rows) {
      if (FoldOf(row.id) == fold) continue;
      train.push_back(row);
      of_partition[row.partition].push_back(&row);
    }
    const Calibration part = FitConstants(priors, train);
    for (const FitRow& row : rows) {
      if (FoldOf(row.id) != fold) continue;
      const Predicted predicted = Predict(part, row);
      Errors& of = errors[row.partition];
      of.folded.push_back(std::abs(predicted.seconds / row.seconds - 1));
      of.folded_log.push_back(std::abs(std::log(predicted.seconds / row.seconds)));
      if (row.first_token > 0)
        of.first_log.push_back(std::abs(std::log(predicted.first_token / row.first_token)));
      const std::vector<const FitRow*>& own = of_partition[row.partition];
      if (own.size() >= 3)
        of.baseline.push_back(std::abs(BaselineSeconds(row, Baseline(own)) / row.seconds - 1));
    }
  }
  std::vector<double> unseen, unseen_first;
  for (auto& [partition, of] : errors) {
    std::vector<FitRow> train;
    for (const FitRow& row : rows) {
      if (row.partition != partition) train.push_back(row);
    }
    const Calibration part = FitConstants(priors, train);
    for (const FitRow& row : rows) {
      if (row.partition != partition) continue;
      const Predicted predicted = Predict(part, row);
      of.left.push_back(std::abs(predicted.seconds / row.seconds - 1));
      unseen.push_back(std::abs(std::log(predicted.seconds / row.seconds)));
      if (row.first_token > 0)
        unseen_first.push_back(std::abs(std::log(predicted.first_token / row.first_token)));
    }
  }
  std::map<std::string, std::pair<std::vector<double>, std::vector<double>>> bands;
  for (const FitRow& row : rows) {
    const Errors& of = errors[row.partition];
    auto& [tokens, first] =
        bands[absl::StrCat(row.family, "/", row.stack, "/", row.generation, "/", row.format)];
    (void)of;
    (void)tokens;
    (void)first;
  }
  for (const auto& [partition, of] : errors) {
    const auto row =
        std::find_if(rows.begin(), rows.end(), [&](const FitRow& r) { return r.partition == partition; });
    auto& [tokens, first] =
        bands[absl::StrCat(row->family, "/", row->stack, "/", row->generation, "/", row->format)];
    tokens.insert(tokens.end(), of.folded_log.begin(), of.folded_log.end());
    first.insert(first.end(), of.first_log.begin(), of.first_log.end());
  }
  if (table) {
    std::cout << "| partition | rows | in the fit | left out by fifths | three constants, same | partition "
                 "left out |\n"
                 "| --- | --- | --- | --- | --- | --- |\n";
    std::map<std::string, Errors> sums;
    const auto line = [](const std::string& name, const Errors& of) {
      const auto cell = [](const std::vector<double>& e) {
        return e.empty() ? std::string("-")
                         : absl::StrFormat("%.1f / %.1f", 100 * Quantile(e, 0.5), 100 * Quantile(e, 0.9));
      };
      std::cout << "| " << name << " | " << of.fitted.size() << " | " << cell(of.fitted) << " | "
                << cell(of.folded) << " | " << cell(of.baseline) << " | " << cell(of.left) << " |\n";
    };
    for (const auto& [partition, of] : errors) {
      line(partition, of);
      const auto row =
          std::find_if(rows.begin(), rows.end(), [&](const FitRow& r) { return r.partition == partition; });
      Errors& sum = sums[row->family == "tpu" ? "all TPU"
                         : IsDense(*row)      ? "all GPU, dense"
                                              : "all GPU, experts"];
      for (auto member : {&Errors::fitted, &Errors::folded, &Errors::baseline, &Errors::left})
        (sum.*member).insert((sum.*member).end(), (of.*member).begin(), (of.*member).end());
    }
    for (const auto& [name, of] : sums) line(name, of);
    std::map<std::string, int> counts;
    for (const std::string& reason : reasons) {
      if (!reason.empty()) ++counts[reason];
    }
    for (const auto& [reason, count] : counts) std::cout << "quarantined " << count << ": " << reason << "\n";
    counts.clear();
    for (const auto& [id, reason] : measured->left) ++counts[reason.substr(0, 90)];
    for (const auto& [reason, count] : counts) std::cout << "left away " << count << ": " << reason << "\n";
    return 0;
  }
  for (Calibration::Scope& scope : *fitted.mutable_scope()) {
    if (scope.stack().empty() || scope.generation().empty() || scope.format().empty()) continue;
    const auto& [tokens, first] =
        bands[absl::StrCat(scope.family(), "/", scope.stack(), "/", scope.generation(), "/", scope.format())];
    if (tokens.size() < 5) continue;  // too few to tell how far estimates are off
    scope.set_band(std::max(0.02, std::round(Quantile(tokens, 0.8) * 1e4) / 1e4));
    if (!first.empty()) scope.set_first_token_band(std::round(Quantile(first, 0.8) * 1e4) / 1e4);
  }
  fitted.set_unseen(std::round(Quantile(unseen, 0.8) * 1e4) / 1e4);
  fitted.set_unseen_first_token(std::round(Quantile(unseen_first, 0.8) * 1e4) / 1e4);
  fitted.set_made_by("bench/calibrate_cost");
  fitted.set_data(measured->hashes);
  for (const auto& [partition, of] : errors) {
    Calibration::Partition* row = fitted.add_partition();
    row->set_name(partition);
    row->set_rows(static_cast<int64_t>(of.fitted.size()));
    row->set_median(std::round(Quantile(of.fitted, 0.5) * 1e4) / 1e4);
    row->set_p90(std::round(Quantile(of.fitted, 0.9) * 1e4) / 1e4);
  }
  for (size_t i = 0; i < reasons.size(); ++i) {
    if (reasons[i].empty()) {
      fitted.add_row(measured->rows[i].id);
    } else {
      Calibration::Quarantined* row = fitted.add_quarantined();
      row->set_row(measured->rows[i].id);
      row->set_reason(reasons[i]);
    }
  }
  std::string printed;
  google::protobuf::TextFormat::Printer printer;
  printer.SetUseShortRepeatedPrimitives(true);
  printer.PrintToString(fitted, &printed);
  std::ofstream(out) << "# Made by bench/calibrate_cost; run it again instead of editing.\n"
                        "# proto-file: cost/calibration.proto\n# proto-message: twinforge.Calibration\n\n"
                     << printed;
  return 0;
}

}  // namespace
}  // namespace twinforge

int main(int argc, char** argv) {
  const bool table = argc == 3 && std::string(argv[2]) == "--table";
  if (argc != 3) {
    std::cerr << "calibrate_cost DATA OUT | calibrate_cost DATA --table\n";
    return 2;
  }
  return twinforge::Calibrate(argv[1], argv[2], table);
}
