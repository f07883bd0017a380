#include <gtest/gtest.h>

#include "base/diagnostic.h"
#include "exporters/exporter.h"
#include "ir/rewriter.h"
#include "tests/exporters/fixture.h"
#include "weights/build.h"

namespace twinforge {
namespace {

Diagnostic DiagnosticFor(const absl::Status& status) { return DiagnosticOf(status).value_or(Diagnostic()); }

ExportPlan MustPlan(const Model& model, const ExportOptions& options) {
  auto plan = PlanExport(model, options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

const std::string& SmallText(const ExportPlan& plan, const std::string& name) {
  static const std::string none;
  for (const SmallFile& file : plan.small_files) {
    if (file.name == name) return file.content;
  }
  return none;
}

TEST(PlanExport, AnUntouchedCheckpointIsPlannedAsItsOwnBytes) {
  ExportPlan plan = MustPlan(Open(TinyLlama()), {.target = Target::kHf});
  ASSERT_EQ(plan.files.size(), 1u);
  EXPECT_EQ(plan.files[0].name, "model.safetensors");
  for (const OutputTensor& tensor : plan.files[0].tensors) {
    EXPECT_EQ(tensor.program->kind(), WeightKind::kSource) << tensor.name;
    EXPECT_EQ(tensor.program->source_name(), tensor.name);
    EXPECT_FALSE(tensor.roles.empty()) << tensor.name;
  }
  for (const LedgerRow& row : plan.ledger) EXPECT_EQ(row.fate, Fate::kMoved) << row.source;
  EXPECT_EQ(SmallText(plan, "config.json"), ReadFile(TinyLlama() + "/config.json"));
}

TEST(PlanExport, OffsetsFollowEachOtherAndShardsKeepTheirLimit) {
  ExportOptions options = SmallTiles(Target::kHf);
  ExportPlan plan = MustPlan(Twin(Rewriting::kPad), options);
  ASSERT_GT(plan.files.size(), 1u);
  EXPECT_EQ(plan.files[0].name.substr(0, 12), "model-00001-");
  int64_t total = 0;
  for (const OutputFile& file : plan.files) {
    int64_t offset = 0;
    for (const OutputTensor& tensor : file.tensors) {
      EXPECT_EQ(tensor.offset, offset);
      offset += tensor.bytes;
    }
    EXPECT_LE(offset, options.shard_bytes);
    EXPECT_EQ(file.bytes, static_cast<int64_t>(file.header.size()) + offset);
    total += offset;
  }
  EXPECT_EQ(total, plan.bytes_out);
  const std::string& index = SmallText(plan, "model.safetensors.index.json");
  EXPECT_NE(index.find("\"model.norm.weight\": \"model-0000"), std::string::npos) << index;
}

TEST(PlanExport, ConfigSaysThePaddedSize) {
  ExportPlan plan = MustPlan(Twin(Rewriting::kPad), {.target = Target::kHf});
  EXPECT_NE(SmallText(plan, "config.json").find("\"intermediate_size\": 64"), std::string::npos);
}

TEST(PlanExport, RefusesForHfWhatTheLayoutCannotSay) {
  auto plan = PlanExport(Twin(Rewriting::kNative), {.target = Target::kHf});
  EXPECT_EQ(DiagnosticFor(plan.status()).code, 1601);
  EXPECT_TRUE(PlanExport(Twin(Rewriting::kNative), {.target = Target::kTwin}).ok());
}

TEST(PlanExport, RefusesToLoseAnElementSilently) {
  for (Target target : {Target::kHf, Target::kTwin, Target::kOnnx}) {
    auto plan = PlanExport(Twin(Rewriting::kLose), {.target = target});
    Diagnostic d = DiagnosticFor(plan.status());
    EXPECT_EQ(d.code, 1603) << plan.status();
    EXPECT_EQ(d.place, "model.layers.0.mlp.down_proj.weight");
  }
}

TEST(PlanExport, NamesTheLeastBudgetAndItWorks) {
  ExportOptions options;
  options.memory = 1 << 20;
  auto plan = PlanExport(Twin(Rewriting::kPad), options);
  Diagnostic d = DiagnosticFor(plan.status());
  ASSERT_EQ(d.code, 1604) << plan.status();
  int64_t least = 0;
  ASSERT_EQ(sscanf(d.hint.c_str(), "--memory %ldMiB", &least), 1) << d.hint;
  options.memory = least << 20;
  options.threads = 1;
  EXPECT_TRUE(PlanExport(Twin(Rewriting::kPad), options).ok());
  options.memory = (least - 1) << 20;
  EXPECT_FALSE(PlanExport(Twin(Rewriting::kPad), options).ok());
}

TEST(PlanExport, PeakStaysBelowEveryBudgetThatIsAccepted) {
  Model model = Twin(Rewriting::kNative);
  for (int64_t mib = 40; mib <= 4096; mib *= 2) {
    for (int threads : {1, 2, 7}) {
      auto plan = PlanExport(model, {.target = Target::kTwin, .memory = mib << 20, .threads = threads});
      if (plan.ok()) {
        EXPECT_LE(plan->peak_bytes, mib << 20);
      }
    }
  }
}

TEST(PlanExport, DigestDependsOnWhatIsWrittenAndNotOnHow) {
  Model model = Twin(Rewriting::kPad);
  std::string digest = MustPlan(model, {}).digest;
  EXPECT_EQ(MustPlan(model, {.memory = 1 << 30, .threads = 7}).digest, digest);
  EXPECT_NE(MustPlan(model, {.target = Target::kTwin}).digest, digest);
  EXPECT_NE(MustPlan(model, {.shard_bytes = 1 << 14}).digest, digest);
  EXPECT_NE(MustPlan(Twin(Rewriting::kRescale), {}).digest, digest);
}

TEST(PlanExport, RefusesPartsOfABytes) {
  Model model = Open(TinyLlama());
  Rewriter rewriter(model.graph, "1 test");
  const Param& param = *model.graph.FindParam("layers.0.norm_in");
  ParamType type = param.type;
  type.dtype = DType::kF4;
  type.axes[0].size = type.axes[0].logical = 47;
  rewriter.SetParam("layers.0.norm_in", type, Cast(Slice(param.program, 0, 0, 47), DType::kF4));
  EXPECT_EQ(DiagnosticFor(PlanExport(model, {.target = Target::kTwin}).status()).code, 1610);
}

TEST(PlanExport, SuppressesThePaddedVocabulary) {
  Model model = Open(TinyLlama());
  // As pad_vocab leaves the graph: sizes padded, logical sizes kept.
  Rewriter rewriter(model.graph, "1 test");
  int64_t vocab = 0;
  for (const char* role : {"embed", "lm_head"}) {
    const Param& param = *model.graph.FindParam(role);
    ParamType type = param.type;
    int axis = type.Find("vocab");
    vocab = type.axes[axis].size;
    type.axes[axis].size = vocab + 3;
    rewriter.SetParam(role, type, Pad(param.program, axis, 3));
  }
  rewriter.InferTypes();
  ExportPlan plan = MustPlan(model, {});
  JsonValue config = *ParseJson(SmallText(plan, "generation_config.json"), "g");
  EXPECT_EQ(config.Find("eos_token_id")->as_integer(), 2)
      << "kept from config.json, which the new file hides";
  const std::vector<JsonValue>& suppressed = config.Find("suppress_tokens")->items();
  ASSERT_EQ(suppressed.size(), 3u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(suppressed[i].as_integer(), vocab + i);
}

}  // namespace
}  // namespace twinforge
