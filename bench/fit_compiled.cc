// Makes everything that the repository holds of the compiled tables, from the tables themselves:
//
//   fit_compiled TABLES REPO      TABLES: layers.csv and aot.csv as recorded; REPO: the source tree
//
//   REPO/cost/compiled/layers.csv        the layers, condensed
//   REPO/tests/cost/data/aot.csv         the ops, condensed
//   REPO/cost/compiled/cycles.textproto  the constants, each model left out in turn, and their record
//
// Deterministic: the same tables give the same bytes.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cost/compiled_fit.h"
#include "cost/compiled_rows.h"
#include "cost/compiled_table.h"

namespace twinforge {
namespace {

bool Read(const std::string& path, std::string& text) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream all;
  all << file.rdbuf();
  text = all.str();
  if (file && !text.empty()) return true;
  std::cerr << "cannot read " << path << "\n";
  return false;
}

bool Write(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (file) return true;
  std::cerr << "cannot write " << path << "\n";
  return false;
}

// The named columns alone. A case that was compiled once more to dump its bundles is no row of its own.
std::string Condense(const std::string& csv, const std::vector<std::string>& names) {
  const CsvTable table = CompiledTableOf(csv);
  std::string text = absl::StrCat(absl::StrJoin(names, ","), "\n");
  for (const CsvTable::Row& row : table.rows) {
    if (row.cells.back() == "with LLO bundle dump") continue;
    std::vector<std::string> kept;
    for (const std::string& name : names) kept.push_back(table.Get(row, name));
    absl::StrAppend(&text, absl::StrJoin(kept, ","), "\n");
  }
  return text;
}

std::string Print(const CompiledFit& fit) {
  std::string text =
      "# Made by bench/fit_compiled from the compiled layers and products; never by hand.\n"
      "# proto-file: cost/compiled.proto\n# proto-message: twinforge.CompiledFit\n\n";
  for (const std::string& term : fit.term()) absl::StrAppend(&text, "term: \"", term, "\"\n");
  absl::StrAppend(&text, "\n");
  for (const CompiledConstants& c : fit.constants()) {
    std::vector<std::string> values;
    for (const double value : c.value()) values.push_back(absl::StrFormat("%.6g", value));
    absl::StrAppendFormat(&text,
                          "constants { generation: \"%s\" phase: \"%s\" left_out: \"%s\" layer_rows: %d "
                          "product_rows: %d value: [%s] }\n",
                          c.generation(), c.phase(), c.left_out(), c.layer_rows(), c.product_rows(),
                          absl::StrJoin(values, ", "));
  }
  absl::StrAppend(&text, "\n");
  for (const CompiledRecord& r : fit.record()) {
    absl::StrAppendFormat(&text, "record { rewrite: \"%s\" phase: \"%s\" right: %d rows: %d spread: %.4f }\n",
                          r.rewrite(), r.phase(), r.right(), r.rows(), r.spread());
  }
  return text;
}

int Main(const std::string& tables, const std::string& repo) {
  std::string layers;
  std::string ops;
  if (!Read(tables + "/layers.csv", layers) || !Read(tables + "/aot.csv", ops)) return 1;
  layers = Condense(
      layers, {"generation", "model", "phase", "rewrite", "mode", "est_cycles", "copies", "copy_cycles"});
  ops = Condense(
      ops, {"generation", "op", "mode", "shapes", "dtype", "M", "K", "N", "B", "est_cycles", "arg_bytes"});
  const std::vector<CompiledRow> rows = ParseCompiledRows(layers);
  CompiledFit fit = FitCompiled(rows, ParseCompiledProducts(ops));
  const std::vector<CompiledTrial> trials = Trials(fit, rows);
  AddRecords(trials, fit);
  if (!Write(repo + "/cost/compiled/layers.csv", layers)) return 1;
  if (!Write(repo + "/tests/cost/data/aot.csv", ops)) return 1;
  if (!Write(repo + "/cost/compiled/cycles.textproto", Print(fit))) return 1;
  std::cout << CompiledTable(trials);
  return 0;
}

}  // namespace
}  // namespace twinforge

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: fit_compiled TABLES REPO\n";
    return 2;
  }
  return twinforge::Main(argv[1], argv[2]);
}
