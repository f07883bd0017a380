// A thousand honest twins, and no false alarm: every family at awkward extents, every transform that keeps
// the function, several forms of each, and whole recipes.
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "ir/text.h"
#include "proof/function.h"
#include "proof/rounding.h"
#include "proof/values.h"
#include "tests/importers/small_checkpoints.h"
#include "tests/proof/traces.h"
#include "tests/transforms/law_steps.h"
#include "tests/transforms/small_models.h"
#include "transforms/transforms.pb.h"

namespace twinforge {
namespace {

// Whether the step's twin computes its source's function. One that needs an adapter does not.
bool KeepsTheFunction(const std::string& text) {
  TransformStep step;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &step)) << text;
  const absl::StatusOr<std::unique_ptr<Transform>> made = MakeTransform(step, {});
  return made.ok() && (*made)->fidelity() != Fidelity::kRetrain;
}

// Those, and what has something to do once a model is written out.
std::vector<std::string> HonestSteps() {
  std::vector<std::string> steps = {
      "raise_composites { } } step { lower_composites { } } step { raise_composites { }",
      "absorb_weight_ops { } } step { lower_composites { } } step { absorb_weight_ops { }"};
  for (const std::string& step : LawSteps()) {
    if (KeepsTheFunction(step)) steps.push_back(step);
  }
  return steps;
}

// Whole recipes: the library's under several targets.
struct WholeRecipe {
  const char* name;
  int64_t shards, kernel;
};
constexpr WholeRecipe kRecipes[] = {{"tpu-exact-portable", 1, 1},  {"tpu-exact-portable", 2, 1},
                                    {"tpu-exact-portable", 3, 16}, {"tpu-exact-portable", 4, 40},
                                    {"tpu-exact-native", 1, 1},    {"tpu-exact-native", 2, 16},
                                    {"tpu-exact-native", 3, 40},   {"tpu-exact-native", 8, 1}};

struct HonestModel {
  std::string name;
  Model model;
};

std::vector<HonestModel> HonestModels() {
  std::vector<HonestModel> models;
  for (const SmallConfig& config : SmallConfigs())
    models.push_back({config.name, SmallFamilyModel(config.name)});
  const SmallSizes sizes[] = {
      {},
      {.layers = 1, .d_model = 9, .heads = 5, .kv_heads = 1, .head_dim = 8, .d_ff = 9, .vocab = 24},
      {.layers = 1, .heads = 4, .kv_heads = 4, .head_dim = 6, .d_ff = 16, .vocab = 32, .experts = 4}};
  for (const SmallSizes& size : sizes) {
    for (SmallModel& small : SmallModels(size)) {
      HonestModel honest{absl::StrCat(small.name, " ", size.heads, "/", size.kv_heads), {}};
      honest.model.graph = std::move(small.graph);
      honest.model.reader = std::make_shared<MadeTensors>(1);
      models.push_back(std::move(honest));
    }
  }
  return models;
}

// The number of runs in which the recipe did something.
int Try(const HonestModel& honest, const LoadedRecipe& recipe, const RecipeOptions& options, uint64_t seed) {
  const StepTrace trace = TraceWith(recipe, options, honest.model, nullptr);
  if (Text(trace.graphs.back()) == Text(trace.graphs.front())) return 0;
  const FunctionProof proof = CompareAlongTrace(trace, trace.graphs.back(), seed);
  EXPECT_EQ(proof.verdict, Verdict::kProven) << proof.reason;
  EXPECT_GT(proof.values, 0);
  return 1;
}

TEST(Honest, AThousandTwinsWithoutAFalseAlarm) {
  int runs = 0;
  uint64_t seed = 1;
  const std::vector<std::string> steps = HonestSteps();
  for (const HonestModel& honest : HonestModels()) {
    for (const std::string& step : steps) {
      SCOPED_TRACE(absl::StrCat(honest.name, ", ", step));
      runs += Try(honest, RecipeOf(absl::StrCat("step { ", step, " }")), {}, seed++);
    }
    for (const WholeRecipe& whole : kRecipes) {
      SCOPED_TRACE(absl::StrCat(honest.name, ", ", whole.name, " over ", whole.shards));
      const absl::StatusOr<LoadedRecipe> recipe = LoadRecipe(whole.name);
      ASSERT_TRUE(recipe.ok());
      RecipeOptions options;
      options.context.facts.shards = whole.shards;
      options.context.facts.kernel = whole.kernel;
      runs += Try(honest, *recipe, options, seed++);
    }
  }
  EXPECT_GE(runs, 1000);
  RecordProperty("runs", runs);
}

// In its own dtype a twin loses no more than the stated multiple of what the source loses there.
TEST(Honest, ThreeWaysWithoutAFalseAlarm) {
  int runs = 0;
  for (const HonestModel& honest : HonestModels()) {
    for (const char* cast : {"cast_weights { to: 'bf16' }", "cast_weights { to: 'f16' }"}) {
      const LoadedRecipe recipe = RecipeOf(absl::StrCat(
          "step { pad_head_dim { form: PORTABLE multiple: 16 } } step { pad_ffn { multiple: 8 } } step { ",
          cast, " }"));
      SCOPED_TRACE(absl::StrCat(honest.name, ", ", cast));
      const StepTrace trace = TraceWith(recipe, {}, honest.model, nullptr);
      const ThreeWay found = CompareThreeWays(trace.graphs.front(), trace.graphs.back(), 11);
      EXPECT_EQ(found.verdict, Verdict::kProven) << found.reason;
      EXPECT_GT(found.source_error, 0);
      ++runs;
    }
  }
  EXPECT_GT(runs, 80);
}

// Steps that compute weights, and widen or select among them.
constexpr const char* kComputing[] = {"pad_head_dim { form: PORTABLE multiple: 40 }",
                                      "pad_hidden { form: PORTABLE multiple: 16 }",
                                      "fold_norm_scale { }",
                                      "cast_weights { to: 'bf16' }",
                                      "cast_weights { to: 'f16' }",
                                      "cast_weights { to: 'f32' }",
                                      "keep_n_of_m { keep: 1 of: 2 along: 'in' }"};

// Every tensor of the twin as a manifest would list it.
std::vector<ManifestTensor> TensorsOf(const Graph& graph) {
  std::vector<ManifestTensor> tensors;
  for (const auto& [role, param] : graph.params()) tensors.push_back({role, "", "", param.program, {role}});
  return tensors;
}

// In whatever order weights are cast, folded, scaled and selected: every element is within its bound, every
// tensor's roundings within what the recipe claims.
TEST(Honest, RoundingsOfAnyTwoStepsAreAccountedFor) {
  int64_t rounded = 0;
  for (const HonestModel& honest : HonestModels()) {
    for (const char* narrow : {"", "step { cast_weights { to: 'bf16' } }"}) {
      for (const char* first : kComputing) {
        for (const char* second : kComputing) {
          SCOPED_TRACE(absl::StrCat(honest.name, ", ", narrow, first, ", ", second));
          Model twin = honest.model;
          const auto report = RunRecipe(
              RecipeOf(absl::StrCat(narrow, "step { ", first, " } step { ", second, " }")), {}, twin);
          const std::optional<Diagnostic> d = DiagnosticOf(report.status());
          if (d && d->code == 1106) continue;  // the second of two equal steps does nothing
          ASSERT_TRUE(report.ok()) << report.status();
          const auto found = MeasureRounding(TensorsOf(twin.graph), *twin.reader);
          ASSERT_TRUE(found.ok()) << found.status();
          for (const RoundedTensor& tensor : *found) {
            ASSERT_EQ(tensor.verdict, Verdict::kProven) << tensor.name << ": " << tensor.detail;
            ASSERT_LE(tensor.claimed, report->bound * (1 + 1e-12)) << tensor.name;
            rounded += tensor.claimed > 0 ? 1 : 0;
          }
          if (report->fidelity == Fidelity::kRetrain) continue;
          const ThreeWay ways = CompareThreeWays(honest.model.graph, twin.graph, 11);
          ASSERT_EQ(ways.verdict, Verdict::kProven) << ways.reason;
        }
      }
    }
  }
  EXPECT_GT(rounded, 10000);
}

// What is not tried above is meant to change the function.
TEST(Honest, TriesEveryTransformThatKeepsTheFunction) {
  std::set<std::string> changing;
  for (const std::string& step : LawSteps()) {
    if (!KeepsTheFunction(step)) changing.insert(step.substr(0, step.find(' ')));
  }
  EXPECT_EQ(changing, (std::set<std::string>{"keep_n_of_m", "merge_lora"}));
}

}  // namespace
}  // namespace twinforge
