#include "cost/memory.h"

#include <random>

#include "cost/chip.h"
#include "gtest/gtest.h"
#include "tests/cost/models.h"

namespace twinforge {
namespace {

StepTerms Terms(const Graph& graph, const std::string& chip, const Workload& workload) {
  absl::StatusOr<StepTerms> terms = TermsOf(**FindChipFacts(chip), graph, workload);
  EXPECT_TRUE(terms.ok()) << terms.status();
  return terms.ok() ? *std::move(terms) : StepTerms();
}

ChipFigures WithMemory(int64_t bytes) {
  ChipFigures chip = **FindChipFacts("h100_sxm");
  chip.memory_bytes = bytes;
  return chip;
}

// Two layers, two kv heads of 16, keys and values in bf16: 2 x 2 x 2 x 16 x 2 = 256 bytes of each token.
TEST(Capacity, OfASmallModelByHand) {
  const Graph graph = MakeModel({.layers = 2});
  const StepTerms terms = Terms(graph, "h100_sxm", {.batch = 3, .context = 99});
  const int64_t layer = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96 + 2 * 64;
  const int64_t parameters = 2 * (2 * 320 * 64 + 2 * layer + 64);
  const int64_t usable = parameters + 256 * 1000 + 255;
  const Capacity c = CapacityOf(WithMemory(usable), terms, 100, 1, 1);
  EXPECT_EQ(c.parameter_bytes, parameters);
  EXPECT_EQ(c.cache_bytes, 3 * 100 * 256);
  EXPECT_EQ(c.usable_bytes, usable);
  EXPECT_EQ(c.kv_tokens, 1000);
  EXPECT_EQ(c.sequences, 10);
  EXPECT_TRUE(c.feasible);
  // Pages of 16: 62 hold 992 tokens, and a sequence of 100 tokens takes seven.
  const Capacity paged = CapacityOf(WithMemory(usable), terms, 100, 1, 16);
  EXPECT_EQ(paged.kv_tokens, 992);
  EXPECT_EQ(paged.sequences, 8);
  // Two groups of devices have as much each.
  Workload two{.batch = 6, .context = 99};
  two.dp = 2;
  EXPECT_EQ(CapacityOf(WithMemory(usable), Terms(graph, "h100_sxm", two), 100, 1, 16).kv_tokens, 2 * 992);
}

TEST(Capacity, IsExactAtTheEdge) {
  const Graph graph = MakeModel({.layers = 2});
  const StepTerms terms = Terms(graph, "h100_sxm", {.batch = 7, .context = 32});
  const int64_t needed = terms.parameter_bytes.value() + terms.cache_bytes.value();
  EXPECT_TRUE(CapacityOf(WithMemory(needed), terms, 33, 1, 1).feasible);
  EXPECT_FALSE(CapacityOf(WithMemory(needed - 1), terms, 33, 1, 1).feasible);
  EXPECT_EQ(CapacityOf(WithMemory(needed), terms, 33, 1, 1).sequences, 7);
  EXPECT_EQ(CapacityOf(WithMemory(needed - 1), terms, 33, 1, 1).sequences, 6);
  // In pages of 16, 33 tokens take 48.
  EXPECT_FALSE(CapacityOf(WithMemory(needed), terms, 33, 1, 16).feasible);
  EXPECT_TRUE(CapacityOf(WithMemory(needed + 7 * 15 * 256), terms, 33, 1, 16).feasible);
}

TEST(Capacity, OfParametersAloneThatDoNotFit) {
  const StepTerms terms = Terms(MakeModel({}), "h100_sxm", {.batch = 1, .context = 10});
  const Capacity none = CapacityOf(WithMemory(terms.parameter_bytes.value() - 1), terms, 11, 1, 1);
  EXPECT_FALSE(none.feasible);
  EXPECT_EQ(none.kv_tokens, 0);
  EXPECT_EQ(none.sequences, 0);
  const Capacity share = CapacityOf(WithMemory(2 * terms.parameter_bytes.value()), terms, 11, 0.5, 1);
  EXPECT_TRUE(share.usable_bytes == share.parameter_bytes && !share.feasible) << "no room for a cache";
}

TEST(Capacity, OfAModelThatKeepsNoCache) {
  const StepTerms terms =
      Terms(MakeModel({.causal = false}), "h100_sxm", {.phase = Phase::kPrefill, .batch = 2, .context = 10});
  const Capacity c = CapacityOf(WithMemory(1 << 30), terms, 10, 1, 16);
  EXPECT_TRUE(c.feasible);
  EXPECT_EQ(c.kv_tokens, 0);
}

// Laws: what is said to fit is feasible, one sequence more is not; smaller pages never hold less.
TEST(Capacity, SaysHowManySequencesFit) {
  std::mt19937_64 random(5);
  const Graph graph = MakeModel({.layers = 2, .kv_heads = 4, .window = 0});
  for (int i = 0; i < 300; ++i) {
    const int64_t context = 1 + static_cast<int64_t>(random() % 500);
    const int64_t page = 1 + static_cast<int64_t>(random() % 40);
    Workload w{.batch = 1, .context = context};
    w.dp = 1 + static_cast<int64_t>(random() % 3);
    const auto of = [&](const ChipFigures& chip, int64_t batch, int64_t pages_of) {
      w.batch = batch;
      return CapacityOf(chip, Terms(graph, "h100_sxm", w), context + 1, 0.9, pages_of);
    };
    const ChipFigures chip = WithMemory(2000000 + static_cast<int64_t>(random() % 9000000));
    const int64_t fits = of(chip, 1, page).sequences;
    if (fits < 1) continue;
    EXPECT_TRUE(of(chip, fits, page).feasible) << context << " " << page << " " << w.dp;
    EXPECT_FALSE(of(chip, fits + 1, page).feasible) << context << " " << page << " " << w.dp;
    EXPECT_GE(of(chip, 1, page).kv_tokens, fits * (context + 1));
    EXPECT_GE(of(chip, 1, 1).kv_tokens, of(chip, 1, page).kv_tokens);
  }
}

}  // namespace
}  // namespace twinforge
