// What the text must show without being run: one row a primitive, weights read as they lie, blocks shared,
// caches donated, axes split, and what is refused.
#include "reference/stablehlo/stablehlo.h"

#include <cmath>
#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/diagnostic.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/op.h"
#include "ir/rewriter.h"
#include "ir/text.h"
#include "reference/stablehlo/mlir_body.h"
#include "reference/stablehlo/spelling.h"
#include "tests/transforms/small_models.h"
#include "weights/build.h"

namespace twinforge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const StableHloOptions kDecodeOfTwo{StableHloPhase::kDecode, 2, 1, 16, std::nullopt};
const StableHloOptions kPrefillOfTwo{StableHloPhase::kPrefill, 2, 8, 16, std::nullopt};

Graph Small(const std::string& name, int64_t layers = 2) {
  SmallSizes sizes;
  sizes.layers = layers;
  for (SmallModel& model : SmallModels(sizes)) {
    if (model.name == name) return std::move(model.graph);
  }
  ADD_FAILURE() << "no small model " << name;
  return Graph();
}

StableHloModule Written(const Graph& graph, const StableHloOptions& options) {
  absl::StatusOr<StableHloModule> module = WriteStableHlo(graph, options);
  EXPECT_TRUE(module.ok()) << module.status();
  return module.ok() ? *std::move(module) : StableHloModule();
}

// Every second layer sees 4 tokens back.
Graph TwoKinds(int64_t layers) {
  Graph graph = Small("qwen3", layers);
  Rewriter rewriter(graph, "");
  for (int64_t i = 0; i < layers; i += 2) {
    const Node& node = *graph.FindNode(absl::StrCat("layers.", i, ".attn"));
    OpAttrs attrs = *node.attrs;
    attrs.mutable_attention()->set_window(4);
    rewriter.SetAttrs(node.id, attrs);
  }
  return graph;
}

int Count(absl::string_view text, absl::string_view of) {
  int count = 0;
  for (size_t at = text.find(of); at != absl::string_view::npos; at = text.find(of, at + 1)) ++count;
  return count;
}

int CodeOf(const absl::Status& status) { return DiagnosticOf(status) ? DiagnosticOf(status)->code : 0; }

// ---- spellings

TEST(Spellings, ThereIsOneForEveryPrimitiveOrAReason) {
  std::vector<std::string> not_written;
  for (const OpInfo& info : AllOps()) {
    if (info.composite != nullptr) continue;
    const auto place = static_cast<size_t>(info.kind);
    ASSERT_LT(place, Spellings().size()) << info.name;
    const Spelling& row = Spellings()[place];
    EXPECT_EQ(row.kind, info.kind) << info.name;
    if (row.write != nullptr) continue;
    EXPECT_FALSE(row.says.empty() && row.note.empty()) << info.name;
    not_written.emplace_back(info.name);
  }
  EXPECT_THAT(not_written, ElementsAre("input", "param", "opaque"));
}

TEST(Spellings, StandInTheDocumentation) {
  std::ifstream file(absl::StrCat(TWINFORGE_SOURCE_DIR, "/docs/stablehlo.md"));
  std::stringstream page;
  page << file.rdbuf();
  for (const Spelling& row : Spellings()) {
    const std::string says = row.says.empty()         ? "refused"
                             : row.says == "argument" ? "an argument"
                                                      : absl::StrCat("`", row.says, "`");
    EXPECT_THAT(page.str(),
                HasSubstr(absl::StrCat("| `", Info(row.kind).name, "` | ", says, " | ", row.note, " |\n")));
  }
}

TEST(Literals, ReadBackToTheSameValue) {
  EXPECT_EQ(MlirLiteral(DType::kF32, 0.1), "0.1");
  EXPECT_EQ(MlirLiteral(DType::kBF16, 0.1), "0.1");
  EXPECT_EQ(MlirLiteral(DType::kF64, 0.1f), "0.10000000149011612");
  EXPECT_EQ(MlirLiteral(DType::kF32, 1e20), "1.0e+20");
  EXPECT_EQ(MlirLiteral(DType::kF32, -INFINITY), "0xFF800000");
  EXPECT_EQ(MlirLiteral(DType::kBF16, INFINITY), "0x7F80");
  EXPECT_EQ(MlirLiteral(DType::kI32, -2147483648.0), "-2147483648");
  EXPECT_EQ(MlirLiteral(DType::kBool, 1), "true");
}

TEST(Names, AreIdentifiersWhateverTheyWere) {
  EXPECT_EQ(MlirIdentifier("layers.0.attn.q"), "layers.0.attn.q");
  EXPECT_EQ(MlirIdentifier("3 \"x\"\n"), "_3__x__");
  EXPECT_EQ(MlirIdentifier(""), "_");
}

// ---- modules

TEST(Modules, LayersThatAreAlikeShareTheirFunctions) {
  const StableHloModule module = Written(Small("llama", 100), kDecodeOfTwo);
  EXPECT_EQ(Count(module.text, "func.func private @attention_"), 1);
  EXPECT_EQ(Count(module.text, "stablehlo.composite \"twinforge.attention\""), 100);
  EXPECT_EQ(Count(module.text, "call @gated_mlp_0"), 100);
  // Layers that look back differently are two kinds.
  EXPECT_EQ(Count(Written(TwoKinds(4), kDecodeOfTwo).text, "func.func private @attention_"), 2);
}

TEST(Modules, MixturesAreHooks) {
  EXPECT_THAT(Written(Small("mixtral"), kDecodeOfTwo).text,
              HasSubstr("stablehlo.composite \"twinforge.moe\""));
  EXPECT_THAT(Written(Small("deepseek"), kDecodeOfTwo).text,
              HasSubstr("stablehlo.composite \"twinforge.latent_attention\""));
}

TEST(Modules, ProductsWithFewKeptWeightsAreHooks) {
  Graph graph = Small("qwen3", 2);
  Rewriter rewriter(graph, "");
  for (const char* layer : {"layers.0", "layers.1"}) {
    const Param down = *graph.FindParam(absl::StrCat(layer, ".mlp.down"));  // [d_ff=14 -> d_model=12]
    // Of places 0 and 7, 1 and 8, ... of the first axis one is kept: groups of 2 with a stride of 7.
    const WeightPtr kept = GroupKeepLargest(Reshape(down.program, {1, 2, 7 * 12}), 1, 2, 1);
    rewriter.SetParam(down.role, down.type, Reshape(kept, {14, 12}));
    const Param up = *graph.FindParam(absl::StrCat(layer, ".mlp.up"));  // [d_model=12 -> d_ff=14]
    rewriter.SetParam(up.role, up.type,
                      Reshape(GroupKeepLargest(Reshape(up.program, {12 * 7, 2, 1}), 1, 2, 1), {12, 14}));
  }
  const std::string text = Written(graph, kPrefillOfTwo).text;
  EXPECT_EQ(Count(text, "stablehlo.composite \"twinforge.nm_matmul\""), 2);
  EXPECT_EQ(Count(text, "func.func private @nm_matmul_"), 2);
  EXPECT_THAT(text, HasSubstr("{along = \"in\", keep = 1 : i64, of = 2 : i64, stride = 7 : i64}"));
  EXPECT_THAT(text, HasSubstr("{along = \"out\", keep = 1 : i64, of = 2 : i64, stride = 1 : i64}"));
}

TEST(Modules, CachesAreDonatedToTheResultsThatTakeTheirPlace) {
  const StableHloModule module = Written(Small("llama"), kDecodeOfTwo);
  int caches = 0;
  for (const StableHloArgument& argument : module.arguments) {
    if (argument.kind != StableHloArgument::Kind::kCache) continue;
    ++caches;
    ASSERT_GE(argument.result, 0);
    const StableHloResult& result = module.results[argument.result];
    EXPECT_EQ(result.name, argument.name);
    EXPECT_EQ(result.shape, argument.shape);
    EXPECT_EQ(argument.shape, (Shape{2, 16, 2, 10}));
    EXPECT_THAT(module.text, HasSubstr(absl::StrCat("tf.aliasing_output = ", argument.result, " : i32")));
  }
  EXPECT_EQ(caches, 4);
  EXPECT_EQ(module.results[0].name, "out");
  EXPECT_EQ(Count(module.text, "stablehlo.dynamic_update_slice"), 2);  // of one function, for k and v
}

TEST(Modules, AnEncoderHasNoCache) {
  const StableHloModule module = Written(Small("bert"), kPrefillOfTwo);
  EXPECT_EQ(module.results.size(), 1);
  EXPECT_EQ(CodeOf(WriteStableHlo(Small("bert"), kDecodeOfTwo).status()), 1620);
}

// No weight is turned around: what is transposed is a value that was computed.
TEST(Modules, WeightsAreReadAsTheyLie) {
  for (const char* name : {"llama", "qwen3", "gemma3", "gpt2", "bert", "mixtral", "gpt_oss", "deepseek"}) {
    const StableHloModule module = Written(Small(name), kPrefillOfTwo);
    for (absl::string_view line : absl::StrSplit(module.text, '\n')) {
      if (!absl::StrContains(line, "stablehlo.transpose %")) continue;
      const std::string operand(line.substr(line.find("transpose %") + 11, 1));
      EXPECT_TRUE(operand[0] >= '0' && operand[0] <= '9') << name << ": " << line;
    }
  }
}

TEST(Modules, ABundleIsOneArgumentAndOneProduct) {
  Graph graph = Small("qwen3", 1);
  const std::string alone = Written(graph, kPrefillOfTwo).text;
  Rewriter rewriter(graph, "");
  rewriter.AddBundle({"layers.0.attn.qkv", {"layers.0.attn.q", "layers.0.attn.k", "layers.0.attn.v"}});
  const StableHloModule module = Written(graph, kPrefillOfTwo);
  EXPECT_EQ(Count(module.text, "stablehlo.dot_general"), Count(alone, "stablehlo.dot_general") - 2);
  for (const StableHloArgument& argument : module.arguments) {
    if (argument.name != "layers.0.attn.qkv") continue;
    EXPECT_EQ(argument.shape, (Shape{(6 + 2 + 2) * 10, 12}));
    EXPECT_THAT(argument.roles, ElementsAre("layers.0.attn.q", "layers.0.attn.k", "layers.0.attn.v"));
    return;
  }
  FAIL() << "no argument holds the three";
}

TEST(Modules, StackedLayersAreOneArgument) {
  Graph graph = Small("qwen3", 3);
  Rewriter rewriter(graph, "");
  rewriter.AddStack({"layers.0-2.attn.o", {"layers.0.attn.o", "layers.1.attn.o", "layers.2.attn.o"}});
  const StableHloModule module = Written(graph, kPrefillOfTwo);
  EXPECT_THAT(module.text, HasSubstr("%layers.0_2.attn.o: tensor<3x12x60xf32>"));
  EXPECT_EQ(Count(module.text, "stablehlo.slice %layers.0_2.attn.o"), 3);
  const auto parts = WriteStableHloParts(graph, kPrefillOfTwo);
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_THAT((*parts)[1].module.text, HasSubstr("%layers.0.attn.o: tensor<12x60xf32>"));
}

TEST(Modules, AxesAreSplitOverAMesh) {
  Graph graph = Small("qwen3", 1);
  Rewriter rewriter(graph, "");
  for (const char* slot : {"q", "k", "v", "o"}) {
    Param param = *graph.FindParam(absl::StrCat("layers.0.attn.", slot));
    for (ParamAxis& axis : param.type.axes) {
      if (axis.name == "heads" || axis.name == "kv_heads") axis.shards = 2;
    }
    rewriter.SetParam(param.role, param.type, param.program);
  }
  const StableHloModule module = Written(graph, kDecodeOfTwo);
  EXPECT_THAT(module.mesh, ElementsAre(std::pair<std::string, int64_t>("model", 2)));
  EXPECT_THAT(module.text, HasSubstr("mhlo.num_partitions = 2 : i32"));
  EXPECT_THAT(module.text, HasSubstr("sdy.mesh @mesh = <[\"model\"=2]>"));
  EXPECT_THAT(module.text,
              HasSubstr("%layers.0.attn.q: tensor<60x12xf32> {sdy.sharding = #sdy.sharding<@mesh, "
                        "[{\"model\"}, {}]>}"));
  EXPECT_THAT(module.text,
              HasSubstr("%layers.0.attn.o: tensor<12x60xf32> {sdy.sharding = #sdy.sharding<@mesh, "
                        "[{}, {\"model\"}]>}"));
  EXPECT_THAT(module.text, HasSubstr("sdy.sharding = #sdy.sharding<@mesh, [{}, {}, {\"model\"}, {}]>"));
  Param odd = *graph.FindParam("layers.0.mlp.up");
  odd.type.axes[1].shards = 7;
  rewriter.SetParam(odd.role, odd.type, odd.program);
  EXPECT_EQ(CodeOf(WriteStableHlo(graph, kDecodeOfTwo).status()), 1620);
}

TEST(Modules, ComputeInTheTypeThatIsAsked) {
  StableHloOptions options = kPrefillOfTwo;
  options.dtype = DType::kF32;
  const StableHloModule module = Written(Small("llama_tied_bf16"), options);
  EXPECT_EQ(module.results[0].dtype, DType::kF32);
  EXPECT_THAT(module.text, HasSubstr("%embed: tensor<23x12xbf16>"));
  EXPECT_THAT(module.text, Not(HasSubstr("precision = [DEFAULT, DEFAULT]")));
}

TEST(Modules, LogitsMayBeOfTheLastTokenAlone) {
  StableHloOptions options = kPrefillOfTwo;
  options.logits = StableHloLogits::kLast;
  const StableHloModule module = Written(Small("llama"), options);
  EXPECT_EQ(module.results[0].shape, (Shape{2, 1, 23}));
  EXPECT_THAT(module.text, HasSubstr("[0:2, 7:8, 0:12]"));
  // Of one token the last is each.
  options = kDecodeOfTwo;
  const std::string each = Written(Small("llama"), options).text;
  options.logits = StableHloLogits::kLast;
  EXPECT_EQ(Written(Small("llama"), options).text, each);
}

TEST(Modules, SizesAreChecked) {
  const Graph graph = Small("llama");
  EXPECT_EQ(CodeOf(WriteStableHlo(graph, {StableHloPhase::kDecode, 0, 1, 8, {}}).status()), 1621);
  EXPECT_EQ(CodeOf(WriteStableHlo(graph, {StableHloPhase::kDecode, 1, 9, 8, {}}).status()), 1621);
  const int64_t large = int64_t{1} << 30;
  EXPECT_EQ(CodeOf(WriteStableHlo(graph, {StableHloPhase::kPrefill, large, large, large, {}}).status()),
            1621);
}

TEST(Modules, WhatHasNoWordsIsRefusedByName) {
  const char* graphs[] = {
      "graph t(a: f32[n=3]) -> (y: y) {\n  y = opaque(a) {domain: 'ai.onnx' op: 'NonZero' type: "
      "'f32[n=3]'}\n}\n",
      "graph t(a: c64[n=3]) -> (y: y) {\n  y = negate(a)\n}\n"};
  for (const char* text : graphs) {
    const auto graph = ParseGraph(text);
    ASSERT_TRUE(graph.ok()) << graph.status();
    EXPECT_EQ(CodeOf(WriteStableHlo(*graph, kPrefillOfTwo).status()), 1620) << text;
  }
}

// What was written out counts tokens from 0 and remembers none.
TEST(Modules, PrimitivesHaveNoDecodeStep) {
  const auto graph = ParseGraph("graph t(a: f32[batch, seq]) -> (y: y) {\n  y = reverse(a) {axis: 1}\n}\n");
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_TRUE(WriteStableHlo(*graph, kPrefillOfTwo).ok());
  EXPECT_EQ(CodeOf(WriteStableHlo(*graph, kDecodeOfTwo).status()), 1620);
}

// ---- parts

TEST(Parts, AreWhatPrecedesTheLayersOneOfEachKindAndWhatFollows) {
  const auto parts = WriteStableHloParts(TwoKinds(6), kDecodeOfTwo);
  ASSERT_TRUE(parts.ok()) << parts.status();
  ASSERT_EQ(parts->size(), 4);
  EXPECT_EQ((*parts)[0].name, "embedding");
  EXPECT_THAT((*parts)[1].members, ElementsAre("layers.0", "layers.2", "layers.4"));
  EXPECT_THAT((*parts)[2].members, ElementsAre("layers.1", "layers.3", "layers.5"));
  EXPECT_EQ((*parts)[3].name, "head");
  std::set<std::string> names;
  for (const StableHloPart& part : *parts) names.insert(part.module.name);
  EXPECT_EQ(names.size(), 4);
  const StableHloModule& layer = (*parts)[1].module;
  EXPECT_EQ(layer.arguments[0].name, "hidden");
  EXPECT_EQ(layer.results.size(), 3);  // what follows reads, and the two caches
  EXPECT_EQ((*parts)[3].module.results[0].name, "out");
}

}  // namespace
}  // namespace twinforge
