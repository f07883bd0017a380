// What a written ONNX graph must show without being run: one row a primitive, what is repeated or transposed
// left to its readers, equal work said once, weights read as they lie, and what is refused.
#include "reference/onnx/write_onnx.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/diagnostic.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/op.h"
#include "ir/text.h"
#include "onnx/onnx-ml.pb.h"
#include "reference/onnx/spelling.h"
#include "tests/transforms/small_models.h"

namespace twinforge {
namespace {

using ::testing::ElementsAre;

::onnx::ModelProto Read(const absl::StatusOr<WrittenOnnx>& written) {
  ::onnx::ModelProto model;
  EXPECT_TRUE(written.ok()) << written.status();
  EXPECT_TRUE(written.ok() && model.ParseFromString(written->model));
  return model;
}

::onnx::ModelProto WrittenText(const std::string& text, int opset = kUsualOnnxOpset) {
  const absl::StatusOr<Graph> graph = ParseGraph(text);
  EXPECT_TRUE(graph.ok()) << graph.status();
  return graph.ok() ? Read(WriteOnnx(*graph, {.opset = opset})) : ::onnx::ModelProto();
}

Graph SmallNamed(const std::string& name) {
  for (SmallModel& model : SmallModels(SmallSizes())) {
    if (model.name == name) return std::move(model.graph);
  }
  ADD_FAILURE() << "no small model " << name;
  return Graph();
}

int CodeOf(const absl::Status& status) { return DiagnosticOf(status) ? DiagnosticOf(status)->code : 0; }

// "Add(a, b)" for each node, constants as "c".
std::vector<std::string> Said(const ::onnx::ModelProto& model) {
  std::map<std::string, std::string> names;
  for (const auto& constant : model.graph().initializer()) names[constant.name()] = "c";
  for (const auto& input : model.graph().input()) names[input.name()] = input.name();
  std::vector<std::string> said;
  for (const auto& node : model.graph().node()) {
    std::vector<std::string> inputs;
    for (const std::string& input : node.input()) inputs.push_back(names[input]);
    for (const std::string& output : node.output()) names[output] = absl::StrCat("%", said.size());
    said.push_back(absl::StrCat(node.op_type(), "(", absl::StrJoin(inputs, ", "), ")"));
  }
  return said;
}

std::map<std::string, int> Counts(const ::onnx::ModelProto& model) {
  std::map<std::string, int> counts;
  for (const auto& node : model.graph().node()) ++counts[node.op_type()];
  return counts;
}

TEST(Spellings, HaveARowForEachPrimitive) {
  size_t row = 0;
  for (const OpInfo& op : AllOps()) {
    if (op.composite != nullptr) continue;
    ASSERT_LT(row, OnnxSpellings().size());
    EXPECT_EQ(OnnxSpellings()[row].kind, op.kind) << op.name;
    EXPECT_TRUE(OnnxSpellings()[row].write != nullptr || !OnnxSpellings()[row].note.empty()) << op.name;
    ++row;
  }
  EXPECT_EQ(row, OnnxSpellings().size());
}

TEST(Values, WhatRepeatsIsLeftToItsReader) {
  EXPECT_THAT(Said(WrittenText("graph t(a: f32[batch, seq, n=3], b: f32[n=3]) -> (y: y) {\n"
                               "  b3 = broadcast(b) {type: 'f32[batch, seq, n=3]' axes: 2}\n"
                               "  y = add(a, b3)\n}\n")),
              ElementsAre("Add(a, b)"));
  EXPECT_THAT(Said(WrittenText("graph t(a: f32[batch, n=3], b: f32[batch]) -> (y: y) {\n"
                               "  b2 = broadcast(b) {type: 'f32[batch, n=3]' axes: 0}\n"
                               "  y = add(a, b2)\n}\n")),
              ElementsAre("Unsqueeze(b, c)", "Add(a, %0)"));
  EXPECT_THAT(Said(WrittenText("graph t(b: f32[n=3]) -> (y: y) {\n"
                               "  y = broadcast(b) {type: 'f32[m=2, n=3]' axes: 1}\n}\n")),
              ElementsAre("Expand(b, c)"));
}

TEST(Values, TransposesMeet) {
  EXPECT_THAT(Said(WrittenText("graph t(a: f32[m=2, n=3]) -> (y: y) {\n"
                               "  t = transpose(a) {permutation: 1 permutation: 0}\n"
                               "  e = exp(t)\n"
                               "  y = transpose(e) {permutation: 1 permutation: 0}\n}\n")),
              ElementsAre("Exp(a)"));
}

TEST(Nodes, EqualWorkIsSaidOnceAndWhatNobodyNeedsIsNotSaid) {
  EXPECT_THAT(Said(WrittenText("graph t(a: f32[n=3]) -> (y: y) {\n"
                               "  p = exp(a)\n  q = exp(a)\n  r = log(a)\n  y = add(p, q)\n}\n")),
              ElementsAre("Exp(a)", "Add(%0, %0)"));
}

TEST(Models, MasksAndAnglesAreComputedOnceForAllLayers) {
  const ::onnx::ModelProto model = Read(WriteOnnx(SmallNamed("llama"), {}));
  std::map<std::string, int> counts = Counts(model);
  EXPECT_EQ(counts["Cos"], 1);
  EXPECT_EQ(counts["Or"], 1);
  EXPECT_EQ(counts["Softmax"], 2);
  EXPECT_EQ(counts["And"], 1);
  EXPECT_EQ(counts["Where"], 2);
}

TEST(Models, WholeOperatorsWhereTheyMeanTheBlock) {
  std::map<std::string, int> counts = Counts(Read(WriteOnnx(SmallNamed("llama"), {.opset = 23})));
  EXPECT_EQ(counts["RMSNormalization"], 5);
  EXPECT_EQ(counts["RotaryEmbedding"], 4);
  EXPECT_EQ(counts["Attention"], 2);
  EXPECT_EQ(counts["Softmax"] + counts["Exp"], 0);
  counts = Counts(Read(WriteOnnx(SmallNamed("llama"), {.opset = 23, .dtype = DType::kF16})));
  EXPECT_EQ(counts["RMSNormalization"] + counts["RotaryEmbedding"] + counts["Attention"], 0);
}

TEST(Models, WeightsAreAlignedAndComputedInF32WhereStoredInBf16) {
  const auto written = WriteOnnx(SmallNamed("llama"), {});
  ASSERT_TRUE(written.ok()) << written.status();
  int64_t end = 0;
  for (const OnnxStoredWeight& weight : written->weights) {
    EXPECT_EQ(weight.offset % kOnnxAlignment, 0) << weight.tensor.name;
    EXPECT_GE(weight.offset, end);
    end = weight.offset + weight.bytes;
  }
  EXPECT_EQ(written->computed_in, "f32");
}

TEST(Models, WhatHasNoWordsIsRefusedByName) {
  const char* graphs[] = {
      "graph t(a: f32[n=3]) -> (y: y) {\n  y = opaque(a) {domain: 'ai.onnx' op: 'NonZero' type: "
      "'f32[n=3]'}\n}\n",
      "graph t(a: f32[batch, n=3]) -> (y: y) {\n  y = pad(a) {axis: 1 interior: 1}\n}\n",
      "graph t(position_ids: f32[batch, n=3]) -> (w: w) {\n  w = linear(position_ids) @w\n}\n"
      "params {\n  @w: f32[n=3 -> m=4] out_in = transpose(source(\"w\": f32[4, 3]), [1, 0])\n}\n",
      "graph t(a: c64[n=3]) -> (y: y) {\n  y = negate(a)\n}\n"};
  for (const char* text : graphs) {
    const auto graph = ParseGraph(text);
    ASSERT_TRUE(graph.ok()) << graph.status();
    EXPECT_EQ(CodeOf(WriteOnnx(*graph, {}).status()), 1622) << text;
  }
}

TEST(Models, ATypeThatTheOperatorSetDoesNotKnowIsRefused) {
  const auto graph = ParseGraph(
      "graph t(a: f32[batch, n=2]) -> (y: w) {\n  w = linear(a) @w\n}\n"
      "params {\n  @w: f8_e4m3[n=2 -> m=4] out_in = transpose(source(\"w\": f8_e4m3[4, 2]), [1, 0])\n}\n");
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(CodeOf(WriteOnnx(*graph, {.opset = 18, .dtype = DType::kF32}).status()), 1622);
  EXPECT_THAT(Said(Read(WriteOnnx(*graph, {.opset = 19, .dtype = DType::kF32}))),
              ElementsAre("Cast(c)", "Gemm(a, %0)"));
}

}  // namespace
}  // namespace twinforge
