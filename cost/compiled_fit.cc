#include "cost/compiled_fit.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "cost/compiled_cycles.h"

namespace twinforge {
namespace {

constexpr double kReferenceBytesPerCycle = 739;  // v6e's; only a unit
constexpr double kDifferenceWeight = 2;
constexpr double kProductWeight = 1.0 / 3;
constexpr double kRidge = 0.1;           // for a generation of many models
constexpr double kRidgeFewModels = 1.0;  // for one of few
constexpr size_t kFewModels = 4;

using Line = std::vector<double>;

struct System {
  std::vector<Line> a;
  std::vector<double> b;

  void Add(Line line, double right) {
    a.push_back(std::move(line));
    b.push_back(right);
  }
};

Line Scaled(const CompiledTerms& terms, double factor) {
  Line line(terms.begin(), terms.end());
  for (double& value : line) value *= factor;
  return line;
}

// A row, relative to its source.
struct Sample {
  std::string generation;
  std::string model;
  Line itself;      // amounts / (source cycles * scale)
  Line difference;  // the same of (this - source)
  double ratio = 1;
};

struct Samples {
  std::vector<Sample> layers;
  std::map<std::string, std::vector<Line>>
      products;  // by generation; amounts / (cycles * scale): should sum to 1
  Line size;     // mean amount of each term, for the ridge
};

double ScaleOf(const CompiledGenerationFile& generation) {
  return generation.bytes_per_cycle() / kReferenceBytesPerCycle;
}

Samples SamplesOf(Phase phase, absl::Span<const CompiledRow> rows,
                  absl::Span<const CompiledProductRow> products) {
  Samples all;
  Line of_layers(kCompiledTermCount, 0);
  Line of_products(kCompiledTermCount, 0);
  size_t product_count = 0;
  for (const CompiledRow& row : rows) {
    const std::optional<CompiledForm> form = FormOfRow(row);
    const CompiledStep step = StepOfPhase(row.phase);
    if (!form.has_value() || row.source < 0 || step.phase != phase) continue;
    const CompiledGenerationFile& generation = *FindGeneration(row.generation);
    const CompiledRow& source = rows[row.source];
    const CompiledTerms terms = TermsOfLayer(*form, step, generation.matrix_edge());
    CompiledTerms change = terms;
    const CompiledTerms before = TermsOfLayer(*FormOfRow(source), step, generation.matrix_edge());
    for (int i = 0; i < kCompiledTermCount; ++i) change[i] -= before[i];
    const double factor = 1 / (source.cycles * ScaleOf(generation));
    all.layers.push_back({row.generation, row.model, Scaled(terms, factor), Scaled(change, factor),
                          row.cycles / source.cycles});
    for (int i = 0; i < kCompiledTermCount; ++i) of_layers[i] += all.layers.back().itself[i];
  }
  for (const CompiledProductRow& row : products) {
    if ((row.product.m <= kCompiledDecodeRows) != (phase == Phase::kDecode)) continue;
    const CompiledGenerationFile& generation = *FindGeneration(row.generation);
    const CompiledTerms terms = TermsOfProduct(row.product, generation.matrix_edge());
    all.products[row.generation].push_back(Scaled(terms, 1 / (row.cycles * ScaleOf(generation))));
    for (int i = 0; i < kCompiledTermCount; ++i) of_products[i] += all.products[row.generation].back()[i];
    ++product_count;
  }
  for (int i = 0; i < kCompiledTermCount; ++i) {
    all.size.push_back(std::max(of_layers[i] / static_cast<double>(all.layers.size()),
                                0.3 * of_products[i] / static_cast<double>(product_count)));
  }
  return all;
}

// Rows of every model but `left_out`, of one generation or (empty) all of them.
System SystemOf(const Samples& samples, absl::string_view generation, absl::string_view left_out) {
  System system;
  size_t count = 0;
  for (const Sample& sample : samples.layers) {
    if (sample.model == left_out || (!generation.empty() && sample.generation != generation)) continue;
    ++count;
    system.Add(sample.itself, sample.ratio);
    Line difference = sample.difference;
    for (double& value : difference) value *= kDifferenceWeight;
    system.Add(std::move(difference), kDifferenceWeight * (sample.ratio - 1));
  }
  std::vector<const Line*> products;
  for (const auto& [name, lines] : samples.products) {
    if (!generation.empty() && name != generation) continue;
    for (const Line& line : lines) products.push_back(&line);
  }
  const double weight = kProductWeight * std::sqrt(static_cast<double>(std::max<size_t>(count, 1)) /
                                                   static_cast<double>(std::max<size_t>(products.size(), 1)));
  for (const Line* product : products) {
    Line line = *product;
    for (double& value : line) value *= weight;
    system.Add(std::move(line), weight);
  }
  return system;
}

void AddRidge(const Samples& samples, const std::vector<double>& common, double ridge, System& system) {
  const double root = std::sqrt(static_cast<double>(system.a.size()) / 2);
  for (int i = 0; i < kCompiledTermCount; ++i) {
    const double weight = ridge * samples.size[i] * root;
    Line line(kCompiledTermCount, 0);
    line[i] = weight;
    system.Add(std::move(line), weight * common[i]);
  }
}

struct Counts {
  size_t rows = 0;
  std::set<std::string> models;
};

Counts CountRows(const Samples& samples, absl::string_view generation, absl::string_view left_out) {
  Counts counts;
  for (const Sample& sample : samples.layers) {
    if (sample.generation != generation || sample.model == left_out) continue;
    ++counts.rows;
    counts.models.insert(sample.model);
  }
  return counts;
}

void FitPhase(Phase phase, const Samples& samples, const std::string& left_out, CompiledFit& fit) {
  const auto solve = [](const System& system) { return NonNegativeLeastSquares(system.a, system.b); };
  const std::vector<double> common = solve(SystemOf(samples, "", left_out));
  for (const CompiledGenerationFile& generation : Facts().generation()) {
    const Counts all = CountRows(samples, generation.name(), "");
    const Counts kept = CountRows(samples, generation.name(), left_out);
    if (!left_out.empty() && kept.rows == all.rows) continue;  // no row of that model here
    System system = SystemOf(samples, generation.name(), left_out);
    AddRidge(samples, common, kept.models.size() < kFewModels ? kRidgeFewModels : kRidge, system);
    const std::vector<double> values = solve(system);
    CompiledConstants& constants = *fit.add_constants();
    constants.set_generation(generation.name());
    const absl::string_view name = Name(phase);
    constants.set_phase(std::string(name.data(), name.size()));
    constants.set_left_out(left_out);
    for (const double value : values) constants.add_value(value / ScaleOf(generation));
    constants.set_layer_rows(static_cast<int64_t>(kept.rows));
    const auto products = samples.products.find(generation.name());
    constants.set_product_rows(
        products == samples.products.end() ? 0 : static_cast<int64_t>(products->second.size()));
  }
}

int64_t BitsOf(absl::string_view type) {
  if (type == "f32") return 32;
  if (type == "bf16") return 16;
  return type == "int4" ? 4 : 8;
}

}  // namespace

std::vector<double> NonNegativeLeastSquares(const std::vector<Line>& a, const std::vector<double>& b) {
  TWIN_CHECK(!a.empty() && a.size() == b.size(), "as many right sides as lines");
  const size_t n = a[0].size();
  std::vector<double> norm(n, 0);
  for (const Line& line : a) {
    for (size_t j = 0; j < n; ++j) norm[j] += line[j] * line[j];
  }
  for (double& value : norm) value = value > 0 ? std::sqrt(value) : 1;
  std::vector<Line> gram(n, Line(n, 0));
  std::vector<double> right(n, 0);
  for (size_t row = 0; row < a.size(); ++row) {
    for (size_t i = 0; i < n; ++i) {
      const double value = a[row][i] / norm[i];
      right[i] += value * b[row];
      for (size_t j = 0; j < n; ++j) gram[i][j] += value * a[row][j] / norm[j];
    }
  }
  std::vector<double> x(n, 0);
  for (int round = 0; round < 100000; ++round) {
    double largest = 0;
    for (size_t j = 0; j < n; ++j) {
      if (gram[j][j] == 0) continue;
      double slope = right[j];
      for (size_t i = 0; i < n; ++i) slope -= gram[j][i] * x[i];
      const double next = std::max(0.0, x[j] + slope / gram[j][j]);
      largest = std::max(largest, std::abs(next - x[j]));
      x[j] = next;
    }
    if (largest < 1e-10) break;
  }
  for (size_t j = 0; j < n; ++j) x[j] /= norm[j];
  return x;
}

std::vector<CompiledProductRow> ParseCompiledProducts(absl::string_view csv) {
  std::vector<CompiledProductRow> rows;
  const CsvTable table = CompiledTableOf(csv);
  for (const CsvTable::Row& line : table.rows) {
    const auto at = [&](const char* name) -> const std::string& {
      TWIN_CHECK(table.Find(name) >= 0, name);
      return table.Get(line, name);
    };
    const std::string& op = at("op");
    const bool tied = op == "lm_head_tied";
    if (op != "matmul" && op != "matmul_q" && op != "bmm" && op != "lm_head" && !tied) continue;
    if (at("mode") != "hbm") continue;
    CompiledProductRow row = {.generation = at("generation")};
    CompiledProduct& product = row.product;
    product.in_out = !tied;
    TWIN_CHECK(absl::SimpleAtoi(at("M"), &product.m) && absl::SimpleAtoi(at("K"), &product.k) &&
                   absl::SimpleAtoi(at("N"), &product.n) &&
                   (at("B").empty() || absl::SimpleAtoi(at("B"), &product.count)) &&
                   absl::SimpleAtod(at("est_cycles"), &row.cycles),
               absl::StrCat("line ", line.line));
    const std::vector<std::string> types = absl::StrSplit(at("dtype"), 'x');
    product.weight_bits = BitsOf(types.back());
    const CompiledGenerationFile* generation = FindGeneration(row.generation);
    TWIN_CHECK(generation != nullptr, row.generation);
    for (const std::string& native : generation->native()) {
      if (types.size() == 2 && types[0] == native && types[1] == native) product.native = true;
    }
    rows.push_back(row);
  }
  return rows;
}

CompiledFit FitCompiled(absl::Span<const CompiledRow> rows, absl::Span<const CompiledProductRow> products) {
  CompiledFit fit;
  for (int i = 0; i < kCompiledTermCount; ++i) {
    const absl::string_view name = Name(static_cast<CompiledTerm>(i));
    fit.add_term(std::string(name.data(), name.size()));
  }
  for (const Phase phase : {Phase::kDecode, Phase::kPrefill}) {
    const Samples samples = SamplesOf(phase, rows, products);
    std::set<std::string> models = {""};
    for (const Sample& sample : samples.layers) models.insert(sample.model);
    for (const std::string& model : models) FitPhase(phase, samples, model, fit);
  }
  return fit;
}

}  // namespace twinforge
