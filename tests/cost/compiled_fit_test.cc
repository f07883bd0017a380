#include "cost/compiled_fit.h"

#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "cost/compiled_cycles.h"
#include "cost/compiled_table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace twinforge {
namespace {

std::string ReadSource(const std::string& path) {
  std::ifstream file(std::string(TWINFORGE_SOURCE_DIR) + "/" + path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(LeastSquares, AreExactWhereTheyCanBe) {
  const std::vector<double> x = NonNegativeLeastSquares({{1, 0}, {0, 2}, {1, 1}}, {3, 8, 7});
  EXPECT_NEAR(x[0], 3, 1e-6);
  EXPECT_NEAR(x[1], 4, 1e-6);
}

TEST(LeastSquares, StayAtZeroRatherThanBelow) {
  // Unbounded, the second would be -1.
  const std::vector<double> x = NonNegativeLeastSquares({{1, 1}, {1, 0}}, {1, 2});
  EXPECT_EQ(x[1], 0);
  EXPECT_NEAR(x[0], 1.5, 1e-6);
  EXPECT_EQ(NonNegativeLeastSquares({{1, 0}}, {1})[1], 0) << "a term that no row has";
}

// The embedded constants are what the tables give, record included: none was made by hand.
TEST(CompiledFitFile, IsWhatTheTablesGive) {
  const auto products = ParseCompiledProducts(ReadSource("tests/cost/data/aot.csv"));
  EXPECT_EQ(products.size(), 761u);
  CompiledFit fit = FitCompiled(CompiledRows(), products);
  AddRecords(Trials(fit, CompiledRows()), fit);
  ASSERT_EQ(fit.constants_size(), Fit().constants_size());
  for (int i = 0; i < fit.constants_size(); ++i) {
    const CompiledConstants& made = fit.constants(i);
    const CompiledConstants& held = Fit().constants(i);
    ASSERT_EQ(made.generation() + made.phase() + made.left_out(),
              held.generation() + held.phase() + held.left_out());
    EXPECT_EQ(made.layer_rows(), held.layer_rows());
    EXPECT_EQ(made.product_rows(), held.product_rows());
    ASSERT_EQ(made.value_size(), held.value_size());
    for (int t = 0; t < made.value_size(); ++t) {
      EXPECT_GE(held.value(t), 0);
      EXPECT_NEAR(made.value(t), held.value(t), 1e-4 * std::abs(held.value(t)) + 1e-9)
          << made.generation() << " " << made.phase() << " " << made.left_out() << " " << fit.term(t);
    }
  }
  ASSERT_EQ(fit.record_size(), Fit().record_size());
  for (int i = 0; i < fit.record_size(); ++i) {
    EXPECT_EQ(fit.record(i).rewrite(), Fit().record(i).rewrite());
    EXPECT_EQ(fit.record(i).right(), Fit().record(i).right()) << fit.record(i).rewrite();
    EXPECT_EQ(fit.record(i).rows(), Fit().record(i).rows());
    EXPECT_NEAR(fit.record(i).spread(), Fit().record(i).spread(), 2e-4);
  }
}

// A fit that leaves a model out must not change when that model's rows do.
TEST(CompiledFitFile, LeavesOutWhatItSays) {
  const auto products = ParseCompiledProducts(ReadSource("tests/cost/data/aot.csv"));
  std::vector<CompiledRow> rows(CompiledRows().begin(), CompiledRows().end());
  for (CompiledRow& row : rows) {
    if (row.model == "phi3" && row.rewrite == "fqkv") row.cycles *= 3;
  }
  const CompiledFit changed = FitCompiled(rows, products);
  bool full_changed = false;
  for (int i = 0; i < changed.constants_size(); ++i) {
    const CompiledConstants& made = changed.constants(i);
    const CompiledConstants& held = Fit().constants(i);
    double difference = 0;
    for (int t = 0; t < made.value_size(); ++t) {
      // Embedded values carry six digits.
      difference = std::max(difference, std::abs(made.value(t) - held.value(t)) / (held.value(t) + 1e-6));
    }
    if (made.left_out() == "phi3") {
      EXPECT_LT(difference, 1e-3) << made.generation() << " " << made.phase();
    }
    if (made.left_out().empty() && difference > 0.01) full_changed = true;
  }
  EXPECT_TRUE(full_changed);
}

TEST(CompiledTableText, IsWhatTheDocsSay) {
  const std::vector<CompiledTrial> trials = Trials(Fit(), CompiledRows());
  const std::string table = CompiledTable(trials);
  EXPECT_TRUE(absl::StrContains(ReadSource("docs/cost_compiler.md"), table)) << table;
  int beyond = 0;
  int right = 0;
  for (const CompiledTrial& trial : trials) {
    if (trial.same()) continue;
    ++beyond;
    right += trial.right();
  }
  EXPECT_EQ(beyond, 341);
  EXPECT_GE(right, beyond * 9 / 10);
}

// Models that were compiled when the predictor's terms stood: no fit, and no choice of a term, ever saw them.
TEST(CompiledTableText, HoldsForModelsCompiledLater) {
  const std::vector<CompiledTrial> trials = Trials(Fit(), UnseenRows());
  for (const CompiledTrial& trial : trials) {
    for (const CompiledRow& row : CompiledRows()) ASSERT_NE(row.model, trial.row->model);
    for (const CompiledConstants& constants : Fit().constants())
      ASSERT_NE(constants.left_out(), trial.row->model);
  }
  const std::string table = CompiledTable(trials);
  EXPECT_TRUE(absl::StrContains(ReadSource("docs/cost_compiler.md"), table)) << table;
}

TEST(CompiledCycles, AreNotBorrowed) {
  const CompiledShape llama = {.d_model = 4096,
                               .heads = 32,
                               .kv_heads = 8,
                               .head_dim = 128,
                               .d_ff = 14336,
                               .experts = 1,
                               .gated = true};
  const CompiledStep prefill = {.phase = Phase::kPrefill, .sequences = 1, .context = 512};
  EXPECT_TRUE(LayerCycles(Fit(), "v5p", {.shape = llama}, {}).has_value());
  EXPECT_FALSE(LayerCycles(Fit(), "v5p", {.shape = llama}, prefill).has_value())
      << "no prefill was compiled for v5p";
  EXPECT_FALSE(LayerCycles(Fit(), "v3", {.shape = llama}, {}).has_value());
  EXPECT_FALSE(
      LayerCycles(Fit(), "v6e", {.shape = llama}, {}, "a model that was never left out").has_value());
}

// Figures that the compiler's estimates show by themselves: what a constant means must stay what its name
// says.
TEST(CompiledCycles, RepeatSingleProducts) {
  const auto cycles = [](const char* generation, const CompiledProduct& product) {
    return *ProductCycles(Fit(), generation, product);
  };
  const CompiledProduct eight = {.m = 8, .k = 4096, .n = 4096};
  EXPECT_NEAR(cycles("v5e", eight), 100629, 0.1 * 100629);
  EXPECT_NEAR(cycles("v6e", eight), 50900, 0.1 * 50900);
  CompiledProduct one = eight;
  one.m = 1;
  CompiledProduct two = eight;
  two.m = 2;
  for (const char* generation : {"v4", "v5e", "v5p", "v6e"}) {
    EXPECT_GT(cycles(generation, one), 2 * cycles(generation, two)) << generation << ": the vector path";
  }
  CompiledProduct out_in = eight;
  out_in.in_out = false;
  for (const char* generation : {"v4", "v5e", "v5p", "v6e", "7x"}) {
    EXPECT_GT(cycles(generation, out_in), cycles(generation, eight)) << generation;
  }
}

}  // namespace
}  // namespace twinforge
