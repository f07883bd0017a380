// What an evaluation would take, beside counts by hand and beside what sizes do to it.
#include "eval/estimate.h"

#include "base/diagnostic.h"
#include "gtest/gtest.h"
#include "ir/text.h"
#include "tests/transforms/small_models.h"

namespace twinforge {
namespace {

EvaluationCost CostOf(const Graph& graph, int64_t batch, int64_t seq) {
  const absl::StatusOr<EvaluationCost> cost = CostOfEvaluation(graph, {{"batch", batch}, {"seq", seq}});
  EXPECT_TRUE(cost.ok()) << cost.status();
  return cost.value_or(EvaluationCost());
}

TEST(Estimate, CountsAProductByHand) {
  const absl::StatusOr<Graph> graph = ParseGraph(
      "graph t(a: f64[batch, n=3]) -> (y: z) {\n  w = param() @w\n  b = negate(a)\n"
      "  z = dot(b, w) {lhs_contract: 1 rhs_contract: 0}\n}\n"
      "params {\n  @w: f64[n=3 -> m=5] out_in = fill(1: f64[3, 5])\n}\n");
  ASSERT_TRUE(graph.ok()) << graph.status();
  const EvaluationCost cost = CostOf(*graph, 2, 1);
  EXPECT_EQ(cost.multiply_adds, 2 * 3 + 2 * 3 + 2 * 5 * 3);  // a, its negative, and three for each of z
  EXPECT_EQ(cost.elements, 2 * 3 + 2 * 5);                   // a is dropped before z is made
}

TEST(Estimate, GrowsWithSequencesAndWithTheSquareOfTheirLength) {
  const Graph graph = SmallModels({}).front().graph;
  const EvaluationCost one = CostOf(graph, 1, 64), two = CostOf(graph, 2, 64), three = CostOf(graph, 3, 64),
                       longer = CostOf(graph, 1, 6400);
  EXPECT_GT(two.multiply_adds, one.multiply_adds);
  EXPECT_EQ(three.multiply_adds - two.multiply_adds, two.multiply_adds - one.multiply_adds);
  EXPECT_EQ(three.elements - two.elements, two.elements - one.elements);
  EXPECT_GT(longer.elements, 1000 * one.elements) << "scores are seq x seq";
}

TEST(Estimate, RefusesWorkAndValuesOneByOne) {
  EXPECT_TRUE(CheckAffordable({kMostLiveElements, kMostMultiplyAdds}).ok());
  for (const EvaluationCost& cost :
       {EvaluationCost{2 * kMostLiveElements, 1}, EvaluationCost{1, 2 * kMostMultiplyAdds}}) {
    const absl::Status status = CheckAffordable(cost);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(DiagnosticOf(status)->code, 1902);
  }
}

TEST(Estimate, NamesAnAxisWithoutASize) {
  const absl::StatusOr<EvaluationCost> cost = CostOfEvaluation(SmallModels({}).front().graph, {{"batch", 1}});
  ASSERT_FALSE(cost.ok());
  EXPECT_EQ(DiagnosticOf(cost.status())->code, 1901);
}

}  // namespace
}  // namespace twinforge
