// Whole small models: the evaluator against an independent one written by hand, and decode against prefill.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "eval/evaluate.h"
#include "eval/hidden_states.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/decompose.h"
#include "ir/text.h"
#include "tests/support/naive_weights.h"
#include "tests/transforms/naive_model.h"
#include "tests/transforms/small_models.h"

namespace twinforge {
namespace {

constexpr int64_t kBatch = 2, kSeq = 7;

// Every stored tensor that a graph reads, as RandomTensors makes it.
void Collect(const WeightPtr& w, const TensorReader& reader, NaiveTensors& tensors) {
  if (w->kind() == WeightKind::kSource && !tensors.contains(w->source_name())) {
    NaiveTensor tensor(w->dtype(), w->shape());
    EXPECT_TRUE(reader.ReadElements(*w, 0, w->element_count(), tensor.data.data()).ok());
    tensors.emplace(w->source_name(), std::move(tensor));
  }
  for (const WeightPtr& child : w->children()) Collect(child, reader, tensors);
}

Tensor Tokens(int64_t vocab, int64_t from, int64_t count) {
  std::vector<double> ids;
  for (int64_t b = 0; b < kBatch; ++b) {
    for (int64_t t = from; t < from + count; ++t)
      ids.push_back(static_cast<double>((5 * t + 11 * b + 3) % vocab));
  }
  return Tensor(DType::kI32, {kBatch, count}, std::move(ids));
}

std::vector<SmallModel> Models() {
  SmallSizes sizes;
  sizes.wide = true;
  return SmallModels(sizes);
}

// Largest difference as a share of the largest value.
double Difference(const std::vector<double>& want, const std::vector<double>& got) {
  EXPECT_EQ(want.size(), got.size());
  double largest = 0, most = 0;
  for (size_t i = 0; i < std::min(want.size(), got.size()); ++i) {
    largest = std::max(largest, std::fabs(want[i]));
    most = std::max(most, std::isnan(got[i]) ? HUGE_VAL : std::fabs(want[i] - got[i]));
  }
  return most / largest;
}

// f64 on both sides; sums are in another order.
constexpr double kSame = 1e-12;

TEST(Models, AgreeWithTheOneWrittenByHand) {
  const RandomTensors reader(3);
  for (const SmallModel& model : Models()) {
    SCOPED_TRACE(model.name);
    NaiveTensors sources;
    for (const auto& [role, param] : model.graph.params()) Collect(param.program, reader, sources);
    const Tensor tokens = Tokens(SmallSizes().vocab, 0, kSeq);
    const auto out =
        Evaluate(model.graph, StoredParams(reader), {{"tokens", tokens}}, {.dtype = DType::kF64});
    ASSERT_TRUE(out.ok()) << out.status();
    std::vector<double> want;
    for (int64_t b = 0; b < kBatch; ++b) {
      std::vector<int64_t> row;
      for (int64_t t = 0; t < kSeq; ++t) row.push_back(static_cast<int64_t>(tokens.data()[b * kSeq + t]));
      for (const std::vector<double>& logits : NaiveOutput(model.graph, sources, row)) {
        want.insert(want.end(), logits.begin(), logits.end());
      }
    }
    EXPECT_LE(Difference(want, out->at("out").values()), kSame);
  }
}

bool IsCausal(const Graph& graph) {
  return std::none_of(graph.nodes().begin(), graph.nodes().end(), [](const Node& node) {
    return node.op == OpKind::kAttention && !node.attrs->attention().causal();
  });
}

// The logits of all positions, the tokens given in pieces.
std::vector<double> InPieces(Evaluation& evaluation, const std::vector<int64_t>& pieces) {
  DecodeState state;
  std::vector<std::vector<double>> rows(kBatch);
  int64_t from = 0;
  for (int64_t count : pieces) {
    const auto out = evaluation.Run({{"tokens", Tokens(SmallSizes().vocab, from, count)}}, &state);
    EXPECT_TRUE(out.ok()) << out.status();
    if (!out.ok()) return {};
    const Tensor& logits = out->at("out");
    const int64_t width = logits.count() / kBatch;
    for (int64_t b = 0; b < kBatch; ++b) {
      rows[b].insert(rows[b].end(), logits.data() + b * width, logits.data() + (b + 1) * width);
    }
    from += count;
    EXPECT_EQ(state.past, from);
  }
  std::vector<double> all;
  for (const std::vector<double>& row : rows) all.insert(all.end(), row.begin(), row.end());
  return all;
}

TEST(Models, DecodeWithACacheEqualsPrefill) {
  const RandomTensors reader(4);
  const StoredParams params(reader);
  for (const SmallModel& model : Models()) {
    if (!IsCausal(model.graph)) continue;  // sees what comes after: there is nothing to decode
    SCOPED_TRACE(model.name);
    const auto evaluation = Evaluation::Make(model.graph, params, {.dtype = DType::kF64});
    ASSERT_TRUE(evaluation.ok()) << evaluation.status();
    const auto alone = (*evaluation)->Run({{"tokens", Tokens(SmallSizes().vocab, 0, kSeq)}});
    ASSERT_TRUE(alone.ok()) << alone.status();
    const std::vector<double>& want = alone->at("out").values();
    EXPECT_LE(Difference(want, InPieces(**evaluation, {kSeq})), kSame);
    EXPECT_LE(Difference(want, InPieces(**evaluation, {3, 1, 1, 2})), kSame);
    EXPECT_LE(Difference(want, InPieces(**evaluation, {1, 1, 1, 1, 1, 1, 1})), kSame);
  }
}

TEST(Models, AStateOfAnotherBatchIsRefused) {
  const RandomTensors reader(4);
  const StoredParams params(reader);
  const SmallModel model = Models()[0];
  DecodeState state;
  ASSERT_TRUE(
      Evaluate(model.graph, params, {{"tokens", Tensor(DType::kI32, {1, 2}, {1, 2})}}, {}, &state).ok());
  const auto out =
      Evaluate(model.graph, params, {{"tokens", Tensor(DType::kI32, {2, 1}, {1, 2})}}, {}, &state);
  EXPECT_EQ(DiagnosticOf(out.status())->code, 1901);
  EXPECT_EQ(state.past, 2);
}

TEST(Models, PositionsMayBeGiven) {
  const RandomTensors reader(4);
  const StoredParams params(reader);
  for (const SmallModel& model : Models()) {
    SCOPED_TRACE(model.name);
    const Tensor tokens = Tokens(SmallSizes().vocab, 0, 3);
    const NamedTensors usual = {{"tokens", tokens},
                                {"positions", Tensor(DType::kI32, {2, 3}, {0, 1, 2, 0, 1, 2})}};
    const auto a = Evaluate(model.graph, params, {{"tokens", tokens}});
    const auto b = Evaluate(model.graph, params, usual);
    ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
    EXPECT_EQ(a->at("out").values(), b->at("out").values());
  }
}

TEST(Models, NarrowerTypesStayNearWiderOnes) {
  const RandomTensors reader(6);
  const StoredParams params(reader);
  for (const SmallModel& model : Models()) {
    SCOPED_TRACE(model.name);
    const NamedTensors inputs = {{"tokens", Tokens(SmallSizes().vocab, 0, kSeq)}};
    const auto wide = Evaluate(model.graph, params, inputs, {.dtype = DType::kF64});
    const auto single = Evaluate(model.graph, params, inputs, {.dtype = DType::kF32});
    const auto brain = Evaluate(model.graph, params, inputs, {.dtype = DType::kBF16});
    ASSERT_TRUE(wide.ok() && single.ok() && brain.ok());
    EXPECT_EQ(single->at("out").dtype(), DType::kF32);
    EXPECT_EQ(brain->at("out").dtype(), DType::kBF16);
    const double a = Difference(wide->at("out").values(), single->at("out").values());
    EXPECT_GT(a, 0);
    EXPECT_LT(a, 0x1p-16);
    // A router may choose otherwise when its logits are rounded; the others stay within a few per cent.
    if (model.name != "mixtral" && model.name != "gpt_oss" && model.name != "deepseek") {
      const double b = Difference(wide->at("out").values(), brain->at("out").values());
      EXPECT_GT(b, a);
      EXPECT_LT(b, 0.25);
    }
  }
}

TEST(Models, HiddenStatesAreNamed) {
  const SmallModel model = Models()[0];
  std::map<std::string, std::string> paths;
  for (const auto& [id, name] : HiddenStates(model.graph)) paths[name] = model.graph.node(id).path;
  EXPECT_EQ(paths, (std::map<std::string, std::string>{{"hidden_states.0", "embed"},
                                                       {"hidden_states.1", "layers.0.add_ffn"},
                                                       {"hidden_states.2", "norm"}}));
}

// A decomposition is a graph like any other: well formed, printed and parsed, and its own meaning.
TEST(Models, DecompositionsAreGraphs) {
  for (const SmallModel& model : Models()) {
    for (const Node& node : model.graph.nodes()) {
      if (Info(node.op).composite == nullptr) continue;
      SCOPED_TRACE(absl::StrCat(model.name, " ", node.path));
      for (bool with_state : {false, true}) {
        if (with_state && StateOf(model.graph, node).empty()) continue;
        for (DecompositionDepth depth : {DecompositionDepth::kOnce, DecompositionDepth::kPrimitives}) {
          const auto body = DecompositionOf(model.graph, node, depth, with_state);
          ASSERT_TRUE(body.ok()) << body.status();
          const std::string text = Text(*body);
          const auto again = ParseGraph(text);
          ASSERT_TRUE(again.ok()) << again.status();
          EXPECT_EQ(Text(*again), text);
          for (const Node& part : body->nodes()) {
            EXPECT_TRUE(depth == DecompositionDepth::kOnce || Info(part.op).composite == nullptr)
                << part.path;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace twinforge
