#include "exporters/twin.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/diagnostic.h"
#include "importers/checkpoint.h"
#include "ir/rewriter.h"
#include "tests/exporters/fixture.h"
#include "weights/build.h"
#include "weights/read.h"

namespace twinforge {
namespace {

int CodeOf(const absl::Status& status) { return DiagnosticOf(status).value_or(Diagnostic()).code; }

// Forges, unforges, and gives the files that came home.
Tree HomeOf(const Model& model, Target target, const std::string& from, ExportPlan* plan = nullptr) {
  TempFolder temp;
  auto forged = Forge(model, SmallTiles(target), temp / "twin");
  EXPECT_TRUE(forged.ok()) << forged.status();
  auto manifest = ReadManifest(temp / "twin");
  EXPECT_TRUE(manifest.ok()) << manifest.status();
  StoredTwin stored = OpenStored(temp / "twin");
  ExportOptions options = SmallTiles(target);
  auto planned = PlanUnforge(*manifest, stored, options);
  EXPECT_TRUE(planned.ok()) << planned.status();
  if (!planned.ok()) return {};
  auto result = Unforge(stored, *planned, options, temp / "home", nullptr);
  EXPECT_TRUE(result.ok()) << result.status();
  if (plan != nullptr) *plan = *planned;
  return ReadTree(temp / "home");
}

std::vector<std::byte> ReadWhole(const WeightPtr& w, const TensorReader& reader) {
  std::vector<std::byte> data(w->element_count() * ElementBytes(w->dtype()));
  Scratch scratch;
  absl::Status status = Read(w, WholeBox(w->shape()), reader, data.data(), scratch);
  EXPECT_TRUE(status.ok()) << status;
  return data;
}

TEST(Unforge, BringsMovedFilesHomeBitForBit) {
  const Tree source = ReadTree(TinyLlama());
  EXPECT_TRUE(HomeOf(Twin(Rewriting::kPad), Target::kHf, TinyLlama()) == source);
  EXPECT_TRUE(HomeOf(Twin(Rewriting::kPad), Target::kTwin, TinyLlama()) == source);
  EXPECT_TRUE(HomeOf(Twin(Rewriting::kNative), Target::kTwin, TinyLlama()) == source);
}

// A source whose header no writer of ours would make: another order, other spaces, no padding, odd offsets.
TEST(Unforge, ReproducesAHeaderOfAnotherHand) {
  TempFolder temp;
  CopyTinyLlama(temp / "in");
  std::string bytes = ReadFile(temp / "in/model.safetensors");
  uint64_t n = 0;
  memcpy(&n, bytes.data(), 8);
  const std::string data = bytes.substr(8 + n);
  std::string json = bytes.substr(8, n);
  json.insert(1, "  \"__metadata__\" : { \"odd\" : \"yes\" } , ");
  size_t old = json.find("\"__metadata__\":{\"format\":\"pt\"},");
  ASSERT_NE(old, std::string::npos);
  json.erase(old, 31);
  json += " ";
  n = json.size();
  std::string length(reinterpret_cast<const char*>(&n), 8);
  WriteFile(temp / "in/model.safetensors", length + json + data);
  const Tree source = ReadTree(temp / "in");
  EXPECT_TRUE(HomeOf(Twin(Rewriting::kNative, temp / "in"), Target::kTwin, temp / "in") == source);
}

TEST(Unforge, SaysWhenValuesOnlyComeBackWithinRounding) {
  ExportPlan plan;
  Tree home = HomeOf(Twin(Rewriting::kRescale), Target::kHf, TinyLlama(), &plan);
  ASSERT_EQ(plan.warnings.size(), 1u);
  EXPECT_NE(plan.warnings[0].find("4 tensors were rescaled"), std::string::npos) << plan.warnings[0];
  // Twice and half are exact in binary.
  EXPECT_EQ(home["model.safetensors"], ReadFile(TinyLlama() + "/model.safetensors"));
}

TEST(Unforge, RefusesWhatATwinDoesNotHold) {
  TempFolder temp;
  Model model = Open(TinyLlama());
  Rewriter rewriter(model.graph, "1 keep");
  const Param param = *model.graph.FindParam("layers.0.mlp.up");
  rewriter.SetParam(param.role, param.type, GroupKeepLargest(param.program, 0, 4, 2));
  ASSERT_TRUE(Forge(model, SmallTiles(Target::kHf), temp / "twin").ok());
  auto manifest = ReadManifest(temp / "twin");
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  auto plan = PlanUnforge(*manifest, OpenStored(temp / "twin"), {});
  EXPECT_EQ(CodeOf(plan.status()), 1802) << plan.status();
  EXPECT_EQ(DiagnosticOf(plan.status())->place, "model.layers.0.mlp.up_proj.weight");
}

// A twin that was tuned on its own goes home by the same record.
TEST(Unforge, TakesValuesThatChangedSince) {
  TempFolder temp;
  ASSERT_TRUE(Forge(Twin(Rewriting::kPad), {.target = Target::kHf}, temp / "twin").ok());
  std::string path = temp / "twin/model.safetensors";
  std::string bytes = ReadFile(path);
  bytes[bytes.size() - 1] ^= 1;
  WriteFile(path, bytes);
  StoredTwin stored = OpenStored(temp / "twin");
  auto plan = PlanUnforge(*ReadManifest(temp / "twin"), stored, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_TRUE(Unforge(stored, *plan, {}, temp / "home", nullptr).ok());
  EXPECT_NE(ReadFile(temp / "home/model.safetensors"), ReadFile(TinyLlama() + "/model.safetensors"));
}

TEST(OpenTwin, ReadsEveryParameterByRole) {
  for (Target target : {Target::kTwin, Target::kHf}) {
    TempFolder temp;
    Model made = Twin(target == Target::kHf ? Rewriting::kPad : Rewriting::kNative);
    ASSERT_TRUE(Forge(made, SmallTiles(target), temp / "twin").ok());
    Model imported;
    if (target == Target::kHf) imported = Open(temp / "twin");
    auto model = OpenTwin(*ReadManifest(temp / "twin"), OpenStored(temp / "twin"),
                          target == Target::kHf ? &imported : nullptr);
    ASSERT_TRUE(model.ok()) << model.status();
    ASSERT_EQ(model->graph.params().size(), made.graph.params().size());
    for (const auto& [role, param] : made.graph.params()) {
      const Param* read = model->graph.FindParam(role);
      ASSERT_NE(read, nullptr) << role;
      EXPECT_TRUE(read->type == param.type) << role;
      EXPECT_TRUE(ReadWhole(read->program, *model->reader) == ReadWhole(param.program, *made.reader)) << role;
    }
  }
}

TEST(OpenTwin, RefusesFilesOfAnotherTwin) {
  TempFolder temp;
  ASSERT_TRUE(Forge(Twin(Rewriting::kPad), {.target = Target::kHf}, temp / "twin").ok());
  ASSERT_TRUE(Forge(Open(TinyLlama()), {.target = Target::kHf}, temp / "other").ok());
  auto model = OpenTwin(*ReadManifest(temp / "twin"), OpenStored(temp / "other"), nullptr);
  EXPECT_EQ(CodeOf(model.status()), 1803) << model.status();
}

}  // namespace
}  // namespace twinforge
