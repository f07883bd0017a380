#include "tests/exporters/fixture.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "importers/checkpoint.h"
#include "importers/importer.h"
#include "ir/rewriter.h"
#include "ir/verify.h"
#include "weights/build.h"

namespace twinforge {
namespace fs = std::filesystem;

TempFolder::TempFolder() {
  std::string pattern = ::testing::TempDir() + "/twinforge-XXXXXX";
  path_ = mkdtemp(pattern.data());
}

TempFolder::~TempFolder() { fs::remove_all(path_); }

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

void WriteFile(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

Tree ReadTree(const std::string& folder) {
  Tree tree;
  if (!fs::exists(folder)) return tree;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) tree[fs::relative(entry.path(), folder)] = ReadFile(entry.path());
  }
  return tree;
}

std::string List(const std::string& folder) {
  std::map<std::string, int> names;
  for (const auto& entry : fs::directory_iterator(folder)) names[entry.path().filename()] = 0;
  std::string text;
  for (const auto& [name, unused] : names) absl::StrAppend(&text, text.empty() ? "" : " ", name);
  return text;
}

std::string TinyLlama() { return TWINFORGE_SOURCE_DIR "/samples/tiny-llama"; }

void CopyTinyLlama(const std::string& folder) {
  fs::create_directory(folder);
  for (const char* name : {"config.json", "model.safetensors"}) {
    WriteFile(folder + "/" + name, ReadFile(TinyLlama() + "/" + name));
  }
}

Model Open(const std::string& path) {
  absl::StatusOr<Model> model = OpenModel(path);
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

namespace {

// `role` with its axis d_ff indexed by `map`.
void Rewidth(Rewriter& rewriter, const std::string& role, const IndexMap& map) {
  const Param& param = *rewriter.graph().FindParam(role);
  ParamType type = param.type;
  int axis = type.Find("d_ff");
  type.axes[axis].size = map.size();
  type.axes[axis].logical = std::min(type.axes[axis].logical, map.size());
  rewriter.SetParam(role, type, Take(param.program, axis, map));
}

void Factor(Rewriter& rewriter, const std::string& role, double factor) {
  const Param& param = *rewriter.graph().FindParam(role);
  rewriter.SetParam(role, param.type, Scale(param.program, factor));
}

void RewriteMlp(Rewriting rewriting, const std::string& path, Rewriter& rewriter) {
  const IndexMap padded = IndexMap::Join({IndexMap::Identity(56), IndexMap::Fill(8)});
  for (const char* slot : {"gate", "up", "down"}) {
    std::string role = absl::StrCat(path, ".", slot);
    if (rewriting == Rewriting::kLose) Rewidth(rewriter, role, IndexMap::Slice(0, 55));
    if (rewriting == Rewriting::kPad || rewriting == Rewriting::kNative) Rewidth(rewriter, role, padded);
    if (rewriting == Rewriting::kNative) rewriter.SetStorage(role, {Orientation::kInOut});
  }
  if (rewriting != Rewriting::kRescale) return;
  Factor(rewriter, path + ".up", 2);
  Factor(rewriter, path + ".down", 0.5);
}

void RewriteAttention(const std::string& path, Rewriter& rewriter) {
  rewriter.SetStorage(path + ".o", {Orientation::kInOut});
  rewriter.AddBundle({.role = path + ".qkv", .members = {path + ".q", path + ".k", path + ".v"}});
}

}  // namespace

Model Twin(Rewriting rewriting, const std::string& path) {
  Model model = Open(path);
  Rewriter rewriter(model.graph, "1 test");
  for (size_t i = 0; i < model.graph.nodes().size(); ++i) {
    const Node node = model.graph.nodes()[i];
    if (node.op == OpKind::kGatedMlp) RewriteMlp(rewriting, node.path, rewriter);
    if (node.op == OpKind::kAttention && rewriting == Rewriting::kNative)
      RewriteAttention(node.path, rewriter);
  }
  rewriter.InferTypes();
  absl::Status verified = Verify(model.graph);
  EXPECT_TRUE(verified.ok()) << verified;
  return model;
}

StoredTwin OpenStored(const std::string& folder) {
  StoredTwin stored;
  auto checkpoint = Checkpoint::Open(folder);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
  stored.root = folder;
  stored.reader = *checkpoint;
  for (const StoredTensor& tensor : (*checkpoint)->tensors()) {
    stored.tensors.push_back({tensor.name, (*checkpoint)->files()[tensor.file].name,
                              Source(tensor.name, tensor.dtype, tensor.shape), ""});
  }
  return stored;
}

ExportOptions SmallTiles(Target target) {
  ExportOptions options;
  options.target = target;
  options.threads = 1;
  options.shard_bytes = 48 << 10;
  options.seams.tile_bytes = 9 << 10;
  options.seams.direct_bytes = 1;  // every whole block, so that this path is tested too
  return options;
}

Provenance SomeProvenance() {
  Provenance provenance;
  provenance.recipe_name = "test";
  provenance.recipe_text = "name: \"test\"\nstep { pad_ffn { multiple: 64 } }\n";
  provenance.fidelity = "BOUNDED";  // the weakest that its recipes need
  provenance.steps = {"1 pad_ffn: 2 sites"};
  return provenance;
}

absl::StatusOr<ExportResult> Forge(const Model& model, const ExportOptions& options, const std::string& out) {
  absl::StatusOr<ExportPlan> plan = PlanExport(model, options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (!plan.ok()) return plan.status();
  return Export(model, *plan, SomeProvenance(), options, out, nullptr);
}

}  // namespace twinforge
