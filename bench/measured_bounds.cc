#include "bench/measured_bounds.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "bench/measured_table.h"
#include "cost/counts.h"
#include "cost/score.h"
#include "cost/shape.h"

namespace twinforge {
namespace {

absl::Status Left(absl::string_view why) { return absl::UnavailableError(why); }

// "m=64 n=8192 k=8192"; "8192^3"
absl::StatusOr<int64_t> Field(absl::string_view text, absl::string_view name) {
  for (const absl::string_view word : absl::StrSplit(text, ' ')) {
    const std::pair<absl::string_view, absl::string_view> cube =
        absl::StrSplit(word, absl::MaxSplits('^', 1));
    int64_t value = 0;
    if (cube.second == "3" && absl::SimpleAtoi(cube.first, &value)) return value;
    if (absl::StartsWith(word, absl::StrCat(name, "=")) &&
        absl::SimpleAtoi(word.substr(name.size() + 1), &value))
      return value;
  }
  return Left(absl::StrCat("no ", name));
}

absl::StatusOr<int64_t> AfterWord(absl::string_view text, absl::string_view word) {
  const size_t at = text.find(word);
  int64_t value = 0;
  if (at == absl::string_view::npos) return Left("no parallelism");
  absl::string_view digits = text.substr(at + word.size());
  if (!absl::SimpleAtoi(digits.substr(0, digits.find_first_not_of("0123456789")), &value))
    return Left("no parallelism");
  return value;
}

absl::StatusOr<std::string> FormatOf(const std::string& dtype) {
  if (dtype == "fp16") return std::string("f16");
  if (absl::StartsWith(dtype, "int8 weights")) return std::string("int8");
  if (absl::StartsWith(dtype, "fp8 weights")) return std::string("fp8");
  if (dtype == "fp8 block-scaled") return std::string("fp8_block");
  for (const char* known : {"bf16", "fp8", "int8", "int4", "nvfp4"}) {
    if (dtype == known) return dtype;
  }
  return Left(absl::StrCat("no one type: ", dtype));
}

// Layers' kernels in the row's type, their activations in 16 bits where only the weights are said to be
// narrow, the cache as narrow as the weights: what a row does not say is taken as the least.
absl::Status SetPrecision(const std::string& dtype, bool tpu, Workload& workload) {
  TWIN_ASSIGN_OR_RETURN(const std::string format, FormatOf(dtype));
  TWIN_ASSIGN_OR_RETURN(workload.precision.weights, ParseWeightFormat(format));
  const bool narrow = format != "bf16" && format != "f16";
  const bool weights_only = absl::StrContains(dtype, "weights") || format == "int4";
  if (narrow) workload.precision.cache = tpu || format == "int8" ? DType::kI8 : DType::kF8E4M3;
  workload.precision.activations = weights_only ? DType::kBF16 : workload.precision.weights->multiplied;
  return absl::OkStatus();
}

absl::StatusOr<double> StepBound(const Cell& cell, Models& models, Workload workload) {
  TWIN_ASSIGN_OR_RETURN(const Graph* graph, models.Find(Canonical(cell.Text("model"))));
  TWIN_ASSIGN_OR_RETURN(const ChipFigures* chip, FindChipFacts(cell.Text("chip")));
  const std::string& parallel = cell.Text("parallelism");
  TWIN_ASSIGN_OR_RETURN(workload.shards, AfterWord(parallel, "TP"));
  if (absl::StrContains(parallel, "DP")) {
    TWIN_ASSIGN_OR_RETURN(workload.dp, AfterWord(parallel, "DP"));
  }
  workload.batch = cell.Count("batch");
  TWIN_RETURN_IF_ERROR(SetPrecision(cell.Text("dtype"), chip->is_tpu(), workload));
  TWIN_ASSIGN_OR_RETURN(const Score score, ScoreGraph(*graph, nullptr, chip->summary.id, workload));
  return score.ladder.back().seconds;
}

absl::StatusOr<BoundedRow> Decode(const Cell& cell, Models& models) {
  if (cell.Text("metric") != "tokens_per_s_per_sequence") return Left("another metric of a step");
  // A row without a context is bounded without one.
  Workload workload{.context = static_cast<int64_t>(cell.Number("input_len"))};
  TWIN_ASSIGN_OR_RETURN(const double bound, StepBound(cell, models, workload));
  return BoundedRow{.what = "decode", .measured = 1 / cell.Number("value"), .bound = bound};
}

absl::StatusOr<BoundedRow> Prefill(const Cell& cell, Models& models) {
  const double unit = cell.Text("metric") == "latency_ms" ? 1e-3 : cell.Text("metric") == "latency_s" ? 1 : 0;
  if (unit == 0) return Left("another metric of a step");
  if (cell.Number("input_len") == 0) return Left("a prompt of unknown length");
  const Workload workload{.phase = Phase::kPrefill, .context = cell.Count("input_len")};
  TWIN_ASSIGN_OR_RETURN(const double bound, StepBound(cell, models, workload));
  return BoundedRow{.what = "prefill", .measured = unit * cell.Number("value"), .bound = bound};
}

double Memory(const ChipFigures& chip, double bytes) {
  // Benchmarks repeat: as much as fits on chip may stay there.
  return std::max(0.0, bytes - static_cast<double>(chip.on_chip_bytes)) / chip.memory_bandwidth.value();
}

// "causal attention prefill q32 kv8 hd128", "decode attention q32 kv8 hd128, KV fp8"
absl::StatusOr<BoundedRow> AttentionKernel(const Cell& cell) {
  TWIN_ASSIGN_OR_RETURN(const ChipFigures* chip, FindChipFacts(cell.Text("chip")));
  const std::string& name = cell.Text("model");
  if (!absl::StrContains(name, "q32 kv8 hd128")) return Left("another attention");
  const bool decode = absl::StartsWith(name, "decode");
  const int64_t length = cell.Count("input_len");
  const int64_t batch = cell.Count("batch");
  const bool narrow = absl::EndsWith(cell.Text("dtype"), decode ? "fp8 kv" : "fp8");
  const DType type = narrow && !decode ? DType::kF8E4M3 : DType::kBF16;
  TWIN_ASSIGN_OR_RETURN(const MatmulMode* mode, FindMode(*chip, type, type));
  const double pairs = static_cast<double>(decode ? length : CausalPairs(0, length, 0).value());
  const double flops = static_cast<double>(batch) * pairs * 4 * 32 * 128;
  const double cache = static_cast<double>(batch * length) * 2 * 8 * 128 * (narrow ? 1 : 2);
  return BoundedRow{.what = "attention",
                    .measured = 1e-3 * cell.Number("value"),
                    .bound = std::max(flops / mode->rate.value(), Memory(*chip, cache))};
}

absl::StatusOr<BoundedRow> MatmulKernel(const Cell& cell) {
  TWIN_ASSIGN_OR_RETURN(const ChipFigures* chip, FindChipFacts(cell.Text("chip")));
  TWIN_RETURN_IF_ERROR(CheckFigures(*chip));
  const std::string& name = cell.Text("model");
  if (absl::StrContains(name, "sharded") || absl::StrContains(name, "replicated"))
    return Left("a product on several chips");
  TWIN_ASSIGN_OR_RETURN(const std::string text, FormatOf(cell.Text("dtype")));
  TWIN_ASSIGN_OR_RETURN(const WeightFormat format, ParseWeightFormat(text));
  TWIN_ASSIGN_OR_RETURN(const MatmulMode* mode, FindMode(*chip, format.multiplied, format.multiplied));
  const double share = cell.Number("n_chips") > 0 ? cell.Number("n_chips") : 1;
  const double rate = mode->rate.value() * share;
  const std::string& metric = cell.Text("metric");
  BoundedRow row{.what = "gemm"};
  if (absl::StartsWith(name, "best matmul")) {
    row.bound = 1e12 / rate;
    row.measured = 1 / cell.Number("value");
    return row;
  }
  Product product{.left = format.multiplied, .right = format.multiplied};
  TWIN_ASSIGN_OR_RETURN(product.m, Field(name, "m"));
  TWIN_ASSIGN_OR_RETURN(product.n, Field(name, "n"));
  TWIN_ASSIGN_OR_RETURN(product.k, Field(name, "k"));
  const double flops = 2.0 * static_cast<double>(Macs(product).value());
  const double value = cell.Number("value");
  row.measured = metric == "latency_us"                                         ? 1e-6 * value
                 : metric == "latency_ms"                                       ? 1e-3 * value
                 : metric == "achieved_tflops" || metric == "tflops_per_device" ? flops / (1e12 * value)
                                                                                : 0;
  if (row.measured == 0) return Left("another metric of a kernel");
  ShapeRule rule = chip->shape;
  rule.units = std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(rule.units) * share));
  const double bytes = static_cast<double>((CompactBytes(format.stored, {product.k, product.n}) +
                                            CompactBytes(format.multiplied, {product.m, product.k}))
                                               .value());
  row.bound =
      std::max(2 * static_cast<double>(TileMacs(product, rule).value()) / rate, Memory(*chip, bytes) / share);
  return row;
}

absl::StatusOr<BoundedRow> Kernel(const Cell& cell) {
  const std::string& name = cell.Text("model");
  if (absl::StartsWith(name, "HBM copy")) {
    TWIN_ASSIGN_OR_RETURN(const ChipFigures* chip, FindChipFacts(cell.Text("chip")));
    return BoundedRow{.what = "memory",
                      .measured = 1 / cell.Number("value"),
                      .bound = 1e9 / chip->memory_bandwidth.value()};
  }
  if (absl::StartsWith(name, "gemm ") || absl::StartsWith(name, "matmul ") ||
      absl::StartsWith(name, "best matmul"))
    return MatmulKernel(cell);
  return Left("a kernel or an exchange that no bound is of");
}

// A batch that starts and ends together: each prompt once, then a step for each token of output.
absl::StatusOr<BoundedRow> Serve(const Cell& cell, Models& models) {
  if (cell.Text("metric") != "output_tokens_per_s_per_chip") return Left("another metric of serving");
  if (cell.Number("batch") == 0 || cell.Number("output_len") == 0) return Left("lengths that are not said");
  Workload prefill{.phase = Phase::kPrefill, .context = cell.Count("input_len")};
  Workload decode{.context = cell.Count("input_len")};
  TWIN_ASSIGN_OR_RETURN(const double prompts, StepBound(cell, models, prefill));
  TWIN_ASSIGN_OR_RETURN(const double step, StepBound(cell, models, decode));
  const double tokens = cell.Number("batch") * cell.Number("output_len");
  return BoundedRow{.what = "serve",
                    .measured = tokens / (cell.Number("value") * static_cast<double>(cell.Count("n_chips"))),
                    .bound = prompts + cell.Number("output_len") * step};
}

}  // namespace

absl::StatusOr<BoundedRows> ReadBoundedRows(const std::string& folder) {
  const auto read = [&](const char* name) {
    return ReadTextFile(absl::StrCat(folder, "/", name), int64_t{64} << 20);
  };
  TWIN_ASSIGN_OR_RETURN(const std::string configs, read("model_configs.json"));
  TWIN_ASSIGN_OR_RETURN(const std::string text, read("datapoints_calibration.csv"));
  TWIN_ASSIGN_OR_RETURN(const CsvTable table, ParseCsv(text, "datapoints_calibration.csv"));
  Models models(configs);
  BoundedRows bounded;
  for (const CsvTable::Row& line : table.rows) {
    const Cell cell{table, line};
    const std::string& phase = cell.Text("phase");
    const bool attention = absl::StrContains(cell.Text("model"), "attention");
    absl::StatusOr<BoundedRow> row = phase == "train"    ? Left("a training step")
                                     : phase == "kernel" ? Kernel(cell)
                                     : attention         ? AttentionKernel(cell)
                                     : phase == "decode" ? Decode(cell, models)
                                     : phase == "serve"  ? Serve(cell, models)
                                                         : Prefill(cell, models);
    if (!row.ok()) {
      bounded.left.emplace_back(cell.Text("id"), std::string(row.status().message()));
      continue;
    }
    row->id = cell.Text("id");
    row->note = cell.Text("notes");
    bounded.rows.push_back(*std::move(row));
  }
  return bounded;
}

}  // namespace twinforge
