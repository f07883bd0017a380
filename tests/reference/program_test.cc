// Kinds of layers and the loops over them, expressions of numpy, and the graphs that no code is written for.
#include "reference/program.h"

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "importers/importer.h"
#include "ir/layout.h"
#include "ir/text.h"
#include "reference/expression.h"
#include "reference/python.h"
#include "reference/reference.h"
#include "tests/importers/small_checkpoints.h"
#include "weights/build.h"

namespace twinforge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Model ModelOf(const std::string& config, int64_t layers = 0) {
  std::string text = SmallConfigOf(config);
  if (layers > 0) {
    text = absl::StrReplaceAll(
        text, {{R"("num_hidden_layers": 3)", absl::StrCat(R"("num_hidden_layers": )", layers)}});
  }
  absl::StatusOr<Model> model = ModelFromConfigText(text, config);
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

// Kinds in the order of layers, and each cycle as {first, period, repeats}.
struct Shape3 {
  size_t kinds;
  std::vector<std::vector<int>> cycles;
};

Shape3 ShapeOf(const Graph& graph) {
  const absl::StatusOr<ReferenceProgram> program = MakeReferenceProgram(graph, RolesFromTwin(graph));
  EXPECT_TRUE(program.ok()) << program.status();
  Shape3 shape{program->kinds.size(), {}};
  for (const LayerCycle& cycle : program->cycles)
    shape.cycles.push_back({cycle.first, static_cast<int>(cycle.kinds.size()), cycle.repeats});
  return shape;
}

TEST(Program, EqualLayersAreOneLoop) {
  const Shape3 llama = ShapeOf(ModelOf("llama").graph);
  EXPECT_EQ(llama.kinds, 1u);
  EXPECT_THAT(llama.cycles, ElementsAre(ElementsAre(0, 1, 3)));
}

TEST(Program, AlternatingLayersAreOneLoopOfTwo) {
  const Shape3 gemma = ShapeOf(ModelOf("gemma2", 8).graph);
  EXPECT_EQ(gemma.kinds, 2u);
  EXPECT_THAT(gemma.cycles, ElementsAre(ElementsAre(0, 2, 4)));
}

TEST(Program, LayersBeforeALoopStandAlone) {
  const Shape3 deepseek = ShapeOf(ModelOf("deepseek_v3", 6).graph);
  EXPECT_EQ(deepseek.kinds, 2u);
  EXPECT_THAT(deepseek.cycles, ElementsAre(ElementsAre(0, 1, 1), ElementsAre(1, 1, 5)));
}

std::string ReasonOf(const Graph& graph, const std::map<std::string, WeightPtr>& programs) {
  const absl::Status status = ReferenceFiles(graph, programs).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
  return std::string(status.message());
}

// The graph of three llama layers with a part of its text replaced.
Graph Edited(const std::string& from, const std::string& to) {
  const std::string text = Text(ModelOf("llama").graph);
  const std::string edited = absl::StrReplaceAll(text, {{from, to}});
  EXPECT_NE(edited, text);
  absl::StatusOr<Graph> graph = ParseGraph(edited);
  EXPECT_TRUE(graph.ok()) << graph.status();
  return *std::move(graph);
}

TEST(Program, GraphsWithoutCodeAreToldApartWithTheReason) {
  const Graph llama = ModelOf("llama").graph;
  EXPECT_THAT(ReasonOf(llama, {}), HasSubstr("no stored tensor holds"));
  const Graph jump =
      Edited("layers.1.norm_in = rms_norm(layers.0.add_mlp)", "layers.1.norm_in = rms_norm(embed)");
  EXPECT_THAT(ReasonOf(jump, RolesFromTwin(jump)), HasSubstr("layers.1.norm_in reads embed"));
  const Graph primitive = Edited("layers.1.norm_in = rms_norm(layers.0.add_mlp)",
                                 "layers.1.twice = multiply(layers.0.add_mlp, layers.0.add_mlp)\n  "
                                 "layers.1.norm_in = rms_norm(layers.1.twice)");
  EXPECT_THAT(ReasonOf(primitive, RolesFromTwin(primitive)), HasSubstr("no code is written for multiply"));
  std::map<std::string, WeightPtr> computed = RolesFromTwin(llama);
  computed["norm"] = Scale(computed["norm"], 2);
  EXPECT_THAT(ReasonOf(llama, computed), HasSubstr("norm: a weight is computed where it is read"));
}

TEST(Program, AHundredLayersAreAsLongAsTwelve) {
  const Model model = ModelOf("qwen3_moe", 100), small = ModelOf("qwen3_moe", 12);
  const auto files = [](const Graph& graph) { return ReferenceFiles(graph, RolesFromTwin(graph)); };
  const auto large = files(model.graph);
  ASSERT_TRUE(large.ok()) << large.status();
  const auto short_one = files(small.graph);
  ASSERT_TRUE(short_one.ok()) << short_one.status();
  EXPECT_LT((*large)[0].content.size(), (*short_one)[0].content.size() + 100);
}

std::string Said(const WeightPtr& w, int64_t layer = -1) {
  const absl::StatusOr<std::string> text = NumpyExpression(w, layer);
  return text.ok() ? *text : std::string(text.status().message());
}

TEST(Expression, SaysEachVerbThatMoves) {
  const WeightPtr w = Source("a.3.w", DType::kF32, {6, 8});
  EXPECT_EQ(Said(w), R"(read("a.3.w"))");
  EXPECT_EQ(Said(w, 3), R"(read(f"a.{i}.w"))");
  EXPECT_EQ(Said(w, 4), R"(read("a.3.w"))");
  EXPECT_EQ(Said(Reshape(w, {2, 3, 8})), R"(read("a.3.w").reshape(2, 3, 8))");
  EXPECT_EQ(Said(Slice(w, 1, 2, 3)), R"(read("a.3.w")[:, 2:5])");
  EXPECT_EQ(Said(Take(w, 0, IndexMap::Slice(1, 3, 2))), R"(read("a.3.w")[1:6:2])");
  EXPECT_EQ(Said(Take(w, 1, IndexMap::Join({IndexMap::Slice(0, 2), IndexMap::Slice(5, 3)}))),
            R"(np.take(read("a.3.w"), np.r_[0:2, 5:8], axis=1))");
  EXPECT_EQ(Said(Take(w, 1, IndexMap::Tile(IndexMap::Slice(0, 1), 3, 3))), R"(read("a.3.w")[:, 0:7:3])");
  EXPECT_EQ(Said(Take(Source("b", DType::kF32, {12}), 0, IndexMap::Tile(IndexMap::Slice(0, 2), 3, 4))),
            R"(np.take(read("b"), np.add.outer(np.arange(0, 9, 4), np.arange(2)).ravel(), axis=0))");
  EXPECT_EQ(Said(StackedSources("e.", 0, 4, ".w", DType::kF32, {2, 3})),
            R"py(np.stack([read(f"e.{e}.w") for e in range(4)]))py");
  EXPECT_THAT(Said(Cast(w, DType::kBF16)), HasSubstr("computed"));
  EXPECT_THAT(Said(Pad(w, 0, 2)), HasSubstr("padded"));
}

TEST(Expression, SaysEachVerbThatMovesInTorch) {
  const auto said = [](const WeightPtr& w, int64_t layer = -1) {
    const absl::StatusOr<std::string> text = TorchExpression(w, layer);
    return text.ok() ? *text : std::string(text.status().message());
  };
  const WeightPtr w = Source("a.3.w", DType::kF32, {6, 8});
  EXPECT_EQ(said(Slice(w, 1, 2, 3), 3), R"(read(f"a.{i}.w")[:, 2:5])");
  EXPECT_EQ(said(Take(w, 1, IndexMap::Join({IndexMap::Slice(0, 2), IndexMap::Slice(5, 3)}))),
            R"(take(read("a.3.w"), 1, range(0, 2), range(5, 8)))");
  EXPECT_EQ(said(Take(Source("b", DType::kF32, {12}), 0, IndexMap::Tile(IndexMap::Slice(0, 2), 3, 4))),
            R"(take(read("b"), 0, *(range(j, j + 2) for j in range(0, 9, 4))))");
  EXPECT_EQ(said(Take(w, 0, IndexMap({{3, -1, 4}, {5, 1, 1}}))),
            R"(take(read("a.3.w"), 0, range(3, -1, -1), range(5, 6)))");
  EXPECT_EQ(said(Transpose(w, {1, 0})), R"py(read("a.3.w").permute(1, 0))py");
  EXPECT_EQ(said(Concat(1, {w, Source("c", DType::kF32, {6, 2})})),
            R"(torch.cat([read("a.3.w"), read("c")], dim=1))");
  EXPECT_EQ(said(StackedSources("e.", 0, 4, ".w", DType::kF32, {2, 3})),
            R"py(torch.stack([read(f"e.{e}.w") for e in range(4)]))py");
  EXPECT_THAT(said(Cast(w, DType::kBF16)), HasSubstr("computed"));
}

TEST(Expression, NamesOfFilesEndNothing) {
  EXPECT_EQ(PyString("a\"b\\\n"), R"("a\"b\\\x0a")");
  EXPECT_EQ(PyInFString("{x}"), "{{x}}");
  EXPECT_EQ(PyFloat(0.25), "0.25");
  EXPECT_EQ(PyFloat(10000), "10000.0");
  EXPECT_EQ(PyFloat(1e-5), "1e-05");
}

}  // namespace
}  // namespace twinforge
