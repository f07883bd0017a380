// Large models made small: what is kept, what shrinks, and that the argument is made on them.
#include "proof/shrink.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "importers/importer.h"
#include "proof/function.h"
#include "proof/values.h"
#include "recipes/run.h"
#include "tests/importers/small_checkpoints.h"
#include "tests/proof/traces.h"

namespace twinforge {
namespace {

std::vector<std::string> BigConfigs() {
  std::vector<std::string> paths;
  for (const auto& entry :
       std::filesystem::directory_iterator(absl::StrCat(TWINFORGE_SOURCE_DIR, "/samples/configs"))) {
    paths.push_back((entry.path() / "config.json").string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

struct Shot {
  const char* recipe;
  int64_t shards;
  const char* kernel;
};

FunctionProof ProveLarge(const std::string& config, const Shot& shot) {
  absl::StatusOr<Model> source = ModelFromConfig(config);
  EXPECT_TRUE(source.ok()) << source.status();
  absl::StatusOr<Twin> twin = MakeTwin(shot.recipe, {.shards = shot.shards, .kernel = shot.kernel}, *source);
  EXPECT_TRUE(twin.ok()) << twin.status();
  return ProveFunction({*source, twin->model.graph, twin->recipe, twin->options, twin->report});
}

TEST(Shrink, LargeModelsAreProvenOnSmallOnes) {
  ASSERT_FALSE(BigConfigs().empty());
  for (const std::string& config : BigConfigs()) {
    for (const Shot& shot : {Shot{"tpu-exact-portable", 4, "paged"}, Shot{"tpu-exact-native", 8, ""}}) {
      SCOPED_TRACE(absl::StrCat(config, ", ", shot.recipe));
      const FunctionProof proof = ProveLarge(config, shot);
      EXPECT_EQ(proof.verdict, Verdict::kProven) << proof.on << ": " << proof.reason;
      EXPECT_TRUE(absl::StartsWith(proof.on, "a shrunk model: ")) << proof.on;
    }
  }
}

TEST(Shrink, KeepsOneLayerOfEachKindAndTheLast) {
  const Model qwen = SmallFamilyModel("qwen2");  // the first of three layers has no window
  EXPECT_EQ(LayersOfEachKind(qwen.graph, qwen.graph), (std::set<int64_t>{0, 1, 2}));
  const Model llama = SmallFamilyModel("llama");
  EXPECT_EQ(LayersOfEachKind(llama.graph, llama.graph), (std::set<int64_t>{0, 2}));
}

TEST(Shrink, KeepsTiesBundlesAndOrientation) {
  for (const SmallConfig& config : SmallConfigs()) {
    SCOPED_TRACE(config.name);
    const Model model = SmallFamilyModel(config.name);
    const absl::StatusOr<Graph> small =
        Shrunk(model.graph, {.layers = {0, 2}, .extents = {{{"vocab", 23}, 17}, {{"d_ff", 14}, 10}}});
    ASSERT_TRUE(small.ok()) << small.status();
    const Param* head = small->FindParam("lm_head");
    const bool tied =
        head != nullptr && SourcesOf(head->program) == SourcesOf(small->FindParam("embed")->program);
    const Param* real = model.graph.FindParam("lm_head");
    EXPECT_EQ(tied, real != nullptr &&
                        SourcesOf(real->program) == SourcesOf(model.graph.FindParam("embed")->program));
    EXPECT_EQ(UnlikeTwin(model.graph, *small), "");
    EXPECT_EQ(small->FindParam("embed")->type.Get("vocab").size, 17);
    EXPECT_EQ(small->FindNode("layers.1.attn"), nullptr);
  }
}

TEST(Shrink, SeesARecipeThatDoesSomethingElse) {
  const Model model = SmallFamilyModel("llama");
  const auto padded = TraceWith(RecipeOf("step { pad_ffn { multiple: 8 } }"), {}, model, nullptr);
  EXPECT_EQ(UnlikeTwin(padded.graphs.back(), model.graph), "layers.0.mlp");
  EXPECT_EQ(UnlikeTwin(padded.graphs.back(), padded.graphs.back()), "");
}

// The same model, as it is and shrunk, is proven both ways; a purposeful step is named.
TEST(Shrink, NamesStepsThatChangeTheFunctionOnPurpose) {
  const Model model = SmallFamilyModel("llama");
  Model rewritten = model;
  const LoadedRecipe recipe =
      RecipeOf("step { pad_ffn { multiple: 8 } } step { keep_n_of_m { keep: 1 of: 2 along: 'in' } }");
  const absl::StatusOr<RecipeReport> report = RunRecipe(recipe, {}, rewritten);
  ASSERT_TRUE(report.ok()) << report.status();
  for (int64_t whole : {kComputedWhole, int64_t{0}}) {
    const FunctionProof proof = ProveFunction({model, rewritten.graph, recipe, {}, *report, whole});
    EXPECT_EQ(proof.verdict, Verdict::kProven) << proof.reason;
    EXPECT_EQ(proof.left_out, std::vector<std::string>{"2 keep_n_of_m"});
    EXPECT_EQ(absl::StartsWith(proof.on, "a shrunk model"), whole == 0) << proof.on;
  }
}

}  // namespace
}  // namespace twinforge
