#include "cli/score_request.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "cost/chip.h"
#include "cost/own_chip.h"

namespace twinforge {
namespace {

// The format that a checkpoint's own config says its layers are stored in; "" where it says none.
absl::StatusOr<std::string> StoredFormat(const JsonValue& config) {
  if (config.Find("quantization_config") == nullptr) return std::string();
  const JsonValue* named = config.FindPath("quantization_config.quant_method");
  const bool word = named != nullptr && named->kind() == JsonValue::Kind::kString;
  const std::string method = word ? named->as_string() : "";
  const JsonValue* blocks = config.FindPath("quantization_config.weight_block_size");
  if (method == "fp8") return std::string(blocks != nullptr && !blocks->is_null() ? "fp8_block" : "fp8");
  if (method == "mxfp4") return method;
  return Error(1704, "config.json quantization_config.quant_method",
               absl::StrCat(JsonQuoted(method, 100), " is no format that is counted"),
               "say with --dtype what it is");
}

// Whether the config leaves attention out of its quantisation ("model.layers.*.self_attn" of gpt_oss).
bool KeepsAttention(const JsonValue& config) {
  const JsonValue* kept = config.FindPath("quantization_config.modules_to_not_convert");
  if (kept == nullptr || kept->kind() != JsonValue::Kind::kArray) return false;
  return std::any_of(kept->items().begin(), kept->items().end(), [](const JsonValue& item) {
    return item.kind() == JsonValue::Kind::kString && absl::StrContains(item.as_string(), "self_attn") &&
           !absl::StrContains(item.as_string(), "norm");
  });
}

// Whether the chip multiplies this type, as it is or converted; also where the chip is not known, which is
// another's to say.
bool Multiplies(const std::string& chip, DType dtype) {
  const absl::StatusOr<const ChipFigures*> figures = FindChipFacts(chip);
  return !figures.ok() || FindMode(**figures, dtype, dtype).ok();
}

// What a runtime widens a format to whose elements the chip has no way to multiply: e2m1 values are bf16
// ones.
DType Widened(const WeightFormat& format) {
  return format.stored == DType::kF4 ? DType::kBF16 : format.multiplied;
}

absl::StatusOr<Mesh> MeshOf(const ScoreFlags& flags) {
  Mesh mesh;
  mesh.tp = std::max<int64_t>(flags.shards, 1);
  if (flags.mesh.empty() && flags.chips > 0 && flags.shards <= 1) mesh.tp = flags.chips;
  if (!flags.mesh.empty()) {
    TWIN_ASSIGN_OR_RETURN(mesh, ParseMesh(flags.mesh));
  }
  if (flags.shards > 1 && mesh.tp != flags.shards)
    return Error(1702, "--mesh", absl::StrCat("says tp=", mesh.tp, ", --shards says ", flags.shards),
                 "leave one of the two out");
  if (flags.chips > 0 && mesh.chips() != flags.chips) {
    return Error(1702, "--mesh",
                 absl::StrCat(MeshText(mesh), " has ", mesh.chips(), " chips, --chips says ", flags.chips),
                 absl::StrCat("tp x dp x sp x pp is the number of chips; ep lies within tp x dp x sp"));
  }
  return mesh;
}

// A chunk is what makes a step mixed.
absl::Status CheckChunk(const ScoreFlags& flags) {
  const bool mixed = flags.phase == "mixed";
  if (mixed == (flags.chunk > 0)) return absl::OkStatus();
  return mixed
             ? Error(1703, "--chunk", "a mixed step has new tokens of a prompt", "give --chunk 512")
             : Error(1703, "--chunk", absl::StrCat("stands beside decoding sequences, not in ", flags.phase),
                     "give --phase mixed");
}

constexpr int64_t kMostTokens = int64_t{1} << 31;
constexpr int64_t kMostSequences = int64_t{1} << 24;
constexpr ScoreNumber kNumbers[] = {
    {"--chips", 1, int64_t{1} << 20, [](ScoreFlags& f) { return &f.chips; }},
    {"--shards", 1, 4096, [](ScoreFlags& f) { return &f.shards; }},
    {"--batch", 1, kMostSequences, [](ScoreFlags& f) { return &f.batch; }},
    {"--context", 1, kMostTokens, [](ScoreFlags& f) { return &f.context; }},
    {"--past", 0, kMostTokens, [](ScoreFlags& f) { return &f.past; }},
    {"--chunk", 1, kMostTokens, [](ScoreFlags& f) { return &f.chunk; }},
    {"--microbatches", 1, kMostSequences, [](ScoreFlags& f) { return &f.microbatches; }},
    {"--input-len", 1, kMostTokens, [](ScoreFlags& f) { return &f.serving.input_len; }},
    {"--output-len", 1, kMostTokens, [](ScoreFlags& f) { return &f.serving.output_len; }},
    {"--concurrency", 1, kMostSequences, [](ScoreFlags& f) { return &f.serving.concurrency; }},
};

}  // namespace

absl::Span<const ScoreNumber> ScoreNumbers() { return kNumbers; }

absl::StatusOr<ScoreRequest> RequestOf(const ScoreFlags& flags, const JsonValue& config) {
  ScoreRequest request{.serving = flags.serving, .chip = flags.chip, .stack = flags.stack};
  if (const absl::StatusOr<ChipSummary> known = FindChip(flags.chip); known.ok()) request.chip = known->id;
  Workload& w = request.workload;
  TWIN_ASSIGN_OR_RETURN(const Mesh mesh, MeshOf(flags));
  w.shards = mesh.tp;
  w.dp = mesh.dp;
  w.ep = mesh.ep;
  w.pp = mesh.pp;
  w.sp = mesh.sp;
  w.dcn = mesh.dcn;
  w.batch = flags.batch;
  w.context = flags.context;
  w.past = flags.past;
  w.chunk = flags.chunk;
  w.microbatches = flags.microbatches;
  TWIN_RETURN_IF_ERROR(CheckChunk(flags));
  request.serves = flags.phase == "serve";
  request.deploys = flags.chips > 0 || !flags.mesh.empty();
  w.phase = flags.phase == "prefill" || flags.phase == "train" ? Phase::kPrefill : Phase::kDecode;
  if (flags.phase == "train") w.training = Training{.rematerialise = flags.rematerialise};
  w.routing = flags.routing == "spread"     ? Routing::kSpread
              : flags.routing == "expected" ? Routing::kExpected
                                            : Routing::kSame;
  std::string format = flags.dtype;
  if (format.empty()) {
    TWIN_ASSIGN_OR_RETURN(format, StoredFormat(config));
    w.precision.attention_as_is = KeepsAttention(config);
  }
  request.format = format.empty() ? "bf16" : format;
  if (!format.empty()) {
    TWIN_ASSIGN_OR_RETURN(w.precision.weights, ParseWeightFormat(format));
    if (!Multiplies(flags.chip, w.precision.weights->multiplied))
      w.precision.weights->multiplied = Widened(*w.precision.weights);
    w.precision.activations = w.precision.weights->multiplied;
  }
  if (!flags.activation_dtype.empty()) {
    TWIN_ASSIGN_OR_RETURN(const WeightFormat activations, ParseWeightFormat(flags.activation_dtype));
    w.precision.activations = activations.multiplied;
  }
  if (!flags.kv_dtype.empty()) {
    TWIN_ASSIGN_OR_RETURN(const WeightFormat cache, ParseWeightFormat(flags.kv_dtype));
    w.precision.cache = cache.stored;
  }
  return request;
}

absl::Status TakeUpChip(const std::string& verb, const std::string& file, std::string& chip) {
  if (!file.empty()) {
    TWIN_ASSIGN_OR_RETURN(const std::string id, UseChipFile(file));
    if (chip.empty()) chip = id;
  }
  if (!chip.empty()) return absl::OkStatus();
  return Error(1003, verb, "--chip is required", "`twinforge chip list` names those that are known");
}

}  // namespace twinforge
