// calibrate_cost DATA [OUT]: fits the named constants of cost/calibration.textproto from measured tables, by
// itself.
//
//   build/release/bench/calibrate_cost ../shared/data cost/calibration.textproto
//
// With `--check FILE` fits once and says whether the file's bases and factors are these; with `--table`
// prints the errors instead: in this fit, of rows left out by fifths, of partitions left out whole, beside a
// baseline of three constants per partition.
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "bench/fit_errors.h"
#include "bench/measured_rows.h"

namespace twinforge {
namespace {

double Rounded(double value) { return std::round(value * 1e4) / 1e4; }

// How far estimates are off where they are held to rows that were not fitted on.
void SetBands(const std::map<std::string, Errors>& scopes, const Errors& all, Calibration& fitted) {
  for (Calibration::Scope& scope : *fitted.mutable_scope()) {
    if (scope.stack().empty() || scope.generation().empty() || scope.format().empty()) continue;
    const auto of = scopes.find(
        absl::StrCat(scope.family(), "/", scope.stack(), "/", scope.generation(), "/", scope.format()));
    // Too few to tell how far estimates are off.
    if (of == scopes.end() || of->second.folded_log.size() < 5) continue;
    scope.set_band(std::max(0.02, Rounded(Quantile(of->second.folded_log, 0.8))));
    if (!of->second.first_log.empty())
      scope.set_first_token_band(Rounded(Quantile(of->second.first_log, 0.8)));
  }
  fitted.set_unseen(Rounded(Quantile(all.left_log, 0.8)));
  fitted.set_unseen_first_token(Rounded(Quantile(all.left_first_log, 0.8)));
}

void SetRows(const MeasuredRows& measured, const std::vector<std::string>& reasons,
             const std::map<std::string, Errors>& partitions, Calibration& fitted) {
  fitted.set_made_by("bench/calibrate_cost");
  fitted.set_data(measured.hashes);
  for (const auto& [partition, of] : partitions) {
    Calibration::Partition* row = fitted.add_partition();
    row->set_name(partition);
    row->set_rows(static_cast<int64_t>(of.fitted.size()));
    row->set_median(Rounded(Quantile(of.fitted, 0.5)));
    row->set_p90(Rounded(Quantile(of.fitted, 0.9)));
  }
  for (size_t i = 0; i < reasons.size(); ++i) {
    if (reasons[i].empty()) {
      fitted.add_row(measured.rows[i].id);
    } else {
      Calibration::Quarantined* row = fitted.add_quarantined();
      row->set_row(measured.rows[i].id);
      row->set_reason(reasons[i]);
    }
  }
}

// Bases and factors as text: what one fit decides.
std::string Fitted(const Calibration& calibration) {
  Calibration part;
  *part.mutable_base() = calibration.base();
  for (const Calibration::Scope& scope : calibration.scope()) {
    Calibration::Scope& own = *part.add_scope() = scope;
    own.clear_band();
    own.clear_first_token_band();
  }
  std::string text;
  google::protobuf::TextFormat::PrintToString(part, &text);
  return text;
}

int Check(const std::string& file, const Calibration& fitted) {
  Calibration shipped;
  const absl::StatusOr<std::string> text = ReadTextFile(file, int64_t{1} << 24);
  if (!text.ok() || !google::protobuf::TextFormat::ParseFromString(*text, &shipped)) {
    std::cerr << file << ": cannot be read\n";
    return 2;
  }
  if (Fitted(shipped) == Fitted(fitted)) {
    std::cout << file << ": as these tables give it\n";
    return 0;
  }
  std::cerr << file << ": these tables give other constants; run calibrate_cost DATA " << file << "\n";
  return 1;
}

void PrintLeftAway(const MeasuredRows& measured, const std::vector<std::string>& reasons) {
  std::map<std::string, int> counts;
  for (const std::string& reason : reasons) {
    if (!reason.empty()) ++counts[reason];
  }
  for (const auto& [reason, count] : counts) std::cout << "quarantined " << count << ": " << reason << "\n";
  counts.clear();
  for (const auto& [id, reason] : measured.left) ++counts[reason.substr(0, 90)];
  for (const auto& [reason, count] : counts) std::cout << "left away " << count << ": " << reason << "\n";
}

void WriteCalibration(const Calibration& fitted, const std::string& out) {
  std::string printed;
  google::protobuf::TextFormat::Printer printer;
  printer.SetUseShortRepeatedPrimitives(true);
  printer.PrintToString(fitted, &printed);
  std::ofstream(out) << "# Made by bench/calibrate_cost; run it again instead of editing.\n"
                        "# proto-file: cost/calibration.proto\n# proto-message: twinforge.Calibration\n\n"
                     << printed;
}

int Calibrate(const std::string& folder, const std::string& mode, const std::string& file) {
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
  if (mode == "--check") return Check(file, fitted);
  const std::vector<HeldOut> held = HoldOut(priors, fitted, rows);
  if (mode == "--table") {
    PrintErrors(held);
    PrintLeftAway(*measured, reasons);
    return 0;
  }
  std::map<std::string, Errors> partitions, scopes;
  Errors all;
  for (const HeldOut& row : held) {
    partitions[row.row->partition].Add(row);
    scopes[ScopeOf(*row.row)].Add(row);
    all.Add(row);
  }
  SetBands(scopes, all, fitted);
  SetRows(*measured, reasons, partitions, fitted);
  WriteCalibration(fitted, file);
  return 0;
}

}  // namespace
}  // namespace twinforge

int main(int argc, char** argv) {
  const std::string second = argc > 2 ? argv[2] : "";
  const bool check = second == "--check";
  if (argc != (check ? 4 : 3)) {
    std::cerr << "calibrate_cost DATA OUT | calibrate_cost DATA --table | calibrate_cost DATA --check FILE\n";
    return 2;
  }
  return twinforge::Calibrate(argv[1], second, check ? argv[3] : second);
}
