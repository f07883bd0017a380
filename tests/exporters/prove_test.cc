#include "exporters/prove.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/sha256.h"
#include "importers/checkpoint.h"
#include "tests/exporters/fixture.h"

namespace twinforge {
namespace {

ProofReport MustProve(const Model& source, const std::string& twin) {
  auto manifest = ReadManifest(twin);
  EXPECT_TRUE(manifest.ok()) << manifest.status();
  auto report = Prove(source, *manifest, OpenStored(twin), SmallTiles(Target::kHf), nullptr);
  EXPECT_TRUE(report.ok()) << report.status();
  return *std::move(report);
}

bool Says(const ProofReport& report, const std::string& check, const std::string& subject,
          const std::string& detail) {
  for (const ProofRow& row : report.rows) {
    if (row.verdict == Verdict::kRefuted && row.check == check && row.subject == subject &&
        row.detail.find(detail) != std::string::npos) {
      return true;
    }
  }
  return false;
}

std::string Failures(const ProofReport& report) {
  std::string text;
  for (const ProofRow& row : report.rows) {
    if (row.verdict != Verdict::kProven)
      absl::StrAppend(&text, row.check, " ", row.subject, ": ", row.detail, "\n");
  }
  return text;
}

TEST(Prove, ProvesWhatWasForged) {
  for (Rewriting rewriting : {Rewriting::kNone, Rewriting::kPad, Rewriting::kNative, Rewriting::kRescale}) {
    for (Target target : {Target::kHf, Target::kTwin}) {
      if (rewriting == Rewriting::kNative && target == Target::kHf) continue;
      TempFolder temp;
      ASSERT_TRUE(Forge(Twin(rewriting), SmallTiles(target), temp / "twin").ok());
      ProofReport report = MustProve(Open(TinyLlama()), temp / "twin");
      EXPECT_EQ(report.verdict, Verdict::kProven) << Failures(report);
      size_t sources = Open(TinyLlama()).sources.size();
      EXPECT_EQ(report.tensors_inverse,
                static_cast<int64_t>(sources) - (rewriting == Rewriting::kRescale ? 4 : 0));
      EXPECT_GT(report.bytes_checked, 3 * 80'000);
    }
  }
}

// One changed bit anywhere in any file of a twin: a verdict, or a refusal to read it at all.
TEST(Prove, FindsAFlippedBitInAnyFile) {
  TempFolder temp;
  ASSERT_TRUE(Forge(Twin(Rewriting::kNative), SmallTiles(Target::kTwin), temp / "twin").ok());
  const Model source = Open(TinyLlama());
  int64_t flips = 0;
  for (const auto& [name, bytes] : ReadTree(temp / "twin")) {
    for (size_t at = 0; at < bytes.size(); at += 1 + bytes.size() / 17) {
      std::string changed = bytes;
      changed[at] ^= 1 << at % 8;
      WriteFile((temp / "twin/") + name, changed);
      ++flips;
      auto manifest = ReadManifest(temp / "twin");
      if (!manifest.ok() || !Checkpoint::Open(temp / "twin").ok()) continue;
      ProofReport report = MustProve(source, temp / "twin");
      EXPECT_EQ(report.verdict, Verdict::kRefuted) << name << " byte " << at;
      EXPECT_TRUE(Says(report, "files", name, "sha256")) << name << " byte " << at;
    }
    WriteFile((temp / "twin/") + name, bytes);
  }
  EXPECT_GT(flips, 80);
}

// Tampering that keeps every hash right is found by computing anew.
TEST(Prove, FindsAChangedWeightBehindARepairedManifest) {
  TempFolder temp;
  ASSERT_TRUE(Forge(Twin(Rewriting::kPad), {.target = Target::kHf}, temp / "twin").ok());
  std::string path = temp / "twin/model.safetensors";
  std::string bytes = ReadFile(path);
  std::string before = Sha256Hex(bytes);
  bytes[bytes.size() - 2] ^= 1;  // the last element of the last tensor
  WriteFile(path, bytes);
  std::string manifest =
      absl::StrReplaceAll(ReadFile(temp / "twin/twin.manifest.textproto"), {{before, Sha256Hex(bytes)}});
  manifest.resize(manifest.rfind("manifest_sha256"));
  WriteFile(temp / "twin/twin.manifest.textproto",
            absl::StrCat(manifest, "manifest_sha256: \"", Sha256Hex(manifest), "\"\n"));
  ProofReport report = MustProve(Open(TinyLlama()), temp / "twin");
  EXPECT_EQ(report.verdict, Verdict::kRefuted);
  EXPECT_TRUE(Says(report, "forward", "model.norm.weight", "element [47]: ")) << Failures(report);
  EXPECT_TRUE(Says(report, "inverse", "model.norm.weight", "element [47]: ")) << Failures(report);
}

// What the manifest claims of the whole follows from its tensors, whoever signed it.
TEST(Prove, FindsAClaimThatIsTooGood) {
  TempFolder temp;
  ASSERT_TRUE(Forge(Twin(Rewriting::kRescale), {.target = Target::kHf}, temp / "twin").ok());
  const std::string path = temp / "twin/twin.manifest.textproto";
  const std::string honest = ReadFile(path);
  for (const char* claim : {"MOVED", "PERFECT"}) {
    std::string lie = absl::StrReplaceAll(honest, {{"\"BOUNDED\"", absl::StrCat("\"", claim, "\"")}});
    ASSERT_NE(lie, honest);
    lie.resize(lie.rfind("manifest_sha256"));
    WriteFile(path, absl::StrCat(lie, "manifest_sha256: \"", Sha256Hex(lie), "\"\n"));
    ProofReport report = MustProve(Open(TinyLlama()), temp / "twin");
    EXPECT_TRUE(Says(report, "structure", "fidelity", claim)) << Failures(report);
  }
}

TEST(Prove, FindsFilesThatALoaderMayPrefer) {
  TempFolder temp;
  ASSERT_TRUE(Forge(Twin(Rewriting::kPad), {.target = Target::kHf}, temp / "twin").ok());
  WriteFile(temp / "twin/pytorch_model.bin", "x");
  WriteFile(temp / "twin/adapter_config.json", "{}");
  for (const char* folder : {"custom_generate", ".git"})
    std::filesystem::create_directory((temp / "twin/") + folder);
  WriteFile(temp / "twin/custom_generate/generate.py", "x");
  WriteFile(temp / "twin/.git/config", "x");
  ASSERT_EQ(mkfifo((temp / "twin/vocab.json").c_str(), 0600), 0);
  ProofReport report = MustProve(Open(TinyLlama()), temp / "twin");
  EXPECT_TRUE(Says(report, "files", "pytorch_model.bin", "not in the manifest")) << Failures(report);
  EXPECT_TRUE(Says(report, "files", "adapter_config.json", "not in the manifest")) << Failures(report);
  EXPECT_TRUE(Says(report, "files", "custom_generate", "a folder")) << Failures(report);
  EXPECT_TRUE(Says(report, "files", "vocab.json", "a FIFO")) << Failures(report);
  EXPECT_EQ(std::count_if(report.rows.begin(), report.rows.end(),
                          [](const ProofRow& row) { return row.verdict != Verdict::kProven; }),
            4)
      << Failures(report);
}

// What the source has gained since, a forge would carry.
TEST(Prove, FindsWhatIsNotCarriedAlong) {
  TempFolder temp;
  CopyTinyLlama(temp / "in");
  ASSERT_TRUE(Forge(Twin(Rewriting::kPad, temp / "in"), {.target = Target::kHf}, temp / "twin").ok());
  WriteFile(temp / "in/tokenizer.json", "{}");
  ProofReport report = MustProve(Open(temp / "in"), temp / "twin");
  EXPECT_TRUE(Says(report, "structure", "tokenizer.json", "the source has it")) << Failures(report);
}

TEST(Prove, FindsAnotherSource) {
  TempFolder temp;
  CopyTinyLlama(temp / "in");
  ASSERT_TRUE(Forge(Twin(Rewriting::kPad, temp / "in"), {.target = Target::kHf}, temp / "twin").ok());
  // The same names and shapes, one weight different: no hash of the header tells.
  std::string bytes = ReadFile(temp / "in/model.safetensors");
  bytes[bytes.size() - 2] ^= 1;
  WriteFile(temp / "in/model.safetensors", bytes);
  ProofReport report = MustProve(Open(temp / "in"), temp / "twin");
  EXPECT_EQ(report.verdict, Verdict::kRefuted);
  EXPECT_TRUE(Says(report, "forward", "model.norm.weight", "expected")) << Failures(report);
}

TEST(Prove, FindsAGraphThatIsNotTheTensors) {
  TempFolder temp;
  ASSERT_TRUE(Forge(Twin(Rewriting::kPad), {.target = Target::kTwin}, temp / "twin").ok());
  std::string path = temp / "twin/twin.manifest.textproto";
  // Up and gate exchanged in the graph alone.
  std::string manifest = absl::StrReplaceAll(
      ReadFile(path),
      {{"@layers.0.mlp.up: ", "@layers.0.mlp.gate: "}, {"@layers.0.mlp.gate: ", "@layers.0.mlp.up: "}});
  manifest.resize(manifest.rfind("manifest_sha256"));
  WriteFile(path, absl::StrCat(manifest, "manifest_sha256: \"", Sha256Hex(manifest), "\"\n"));
  ProofReport report = MustProve(Open(TinyLlama()), temp / "twin");
  EXPECT_EQ(report.verdict, Verdict::kRefuted);
  EXPECT_TRUE(Says(report, "structure", "layers.0.mlp.up", "the graph gives")) << Failures(report);
}

TEST(Prove, IsIncompleteWithoutTheSourcesBytes) {
  TempFolder temp;
  ASSERT_TRUE(Forge(Twin(Rewriting::kPad), {.target = Target::kHf}, temp / "twin").ok());
  Model source = Open(TinyLlama());
  source.reader = nullptr;
  EXPECT_EQ(MustProve(source, temp / "twin").verdict, Verdict::kIncomplete);
}

}  // namespace
}  // namespace twinforge
