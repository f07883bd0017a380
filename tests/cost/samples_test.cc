// The models whose configs are kept under samples/, on every chip.
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "cost/score.h"
#include "gtest/gtest.h"
#include "importers/importer.h"

namespace twinforge {
namespace {

class Samples : public ::testing::TestWithParam<const char*> {
 protected:
  Graph Load() const {
    const std::string path =
        std::string(TWINFORGE_SOURCE_DIR) + "/samples/configs/" + GetParam() + "/config.json";
    absl::StatusOr<Model> model = ModelFromConfig(path);
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() ? model->graph : Graph();
  }
};

// A GPU's memory is linear, so every stored element is there once and nothing else.
TEST_P(Samples, KeepEveryStoredElementOnce) {
  const Graph graph = Load();
  const absl::StatusOr<Score> score = ScoreGraph(graph, nullptr, "h100_sxm", {.batch = 4, .context = 100});
  ASSERT_TRUE(score.ok()) << score.status();
  EXPECT_EQ(score->parameter_bytes, 2 * StoredElements(graph));
}

TEST_P(Samples, ClimbEveryLadder) {
  const Graph graph = Load();
  int refused = 0;
  for (const ChipSummary& chip : AllChips()) {
    for (const Phase phase : {Phase::kPrefill, Phase::kDecode}) {
      const absl::StatusOr<Score> score =
          ScoreGraph(graph, nullptr, chip.id, {.phase = phase, .batch = 8, .context = 4096, .shards = 4});
      if (!score.ok()) {
        const int code = DiagnosticOf(score.status())->code;
        EXPECT_TRUE(code == 1706 || code == 1709) << chip.id << ": " << score.status();
        ++refused;
        continue;
      }
      for (int rung = 1; rung < 4; ++rung)
        EXPECT_GE(score->ladder[rung].seconds, score->ladder[rung - 1].seconds);
      // Decode is bound by memory and prefill by products on all of these chips.
      const double memory = score->ladder[3].seconds - score->ladder[2].seconds;
      EXPECT_EQ(memory > score->ladder[2].seconds, phase == Phase::kDecode) << chip.id;
    }
  }
  EXPECT_EQ(refused, 2 * 5) << "both phases of the chips that chip_test names";
}

INSTANTIATE_TEST_SUITE_P(Configs, Samples,
                         ::testing::Values("llama-3.1-8b", "qwen2.5-7b", "qwen3-30b-a3b", "gpt-oss-120b"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = c == '-' || c == '.' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace twinforge
