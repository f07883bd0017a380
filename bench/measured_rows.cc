#include "bench/measured_rows.h"

#include <algorithm>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "bench/measured_table.h"
#include "cost/chip_file.h"

namespace twinforge {
namespace {

// The table's own note of how many clients there were, where it has one. Rows in which that exceeds
// batch_size count sequences of one device.
double Clients(const Cell& cell) {
  const double batch = cell.Number("batch_size");
  double noted = 0;
  for (const absl::string_view part : absl::StrSplit(cell.Text("id"), '_')) {
    double value = 0;
    if (part.size() > 1 && part[0] == 'c' && absl::SimpleAtod(part.substr(1), &value)) noted = value;
  }
  for (const absl::string_view part : absl::StrSplit(cell.Text("silicon_data_source"), "; ")) {
    double value = 0;
    if (absl::StartsWith(part, "silicon_concurrency=") && absl::SimpleAtod(part.substr(20), &value))
      noted = value;
  }
  if (noted <= batch) return batch;
  return batch * static_cast<double>(cell.Count("tp_size") * cell.Count("attention_dp_size"));
}

absl::StatusOr<FitRow> ServingRow(const Cell& cell, Models& models, const Calibration& priors) {
  if (cell.Text("mode") != "agg") return absl::UnavailableError("prefill and decode on devices of their own");
  if (cell.Count("pp_size") > 1) return absl::UnavailableError("pipeline stages");
  const std::string model = Canonical(cell.Text("model_path"));
  TWIN_ASSIGN_OR_RETURN(const Graph* graph, models.Find(model));
  TWIN_ASSIGN_OR_RETURN(const ChipFigures* chip, FindChipFacts(cell.Text("system")));
  TWIN_ASSIGN_OR_RETURN(const Chip* file, FindIn(ShippedChips(), cell.Text("system")));
  const bool experts = cell.Number("moe_ep_size") > 0 && model.find("Qwen3-32B") == std::string::npos &&
                       model.find("Llama") == std::string::npos;
  FitRow row{.id = cell.Text("id"), .family = FamilyOf(*file), .stack = cell.Text("backend")};
  row.generation = GenerationOf(*file);
  std::string format = cell.Text("gemm_quant_mode");
  if (format.empty()) format = "bf16";
  // The published fp8 checkpoints of this model are scaled by blocks, whatever the column's short name.
  if (format == "fp8" && model == "deepseek-ai/DeepSeek-R1") format = "fp8_block";
  row.format = format;
  Workload workload{.shards = cell.Count("tp_size"), .routing = Routing::kExpected};
  workload.dp = cell.Count("attention_dp_size");
  workload.ep = experts ? cell.Count("moe_ep_size") : 1;
  if (workload.devices() % workload.ep != 0)
    return absl::UnavailableError("experts on more devices than there are");
  if (format != "bf16") {
    TWIN_ASSIGN_OR_RETURN(workload.precision.weights, ParseWeightFormat(format));
    workload.precision.activations = workload.precision.weights->multiplied;
    // TensorRT-LLM's quantised checkpoints carry 8-bit caches; the table does not say, other engines keep
    // bf16.
    if (row.stack == "trtllm") workload.precision.cache = DType::kF8E4M3;
  }
  const Serving serving{.input_len = cell.Count("isl"),
                        .output_len = cell.Count("osl"),
                        .concurrency = static_cast<int64_t>(Clients(cell))};
  if (serving.concurrency < 1) return absl::UnavailableError("no number of clients");
  TWIN_ASSIGN_OR_RETURN(const Calibration::Stack* stack, FindStack(priors, row.stack));
  TWIN_ASSIGN_OR_RETURN(row.serving, ServingTermsOf(*chip, *graph, workload, serving, *stack));
  row.chip = ConstantsFor(priors, row.stack, *file, format);
  row.seconds = cell.Number("silicon_tpot_ms") / 1e3;
  row.first_token = cell.Number("silicon_ttft_ms") / 1e3;
  if (!(row.seconds > 0) || !(row.first_token > 0)) return absl::UnavailableError("no time");
  for (const char* column :
       {"backend", "backend_version", "model_path", "system", "gemm_quant_mode", "isl", "osl"})
    absl::StrAppend(&row.choices, cell.Text(column), " ");
  row.table = row.choices;
  for (const char* column : {"tp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size"})
    absl::StrAppend(&row.table, cell.Text(column), " ");
  row.devices = workload.devices();
  row.clients = static_cast<double>(serving.concurrency);
  row.partition =
      absl::StrCat(model.substr(model.find('/') + 1), " ", file->id(), " ", format, " ", row.stack);
  return row;
}

absl::StatusOr<int64_t> NumberAfter(absl::string_view text, absl::string_view word) {
  const size_t at = text.find(word);
  int64_t value = 0;
  if (at == absl::string_view::npos) return absl::UnavailableError(absl::StrCat("no ", word));
  absl::string_view digits = text.substr(at + word.size());
  digits = digits.substr(0, digits.find_first_not_of("0123456789"));
  if (!absl::SimpleAtoi(digits, &value)) return absl::UnavailableError(absl::StrCat("no ", word));
  return value;
}

// A decode step of a whole model: "DP1 x TP16", tokens per second of one sequence.
absl::StatusOr<FitRow> DecodeRow(const Cell& cell, Models& models, const Calibration& priors) {
  if (cell.Text("metric") != "tokens_per_s_per_sequence") return absl::UnavailableError("another metric");
  TWIN_ASSIGN_OR_RETURN(const Graph* graph, models.Find(Canonical(cell.Text("model"))));
  TWIN_ASSIGN_OR_RETURN(const ChipFigures* chip, FindChipFacts(cell.Text("chip")));
  TWIN_ASSIGN_OR_RETURN(const Chip* file, FindIn(ShippedChips(), cell.Text("chip")));
  if (FamilyOf(*file) != "tpu") return absl::UnavailableError("a GPU's, without an engine");
  FitRow row{.id = cell.Text("id"), .family = "tpu", .stack = "jax", .kind = FitRow::Kind::kStep};
  row.generation = GenerationOf(*file);
  row.format = absl::StartsWith(cell.Text("dtype"), "int8") ? "int8" : cell.Text("dtype");
  Workload workload{
      .phase = Phase::kDecode, .batch = cell.Count("batch"), .context = cell.Count("input_len")};
  TWIN_ASSIGN_OR_RETURN(workload.shards, NumberAfter(cell.Text("parallelism"), "TP"));
  TWIN_ASSIGN_OR_RETURN(workload.dp, NumberAfter(cell.Text("parallelism"), "DP"));
  if (row.format != "bf16") {
    TWIN_ASSIGN_OR_RETURN(workload.precision.weights, ParseWeightFormat(row.format));
    workload.precision.activations = DType::kBF16;  // "int8 weights"
    // The rows do not say, and are faster than any step that reads caches in bf16.
    workload.precision.cache = DType::kI8;
  }
  TWIN_ASSIGN_OR_RETURN(row.serving.decode, TermsOf(*chip, *graph, workload));
  TWIN_RETURN_IF_ERROR(row.serving.decode.network);
  row.chip = ConstantsFor(priors, row.stack, *file, row.format);
  row.seconds = 1 / cell.Number("value");
  row.partition = absl::StrCat(cell.Text("model"), " ", file->id(), " ", row.format, " decode");
  return row;
}

// A product n x n x n on a device that traces its own time.
absl::StatusOr<FitRow> MatmulRow(const Cell& cell, const Calibration& priors) {
  TWIN_ASSIGN_OR_RETURN(const Chip* file, FindIn(ShippedChips(), cell.Text("chip")));
  if (FamilyOf(*file) != "tpu") return absl::UnavailableError("a GPU's kernel");
  if (!absl::StartsWith(cell.Text("model"), "matmul ") || cell.Text("dtype") != "bf16")
    return absl::UnavailableError("no single product in bf16");
  TWIN_ASSIGN_OR_RETURN(const int64_t n, NumberAfter(cell.Text("model"), "matmul "));
  const bool traced = cell.Text("notes") == "device trace time" || cell.Text("metric") == "tflops_per_device";
  if (!traced || cell.Text("metric") == "latency_ms")
    return absl::UnavailableError("timed by its host, or said twice");
  TWIN_ASSIGN_OR_RETURN(const ChipFigures* chip, FindChipFacts(cell.Text("chip")));
  TWIN_ASSIGN_OR_RETURN(const MatmulMode* mode, FindMode(*chip, DType::kBF16, DType::kBF16));
  const double share = cell.Number("n_chips");  // half a chip is a device of its own on some
  FitRow row{.id = cell.Text("id"), .family = "tpu", .stack = "jax", .kind = FitRow::Kind::kStep};
  row.generation = GenerationOf(*file);
  row.format = "bf16";
  row.chip = ConstantsFor(priors, row.stack, *file, row.format);
  NodeTerms node;
  ShapeRule rule = chip->shape;
  rule.units = std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(rule.units) * share));
  const Product product{.m = n, .k = n, .n = n};
  node.kernels = 2 * static_cast<double>(TileMacs(product, rule).value()) / (mode->rate.value() * share);
  node.weight_read =
      3 * 2.0 * static_cast<double>(n) * static_cast<double>(n) / (chip->memory_bandwidth.value() * share);
  node.shape = node.kernels;
  node.launches = true;
  row.serving.decode.kinds = {node};
  row.serving.decode.uses = {1};
  row.serving.decode.sequences = 0;
  const double flops = 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
  row.seconds = flops / (cell.Number("value") * 1e12);
  row.partition = absl::StrCat("matmul ", file->id(), " bf16");
  return row;
}

}  // namespace

absl::StatusOr<MeasuredRows> ReadMeasuredRows(const std::string& folder, const Calibration& priors) {
  MeasuredRows measured;
  std::map<std::string, std::string> texts;
  for (const char* name :
       {"silicon_gpu_calibration.csv", "datapoints_calibration.csv", "model_configs.json"}) {
    TWIN_ASSIGN_OR_RETURN(texts[name], ReadTextFile(absl::StrCat(folder, "/", name), int64_t{64} << 20));
    absl::StrAppend(&measured.hashes, measured.hashes.empty() ? "" : "; ", name, " ", Sha256Hex(texts[name]));
  }
  Models models(texts["model_configs.json"]);
  const auto take = [&](absl::StatusOr<FitRow> row, const std::string& id) {
    if (row.ok()) {
      measured.rows.push_back(*std::move(row));
    } else {
      measured.left.emplace_back(id, std::string(row.status().message()));
    }
  };
  TWIN_ASSIGN_OR_RETURN(const CsvTable serving,
                        ParseCsv(texts["silicon_gpu_calibration.csv"], "silicon_gpu_calibration.csv"));
  for (const CsvTable::Row& row : serving.rows) {
    const Cell cell{serving, row};
    take(ServingRow(cell, models, priors), cell.Text("id"));
  }
  TWIN_ASSIGN_OR_RETURN(const CsvTable points,
                        ParseCsv(texts["datapoints_calibration.csv"], "datapoints_calibration.csv"));
  for (const CsvTable::Row& row : points.rows) {
    const Cell cell{points, row};
    if (cell.Text("split") != "calibration") continue;  // the others are to check against, not to fit
    const std::string& phase = cell.Text("phase");
    if (phase == "decode") take(DecodeRow(cell, models, priors), cell.Text("id"));
    if (phase == "kernel") take(MatmulRow(cell, priors), cell.Text("id"));
  }
  return measured;
}

}  // namespace twinforge
