#include "exporters/manifest.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/diagnostic.h"
#include "base/sha256.h"
#include "ir/text.h"
#include "tests/exporters/fixture.h"

namespace twinforge {
namespace {

// A manifest's text, forged once.
const std::string& Text() {
  static const std::string* const text = [] {
    TempFolder temp;
    EXPECT_TRUE(Forge(Twin(Rewriting::kNative), SmallTiles(Target::kTwin), temp / "out").ok());
    return new std::string(ReadFile(temp / "out/twin.manifest.textproto"));
  }();
  return *text;
}

// `text` with its seal made to fit again: what an attacker would do.
std::string Resealed(std::string text) {
  text.resize(text.rfind("manifest_sha256"));
  return absl::StrCat(text, "manifest_sha256: \"", Sha256Hex(text), "\"\n");
}

void ExpectRefused(const std::string& text, const std::string& because) {
  absl::StatusOr<TwinManifest> manifest = ParseManifest(text, "m");
  ASSERT_FALSE(manifest.ok()) << because;
  EXPECT_EQ(ExitCodeOf(manifest.status()) == ExitCode::kInternal, false) << manifest.status();
  EXPECT_NE(Render(manifest.status()).find(because), std::string::npos) << Render(manifest.status());
}

TEST(Manifest, SaysHowTheTwinWasMade) {
  absl::StatusOr<TwinManifest> manifest = ParseManifest(Text(), "m");
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->target, Target::kTwin);
  EXPECT_EQ(manifest->family, "llama");
  EXPECT_EQ(manifest->provenance.recipe_text, SomeProvenance().recipe_text);
  EXPECT_EQ(manifest->provenance.steps, SomeProvenance().steps);
  const ManifestTensor* qkv = manifest->Find("layers.0.attn.qkv");
  ASSERT_NE(qkv, nullptr);
  EXPECT_EQ(qkv->roles, (std::vector<std::string>{"layers.0.attn.q", "layers.0.attn.k", "layers.0.attn.v"}));
  ASSERT_EQ(manifest->source_files.size(), 1u);
  EXPECT_EQ(manifest->source_files[0].name, "model.safetensors");
  EXPECT_EQ(manifest->source_files[0].header, "") << "a plain header is written anew, not kept";
  EXPECT_FALSE(manifest->source_files[0].metadata.empty());
  EXPECT_EQ(manifest->graph, twinforge::Text(Twin(Rewriting::kNative).graph));
  for (const LedgerRow& row : manifest->ledger) EXPECT_EQ(row.fate, Fate::kMoved) << row.source;
}

TEST(Manifest, EveryChangedByteIsNoticed) {
  for (size_t at = 0; at < Text().size(); at += 1 + at % 23) {
    std::string changed = Text();
    changed[at] ^= 1;
    EXPECT_EQ(DiagnosticOf(ParseManifest(changed, "m").status()).value_or(Diagnostic()).code, 1801) << at;
  }
}

TEST(Manifest, EveryCutIsNoticed) {
  for (size_t cut = 0; cut < Text().size(); cut += 1 + cut % 101) {
    EXPECT_FALSE(ParseManifest(Text().substr(0, cut), "m").ok()) << cut;
  }
}

TEST(Manifest, IsReadAsHostile) {
  auto with = [](const char* from, const char* to) {
    EXPECT_NE(Text().find(from), std::string::npos) << from;
    return Resealed(absl::StrReplaceAll(Text(), {{from, to}}));
  };
  ExpectRefused(with("twinforge.manifest.v1", "twinforge.manifest.v9"), "schema");
  ExpectRefused(with("target: \"twin\"", "target: \"hat\""), "none of hf, twin and onnx");
  ExpectRefused(with("target: \"twin\"", "target: \"onnx\""), "its operator set is not one");
  ExpectRefused(with("target: \"twin\"", "target: \"twin\" opset: 21"), "its operator set is not one");
  ExpectRefused(with("target: \"twin\"", "target: \"onnx\" opset: 21 computed_in: \"f33\""),
                "its operator set is not one");
  ExpectRefused(with("name: \"model.safetensors\"", "name: \"../model.safetensors\""), "name");
  ExpectRefused(with("name: \"config.json\"", "name: \"/etc/passwd\""), "outside");
  ExpectRefused(with("dtype: \"BF16\"", "dtype: \"BF17\""), "impossible");
  ExpectRefused(with("fate: \"moved\"", "fate: \"eaten\""), "fate");
  ExpectRefused(with("program: \"", "program: \"nonsense("), "1:");
  ExpectRefused(with("recipe_name: ", "recipe_nome: "), "recipe_nome");
  ExpectRefused(with("shape: 48", "shape: 9223372036854775807 shape: 48"), "impossible");
  ExpectRefused(Resealed(Text().substr(0, Text().rfind("manifest_sha256")) +
                         "files { name: \"x\" bytes: -4 }\n" + "manifest_sha256: \"\"\n"),
                "impossible");
  ExpectRefused(with("shape: 48", "shape: 4294967296"), "in a program");
  ExpectRefused(with("shape: 48", "shape: 48 shape: 1"), "in a program");
  EXPECT_TRUE(ParseManifest(Resealed(Text()), "m").ok()) << "the seal itself is remade well";
}

TEST(Manifest, AFolderWithoutOneIsNoTwin) {
  EXPECT_EQ(ExitCodeOf(ReadManifest(TinyLlama()).status()), ExitCode::kUsage);
}

}  // namespace
}  // namespace twinforge
