// Raising what was lowered gives the graph that it was: for each family, each composite, and awkward
// attributes.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "importers/importer.h"
#include "ir/text.h"
#include "tests/importers/small_checkpoints.h"
#include "transforms/transform.h"
#include "transforms/transforms.pb.h"

namespace twinforge {
namespace {

StepReport Do(const std::string& text, Graph& graph) {
  TransformStep step;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &step)) << text;
  const auto transform = MakeTransform(step, {});
  EXPECT_TRUE(transform.ok()) << transform.status();
  absl::StatusOr<StepReport> report = Apply(**transform, "1 step", graph, nullptr, nullptr);
  EXPECT_TRUE(report.ok()) << text << report.status();
  return report.ok() ? *report : StepReport();
}

std::string Plain(const Graph& graph) {
  return std::regex_replace(Text(graph), std::regex(" by \"[^\"]*\""), "");
}

int64_t Composites(const Graph& graph) {
  return std::count_if(graph.nodes().begin(), graph.nodes().end(),
                       [](const Node& node) { return Info(node.op).composite != nullptr; });
}

void ComesBack(const Graph& graph) {
  Graph changed = graph;
  const StepReport lowered = Do("lower_composites {}", changed);
  EXPECT_EQ(static_cast<int64_t>(lowered.sites.size()), Composites(graph));
  EXPECT_EQ(Composites(changed), 0);
  EXPECT_THAT(lowered.refused, ::testing::IsEmpty());
  const absl::StatusOr<Graph> read_back = ParseGraph(Text(changed));
  ASSERT_TRUE(read_back.ok()) << read_back.status();
  changed = *read_back;
  const StepReport raised = Do("raise_composites {}", changed);
  EXPECT_EQ(raised.sites.size(), lowered.sites.size());
  EXPECT_EQ(Plain(changed), Plain(graph));
}

// Attention as it is first, with the rope in it left; then the rope.
void ComesBackInTwoSteps(const Graph& graph) {
  Graph changed = graph;
  Do("lower_composites { op: 'attention' op: 'latent_attention' op: 'moe' }", changed);
  Graph partly = changed;
  Do("raise_composites {}", partly);
  EXPECT_EQ(Plain(partly), Plain(graph));
  Do("lower_composites { op: 'rope' op: 'router' }", changed);
  Do("raise_composites {}", changed);
  EXPECT_EQ(Plain(changed), Plain(graph));
}

TEST(RaisingWhatWasLowered, GivesEveryFamilyBack) {
  for (const SmallConfig& config : SmallConfigs()) {
    SCOPED_TRACE(config.name);
    const absl::StatusOr<Model> model = ModelFromConfigText(config.json, config.name);
    ASSERT_TRUE(model.ok()) << model.status();
    ComesBack(model->graph);
    ComesBackInTwoSteps(model->graph);
  }
}

TEST(RaisingWhatWasLowered, GivesEveryCompositeBack) {
  int count = 0;
  const auto folder = std::filesystem::path(TWINFORGE_SOURCE_DIR) / "tests/ir/ops";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".txt") continue;
    SCOPED_TRACE(entry.path().filename().string());
    std::stringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    const std::string whole = text.str();
    const absl::StatusOr<Graph> graph = ParseGraph(whole.substr(0, whole.find("---\n")));
    ASSERT_TRUE(graph.ok()) << graph.status();
    ComesBack(*graph);
    ++count;
  }
  EXPECT_GE(count, 17);
}

// What no primitive shows: which of two ways a fact was said, and what is not used.
TEST(RaisingWhatWasLowered, GivesAttributesBackThatPrimitivesDoNotShow) {
  const std::string norm =
      "y = rms_norm(x) @y {ATTRS}\n}\nparams {\n  @y: f32[d_model=8] = source(\"y\": f32[8])\n}\n";
  const std::string attention =
      "y = attention(x) q=@y.q k=@y.k v=@y.v o=@y.o {ATTRS}\n}\nparams {\n"
      "  @y.k: f32[d_model=8 -> kv_heads=2, head_dim=6] in_out = source(\"y.k\": f32[8, 2, 6])\n"
      "  @y.o: f32[heads=4, head_dim=6 -> d_model=8] in_out = source(\"y.o\": f32[4, 6, 8])\n"
      "  @y.q: f32[d_model=8 -> heads=4, head_dim=6] in_out = source(\"y.q\": f32[8, 4, 6])\n"
      "  @y.v: f32[d_model=8 -> kv_heads=2, head_dim=6] in_out = source(\"y.v\": f32[8, 2, 6])\n}\n";
  const std::string moe =
      "y = moe(x) router=@y.router gate=@y.gate up=@y.up down=@y.down {ATTRS}\n}\nparams {\n"
      "  @y.down: f32[expert=4; d_ff=6 -> d_model=8] out_in per_expert = source(\"down\": f32[4, 6, 8])\n"
      "  @y.gate: f32[expert=4; d_model=8 -> d_ff=6] out_in per_expert = source(\"gate\": f32[4, 8, 6])\n"
      "  @y.router: f32[d_model=8 -> expert=4] out_in = source(\"router\": f32[8, 4])\n"
      "  @y.up: f32[expert=4; d_model=8 -> d_ff=6] out_in per_expert = source(\"up\": f32[4, 8, 6])\n}\n";
  const std::pair<std::string, std::string> cases[] = {
      {norm, "eps: 1e-06 norm_dim: 8"},
      {norm, "eps: 1e-06 offset: -0"},
      {norm, ""},
      {attention, "scale: 0.25 scale_rule: EXPLICIT causal: true"},
      {attention,
       "scale: 0.25 window: 1 chunk: 3 softcap: 50 alibi: 0.5 alibi: 0.25 alibi: -0 alibi: 1e-300"},
      {attention, "scale: 0.25 rope { theta: 10000 rotary_dim: 4 } causal: true"},
      {attention,
       "scale: 0.25 rope { style: INTERLEAVED theta: 10000 rotary_dim: 4 scaling { kind: YARN factor: 4 "
       "original_max_position_embeddings: 64 beta_fast: 32 beta_slow: 1 truncate: false } "
       "max_position_embeddings: 256 } causal: true"},
      {attention,
       "scale: 0.25 rope { style: HALVES theta: 10000 rotary_dim: 4 scaling { kind: DYNAMIC factor: 2 } "
       "max_position_embeddings: 16 } causal: true"},
      {moe, "top_k: 2 routed_scale: 1 groups: 1 top_groups: 1 expert { act: GELU_TANH up_offset: 3 }"},
      {moe,
       "top_k: 1 score: SOFTMAX_TOP renormalize: true expert { act: SILU clamp_alpha: 7 } shared { act: TANH "
       "}"},
  };
  for (const auto& [body, attrs] : cases) {
    SCOPED_TRACE(attrs);
    std::string text = absl::StrCat("graph g(x: f32[batch, seq, d_model=8]) -> (y: y) {\n  ", body);
    text.replace(text.find("ATTRS"), 5, attrs);
    const absl::StatusOr<Graph> graph = ParseGraph(text);
    ASSERT_TRUE(graph.ok()) << graph.status();
    ComesBack(*graph);
  }
}

// One digit of a lowered graph changed at a time: whatever still is a graph is raised, lowered and absorbed
// without a fault, and never to a composite whose decomposition is something else.
TEST(RaisingWhatWasChanged, IsRefusedOrIsWhatStandsThere) {
  const absl::StatusOr<Model> model = ModelFromConfigText(SmallConfigOf("gemma2"), "gemma2");
  ASSERT_TRUE(model.ok()) << model.status();
  Graph lowered = model->graph;
  Do("lower_composites {}", lowered);
  const std::string text = Text(lowered);
  int64_t graphs = 0, refused = 0;
  for (size_t at = text.find("{\n"); at < text.find("params {"); at += 17) {
    if (text[at] < '0' || text[at] > '9') continue;
    std::string changed = text;
    changed[at] = changed[at] == '9' ? '1' : static_cast<char>(changed[at] + 1);
    const absl::StatusOr<Graph> graph = ParseGraph(changed);
    if (!graph.ok()) continue;
    ++graphs;
    Graph raised = *graph, absorbed = *graph;
    refused += Do("raise_composites {}", raised).refused.empty() ? 0 : 1;
    Do("absorb_weight_ops {}", absorbed);
    Graph again = raised;
    Do("lower_composites {}", again);
    Do("raise_composites {}", again);
    EXPECT_EQ(Plain(again), Plain(raised));
  }
  EXPECT_GT(graphs, 20);
  EXPECT_GT(refused, 5);
}

}  // namespace
}  // namespace twinforge
