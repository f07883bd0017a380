#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/diagnostic.h"
#include "exporters/exporter.h"
#include "tests/exporters/fixture.h"

namespace twinforge {
namespace {

int CodeOf(const absl::Status& status) { return DiagnosticOf(status).value_or(Diagnostic()).code; }

Tree MustForge(const Model& model, const ExportOptions& options) {
  TempFolder temp;
  auto result = Forge(model, options, temp / "out");
  EXPECT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(List(temp.path()), "out");
  return ReadTree(temp / "out");
}

TEST(Export, AnUntouchedCheckpointIsWrittenAsItWas) {
  Tree tree = MustForge(Open(TinyLlama()), {});
  std::string source = ReadFile(TinyLlama() + "/model.safetensors");
  const std::string& twin = tree["model.safetensors"];
  // Only the header differs, by the mark that names the manifest.
  auto data = [](const std::string& file) {
    uint64_t n = 0;
    memcpy(&n, file.data(), 8);
    return file.substr(8 + n);
  };
  EXPECT_EQ(data(twin), data(source));
  EXPECT_EQ(tree.count("twin.manifest.textproto"), 1u);
  EXPECT_EQ(tree.count("README.md"), 1u);
}

TEST(Export, BytesDependOnNothingButThePlan) {
  for (Target target : {Target::kHf, Target::kTwin, Target::kOnnx}) {
    Model model = Twin(target == Target::kHf ? Rewriting::kPad : Rewriting::kNative);
    ExportOptions options = SmallTiles(target);
    const Tree expected = MustForge(model, options);
    EXPECT_GE(expected.size(), 4u);
    for (int threads : {1, 2, 5}) {
      for (int64_t tile : {int64_t{64}, int64_t{1000}, int64_t{6} << 10, int64_t{1} << 20}) {
        for (int64_t memory : {int64_t{50} << 20, int64_t{2} << 30}) {
          options.threads = threads;
          options.seams.tile_bytes = tile;
          options.memory = memory;
          EXPECT_TRUE(MustForge(model, options) == expected) << threads << " threads, tiles of " << tile;
        }
      }
    }
  }
}

// Sets bf16 elements of layer 0's up_proj, row-major [d_ff, d_model], in a checkpoint at `folder`.
void PokeUp(const std::string& folder, const std::map<int64_t, uint16_t>& elements) {
  const std::string path = folder + "/model.safetensors";
  std::string bytes = ReadFile(path);
  uint64_t header = 0;
  memcpy(&header, bytes.data(), 8);
  const auto entry = nlohmann::json::parse(bytes.substr(8, header))["model.layers.0.mlp.up_proj.weight"];
  ASSERT_EQ(entry["dtype"], "BF16");
  const size_t begin = 8 + header + entry["data_offsets"][0].get<size_t>();
  for (const auto& [at, code] : elements) memcpy(&bytes[begin + 2 * at], &code, 2);
  WriteFile(path, bytes);
}

TEST(Export, AWeightThatWouldOverflowIsRefusedWithItsElement) {
  TempFolder temp;
  std::filesystem::create_directory(temp / "source");
  CopyTinyLlama(temp / "source");
  const int64_t width = Open(temp / "source").graph.FindParam("layers.0.mlp.up")->type.shape()[0];
  PokeUp(temp / "source", {{3 * width + 5, 0x7f7f}, {7, 0x7f80}, {8, 0xff80}, {9, 0x7fc1}});
  for (int threads : {1, 3}) {
    ExportOptions options = SmallTiles(Target::kHf);
    options.threads = threads;
    absl::Status status = Forge(Twin(Rewriting::kRescale, temp / "source"), options, temp / "out").status();
    EXPECT_EQ(CodeOf(status), 1613) << status;
    EXPECT_NE(status.message().find("model.layers.0.mlp.up_proj.weight"), std::string::npos) << status;
    EXPECT_NE(status.message().find("element [3, 5] would be 6.77"), std::string::npos) << status;
    EXPECT_FALSE(std::filesystem::exists(temp / "out"));
  }
  // Moving it is no computing; and what the source has as infinite or as no number stays so.
  EXPECT_TRUE(Forge(Twin(Rewriting::kPad, temp / "source"), {}, temp / "padded").ok());
  PokeUp(temp / "source", {{3 * width + 5, 0x3f80}});
  absl::Status passed = Forge(Twin(Rewriting::kRescale, temp / "source"), {}, temp / "doubled").status();
  EXPECT_TRUE(passed.ok()) << passed;
}

TEST(Export, ReportsProgressUpToTheTotal) {
  TempFolder temp;
  Model model = Twin(Rewriting::kPad);
  ExportOptions options = SmallTiles(Target::kHf);
  auto plan = PlanExport(model, options);
  ASSERT_TRUE(plan.ok());
  int64_t last = 0, total = 0;
  auto result = Export(model, *plan, SomeProvenance(), options, temp / "out", [&](const Progress& progress) {
    EXPECT_GE(progress.bytes_done, last);
    last = progress.bytes_done;
    total = progress.bytes_total;
  });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(last, total);
  EXPECT_EQ(result->bytes_written, total);
  EXPECT_EQ(result->bytes_reused, 0);
}

TEST(Export, RefusesAnExistingNameBeforeAnythingElse) {
  TempFolder temp;
  WriteFile(temp / "out", "mine");
  auto result = Forge(Open(TinyLlama()), {}, temp / "out");
  EXPECT_EQ(CodeOf(result.status()), 1608);
  EXPECT_EQ(ReadTree(temp.path()), (Tree{{"out", "mine"}}));
}

TEST(Export, RefusesAFolderInsideItsSource) {
  TempFolder temp;
  CopyTinyLlama(temp / "in");
  Model model = Open(temp / "in");
  std::filesystem::create_directory(temp / "in/sub");
  std::filesystem::create_directory_symlink(temp / "in", temp / "link");
  for (const std::string& out : {temp / "in/out", temp / "in/sub/out", temp / "link/out"}) {
    auto result = Forge(model, {}, out);
    EXPECT_EQ(CodeOf(result.status()), 1611) << out;
  }
  EXPECT_EQ(List(temp / "in"), "config.json model.safetensors sub");
  EXPECT_TRUE(Forge(model, {}, temp / "in2").ok()) << "a name that only begins alike";
}

TEST(Export, NoticesASourceThatChangedMeanwhile) {
  TempFolder temp;
  CopyTinyLlama(temp / "in");
  Model model = Open(temp / "in");
  std::filesystem::last_write_time(temp / "in/model.safetensors",
                                   std::filesystem::file_time_type::clock::now());
  auto result = Forge(model, {}, temp / "out");
  EXPECT_EQ(CodeOf(result.status()), 1205) << result.status();
  EXPECT_FALSE(std::filesystem::exists(temp / "out"));
}

TEST(Export, DoesNotResumeFromAnotherSource) {
  TempFolder temp;
  CopyTinyLlama(temp / "in");
  ExportOptions options = SmallTiles(Target::kHf);
  struct FailLate : FileSystem {
    int Rename(const std::string&, const std::string&) override { return -EIO; }
  } broken;
  options.seams.files = &broken;
  EXPECT_FALSE(Forge(Open(temp / "in"), options, temp / "out").ok());
  // The same header, another element: a new file under the old name.
  std::string bytes = ReadFile(temp / "in/model.safetensors");
  bytes[bytes.size() - 3] ^= 1;
  std::filesystem::remove(temp / "in/model.safetensors");
  WriteFile(temp / "in/model.safetensors", bytes);
  options.seams.files = nullptr;
  auto result = Forge(Open(temp / "in"), options, temp / "out");
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->bytes_reused, 0);
  EXPECT_TRUE(ReadTree(temp / "out") == MustForge(Open(temp / "in"), SmallTiles(Target::kHf)));
}

TEST(Export, TheSinkTakesEverythingAndKeepsNothing) {
  auto result = Forge(Twin(Rewriting::kPad), SmallTiles(Target::kHf), "/dev/null");
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GT(result->bytes_written, 90'000);
}

TEST(Export, AModelFromAConfigAloneIsRefused) {
  Model model = Open(TinyLlama());
  model.reader = nullptr;
  EXPECT_EQ(CodeOf(Forge(model, {}, "/nowhere/out").status()), 1612);
}

TEST(Export, LeavesNothingWhereTheSourceCannotBeRead) {
  TempFolder temp;
  Model model = Twin(Rewriting::kPad);
  model.companions = {"tokenizer.json"};  // which is not there: found when all tensors are written
  EXPECT_EQ(CodeOf(Forge(model, SmallTiles(Target::kHf), temp / "out").status()), 1202);
  EXPECT_EQ(List(temp.path()), "");
}

TEST(Export, CopiesCompanionsAndCarriesTheLicence) {
  TempFolder temp;
  CopyTinyLlama(temp / "in");
  WriteFile(temp / "in/tokenizer.json", "{}");
  WriteFile(temp / "in/LICENSE", "do what you like");
  WriteFile(temp / "in/README.md",
            "---\nlicense: apache-2.0\nbase_model:\n- org/base\ntags:\n- x\n---\n# Model\n");
  Model model = Open(temp / "in");
  model.companions = {"LICENSE", "README.md", "config.json", "tokenizer.json"};
  auto result = Forge(model, {}, temp / "out");
  ASSERT_TRUE(result.ok()) << result.status();
  Tree tree = ReadTree(temp / "out");
  EXPECT_EQ(tree["tokenizer.json"], "{}");
  EXPECT_EQ(tree["LICENSE"], "do what you like");
  EXPECT_EQ(tree["README.source.md"], ReadFile(temp / "in/README.md"));
  EXPECT_EQ(tree["README.md"].substr(0, 55), "---\nlicense: apache-2.0\nbase_model:\n- org/base\nlibrary_");
}

}  // namespace
}  // namespace twinforge
