// Models written out as primitives: what they compute, and what they can't.
#include "eval/whole_sequence.h"

#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "eval/evaluate.h"
#include "eval/hidden_states.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/builder.h"
#include "ir/decompose.h"
#include "ir/rewriter.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "tests/transforms/small_models.h"

namespace twinforge {
namespace {

using ::testing::HasSubstr;

// Every composite of `graph` in primitives.
Graph InPrimitives(const Graph& graph) {
  Graph result = graph;
  Rewriter rewriter(result, "1 test");
  for (const Node& node : graph.nodes()) {
    if (Info(node.op).composite == nullptr) continue;
    rewriter.Replace(node.id, [&graph, &node](Rewriter::Moved moved, Builder& to) -> absl::StatusOr<NodeId> {
      DecompositionInputs inputs;
      for (NodeId operand : node.operands) inputs.operands.push_back(moved(operand));
      TWIN_ASSIGN_OR_RETURN(const Decomposition done,
                            EmitDecomposition(graph, node, inputs, DecompositionDepth::kPrimitives, to));
      return done.result;
    });
  }
  EXPECT_TRUE(rewriter.Rebuild().ok());
  EXPECT_TRUE(Verify(result).ok()) << Verify(result);
  return result;
}

Tensor Whole(double first) { return Tensor(DType::kI32, {1, 4}, {first, first + 1, first + 2, first + 3}); }

TEST(WholeSequence, PrimitivesComputeWhatTheirCompositesDo) {
  for (const SmallModel& model : SmallModels({.wide = true})) {
    SCOPED_TRACE(model.name);
    const RandomTensors reader(7);
    const StoredParams params(reader);
    EXPECT_EQ(FirstOverTokens(model.graph), nullptr);
    const Graph written = InPrimitives(model.graph);
    const auto want = Evaluate(model.graph, params, {{"tokens", Whole(3)}});
    const auto got = Evaluate(written, params, {{"tokens", Whole(3)}});
    ASSERT_TRUE(want.ok()) << want.status();
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->at("out").values(), want->at("out").values());
  }
}

TEST(WholeSequence, PrimitivesDoNotGoOnAndDoNotMove) {
  for (const SmallModel& model : SmallModels({.layers = 1})) {
    SCOPED_TRACE(model.name);
    const RandomTensors reader(7);
    const StoredParams params(reader);
    const Graph written = InPrimitives(model.graph);
    // Attention that hides nothing and turns nothing brings tokens together all the same.
    ASSERT_NE(FirstOverTokens(written), nullptr);
    DecodeState state;
    const auto decoded = Evaluate(written, params, {{"tokens", Whole(3)}}, {}, &state);
    ASSERT_FALSE(decoded.ok());
    EXPECT_EQ(DiagnosticOf(decoded.status())->code, 1901);
    EXPECT_THAT(Render(decoded.status()), HasSubstr("is a primitive over a whole sequence"));
    EXPECT_TRUE(Evaluate(written, params, {{"tokens", Whole(3)}, {"positions", Whole(0)}}).ok());
    const auto moved = Evaluate(written, params, {{"tokens", Whole(3)}, {"positions", Whole(5)}});
    ASSERT_FALSE(moved.ok());
    EXPECT_THAT(Render(moved.status()), HasSubstr("positions: "));
    const auto typed = Evaluate(written, params, {{"tokens", Whole(3)}, {"token_types", Whole(0)}});
    ASSERT_FALSE(typed.ok());
    EXPECT_THAT(Render(typed.status()), HasSubstr("they take type 0 throughout"));
  }
}

// The last layer's state is after the final norm, whether that is one node or ten.
TEST(WholeSequence, HiddenStatesKeepTheirPlaces) {
  for (const SmallModel& model : SmallModels({.wide = true})) {
    SCOPED_TRACE(model.name);
    const RandomTensors reader(7);
    const StoredParams params(reader);
    std::vector<NamedTensors> found;
    for (const Graph& graph : {model.graph, InPrimitives(model.graph)}) {
      const auto names = HiddenStates(graph);
      NamedTensors hidden;
      EvalOptions options;
      options.observe = [&](const Node& node, const Tensor& value) {
        const auto name = names.find(node.id);
        if (name != names.end()) hidden[name->second] = value;
      };
      ASSERT_TRUE(Evaluate(graph, params, {{"tokens", Whole(3)}}, options).ok());
      found.push_back(std::move(hidden));
    }
    ASSERT_EQ(found[0].size(), 3);
    ASSERT_EQ(found[1].size(), 3);
    for (const auto& [name, want] : found[0]) EXPECT_EQ(found[1].at(name).values(), want.values()) << name;
  }
}

}  // namespace
}  // namespace twinforge
