#include "bench/fit_errors.h"

#include <algorithm>
#include <cmath>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace twinforge {
namespace {

// Three constants of one partition: decode's and prefill's derates and a constant per step; relative least
// squares.
std::vector<double> Baseline(const std::vector<const FitRow*>& train) {
  double h[3][3] = {{1e-9, 0, 0}, {0, 1e-9, 0}, {0, 0, 1e-9}}, g[3] = {};
  for (const FitRow* row : train) {
    const double x[3] = {BoundSeconds(row->serving.decode) / row->seconds,
                         row->kind == FitRow::Kind::kStep
                             ? 0
                             : BoundSeconds(row->serving.prefill) * row->serving.batch /
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
  double seconds = x[0] * BoundSeconds(row.serving.decode) + x[2] * 1e-3;
  if (row.kind == FitRow::Kind::kServe) {
    seconds += x[1] * BoundSeconds(row.serving.prefill) * row.serving.batch /
               static_cast<double>(row.serving.decode.groups) / row.serving.output_len;
  }
  return seconds;
}

std::string Cell(const std::vector<double>& e) {
  return e.empty() ? std::string("-")
                   : absl::StrFormat("%.1f / %.1f", 100 * Quantile(e, 0.5), 100 * Quantile(e, 0.9));
}

void HoldOutFifth(const Calibration& priors, absl::Span<const FitRow> rows, int fold,
                  std::vector<HeldOut>& held) {
  std::vector<FitRow> train;
  std::map<std::string, std::vector<const FitRow*>> of_partition;
  for (const FitRow& row : rows) {
    if (FoldOf(row.id) == fold) continue;
    train.push_back(row);
    of_partition[row.partition].push_back(&row);
  }
  const Calibration part = FitConstants(priors, train);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (FoldOf(rows[i].id) != fold) continue;
    held[i].folded = Predict(part, rows[i]);
    const std::vector<const FitRow*>& own = of_partition[rows[i].partition];
    if (own.size() >= 3) held[i].baseline = BaselineSeconds(rows[i], Baseline(own));
  }
}

}  // namespace

double Quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = q * static_cast<double>(values.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (at - static_cast<double>(low)) * (values[high] - values[low]);
}

std::vector<HeldOut> HoldOut(const Calibration& priors, const Calibration& fitted,
                             absl::Span<const FitRow> rows, bool left) {
  std::vector<HeldOut> held(rows.size());
  std::map<std::string, std::vector<size_t>> partitions;
  for (size_t i = 0; i < rows.size(); ++i) {
    held[i].row = &rows[i];
    held[i].in_fit = Predict(fitted, rows[i]).seconds;
    partitions[rows[i].partition].push_back(i);
  }
  for (int fold = 0; fold < 5; ++fold) HoldOutFifth(priors, rows, fold, held);
  if (!left) return held;
  for (const auto& [partition, own] : partitions) {
    std::vector<FitRow> train;
    for (const FitRow& row : rows) {
      if (row.partition != partition) train.push_back(row);
    }
    const Calibration part = FitConstants(priors, train);
    for (const size_t i : own) held[i].left = Predict(part, rows[i]);
  }
  return held;
}

void Errors::Add(const HeldOut& held) {
  const FitRow& row = *held.row;
  fitted.push_back(std::abs(held.in_fit / row.seconds - 1));
  folded.push_back(std::abs(held.folded.seconds / row.seconds - 1));
  folded_log.push_back(std::abs(std::log(held.folded.seconds / row.seconds)));
  if (held.baseline > 0) baseline.push_back(std::abs(held.baseline / row.seconds - 1));
  const bool first = row.first_token > 0;
  if (first) first_log.push_back(std::abs(std::log(held.folded.first_token / row.first_token)));
  if (held.left.seconds <= 0) return;
  left.push_back(std::abs(held.left.seconds / row.seconds - 1));
  left_log.push_back(std::abs(std::log(held.left.seconds / row.seconds)));
  if (first) left_first_log.push_back(std::abs(std::log(held.left.first_token / row.first_token)));
}

std::string ScopeOf(const FitRow& row) {
  return absl::StrCat(row.family, "/", row.stack, "/", row.generation, "/", row.format);
}

bool IsDense(const FitRow& row) {
  return row.partition.find("DeepSeek") == std::string::npos &&
         row.partition.find("235B") == std::string::npos;
}

void PrintErrors(absl::Span<const HeldOut> held) {
  std::map<std::string, Errors> partitions, sums;
  for (const HeldOut& row : held) {
    partitions[row.row->partition].Add(row);
    sums[row.row->family == "tpu" ? "all TPU"
         : IsDense(*row.row)      ? "all GPU, dense"
                                  : "all GPU, experts"]
        .Add(row);
  }
  std::cout << "| partition | rows | in the fit | left out by fifths | three constants, same | partition "
               "left out |\n"
               "| --- | --- | --- | --- | --- | --- |\n";
  for (const auto* group : {&partitions, &sums}) {
    for (const auto& [name, of] : *group) {
      std::cout << "| " << name << " | " << of.fitted.size() << " | " << Cell(of.fitted) << " | "
                << Cell(of.folded) << " | " << Cell(of.baseline) << " | " << Cell(of.left) << " |\n";
    }
  }
}

}  // namespace twinforge
