// validate_cost DATA [--still]: what the cost model must reach (docs/cost.md), each line met or NOT met with
// its number. `--still` leaves out what depends on the machine: speed.
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <functional>
#include <iostream>
#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/file.h"
#include "bench/fit_errors.h"
#include "bench/measured_bounds.h"
#include "bench/measured_rows.h"
#include "bench/measured_table.h"
#include "cost/forecast.h"
#include "cost/shape.h"

namespace twinforge {
namespace {

void Line(absl::string_view what, bool met, const std::string& number) {
  std::cout << "| " << what << " | " << (met ? "met" : "NOT met") << " | " << number << " |\n";
}
void Head(absl::string_view title) {
  std::cout << "\n### " << title << "\n\n| what | | number |\n| --- | --- | --- |\n";
}

std::string Percent(const std::vector<double>& e) {
  return absl::StrFormat("%.1f / %.1f %% of %d rows", 100 * Quantile(e, 0.5), 100 * Quantile(e, 0.9),
                         e.size());
}

// ---- estimates of GPUs

// Share of rows inside a band that other rows gave: `off` of each group, by the groups' names.
double InsideBand(const std::map<std::string, std::vector<double>>& off) {
  int inside = 0, all = 0;
  for (const auto& [name, own] : off) {
    std::vector<double> others;
    for (const auto& [other, theirs] : off) {
      if (other != name) others.insert(others.end(), theirs.begin(), theirs.end());
    }
    const double band = Quantile(others, 0.8);
    for (const double e : own) {
      inside += e <= band;
      ++all;
    }
  }
  return all == 0 ? 0 : static_cast<double>(inside) / all;
}

// The band of an engine, generation and format is that of its rows in other fifths.
double InsideOwnBand(const std::vector<HeldOut>& held) {
  std::map<std::string, std::map<std::string, std::vector<double>>> scopes;
  for (const HeldOut& row : held) {
    scopes[ScopeOf(*row.row)][absl::StrCat(FoldOf(row.row->id))].push_back(
        std::abs(std::log(row.folded.seconds / row.row->seconds)));
  }
  double inside = 0, all = 0;
  for (const auto& [scope, folds] : scopes) {
    size_t rows = 0;
    for (const auto& [fold, off] : folds) rows += off.size();
    if (rows < 5 || folds.size() < 2) continue;  // has no band of its own
    inside += InsideBand(folds) * static_cast<double>(rows);
    all += static_cast<double>(rows);
  }
  return inside / all;
}

void Partitions(const std::vector<HeldOut>& held) {
  PrintErrors(held);
  std::map<std::string, Errors> partitions;
  std::map<std::string, std::vector<double>> left_off;
  Errors dense;
  for (const HeldOut& row : held) {
    partitions[row.row->partition].Add(row);
    left_off[row.row->partition].push_back(std::abs(std::log(row.left.seconds / row.row->seconds)));
    if (row.row->family == "gpu" && IsDense(*row.row)) dense.Add(row);
  }
  int good = 0, better = 0, all = 0, compared = 0, transfers = 0;
  for (const HeldOut& first : held) {
    const auto of = partitions.find(first.row->partition);
    if (of == partitions.end()) continue;
    const Errors& e = of->second;
    if (first.row->family == "gpu") {
      if (IsDense(*first.row) && e.folded.size() >= 20) {
        ++all;
        good += Quantile(e.folded, 0.5) <= 0.05 && Quantile(e.folded, 0.9) <= 0.15;
      }
      if (e.baseline.size() >= 20) {
        ++compared;
        better += Quantile(e.folded, 0.5) < Quantile(e.baseline, 0.5);
      }
    }
    transfers += Quantile(e.left, 0.5) <= 0.15;
    partitions.erase(of);
  }
  Head("Estimates of rows not fitted on: median / 90 %");
  Line("GPU TPOT, dense: 5 / 15 %",
       Quantile(dense.folded, 0.5) <= 0.05 && Quantile(dense.folded, 0.9) <= 0.15, Percent(dense.folded));
  Line("the same in each partition of 20 rows and more", good == all, absl::StrFormat("%d of %d", good, all));
  Line("beside three constants per partition", Quantile(dense.folded, 0.5) < Quantile(dense.baseline, 0.5),
       Percent(dense.baseline));
  Line("better than those in each GPU partition, median", better == compared,
       absl::StrFormat("%d of %d", better, compared));
  Line("a partition left out whole: 15 % median", Quantile(dense.left, 0.5) <= 0.15, Percent(dense.left));
  Line("partitions whose median is below 15 % when left out", transfers == static_cast<int>(left_off.size()),
       absl::StrFormat("%d of %d", transfers, left_off.size()));
  const double own = InsideOwnBand(held);
  Line("inside the 80 % band that other fifths give", own >= 0.8, absl::StrFormat("%.1f %%", 100 * own));
  const double left = InsideBand(left_off);
  Line("left out whole, inside the 80 % band that other partitions give", left >= 0.8,
       absl::StrFormat("%.1f %%", 100 * left));
}

// ---- ranking

double PerDevice(const FitRow& row, double seconds, double first) {
  return row.clients * row.serving.output_len / (first + row.serving.output_len * seconds) /
         static_cast<double>(row.devices);
}

void Ranking(const std::vector<HeldOut>& held) {
  std::map<std::string, std::vector<const HeldOut*>> groups;
  for (const HeldOut& row : held) {
    if (row.row->kind == FitRow::Kind::kServe) groups[row.row->choices].push_back(&row);
  }
  std::vector<double> taus, regrets;
  for (const auto& [name, rows] : groups) {
    if (rows.size() < 5) continue;
    int concordant = 0, pairs = 0;
    const HeldOut *best = rows[0], *chosen = rows[0];
    const auto measured = [](const HeldOut* r) {
      return PerDevice(*r->row, r->row->seconds, r->row->first_token);
    };
    const auto predicted = [](const HeldOut* r) {
      return PerDevice(*r->row, r->folded.seconds, r->folded.first_token);
    };
    for (size_t i = 0; i < rows.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        const double a = rows[i]->row->seconds - rows[j]->row->seconds;
        const double b = rows[i]->folded.seconds - rows[j]->folded.seconds;
        if (a == 0) continue;
        ++pairs;
        concordant += a * b > 0 ? 1 : a * b < 0 ? -1 : 0;
      }
      if (measured(rows[i]) > measured(best)) best = rows[i];
      if (predicted(rows[i]) > predicted(chosen)) chosen = rows[i];
    }
    if (pairs > 0) taus.push_back(static_cast<double>(concordant) / pairs);
    regrets.push_back(1 - measured(chosen) / measured(best));
  }
  Head("Ranking within a table: one model, engine, chip, type and lengths; parallelism and clients vary");
  Line("Kendall's tau of TPOT: 0.8, median", Quantile(taus, 0.5) >= 0.8,
       absl::StrFormat("%.3f, a tenth below %.3f, of %d tables", Quantile(taus, 0.5), Quantile(taus, 0.1),
                       taus.size()));
  Line("top-1 regret in tokens/s per device: 5 %, median", Quantile(regrets, 0.5) <= 0.05,
       absl::StrFormat("%.1f %%, a tenth above %.1f %%", 100 * Quantile(regrets, 0.5),
                       100 * Quantile(regrets, 0.9)));
}

// ---- bounds

void Bounds(const BoundedRows& bounded, const std::vector<HeldOut>& held, const MeasuredRows& measured,
            const std::vector<std::string>& reasons) {
  std::map<std::string, std::pair<int, int>> counts;
  for (const BoundedRow& row : bounded.rows) {
    ++counts[row.what].first;
    counts[row.what].second += row.violated();
  }
  Head("Bounds of every published row: violations");
  for (const auto& [what, count] : counts)
    Line(what, count.second == 0, absl::StrFormat("%d of %d", count.second, count.first));
  int faster = 0;
  for (const std::string& reason : reasons) faster += reason == "faster than the bound of a decode step";
  Line("serving tables of GPUs", faster == 0, absl::StrFormat("%d of %d", faster, measured.rows.size()));
  for (const BoundedRow& row : bounded.rows) {
    if (!row.violated()) continue;
    std::cout << absl::StrFormat("\n%s, %s: %.4g s measured, %.4g s bound (%.2f): %s", row.id, row.what,
                                 row.measured, row.bound, row.measured / row.bound, row.note);
  }
  for (size_t i = 0; i < reasons.size(); ++i) {
    if (reasons[i] == "faster than the bound of a decode step")
      std::cout << "\n" << measured.rows[i].id << ", serving: " << reasons[i];
  }
  std::map<std::string, int> left;
  for (const auto& [id, reason] : bounded.left) ++left[reason.substr(0, 60)];
  std::cout << "\n\nnot bounded:";
  for (const auto& [reason, count] : left) std::cout << " " << count << " " << reason << ";";
  std::cout << "\n";
}

// ---- TPU anchors

struct Anchor {
  std::string name;
  double measured, mid, band, allowed;
};

void PrintAnchor(const Anchor& a, std::vector<bool>& met) {
  const double off = a.mid / a.measured - 1;
  const bool inside = std::abs(std::log(a.mid / a.measured)) <= a.band;
  const double width = std::exp(a.band) - 1;
  met.push_back(inside && std::abs(off) <= a.allowed && width <= 0.3);
  Line(a.name, met.back(),
       absl::StrFormat("measured %.4g ms, estimated %.4g (%+.1f %%), interval -%.0f +%.0f %%: %s",
                       1e3 * a.measured, 1e3 * a.mid, 100 * off, 100 * (1 - std::exp(-a.band)), 100 * width,
                       inside ? "inside" : "outside"));
}

// What a TPU engine measured, none of it fitted on.
struct ServedAnchor {
  const char *name, *model, *chip, *format;
  int64_t tp, dp, ep;
  Serving serving;
  double tpot;
};

const ServedAnchor kServed[] = {
    {"Llama-3.3-70B bf16, v6e-8, 1k/1k, 64 clients, vLLM",
     "Llama-3.3-70B",
     "v6e",
     "bf16",
     8,
     1,
     1,
     {1024, 1024, 64},
     25.35e-3},
    {"the same, 128 clients", "Llama-3.3-70B", "v6e", "bf16", 8, 1, 1, {1024, 1024, 128}, 35.12e-3},
    {"Qwen3-32B fp8, one 7x chip, 1k/4k, 256 sequences, vLLM (XTPU-007: batch over tokens/s)",
     "Qwen3-32B",
     "tpu7x",
     "fp8",
     1,
     1,
     1,
     {1024, 4096, 256},
     256 / 2889.15},
    {"DeepSeek-V3 fp8, v6e-64, 1k/1k, 512 sequences, sglang-jax (XTPU-014: ITL)",
     "DeepSeek-V3",
     "v6e",
     "fp8_block",
     1,
     64,
     64,
     {1024, 1024, 512},
     57.5e-3},
};

Anchor ServedOf(const ServedAnchor& served, Models& models) {
  Workload workload{.shards = served.tp};
  workload.dp = served.dp;
  workload.ep = served.ep;
  if (std::string(served.format) != "bf16") {
    workload.precision.weights = *ParseWeightFormat(served.format);
    const bool native = std::string(served.chip) == "tpu7x";
    workload.precision.activations = native ? DType::kF8E4M3 : DType::kBF16;
    if (native) workload.precision.cache = DType::kF8E4M3;
  }
  Anchor anchor{.name = served.name, .measured = served.tpot, .allowed = 0.15};
  const absl::StatusOr<const Graph*> graph = models.Find(Canonical(served.model));
  if (!graph.ok()) return anchor;
  const absl::StatusOr<ServingForecast> forecast =
      ForecastServing(**graph, served.chip, workload, served.serving, "vllm", served.format);
  if (!forecast.ok()) {
    std::cerr << served.name << ": " << forecast.status() << "\n";
    return anchor;
  }
  anchor.mid = forecast->tpot.mid;
  anchor.band = std::log(forecast->tpot.high / forecast->tpot.mid);
  return anchor;
}

void Anchors(const std::vector<HeldOut>& held, Models& models) {
  Head("TPU anchors: inside the interval, decode within 15 %, products within 10 %, interval within 30 %");
  std::vector<bool> met;
  std::map<std::string, std::vector<double>> off;
  for (const HeldOut& row : held)
    off[ScopeOf(*row.row)].push_back(std::abs(std::log(row.folded.seconds / row.row->seconds)));
  for (const HeldOut& row : held) {
    if (row.row->family != "tpu") continue;
    const bool product = row.row->partition.find("matmul") == 0;
    const std::vector<double>& scope = off[ScopeOf(*row.row)];
    const double band =
        scope.size() < 5 ? ShippedCalibration().unseen() : std::max(0.02, Quantile(scope, 0.8));
    PrintAnchor({absl::StrCat(row.row->id, " ", row.row->partition), row.row->seconds, row.folded.seconds,
                 band, product ? 0.10 : 0.15},
                met);
  }
  for (const ServedAnchor& served : kServed) PrintAnchor(ServedOf(served, models), met);
  const auto count = std::count(met.begin(), met.end(), true);
  Line("all anchors", count == static_cast<int64_t>(met.size()),
       absl::StrFormat("%d of %d", count, met.size()));
}

// ---- forms and speed

void ClosedForm() {
  Head("Closed form of a weight-stationary array, as SCALE-Sim counts it");
  for (const auto& [m, k, n, cycles] :
       {std::tuple(128, 512, 512, 56832), std::tuple(1024, 1024, 1024, 1144832)}) {
    const int64_t ours = ExposedPreloadCycles(m, k, n, 32, 32).value();
    Line(absl::StrFormat("(%d, %d, %d) on 32 x 32: %d", m, k, n, cycles), ours == cycles, absl::StrCat(ours));
  }
}

double MedianSeconds(int repeats, const std::function<void()>& work) {
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) {
    const std::clock_t begin = std::clock();  // of this process: others share the machine
    work();
    seconds.push_back(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
  }
  return Quantile(seconds, 0.5);
}

double PeerSeconds(int layers) {
  const std::string command = absl::StrCat("python3 bench/peer_roofline.py ", layers, " 50");
  FILE* const pipe = popen(command.c_str(), "r");
  double microseconds = 0;
  if (pipe == nullptr || fscanf(pipe, "%lf", &microseconds) != 1) microseconds = 0;
  if (pipe != nullptr) pclose(pipe);
  return 1e-6 * microseconds;
}

void Speed(const Graph& graph, int layers) {
  Head("Speed, one core");
  int batch = 16;
  const auto step = [&] {
    const auto forecast = ForecastStep(graph, nullptr, "v6e",
                                       {.batch = ++batch, .context = 2048, .shards = 64}, "vllm", "bf16");
    TWIN_CHECK(forecast.ok(), "a step that is refused says nothing of how long one takes");
  };
  const double ours = MedianSeconds(200, step);
  Line(absl::StrFormat("a step of %d layers, nothing remembered: 1 ms", layers), ours <= 1e-3,
       absl::StrFormat("%.3f ms", 1e3 * ours));
  Line("variants a minute: 10,000", 60 / ours >= 1e4, absl::StrFormat("%.0f", 60 / ours));
  const double peer = PeerSeconds(layers);
  Line("beside the same roofline in Python", peer > ours,
       absl::StrFormat("%.3f ms, %.1f times", 1e3 * peer, peer / ours));
}

int Validate(const std::string& folder, bool still) {
  Calibration priors;
  const absl::StatusOr<std::string> text = ReadTextFile("cost/priors.textproto", int64_t{1} << 20);
  if (!text.ok() || !google::protobuf::TextFormat::ParseFromString(*text, &priors)) {
    std::cerr << "run in the repository: cost/priors.textproto cannot be read\n";
    return 2;
  }
  const absl::StatusOr<MeasuredRows> measured = ReadMeasuredRows(folder, priors);
  const absl::StatusOr<BoundedRows> bounded = ReadBoundedRows(folder);
  const absl::StatusOr<std::string> configs =
      ReadTextFile(absl::StrCat(folder, "/model_configs.json"), int64_t{64} << 20);
  for (const absl::Status& status : {measured.status(), bounded.status(), configs.status()}) {
    if (status.ok()) continue;
    std::cerr << status << "\n";
    return 2;
  }
  Models models(*configs);
  const std::vector<std::string> reasons = Quarantine(measured->rows);
  std::vector<FitRow> rows;
  for (size_t i = 0; i < reasons.size(); ++i) {
    if (reasons[i].empty()) rows.push_back(measured->rows[i]);
  }
  const std::vector<HeldOut> held = HoldOut(priors, ShippedCalibration(), rows);
  Partitions(held);
  Ranking(held);
  Bounds(*bounded, held, *measured, reasons);
  Anchors(held, models);
  ClosedForm();
  if (!still) {
    const absl::StatusOr<const Graph*> graph = models.Find("meta-llama/Llama-3.1-405B");
    if (graph.ok()) Speed(**graph, 126);
  }
  return 0;
}

}  // namespace
}  // namespace twinforge

int main(int argc, char** argv) {
  const bool still = argc == 3 && std::string(argv[2]) == "--still";
  if (argc != 2 && !still) {
    std::cerr << "validate_cost DATA [--still]\n";
    return 2;
  }
  return twinforge::Validate(argv[1], still);
}
