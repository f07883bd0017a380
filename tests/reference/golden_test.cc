// Modules as they are emitted now against golden/*.py. TWINFORGE_UPDATE=1 writes those anew, for review.
#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "exporters/exporter.h"
#include "importers/importer.h"
#include "recipes/run.h"
#include "tests/importers/small_checkpoints.h"

namespace twinforge {
namespace {

struct Golden {
  const char* name;
  const char* config;
  const char* recipe;  // "": the model as it is
  Target target;
  int64_t shards;
};

constexpr Golden kGoldens[] = {
    {"llama", "llama", "", Target::kHf, 1},
    {"gemma2_portable", "gemma2", "tpu-exact-portable", Target::kHf, 1},
    {"gpt_oss_native", "gpt_oss", "tpu-exact-native-decode", Target::kTwin, 2},
    {"deepseek_v3_native", "deepseek_v3", "tpu-exact-native", Target::kTwin, 1},
    {"bert", "bert_masked", "", Target::kHf, 1},
};

std::string Emitted(const Golden& golden, absl::string_view file) {
  absl::StatusOr<Model> model = ModelFromConfigText(SmallConfigOf(golden.config), golden.config);
  EXPECT_TRUE(model.ok()) << model.status();
  if (*golden.recipe != '\0') {
    TwinTarget target;
    target.shards = golden.shards;
    absl::StatusOr<Twin> twin = MakeTwin(golden.recipe, target, *std::move(model));
    EXPECT_TRUE(twin.ok()) << twin.status();
    model = std::move(twin->model);
  }
  const absl::StatusOr<ExportPlan> plan = PlanExport(*model, {.target = golden.target});
  EXPECT_TRUE(plan.ok()) << plan.status();
  for (const SmallFile& small : plan->small_files) {
    if (small.name == file) return small.content;
  }
  ADD_FAILURE() << golden.name << " has no " << file;
  return "";
}

TEST(Golden, ModulesAreWhatTheToolEmits) {
  for (const Golden& golden : kGoldens) {
    SCOPED_TRACE(golden.name);
    for (const std::string torch : {"", "_torch"}) {
      const std::string path =
          absl::StrCat(TWINFORGE_SOURCE_DIR, "/tests/reference/golden/", golden.name, torch, ".py");
      const std::string file = absl::StrCat("reference/model", torch, ".py");
      const std::string now = Emitted(golden, file);
      if (std::getenv("TWINFORGE_UPDATE") != nullptr) std::ofstream(path) << now;
      const absl::StatusOr<std::string> golden_text = ReadTextFile(path);
      ASSERT_TRUE(golden_text.ok()) << golden_text.status();
      EXPECT_EQ(now, *golden_text) << "TWINFORGE_UPDATE=1 writes it anew";
      EXPECT_EQ(now, Emitted(golden, file)) << "twice the same";
      for (absl::string_view line : absl::StrSplit(now, '\n')) EXPECT_LE(line.size(), 200u) << line;
    }
  }
}

}  // namespace
}  // namespace twinforge
