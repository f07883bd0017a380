#include "cli/score_request.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
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
    return Error(1702, "--mesh", absl::StrCat("says tp=", mesh.tp, ", --shards says ", flags.shards));
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

}  // namespace

absl::StatusOr<ScoreRequest> RequestOf(const ScoreFlags& flags, const JsonValue& config) {
  ScoreRequest request{.serving = flags.serving, .chip = flags.chip, .stack = flags.stack};
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

absl::StatusOr<ScoreFlags> FlagsOfRow(ScoreFlags flags, const CsvTable& table, const CsvTable::Row& row,
                                      absl::string_view path, std::string& config) {
  const std::pair<absl::string_view, std::string*> words[] = {
      {"chip", &flags.chip},   {"phase", &flags.phase},  {"routing", &flags.routing},
      {"mesh", &flags.mesh},   {"dtype", &flags.dtype},  {"activation-dtype", &flags.activation_dtype},
      {"stack", &flags.stack}, {"from-config", &config}, {"kv-dtype", &flags.kv_dtype}};
  const std::pair<absl::string_view, int64_t*> numbers[] = {{"chips", &flags.chips},
                                                            {"shards", &flags.shards},
                                                            {"batch", &flags.batch},
                                                            {"context", &flags.context},
                                                            {"past", &flags.past},
                                                            {"chunk", &flags.chunk},
                                                            {"microbatches", &flags.microbatches},
                                                            {"input-len", &flags.serving.input_len},
                                                            {"output-len", &flags.serving.output_len},
                                                            {"concurrency", &flags.serving.concurrency}};
  for (size_t i = 0; i < row.cells.size(); ++i) {
    const std::string column = absl::StrReplaceAll(table.columns[i], {{"_", "-"}});
    const std::string place =
        absl::StrCat(path, ": line ", row.line, ", ", JsonQuoted(table.columns[i], 100));
    bool known = false;
    for (const auto& [name, word] : words) {
      if (name != column) continue;
      known = true;
      if (!row.cells[i].empty()) *word = row.cells[i];
    }
    for (const auto& [name, number] : numbers) {
      if (name != column) continue;
      known = true;
      if (row.cells[i].empty()) continue;
      if (!absl::SimpleAtoi(row.cells[i], number) || *number < 0 || *number > int64_t{1} << 31)
        return Error(1003, place, absl::StrCat(JsonQuoted(row.cells[i], 100), " is no number that it takes"));
    }
    if (known && !row.cells[i].empty()) flags.given.push_back("--" + column);
    if (!known)
      return Error(1003, place, "no flag of score has this name", "columns are named like the flags");
  }
  const auto member = [&](absl::string_view name, const std::string& value,
                          std::initializer_list<absl::string_view> allowed) -> absl::Status {
    if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return absl::OkStatus();
    return Error(1003, absl::StrCat(path, ": line ", row.line, ", ", name),
                 absl::StrCat(JsonQuoted(value, 100), " is unknown"));
  };
  TWIN_RETURN_IF_ERROR(member("phase", flags.phase, {"prefill", "decode", "mixed", "serve", "train"}));
  TWIN_RETURN_IF_ERROR(member("routing", flags.routing, {"same", "spread", "expected"}));
  return flags;
}

}  // namespace twinforge
