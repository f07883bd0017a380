#include <cmath>

#include "base/diagnostic.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/layout.h"
#include "ir/rewriter.h"
#include "ir/rope.h"
#include "ir/verify.h"
#include "tests/ir/tiny.h"
#include "weights/build.h"

namespace twinforge {
namespace {

using ::testing::HasSubstr;

JsonValue Config(bool tied) { return *ParseJson(LlamaConfig(tied), "config.json"); }

std::string Written(const Layout& layout, const Graph& graph, bool tied) {
  absl::StatusOr<JsonValue> config = ConfigFromGraph(layout, graph, Config(tied));
  return config.ok() ? config->Text(0) : Render(config.status());
}

// Pads `axis` of the attention's parameters in `slots` at its end.
void PadAxis(Rewriter& rewriter, std::initializer_list<const char*> slots, const char* axis, int64_t to) {
  for (const char* slot : slots) {
    const std::string role = std::string("layers.0.attn.") + slot;
    const Param& param = *rewriter.graph().FindParam(role);
    ParamType type = param.type;
    const int at = type.Find(axis);
    WeightPtr program = Pad(param.program, at, to - type.axes[at].size);
    type.axes[at].size = to;
    rewriter.SetParam(role, std::move(type), std::move(program));
  }
}

void PadHeads(Rewriter& rewriter, int64_t to) { PadAxis(rewriter, {"q", "k", "v", "o"}, "head_dim", to); }

void SetAttention(Rewriter& rewriter, int64_t rotary, double theta, double scale) {
  const Node& node = *rewriter.graph().FindNode("layers.0.attn");
  OpAttrs attrs = *node.attrs;
  attrs.mutable_attention()->set_scale(scale);
  attrs.mutable_attention()->mutable_rope()->set_rotary_dim(rotary);
  attrs.mutable_attention()->mutable_rope()->set_theta(theta);
  rewriter.SetAttrs(node.id, attrs);
}

TEST(ConfigTest, AnUntouchedGraphSaysTheSameConfig) {
  for (bool tied : {true, false}) {
    EXPECT_EQ(Written(LlamaLayout(), TinyLlama(tied), tied), Config(tied).Text(0));
  }
}

TEST(ConfigTest, PortablePaddingWritesHeadDimAndTheta) {
  for (bool tied : {true, false}) {
    Graph graph = TinyLlama(tied);
    Rewriter rewriter(graph, "1 pad_head_dim");
    PadHeads(rewriter, 32);
    SetAttention(rewriter, 32, 1e8, DefaultScale(32));
    const JsonValue config = *ConfigFromGraph(LlamaLayout(), graph, Config(tied));
    EXPECT_EQ(config.Find("head_dim")->as_integer(), 32);
    EXPECT_EQ(config.FindPath(tied ? "rope_theta" : "rope_parameters.rope_theta")->as_number(), 1e8);
    EXPECT_EQ(config.Find(tied ? "rope_parameters" : "rope_theta"), nullptr) << "no spelling is added";
    EXPECT_EQ(config.Find("attention_multiplier"), nullptr);
  }
}

TEST(ConfigTest, AScaleThatNoKeySaysNeedsACarrier) {
  Graph graph = TinyLlama(true);
  Rewriter rewriter(graph, "1 pad_head_dim");
  PadHeads(rewriter, 32);
  SetAttention(rewriter, 32, 1e8, DefaultScale(16));
  const JsonValue config = *ConfigFromGraph(LlamaLayout(), graph, Config(true));
  EXPECT_EQ(config.Find("model_type")->as_string(), "granite");
  EXPECT_EQ(config.Find("attention_multiplier")->as_number(), 0.25);
  EXPECT_EQ(config.Find("logits_scaling")->Text(0), "1.0");
  Layout layout = LlamaLayout();
  layout.carriers.clear();
  EXPECT_THAT(
      Written(layout, graph, true),
      HasSubstr(
          "error[TF1602]: layers.0.attn: after step 1 pad_head_dim: softmax scale 0.25 is not the 0.176777 "
          "that a plain runtime derives, and no key says it"));
}

TEST(ConfigTest, AScaleKeyOfTheFamilyIsUsedFirst) {
  Layout layout = LlamaLayout();
  layout.bindings.push_back(
      {.key = "query_pre_attn_scalar", .fact = ConfigBinding::Fact::kSoftmaxScalePower, .implied = 16});
  Graph graph = TinyLlama(true);
  Rewriter rewriter(graph, "1 pad_head_dim");
  PadHeads(rewriter, 32);
  SetAttention(rewriter, 32, 1e8, std::pow(24.0, -0.5));
  const JsonValue config = *ConfigFromGraph(layout, graph, Config(true));
  EXPECT_EQ(config.Find("query_pre_attn_scalar")->Text(0), "24");
  EXPECT_EQ(config.Find("model_type")->as_string(), "llama");
}

TEST(ConfigTest, NativePaddingIsRefused) {
  Graph graph = TinyLlama(true);
  Rewriter rewriter(graph, "1 pad_head_dim");
  PadHeads(rewriter, 32);
  EXPECT_THAT(Written(LlamaLayout(), graph, true),
              HasSubstr("rotary_dim 16 of a head of 32: a plain runtime turns the whole head"));
  Layout layout = LlamaLayout();
  layout.head_dim_is_key = false;
  EXPECT_THAT(Written(layout, graph, true),
              HasSubstr("this family derives head_dim as 64 / 4, the twin has 32"));
}

TEST(ConfigTest, WhatOtherKeysImplyHoldsWhileTheyStand) {
  Layout layout = LlamaLayout();
  for (ConfigBinding& binding : layout.bindings) {
    if (binding.key == "head_dim") binding.implied_from = {"hidden_size", "num_attention_heads"};
  }
  Graph graph = TinyLlama(true);
  EXPECT_EQ(ConfigFromGraph(layout, graph, Config(true))->Find("head_dim"), nullptr);
  // Six heads of 16: hidden_size / heads would be 10.
  Rewriter rewriter(graph, "1 pad_heads");
  PadAxis(rewriter, {"q", "o"}, "heads", 6);
  ASSERT_TRUE(Verify(graph).ok()) << Verify(graph);
  EXPECT_EQ(ConfigFromGraph(layout, graph, Config(true))->Find("head_dim")->as_integer(), 16);
}

TEST(ConfigTest, LongropeFollowsTheHeads) {
  Graph graph = TinyLlama(true);
  Rewriter rewriter(graph, "1 pad_heads");
  OpAttrs attrs = *graph.FindNode("layers.0.attn")->attrs;
  RopeScaling& scaling = *attrs.mutable_attention()->mutable_rope()->mutable_scaling();
  scaling.set_kind(RopeScaling::LONGROPE);
  for (int i = 0; i < 8; ++i) {
    scaling.add_short_factor(1);
    scaling.add_long_factor(1);
  }
  rewriter.SetAttrs(graph.FindNode("layers.0.attn")->id, attrs);
  EXPECT_TRUE(ConfigFromGraph(LlamaLayout(), graph, Config(true)).ok());
  PadAxis(rewriter, {"q", "o"}, "heads", 6);
  EXPECT_THAT(Written(LlamaLayout(), graph, true),
              HasSubstr("loaders count longrope's factors by d_model / heads"));
}

TEST(ConfigTest, PartialRotaryIsAFactor) {
  Layout layout = LlamaLayout();
  layout.partial_rotary_is_key = true;
  layout.bindings.push_back(
      {.key = "partial_rotary_factor", .fact = ConfigBinding::Fact::kPartialRotary, .implied = 1});
  Graph graph = TinyLlama(true);
  EXPECT_EQ(ConfigFromGraph(layout, graph, Config(true))->Find("partial_rotary_factor"), nullptr);
  Rewriter rewriter(graph, "1 pad_head_dim");
  PadHeads(rewriter, 48);
  SetAttention(rewriter, 16, 1e4, DefaultScale(48));
  const double factor =
      ConfigFromGraph(layout, graph, Config(true))->Find("partial_rotary_factor")->as_number();
  EXPECT_EQ(static_cast<int64_t>(48 * factor), 16);
}

TEST(ConfigTest, UntyingIsSaid) {
  Graph graph = TinyLlama(true);
  Rewriter rewriter(graph, "1 test");
  const Param& head = *graph.FindParam("lm_head");
  rewriter.SetParam("lm_head", head.type, Scale(head.program, 2));
  EXPECT_THAT(Written(LlamaLayout(), graph, true), HasSubstr("\"tie_word_embeddings\": false"));
}

TEST(ConfigTest, ACastIsSaid) {
  Graph graph = TinyLlama(true);
  Rewriter rewriter(graph, "1 cast_weights");
  const Graph before = graph;
  for (const auto& [role, param] : before.params()) {
    ParamType type = param.type;
    type.dtype = DType::kF32;
    rewriter.SetParam(role, type, Cast(param.program, DType::kF32));
  }
  EXPECT_THAT(Written(LlamaLayout(), graph, true), HasSubstr("\"torch_dtype\": \"float32\""));
}

TEST(ConfigTest, OneKeyCannotSayTwoThings) {
  Layout layout = LlamaLayout();
  layout.bindings.push_back(
      {.key = "num_attention_heads", .fact = ConfigBinding::Fact::kAxis, .axis = "kv_heads"});
  EXPECT_THAT(Written(layout, TinyLlama(true), true),
              HasSubstr("error[TF1602]: num_attention_heads: one key for two facts of the twin, 4 and 2"));
}

TEST(ConfigTest, AFactWithoutAKeyIsRefused) {
  Graph graph = TinyLlama(true);
  Rewriter rewriter(graph, "1 test");
  SetAttention(rewriter, 16, 5000, DefaultScale(16));
  JsonValue config = Config(true);
  config.Remove("rope_theta");
  EXPECT_THAT(
      Render(ConfigFromGraph(LlamaLayout(), graph, config).status()),
      HasSubstr("error[TF1602]: rope_theta: the twin needs 5000.0 here, and this config has no such key"));
}

TEST(ConfigTest, AQuotientMustDivide) {
  Layout layout = LlamaLayout();
  layout.bindings.push_back({.key = "n_rep",
                             .fact = ConfigBinding::Fact::kAxisQuotient,
                             .axis = "heads",
                             .scope = ".*attn",
                             .text = "kv_heads"});
  EXPECT_EQ(ConfigFromGraph(layout, TinyLlama(true), Config(true))->Find("n_rep")->as_integer(), 2);
  layout.bindings.back().axis = "head_dim";
  layout.bindings.back().text = "d_model";
  EXPECT_THAT(Written(layout, TinyLlama(true), true), HasSubstr("head_dim 16 is no multiple of d_model 64"));
}

TEST(ConfigTest, ASumFollowsWhereItIsPresent) {
  Layout layout = LlamaLayout();
  layout.bindings.push_back({.key = "qk",
                             .fact = ConfigBinding::Fact::kAxisSum,
                             .axis = "heads",
                             .scope = ".*attn",
                             .text = "kv_heads",
                             .only_if_present = true});
  EXPECT_EQ(ConfigFromGraph(layout, TinyLlama(true), Config(true))->Find("qk"), nullptr);
  JsonValue config = Config(true);
  config.Set("qk", JsonValue::Integer(5));
  EXPECT_EQ(ConfigFromGraph(layout, TinyLlama(true), config)->Find("qk")->as_integer(), 6);
}

TEST(ConfigTest, ARopeTurnedTheOtherWayIsRefused) {
  Graph graph = TinyLlama(true);
  Rewriter rewriter(graph, "1 reorder_rope");
  OpAttrs attrs = *graph.FindNode("layers.0.attn")->attrs;
  attrs.mutable_attention()->mutable_rope()->set_style(Rope::INTERLEAVED);
  rewriter.SetAttrs(graph.FindNode("layers.0.attn")->id, attrs);
  EXPECT_THAT(Written(LlamaLayout(), graph, true), HasSubstr("pairs a head's places the other way"));
  Layout layout = LlamaLayout();
  layout.bindings.push_back({.key = "rope_interleave", .fact = ConfigBinding::Fact::kRopeInterleaved});
  EXPECT_THAT(Written(layout, graph, true), HasSubstr("\"rope_interleave\": true"));
}

// deepseek-ai/DeepSeek-V3: factor 40, mscale_all_dim 1, heads of 128 + 64.
TEST(RopeTest, YarnScaleOfLatentAttention) {
  RopeScaling scaling;
  EXPECT_DOUBLE_EQ(DefaultLatentScale(192, scaling), 1 / std::sqrt(192.0));
  scaling.set_kind(RopeScaling::YARN);
  scaling.set_factor(40);
  scaling.set_mscale_all_dim(1);
  const double mscale = 0.1 * std::log(40.0) + 1;
  EXPECT_DOUBLE_EQ(DefaultLatentScale(192, scaling), mscale * mscale / std::sqrt(192.0));
}

}  // namespace
}  // namespace twinforge
