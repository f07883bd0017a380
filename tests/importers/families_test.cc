// Each family: from config to graph, from files to roles and back to the very same files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/diagnostic.h"
#include "importers/importer.h"
#include "tests/importers/checkpoint_files.h"
#include "tests/importers/small_checkpoints.h"
#include "weights/build.h"

namespace twinforge {
namespace {

using ::testing::HasSubstr;

Model FromConfig(const std::string& json) {
  absl::StatusOr<Model> model = ModelFromConfigText(json, "config.json");
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : Model();
}

int CodeOf(const absl::Status& status) {
  const std::optional<Diagnostic> diagnostic = DiagnosticOf(status);
  return diagnostic ? diagnostic->code : 0;
}

// The stored tensors of an untouched model are its sources, and its config is the config.
void ExpectIdentity(const Model& model) {
  const absl::StatusOr<std::vector<NamedProgram>> files = FilesFromGraph(model.layouts[0], model.graph);
  ASSERT_TRUE(files.ok()) << files.status();
  std::map<std::string, WeightPtr> programs;
  for (const NamedProgram& file : *files) programs[file.name] = file.program;
  size_t used = 0;
  for (const SourceTensor& source : model.sources) {
    if (!source.ignored.empty()) continue;
    ++used;
    ASSERT_TRUE(programs.contains(source.name)) << source.name;
    EXPECT_EQ(programs[source.name], source.source) << source.name;
  }
  EXPECT_EQ(used, programs.size());
  const absl::StatusOr<JsonValue> config = ConfigFromGraph(model.layouts[0], model.graph, model.config);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->Text(), model.config.Text());
}

class Families : public ::testing::TestWithParam<SmallConfig> {};

TEST_P(Families, AConfigAloneMakesTheModel) {
  const Model model = FromConfig(GetParam().json);
  EXPECT_FALSE(model.has_bytes());
  ExpectIdentity(model);
}

TEST_P(Families, EveryLayoutOpensAsTheSameModel) {
  const Model planned = FromConfig(GetParam().json);
  for (size_t layout = 0; layout < planned.layouts.size(); ++layout) {
    SCOPED_TRACE(planned.layouts[layout].name);
    TempFolder folder;
    folder.Write("config.json", GetParam().json);
    folder.Write("model.safetensors", SafetensorsFile(TensorsOf(planned, layout)));
    const absl::StatusOr<Model> model = OpenModel(folder.path());
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_TRUE(model->has_bytes());
    EXPECT_EQ(model->layouts[0].name, planned.layouts[layout].name);
    EXPECT_EQ(model->layouts.size(), planned.layouts.size());
    const ParameterCounts stored = CountParameters(model->graph), counted = CountParameters(planned.graph);
    EXPECT_EQ(stored.total, counted.total);
    EXPECT_EQ(stored.active, counted.active);
    ExpectIdentity(*model);
  }
}

TEST_P(Families, EachTensorIsNeeded) {
  const Model planned = FromConfig(GetParam().json);
  const Tensors all = TensorsOf(planned, 0);
  size_t at = 0;
  for (const auto& [name, tensor] : all) {
    // Every tensor of the first layers would take long and show nothing new.
    if (at++ % 5 != 0) continue;
    SCOPED_TRACE(name);
    TempFolder folder;
    Tensors tensors = all;
    tensors.erase(name);
    folder.Write("config.json", GetParam().json);
    folder.Write("model.safetensors", SafetensorsFile(tensors));
    const absl::StatusOr<Model> model = OpenModel(folder.path());
    ASSERT_FALSE(model.ok());
    EXPECT_EQ(CodeOf(model.status()), 1409) << model.status();
    EXPECT_THAT(Render(model.status()), HasSubstr(name));
  }
}

TEST_P(Families, AWrongShapeIsNamedWithBothShapes) {
  const Model planned = FromConfig(GetParam().json);
  Tensors tensors = TensorsOf(planned, 0);
  auto& [name, tensor] = *std::next(tensors.begin(), tensors.size() / 2);
  tensor.shape.back() += 1;
  TempFolder folder;
  folder.Write("config.json", GetParam().json);
  folder.Write("model.safetensors", SafetensorsFile(tensors));
  const absl::StatusOr<Model> model = OpenModel(folder.path());
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(CodeOf(model.status()), 1411) << model.status();
  EXPECT_THAT(Render(model.status()),
              HasSubstr(absl::StrCat("tensor \"", name, "\" is ", ShapeText(tensor.shape))));
}

INSTANTIATE_TEST_SUITE_P(All, Families, ::testing::ValuesIn(SmallConfigs()),
                         [](const auto& info) { return info.param.name; });

TEST(FamilyFiles, EachModelTypeHasASmallConfig) {
  std::set<std::string> types;
  for (const SmallConfig& config : SmallConfigs()) types.insert(FromConfig(config.json).model_type);
  const std::vector<std::string> supported = SupportedModelTypes();
  EXPECT_EQ(std::vector<std::string>(types.begin(), types.end()), supported);
}

}  // namespace
}  // namespace twinforge
