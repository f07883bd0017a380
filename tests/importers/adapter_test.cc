// LoRA adapters find their roles through the layout, fused tensors cut as they are stored.
#include "importers/adapter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "importers/importer.h"
#include "tests/importers/checkpoint_files.h"
#include "tests/importers/small_checkpoints.h"
#include "weights/build.h"

namespace twinforge {
namespace {

constexpr char kConfig[] = R"({"peft_type": "LORA", "r": 3, "lora_alpha": 6, "bias": "none"})";

class Adapters : public ::testing::Test {
 protected:
  absl::StatusOr<Adapter> Load(const std::string& small,
                               const std::map<std::string, std::pair<Shape, Shape>>& modules,
                               const std::string& config = kConfig) {
    absl::StatusOr<Model> model = ModelFromConfigText(SmallConfigOf(small), small);
    EXPECT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    Tensors tensors;
    for (const auto& [module, shapes] : modules) {
      tensors["base_model.model." + module + ".lora_A.weight"] = {DType::kF32, shapes.first,
                                                                  Finite(shapes.first)};
      tensors["base_model.model." + module + ".lora_B.weight"] = {DType::kF32, shapes.second,
                                                                  Finite(shapes.second)};
    }
    folder_.Write("adapter_config.json", config);
    folder_.Write("adapter_model.safetensors", SafetensorsFile(tensors));
    return LoadAdapter(folder_.path(), model_);
  }
  // An adapter that holds NaN is refused: every element is 0.0625 here.
  static std::string Finite(const Shape& shape) {
    std::string bytes;
    for (int64_t i = 0; i < ElementCount(shape); ++i) bytes.append("\x00\x00\x80\x3d", 4);
    return bytes;
  }
  int CodeOf(const absl::Status& status) {
    const std::optional<Diagnostic> diagnostic = DiagnosticOf(status);
    return diagnostic ? diagnostic->code : 0;
  }
  WeightPtr Of(const std::string& tensor, Shape shape) {
    return Source("adapter/base_model.model." + tensor, DType::kF32, std::move(shape));
  }
  Model model_;
  TempFolder folder_;
};

TEST_F(Adapters, APlainModuleIsOneRole) {
  const auto adapter = Load("llama", {{"model.layers.1.self_attn.q_proj", {{3, 12}, {60, 3}}}});
  ASSERT_TRUE(adapter.ok()) << adapter.status();
  ASSERT_EQ(adapter->size(), 1u);
  const AdapterPair& pair = adapter->at("layers.1.attn.q");
  EXPECT_EQ(pair.factor, 2) << "6 / 3";
  EXPECT_EQ(pair.a, Of("model.layers.1.self_attn.q_proj.lora_A.weight", {3, 12}));
  EXPECT_EQ(pair.b, Of("model.layers.1.self_attn.q_proj.lora_B.weight", {60, 3}));
}

TEST_F(Adapters, TheModelReadsItsTensors) {
  ASSERT_TRUE(Load("llama", {{"model.layers.1.self_attn.q_proj", {{3, 12}, {60, 3}}}}).ok());
  const std::string name = "adapter/base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight";
  const SourceTensor* source = nullptr;
  for (const SourceTensor& one : model_.sources) {
    if (one.name == name) source = &one;
  }
  ASSERT_NE(source, nullptr);
  float out[3] = {};
  const absl::Status read =
      model_.reader->ReadElements(*source->source, 33, 3, reinterpret_cast<std::byte*>(out));
  EXPECT_TRUE(read.ok()) << read;
  EXPECT_TRUE(model_.files.empty()) << "the adapter is no file of the source";
}

TEST_F(Adapters, ASecondOneHasNamesOfItsOwn) {
  ASSERT_TRUE(Load("llama", {{"model.layers.1.self_attn.q_proj", {{3, 12}, {60, 3}}}}).ok());
  const auto second = LoadAdapter(folder_.path(), model_);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->at("layers.1.attn.q").a->source_name(),
            "adapter/2/base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight");
}

TEST_F(Adapters, AFusedTensorIsCutAsItIsStored) {
  const auto adapter = Load("phi3", {{"model.layers.0.self_attn.qkv_proj", {{3, 12}, {80, 3}}}});
  ASSERT_TRUE(adapter.ok()) << adapter.status();
  const WeightPtr b = Of("model.layers.0.self_attn.qkv_proj.lora_B.weight", {80, 3});
  EXPECT_EQ(adapter->at("layers.0.attn.q").b, Slice(b, 0, 0, 48));   // 6 heads of 8
  EXPECT_EQ(adapter->at("layers.0.attn.k").b, Slice(b, 0, 48, 16));  // 2 heads of 8
  EXPECT_EQ(adapter->at("layers.0.attn.v").b, Slice(b, 0, 64, 16));
  EXPECT_EQ(adapter->at("layers.0.attn.q").a, adapter->at("layers.0.attn.v").a);
}

TEST_F(Adapters, AKernelStoredInOutIsCutByItsColumns) {
  const auto adapter = Load("gpt2", {{"transformer.h.0.attn.c_attn", {{3, 12}, {36, 3}}}});
  ASSERT_TRUE(adapter.ok()) << adapter.status();
  const WeightPtr b = Of("transformer.h.0.attn.c_attn.lora_B.weight", {36, 3});
  EXPECT_EQ(adapter->at("layers.0.attn.k").b, Slice(b, 0, 12, 12));
}

TEST_F(Adapters, LatentHeadsAreCutWithinEachHead) {
  const auto adapter = Load("deepseek_v3", {{"model.layers.0.self_attn.kv_b_proj", {{3, 9}, {66, 3}}}});
  ASSERT_TRUE(adapter.ok()) << adapter.status();
  const WeightPtr b = Of("model.layers.0.self_attn.kv_b_proj.lora_B.weight", {66, 3});
  const WeightPtr heads = Reshape(b, {6, 11, 3});
  EXPECT_EQ(adapter->at("layers.0.attn.v_b").b, Reshape(Slice(heads, 1, 5, 6), {36, 3}));
}

TEST_F(Adapters, TheStabilisedFactorDividesByTheRoot) {
  const auto adapter = Load("llama", {{"model.layers.1.self_attn.q_proj", {{3, 12}, {60, 3}}}},
                            R"({"peft_type": "LORA", "r": 3, "lora_alpha": 6, "use_rslora": true})");
  ASSERT_TRUE(adapter.ok()) << adapter.status();
  EXPECT_DOUBLE_EQ(adapter->at("layers.1.attn.q").factor, 6 / std::sqrt(3.0));
}

TEST_F(Adapters, TheConfigSpeaksOfTheTensorsThatAreThere) {
  const std::string q = "model.layers.1.self_attn.q_proj";
  const auto with = [&](const std::string& keys, int64_t rank = 3) {
    return CodeOf(Load("llama", {{q, {{rank, 12}, {60, rank}}}},
                       absl::StrCat(R"({"lora_alpha": 6, "layers_pattern": "layers", )", keys, "}"))
                      .status());
  };
  const std::string here = R"(, "layers_to_transform": 1)";
  EXPECT_EQ(with(R"("r": 3, "target_modules": ["q_proj"])" + here), 0);
  EXPECT_EQ(with(R"("r": 3, "target_modules": ["q_proj"])"), 1422) << "layer 0 has no matrices";
  EXPECT_EQ(with(R"("r": 3, "target_modules": ["q_proj", "v_proj"])" + here), 1422) << "v_proj has none";
  EXPECT_EQ(with(R"("r": 3, "target_modules": ["self_attn.q_proj"])" + here), 0);
  EXPECT_EQ(with(R"("r": 3, "target_modules": "all-linear")"), 0);
  EXPECT_EQ(with(R"("r": 3, "target_modules": ".*\\.1\\..*\\.[qx]_proj")"), 0);
  EXPECT_EQ(with(R"("r": 3, "target_modules": ".*\\.1\\..*\\.[qv]_proj")"), 1422) << "v_proj has none";
  EXPECT_EQ(with(R"("target_modules": ["q_proj"])" + here, 8), 0) << "peft's own default";
  EXPECT_EQ(with(R"("r": 8, "rank_pattern": {"layers.0.self_attn.q_proj": 4, "self_attn.q_proj": 3})"), 0);
  EXPECT_EQ(with(R"("r": 4)"), 1423);
  EXPECT_EQ(with(R"("r": 3, "rank_pattern": {"q_proj": 4})"), 1423);
  EXPECT_EQ(with(R"("r": 3, "target_modules": ["v_proj"])"), 1422) << "peft would leave q_proj alone";
  EXPECT_EQ(with(R"("r": 3, "target_modules": "q_proj")"), 1422) << "a pattern fits a module's whole name";
  EXPECT_EQ(with(R"("r": 3, "target_modules": ["q_proj", "c_attn"])"), 1422) << "no module of this model";
  EXPECT_EQ(with(R"("r": "three")"), 1406);
  EXPECT_EQ(with(R"("r": -3)"), 1406);
  EXPECT_EQ(with(R"("r": 3.5)"), 1406);
  EXPECT_EQ(with(R"("r": 3, "target_modules": [1])"), 1406);
  EXPECT_EQ(with(R"("r": 3, "target_modules": {"q_proj": 1})"), 1406);
  EXPECT_EQ(with(R"("r": 3, "rank_pattern": [3])"), 1406);
  EXPECT_EQ(with(R"("r": 3, "rank_pattern": {"q_proj": 0})"), 1406);
  EXPECT_EQ(with(R"("r": 3, "rank_pattern": {"(": 3})"), 1421);
  EXPECT_EQ(with(R"("r": 3, "target_modules": "(")"), 1421);
  EXPECT_EQ(CodeOf(Load("llama", {{q, {{3, 12}, {60, 3}}}}, "[]").status()), 1416);
}

TEST_F(Adapters, WhatTheConfigLeavesOutIsNotMerged) {
  const std::string q = "model.layers.1.self_attn.q_proj";
  const auto with = [&](const std::string& keys) {
    return Load("llama", {{q, {{3, 12}, {60, 3}}}}, absl::StrCat(R"({"lora_alpha": 6, "r": 3, )", keys, "}"))
        .status();
  };
  const std::string named = R"("target_modules": ["q_proj"], )",
                    whole = absl::StrCat("\"target_modules\": [\"", q, "\"], ");
  const std::pair<std::string, int> rows[] = {
      {R"("exclude_modules": ["q_proj"])", 1422},
      {R"("exclude_modules": ["model.layers.1.self_attn.q_proj"])", 1422},
      {R"("exclude_modules": ".*layers\\.1\\..*")", 1422},
      {R"("exclude_modules": ["v_proj", "proj"])", 0},
      {R"("exclude_modules": ".*layers\\.0\\..*")", 0},
      {R"("exclude_modules": "(")", 1421},
      {R"("exclude_modules": 7)", 1406},
      {named + R"("layers_to_transform": [0])", 1422},
      {named + R"("layers_to_transform": 0)", 1422},
      {named + R"("layers_to_transform": [0, 1])", 1422},
      {named + R"("exclude_modules": ["layers.0.self_attn.q_proj"], "layers_to_transform": [0, 1])", 0},
      {named + R"("layers_to_transform": 1)", 0},
      {named + R"("layers_to_transform": [], "exclude_modules": ".*layers\\.[02]\\..*")", 0},
      {named + R"("layers_to_transform": [1], "layers_pattern": "layers")", 0},
      {named + R"("layers_to_transform": [1], "layers_pattern": ["h", "layers"])", 0},
      {named + R"("layers_to_transform": [1], "layers_pattern": "h")", 1422},
      {whole + R"("layers_to_transform": [0])", 0},  // named in full it is meant wherever it lies
      {named + R"("layers_to_transform": "1")", 1406},
      {named + R"("layers_to_transform": [true])", 1406},
      {named + R"("layers_to_transform": [-1])", 1406},
      {named + R"("layers_to_transform": [1], "layers_pattern": "(")", 1421},
      {R"("target_modules": ".*q_proj", "layers_to_transform": [1])", 1421},
      {R"("init_lora_weights": "pissa_niter_4")", 1421},
      {R"("init_lora_weights": "olora")", 1421},
      {R"("init_lora_weights": "gaussian")", 0},
      {R"("init_lora_weights": true)", 0},
      {R"("init_lora_weights": 3)", 1406},
      {R"("use_rslora": 1)", 1406},
      {R"("alpha_pattern": [3])", 1406},
      {R"("alpha_pattern": {"q_proj": true})", 1406},
      {R"("alpha_pattern": {"q_proj": 1e308})", 1406},
      {R"("alpha_pattern": {"(": 3})", 1421},
  };
  for (const auto& [keys, code] : rows) EXPECT_EQ(CodeOf(with(keys)), code) << keys << "\n" << with(keys);
  EXPECT_NE(Render(with(R"("exclude_modules": ["q_proj"])")).find("exclude_modules"), std::string::npos);
  EXPECT_NE(Render(with(named + R"("layers_to_transform": 0)")).find("layers_to_transform"),
            std::string::npos);
}

TEST_F(Adapters, TheFirstAlphaThatFitsIsTaken) {
  const auto adapter = Load(
      "llama", {{"model.layers.1.self_attn.q_proj", {{3, 12}, {60, 3}}}},
      R"({"r": 3, "lora_alpha": 6, "alpha_pattern": {"layers.0.self_attn.q_proj": 1, "q_proj": 12, ".*": 7}})");
  ASSERT_TRUE(adapter.ok()) << adapter.status();
  EXPECT_DOUBLE_EQ(adapter->at("layers.1.attn.q").factor, 4);
}

TEST_F(Adapters, WhatTheSumDoesNotCoverIsRefused) {
  const std::pair<Shape, Shape> fits = {{3, 12}, {60, 3}};
  const std::string q = "model.layers.1.self_attn.q_proj";
  EXPECT_EQ(
      CodeOf(
          Load("llama", {{q, fits}}, R"({"peft_type": "LORA", "lora_alpha": 6, "use_dora": true})").status()),
      1421);
  EXPECT_EQ(CodeOf(Load("llama", {{q, fits}}, R"({"peft_type": "IA3", "lora_alpha": 6})").status()), 1421);
  EXPECT_EQ(
      CodeOf(Load("llama", {{q, fits}}, R"({"lora_alpha": 6, "modules_to_save": ["lm_head"]})").status()),
      1421);
  EXPECT_EQ(CodeOf(Load("llama", {{q, fits}}, R"({"peft_type": "LORA"})").status()), 1405) << "no lora_alpha";
  EXPECT_EQ(CodeOf(Load("llama", {{"model.layers.9.self_attn.q_proj", fits}}).status()), 1422);
  EXPECT_EQ(CodeOf(Load("llama", {{q, {{3, 13}, {60, 3}}}}).status()), 1423);
  EXPECT_EQ(CodeOf(Load("llama", {{q, {{3, 12}, {60, 4}}}}).status()), 1423);
  EXPECT_EQ(
      CodeOf(
          Load("mixtral", {{"model.layers.0.block_sparse_moe.experts.1.w1", {{3, 12}, {14, 3}}}}).status()),
      1422);
  EXPECT_EQ(CodeOf(LoadAdapter(folder_ / "nowhere", model_).status()), 1420);
}

}  // namespace
}  // namespace twinforge
