// What a config or checkpoint may say, and what is refused: spellings, windows, rotary kinds, ties, forms.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/diagnostic.h"
#include "importers/importer.h"
#include "ir/layout_parts.h"
#include "ir/rewriter.h"
#include "tests/importers/checkpoint_files.h"
#include "tests/importers/small_checkpoints.h"
#include "weights/build.h"

namespace twinforge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The small config called `name`, with members changed: a JSON text, or "" to remove the key.
std::string With(const std::string& name, const std::map<std::string, std::string>& changes) {
  JsonValue config = *ParseJson(SmallConfigOf(name), name);
  for (const auto& [key, text] : changes) {
    if (text.empty()) {
      config.Remove(key);
    } else {
      config.Set(key, *ParseJson(text, key));
    }
  }
  return config.Text();
}

absl::StatusOr<Model> Made(const std::string& json) { return ModelFromConfigText(json, "config.json"); }

// "TF1407 message", or "ok".
std::string Said(const absl::Status& status) {
  const std::optional<Diagnostic> diagnostic = DiagnosticOf(status);
  if (!diagnostic) return status.ok() ? "ok" : std::string(status.message());
  return absl::StrCat("TF", diagnostic->code, " ", diagnostic->message);
}

const AttentionAttrs& Attention(const Model& model, int layer) {
  return model.graph.FindNode(absl::StrCat("layers.", layer, ".attn"))->attrs->attention();
}

std::vector<int64_t> Windows(const std::string& json) {
  const absl::StatusOr<Model> model = Made(json);
  EXPECT_TRUE(model.ok()) << model.status();
  std::vector<int64_t> windows;
  for (int layer = 0; model.ok() && layer < 3; ++layer) windows.push_back(Attention(*model, layer).window());
  return windows;
}

// ---- windows, by each family's own rule

TEST(Windows, MistralHasOneForAllLayersOrNone) {
  EXPECT_THAT(Windows(With("mistral", {})), ElementsAre(8, 8, 8));
  EXPECT_THAT(Windows(With("mistral", {{"sliding_window", "null"}})), ElementsAre(0, 0, 0));
  EXPECT_THAT(Windows(With("mistral", {{"sliding_window", ""}})), ElementsAre(4096, 4096, 4096))
      << "the class's default";
}

TEST(Windows, QwenTurnsThemOnByLayerNumberUnlessTheTypesAreListed) {
  EXPECT_THAT(Windows(With("qwen2", {})), ElementsAre(0, 8, 8));
  EXPECT_THAT(Windows(With("qwen2", {{"use_sliding_window", "false"}})), ElementsAre(0, 0, 0));
  const std::string types = R"(["sliding_attention", "full_attention", "full_attention"])";
  EXPECT_THAT(Windows(With("qwen2", {{"layer_types", types}})), ElementsAre(8, 0, 0));
}

TEST(Windows, EveryOtherLayerOfGemmaAndGptOss) {
  EXPECT_THAT(Windows(With("gemma2", {})), ElementsAre(8, 0, 8));
  EXPECT_THAT(Windows(With("gpt_oss", {})), ElementsAre(8, 0, 8));
  const std::string types = R"(["full_attention", "sliding_attention", "full_attention"])";
  EXPECT_THAT(Windows(With("gpt_oss", {{"layer_types", types}})), ElementsAre(0, 8, 0));
}

TEST(Windows, AListOfAnotherLengthOrWithAnotherWordIsRefused) {
  EXPECT_EQ(Said(Made(With("qwen2", {{"layer_types", R"(["full_attention"])"}})).status()),
            "TF1406 \"layer_types\" is [\"full_attention\"] where one word for each of 3 layers is needed");
  EXPECT_EQ(Said(Made(With("qwen2",
                           {{"layer_types", R"(["linear_attention", "full_attention", "full_attention"])"}}))
                     .status()),
            "TF1407 \"layer_types\": layers of type \"linear_attention\" are not supported");
}

// ---- rotary settings, in both spellings

TEST(Rotary, BothSpellingsMeanTheSame) {
  const auto older = Made(
      With("llama", {{"rope_theta", "700.0"}, {"rope_scaling", R"({"type": "linear", "factor": 2.0})"}}));
  const auto newer =
      Made(With("llama", {{"rope_theta", ""}, {"rope_parameters", R"({"rope_type": "linear", "factor": 2.0,
    "rope_theta": 700.0})"}}));
  ASSERT_TRUE(older.ok() && newer.ok()) << older.status() << newer.status();
  EXPECT_EQ(Attention(*older, 0).rope().SerializeAsString(), Attention(*newer, 0).rope().SerializeAsString());
  EXPECT_EQ(Attention(*older, 0).rope().theta(), 700);
  EXPECT_EQ(Attention(*older, 0).rope().scaling().kind(), RopeScaling::LINEAR);
}

TEST(Rotary, AbsentMeansTheClassesBase) {
  EXPECT_EQ(Attention(*Made(With("llama", {{"rope_theta", ""}})), 0).rope().theta(), 10000);
  EXPECT_EQ(Attention(*Made(With("mixtral", {})), 0).rope().theta(), 1000000);
  const Rope rope = Attention(*Made(With("gpt_oss", {})), 0).rope();
  EXPECT_EQ(rope.theta(), 150000);
  EXPECT_EQ(rope.scaling().kind(), RopeScaling::YARN);
  EXPECT_FALSE(rope.scaling().truncate());
}

TEST(Rotary, UnknownKindsAreRefused) {
  EXPECT_EQ(
      Said(Made(With("llama", {{"rope_scaling", R"({"type": "ntk-by-hand", "factor": 2.0})"}})).status()),
      "TF1407 \"rope_type\": rotary scaling of type \"ntk-by-hand\" is not supported here");
  EXPECT_EQ(Said(Made(With("phi3", {{"rope_scaling", R"({"type": "linear", "factor": 2.0})"}})).status()),
            "TF1407 \"rope_type\": rotary scaling of type \"linear\" is not supported here")
      << "known, but not to this class";
  EXPECT_EQ(Said(Made(With("llama", {{"rope_scaling", R"({"type": "yarn"})"}})).status()),
            "TF1405 \"rope_scaling.factor\" is missing");
  EXPECT_EQ(Said(Made(With("llama", {{"rope_parameters", R"({"full_attention": {"rope_type": "default"}})"}}))
                     .status()),
            "TF1407 rotary settings by layer type (\"rope_parameters.full_attention\") are not supported for "
            "this family");
  EXPECT_EQ(Said(Made(With("llama", {{"partial_rotary_factor", "0.5"}})).status()),
            "TF1407 partial_rotary_factor other than 1 is not supported for this family");
}

TEST(Rotary, PhiTurnsAPartAndTakesTheOldNameOfLongrope) {
  const std::string factors = R"("short_factor": [1, 1.1, 1.2], "long_factor": [1, 2, 3])";
  const auto model = Made(With("phi3", {{"rope_scaling", absl::StrCat(R"({"type": "su", )", factors, "}")},
                                        {"original_max_position_embeddings", "8"}}));
  ASSERT_TRUE(model.ok()) << model.status();
  const Rope& rope = Attention(*model, 0).rope();
  EXPECT_EQ(rope.rotary_dim(), 6) << "three quarters of 8";
  EXPECT_EQ(rope.scaling().kind(), RopeScaling::LONGROPE);
  EXPECT_THAT(rope.scaling().long_factor(), ElementsAre(1, 2, 3));
  EXPECT_EQ(rope.scaling().original_max_position_embeddings(), 8);
  EXPECT_EQ(Said(Made(With("phi3", {{"rope_scaling",
                                     R"({"type": "longrope", "short_factor": [1], "long_factor": [1]})"}}))
                     .status()),
            "TF1406 \"rope_scaling.short_factor\" is [1] where a list of 3 numbers is needed");
}

TEST(Rotary, DeepseekPairsNeighboursUnlessTold) {
  const auto latent = [](const std::string& json) {
    return Made(json)->graph.FindNode("layers.0.attn")->attrs->latent_attention();
  };
  EXPECT_EQ(latent(With("deepseek_v3", {})).rope().style(), Rope::INTERLEAVED);
  EXPECT_EQ(latent(With("deepseek_v3", {{"rope_interleave", "false"}})).rope().style(), Rope::HALVES);
  // The norms of its low ranks are made without the config's eps.
  EXPECT_EQ(latent(With("deepseek_v3", {{"rms_norm_eps", "0.001"}})).norm_eps(), 1e-6);
  const double plain = latent(With("deepseek_v3", {})).scale();
  EXPECT_EQ(plain, 1.0 / 3) << "(5 + 4)^-1/2";
  const double yarn =
      latent(With("deepseek_v3", {{"rope_scaling", R"({"type": "yarn", "factor": 40, "mscale": 1.0,
    "mscale_all_dim": 1.0, "original_max_position_embeddings": 16})"}}))
          .scale();
  const double mscale = 0.1 * std::log(40.0) + 1;
  EXPECT_DOUBLE_EQ(yarn, plain * mscale * mscale);
}

// ---- other choices

TEST(Choices, ExpertLayersFollowStepAndList) {
  const auto sparse = [](const std::string& json) {
    const absl::StatusOr<Model> model = Made(json);
    std::string layers;
    for (int i = 0; i < 3; ++i)
      layers += model->graph.FindNode(absl::StrCat("layers.", i, ".moe")) != nullptr ? "E" : "d";
    return layers;
  };
  EXPECT_EQ(sparse(With("qwen3_moe", {})), "dEE");
  EXPECT_EQ(sparse(With("qwen3_moe", {{"mlp_only_layers", "[]"}})), "EEE");
  EXPECT_EQ(sparse(With("qwen3_moe", {{"mlp_only_layers", "[]"}, {"decoder_sparse_step", "2"}})), "dEd");
  EXPECT_EQ(sparse(With("deepseek_v3", {{"first_k_dense_replace", "2"}})), "ddE");
}

TEST(Choices, BiasesStandWhereTheConfigTurnsThemOn) {
  EXPECT_EQ(Made(With("llama", {}))->graph.FindParam("layers.0.attn.q_bias"), nullptr);
  EXPECT_NE(Made(With("llama", {{"attention_bias", "true"}}))->graph.FindParam("layers.0.attn.o_bias"),
            nullptr);
  EXPECT_NE(Made(With("qwen2", {}))->graph.FindParam("layers.0.attn.q_bias"), nullptr);
  EXPECT_EQ(Made(With("qwen2", {}))->graph.FindParam("layers.0.attn.o_bias"), nullptr);
}

TEST(Choices, GemmaSaysItsOwnScale) {
  const Model model = *Made(With("gemma2", {}));
  EXPECT_DOUBLE_EQ(Attention(model, 0).scale(), std::pow(7.0, -0.5));
  EXPECT_EQ(Attention(model, 0).scale_rule(), AttentionAttrs::EXPLICIT);
  EXPECT_EQ(Attention(model, 0).softcap(), 50);
  EXPECT_DOUBLE_EQ(model.graph.FindNode("embed")->attrs->embedding().scale(), std::sqrt(12.0));
  EXPECT_EQ(model.graph.FindNode("norm")->attrs->norm().offset(), 1);
}

TEST(Choices, GraniteCarriesLlamaAndMistralWithoutAWindow) {
  const auto carriers = [](const std::string& json) { return Made(json)->layouts[0].carriers.size(); };
  EXPECT_EQ(carriers(With("llama", {})), 1u);
  EXPECT_EQ(carriers(With("mistral", {})), 0u);
  EXPECT_EQ(carriers(With("mistral", {{"sliding_window", "null"}})), 1u);
  EXPECT_EQ(carriers(With("qwen2", {})), 0u) << "granite's biases come all together or not at all";
}

TEST(Choices, ADerivedHeadWidthIsSpelledOutOnceHeadsAreAdded) {
  const Model model = *Made(With("llama", {{"head_dim", ""}}));
  Graph graph = model.graph;
  Rewriter rewriter(graph, "1 pad_heads");
  for (int layer = 0; layer < 3; ++layer) {
    for (const char* slot : {"q", "o"}) {
      const std::string role = absl::StrCat("layers.", layer, ".attn.", slot);
      const Param& param = *graph.FindParam(role);
      ParamType type = param.type;
      const int heads = type.Find("heads");
      type.axes[heads].size = 12;
      rewriter.SetParam(role, type, Pad(param.program, heads, 6));
    }
  }
  const absl::StatusOr<JsonValue> config = ConfigFromGraph(model.layouts[0], graph, model.config);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->Find("num_attention_heads")->as_integer(), 12);
  ASSERT_NE(config->Find("head_dim"), nullptr) << "a runtime would take 12 / 12";
  EXPECT_EQ(config->Find("head_dim")->as_integer(), 2);
}

// ---- refusals of a config

struct Refused {
  std::string name;
  std::map<std::string, std::string> changes;
  std::string said;
};

TEST(Refusals, OfConfigs) {
  const std::vector<Refused> rows = {
      {"llama", {{"model_type", ""}}, "TF1402 \"model_type\" is missing"},
      {"llama", {{"model_type", "\"lama\""}}, "TF1403 model_type \"lama\" is not known"},
      {"llama",
       {{"architectures", R"(["LlamaForSequenceClassification"])"}},
       "TF1404 \"architectures\": \"LlamaForSequenceClassification\" is not supported"},
      {"llama", {{"hidden_size", ""}}, "TF1405 \"hidden_size\" is missing"},
      {"llama", {{"hidden_size", "\"big\""}}, "TF1406 \"hidden_size\" is \"big\" where a number is needed"},
      {"llama", {{"hidden_size", "12.5"}}, "TF1406 \"hidden_size\" is 12.5 where a whole number is needed"},
      {"llama",
       {{"hidden_size", "-12"}},
       "TF1406 \"hidden_size\" is -12 where a size from 1 to 1048576 is needed"},
      {"llama", {{"num_key_value_heads", "4"}}, "TF1414 6 heads do not divide by 4 key and value heads"},
      {"llama",
       {{"head_dim", ""}, {"num_attention_heads", "5"}, {"num_key_value_heads", "1"}},
       "TF1414 d_model / heads is not whole: 12 / 5"},
      {"llama", {{"hidden_act", "\"mish\""}}, "TF1407 \"hidden_act\": activation \"mish\" is not supported"},
      {"llama", {{"torch_dtype", "\"int8\""}}, "TF1407 \"torch_dtype\": \"int8\" is not supported"},
      {"mixtral",
       {{"num_experts_per_tok", "5"}},
       "TF1414 \"num_experts_per_tok\": a token cannot choose 5 of 4 experts"},
      {"deepseek_v3",
       {{"topk_method", "\"greedy\""}},
       "TF1407 \"topk_method\": experts are chosen by another topk_method than noaux_tc"},
      {"deepseek_v3",
       {{"scoring_func", "\"softmax\""}},
       "TF1407 \"scoring_func\": experts are scored by another scoring_func than sigmoid"},
      {"deepseek_v3",
       {{"moe_layer_freq", "2"}},
       "TF1407 \"moe_layer_freq\": moe_layer_freq other than 1 is not supported"},
      {"deepseek_v3", {{"n_group", "3"}}, "TF1414 8 experts cannot lie in 3 groups of which 2 are chosen"},
      {"gpt2",
       {{"scale_attn_by_inverse_layer_idx", "true"}},
       "TF1407 \"scale_attn_by_inverse_layer_idx\": gpt2 with attention scaled by layer is not supported"},
      {"bert",
       {{"position_embedding_type", "\"relative_key\""}},
       "TF1407 \"position_embedding_type\": bert with relative positions is not supported"},
      {"gemma2",
       {{"use_bidirectional_attention", "true"}},
       "TF1407 \"use_bidirectional_attention\": gemma2 with attention in both directions is not supported"},
  };
  for (const Refused& row : rows) EXPECT_EQ(Said(Made(With(row.name, row.changes)).status()), row.said);
}

TEST(Refusals, SizesBeyondReasonTakeNoMemory) {
  EXPECT_EQ(Said(Made(With("mixtral", {{"num_local_experts", "1000000000"}})).status()),
            "TF1406 \"num_local_experts\" is 1000000000 where a size from 1 to 65536 is needed");
  EXPECT_EQ(
      Said(Made(With("mixtral", {{"num_local_experts", "65536"}, {"num_hidden_layers", "100"}})).status()),
      "TF1414 100 layers of 65536 experts would be too large for any machine");
  EXPECT_EQ(Said(Made(With("llama", {{"vocab_size", "1000000000000"}})).status()),
            "TF1406 \"vocab_size\" is 1000000000000 where a size from 1 to 16777216 is needed");
  // A width that follows from others is held as those are.
  EXPECT_EQ(
      Said(Made(With("gpt2", {{"n_embd", "1048576"}, {"n_head", "4096"}, {"n_inner", "null"}})).status()),
      "TF1414 \"n_inner\" is not said and becomes 4194304 (4 * d_model), where a size from 1 to 1048576 is "
      "needed");
}

TEST(Sizes, ManyTensorsAreCountedAndNotListed) {
  const absl::StatusOr<Model> few = Made(With("mixtral", {{"num_local_experts", "4096"}}));
  const absl::StatusOr<Model> many =
      Made(With("mixtral", {{"num_local_experts", "4096"}, {"num_hidden_layers", "1000"}}));
  ASSERT_TRUE(few.ok() && many.ok()) << few.status() << many.status();
  EXPECT_EQ(few->unlisted.tensors, 0);
  EXPECT_TRUE(many->sources.empty());
  const auto layers = [](const Model& model) {
    return static_cast<int64_t>(std::count_if(model.graph.nodes().begin(), model.graph.nodes().end(),
                                              [](const Node& node) { return node.op == OpKind::kMoe; }));
  };
  const int64_t of_few = layers(*few), each = (static_cast<int64_t>(few->sources.size()) - 3) / of_few;
  EXPECT_EQ(many->unlisted.tensors, 1000 * each + 3);
  EXPECT_EQ(layers(*many), 1000);
  ASSERT_EQ(many->unlisted.bytes.size(), 1u);
  const auto& [dtype, bytes] = *many->unlisted.bytes.begin();
  EXPECT_EQ(CountParameters(many->graph).total * ElementBytes(dtype), bytes);
}

TEST(Choices, AHeadWidthThatIsStatedNeedNotDivide) {
  const std::map<std::string, std::string> odd = {{"num_attention_heads", "5"}, {"num_key_value_heads", "1"}};
  EXPECT_EQ(Said(Made(With("llama", odd)).status()), "ok") << "5 heads of 10 beside 12 channels";
}

TEST(Refusals, ANearNameIsSuggested) {
  EXPECT_THAT(Render(Made(With("llama", {{"model_type", "\"qwen33\""}})).status()),
              HasSubstr("did you mean qwen3?"));
}

// ---- checkpoints

class Checkpoints : public ::testing::Test {
 protected:
  // A checkpoint of the small config `name` in the folder, after `change`.
  absl::StatusOr<Model> Open(const std::string& json, const std::function<void(Tensors&)>& change = nullptr,
                             size_t layout = 0, bool with_tied = false) {
    const absl::StatusOr<Model> planned = Made(json);
    if (!planned.ok()) return planned.status();
    Tensors tensors = TensorsOf(*planned, layout, with_tied);
    if (change) change(tensors);
    folder_.Write("config.json", json);
    folder_.Write("model.safetensors", SafetensorsFile(tensors));
    return OpenModel(folder_.path());
  }
  TempFolder folder_;
};

TEST_F(Checkpoints, UnknownTensorsAreRefusedByName) {
  const auto model = Open(With("llama", {}), [](Tensors& t) {
    t["model.layers.0.extra.weight"] = {DType::kF32, {2}, ""};
  });
  EXPECT_EQ(Said(model.status()),
            "TF1410 tensor \"model.layers.0.extra.weight\": no role of the model uses it");
}

TEST_F(Checkpoints, TensorsToIgnoreAreListedWithTheirReason) {
  const auto model = Open(With("deepseek_v3", {}), [](Tensors& t) {
    t["model.layers.3.eh_proj.weight"] = {DType::kF32, {2}, ""};
    t["model.layers.0.self_attn.rotary_emb.inv_freq"] = {DType::kF32, {2}, ""};
  });
  ASSERT_TRUE(model.ok()) << model.status();
  std::map<std::string, std::string> ignored;
  for (const SourceTensor& source : model->sources) {
    if (!source.ignored.empty()) ignored[source.name] = source.ignored;
  }
  EXPECT_EQ(ignored["model.layers.3.eh_proj.weight"],
            "the layer that predicts a second token ahead; generation does not use it");
  EXPECT_EQ(ignored["model.layers.0.self_attn.rotary_emb.inv_freq"], "recomputed by the runtime");
  EXPECT_EQ(ignored.size(), 2u);
}

TEST_F(Checkpoints, StoredDTypesCountTensorByTensor) {
  const auto model = Open(With("llama", {}), [](Tensors& t) { t["model.norm.weight"].dtype = DType::kBF16; });
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->graph.FindParam("norm")->type.dtype, DType::kBF16);
  EXPECT_EQ(model->graph.FindParam("embed")->type.dtype, DType::kF32);
}

TEST_F(Checkpoints, AConfigOfAnotherDTypeIsAConflict) {
  const auto model = Open(With("llama", {{"torch_dtype", "\"float32\""}}), [](Tensors& tensors) {
    for (auto& [name, tensor] : tensors) tensor.dtype = DType::kBF16;
  });
  EXPECT_EQ(Said(model.status()), "TF1412 the config says f32, the tensors are bf16");
}

TEST_F(Checkpoints, OneStackOfExpertsHasOneDType) {
  const auto model = Open(With("mixtral", {}), [](Tensors& t) {
    t["model.layers.1.block_sparse_moe.experts.2.w1.weight"].dtype = DType::kBF16;
  });
  EXPECT_THAT(Said(model.status()),
              HasSubstr("TF1412 tensor \"model.layers.1.block_sparse_moe.experts.2.w1.weight\" is bf16"));
}

TEST_F(Checkpoints, CodesAreNotWeights) {
  const auto model =
      Open(With("llama", {}), [](Tensors& t) { t["model.norm.weight"].dtype = DType::kF8E4M3; });
  EXPECT_EQ(Said(model.status()), "TF1412 tensor \"model.norm.weight\" is stored as f8_e4m3");
}

TEST_F(Checkpoints, AQuantisedOneIsRefusedButItsConfigCounts) {
  const std::string json = With("llama", {{"quantization_config", R"({"quant_method": "fp8"})"}});
  EXPECT_EQ(Said(Open(json).status()), "TF1408 this checkpoint is stored as fp8 (quantization_config)");
  const auto planned = Made(json);
  ASSERT_TRUE(planned.ok());
  ASSERT_EQ(planned->warnings.size(), 1u);
  EXPECT_THAT(planned->warnings[0], HasSubstr("stored as fp8"));
}

TEST_F(Checkpoints, ATiedHeadMayBeStoredTwiceIfItIsACopy) {
  const std::string json = With("llama_tied", {});
  const auto copy = [](Tensors& t) {
    const auto bytes = static_cast<size_t>(ElementCount(t["lm_head.weight"].shape) * 4);
    t["lm_head.weight"].bytes = t["model.embed_tokens.weight"].bytes = std::string(bytes, 'x');
  };
  const auto model = Open(json, copy, 0, true);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE(IsTied(model->graph, model->layouts[0].ties[0]));
  EXPECT_EQ(Said(Open(json, nullptr, 0, true).status()),
            "TF1413 tensor \"lm_head.weight\" differs from \"model.embed_tokens.weight\", to which "
            "config.json ties it");
}

TEST_F(Checkpoints, AnUntiedHeadThatIsAbsentIsMissing) {
  const auto model = Open(With("llama", {}), [](Tensors& t) { t.erase("lm_head.weight"); });
  EXPECT_EQ(Said(model.status()), "TF1409 tensor \"lm_head.weight\" is missing");
  EXPECT_THAT(Render(model.status()), HasSubstr("\"tie_word_embeddings\": true"));
}

TEST_F(Checkpoints, ABertForAnotherHeadLeavesThePoolerOut) {
  const auto model = Open(With("bert_masked", {}), [](Tensors& t) {
    t["bert.pooler.dense.weight"] = {DType::kF32, {12, 12}, ""};
    t["cls.seq_relationship.bias"] = {DType::kF32, {2}, ""};
    t["bert.embeddings.position_ids"] = {DType::kI64, {1, 32}, ""};
    t["cls.predictions.decoder.bias"] = {DType::kF32, {23}, ""};
  });
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->graph.outputs().size(), 1u);
  EXPECT_EQ(model->graph.outputs()[0].first, "logits");
}

TEST_F(Checkpoints, CompanionsAndGenerationConfigComeAlong) {
  folder_.Write("tokenizer.json", "{}");
  folder_.Write("merges.txt", "");
  folder_.Write("LICENSE", "");
  folder_.Write("pytorch_model.bin", "");
  folder_.Write("generation_config.json", R"({"suppress_tokens": [3]})");
  const auto model = Open(With("llama", {}));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(model->companions,
              ElementsAre("LICENSE", "generation_config.json", "merges.txt", "tokenizer.json"));
  EXPECT_NE(model->generation_config.Find("suppress_tokens"), nullptr);
  ASSERT_EQ(model->files.size(), 1u);
  EXPECT_EQ(model->files[0].name, "model.safetensors");
  EXPECT_EQ(model->files[0].header_sha256.size(), 64u);
}

TEST_F(Checkpoints, WithoutAConfigNothingIsGuessed) {
  ASSERT_TRUE(Open(With("llama", {})).ok());
  std::filesystem::remove(folder_ / "config.json");
  EXPECT_EQ(Said(OpenModel(folder_.path()).status()), "TF1401 there is no config");
}

TEST_F(Checkpoints, ASingleFileTakesAConfigFromElsewhere) {
  ASSERT_TRUE(Open(With("llama", {})).ok());
  TempFolder elsewhere;
  elsewhere.Write("other.json", With("llama", {}));
  std::filesystem::remove(folder_ / "config.json");
  EXPECT_TRUE(OpenModel(folder_ / "model.safetensors", elsewhere / "other.json").ok());
}

}  // namespace
}  // namespace twinforge
