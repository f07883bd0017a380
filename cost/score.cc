#include "cost/score.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "cost/chip.h"
#include "cost/counts.h"
#include "cost/exact.h"
#include "cost/shape.h"
#include "cost/units.h"

namespace twinforge {
namespace {

constexpr int kRungs = 4;
constexpr absl::string_view kRungNames[kRungs] = {"peak", "dtype", "shape", "memory"};
using Times = std::array<double, kRungs>;  // seconds of one op at each rung, never decreasing

absl::Status Overflow(absl::string_view place) {
  return Error(1707, place, "counts of this step exceed 64 bits", "is batch or context mistyped?");
}

// Bytes of an array in the chip's memory: a TPU's tiles pad, a GPU's memory is linear.
Exact MemoryBytes(const ChipFigures& chip, const StoredArray& array) {
  return chip.is_tpu() ? PaddedBytes(array.dtype, array.shape) : CompactBytes(array.dtype, array.shape);
}

Exact MemoryBytes(const ChipFigures& chip, const std::vector<StoredArray>& arrays) {
  Exact sum;
  for (const StoredArray& array : arrays) sum += MemoryBytes(chip, array);
  return sum;
}

Exact CompactBytes(const std::vector<StoredArray>& arrays) {
  Exact sum;
  for (const StoredArray& array : arrays) sum += CompactBytes(array.dtype, array.shape);
  return sum;
}

struct Residents {
  Exact parameters;  // of one device
  Exact cache;
  // Everything stays on chip between steps, and nothing need cross the memory bus.
  bool on_chip(const ChipFigures& chip) const {
    const Exact all = parameters + cache;
    return all.ok() && all.value() <= chip.on_chip_bytes;
  }
};

Residents ResidentsOf(const ChipFigures& chip, const StepCount& step) {
  std::vector<std::vector<Exact>> stored(step.kinds.size());
  std::vector<Exact> cache(step.kinds.size());
  for (size_t kind = 0; kind < step.kinds.size(); ++kind) {
    for (const StoredArray& array : step.kinds[kind].stored) stored[kind].push_back(MemoryBytes(chip, array));
    cache[kind] = MemoryBytes(chip, step.kinds[kind].cache_kept);
  }
  Residents residents;
  for (const NodeUse& node : step.nodes) {
    for (size_t i = 0; i < stored[node.kind].size(); ++i) {
      if ((node.keeps >> i & 1) != 0) residents.parameters += stored[node.kind][i];
    }
    residents.cache += cache[node.kind];
  }
  return residents;
}

// What a node makes of the chip's matrix and vector units.
struct Compute {
  Exact useful;  // multiply-adds, all devices
  Exact issued;  // of one device
  Exact tile;
  Exact converted;  // elements
  Seconds dtype;    // useful work at legal rates, shared by all devices
  Seconds shape;    // one device's work, idle places included
  std::string modes;
};

void NoteMode(const Product& product, const MatmulMode& mode, std::string& modes) {
  std::string text = mode.dtype;
  if (mode.converts_left) absl::StrAppend(&text, " from ", Name(product.left));
  if (mode.converts_right && !(mode.converts_left && product.left == product.right)) {
    absl::StrAppend(&text, mode.converts_left ? " and " : " from ", Name(product.right));
  }
  if (modes.find(text) == std::string::npos) absl::StrAppend(&modes, modes.empty() ? "" : ", ", text);
}

absl::StatusOr<Compute> ComputeOf(const ChipFigures& chip, const NodeCount& node, int64_t shards) {
  Compute compute;
  for (const Product& product : node.products) {
    TWIN_ASSIGN_OR_RETURN(const MatmulMode* mode, FindMode(chip, product.left, product.right));
    const Exact tile = TileMacs(product, chip.shape);
    compute.useful += product.useful;
    compute.issued += Macs(product);
    compute.tile += tile;
    if (mode->converts_left) compute.converted += Exact(product.m) * product.k * product.count;
    if (mode->converts_right) compute.converted += Exact(product.k) * product.n * product.count;
    const double share = static_cast<double>(product.useful.value()) / static_cast<double>(shards);
    compute.dtype = compute.dtype + Flops(2 * share) / mode->rate;
    compute.shape = compute.shape + Flops(2 * static_cast<double>(tile.value())) / mode->rate;
    NoteMode(product, *mode, compute.modes);
  }
  return compute;
}

// Operands and results that are larger than all on-chip memory: what exceeds it must leave and come back.
Exact Spilled(const ChipFigures& chip, Exact bytes) {
  return bytes.ok() && bytes.value() <= chip.on_chip_bytes ? Exact(0) : bytes + Exact(-chip.on_chip_bytes);
}

Exact Traffic(const ChipFigures& chip, const NodeCount& node, bool resident) {
  Exact bytes = Spilled(chip, node.result_bytes);
  for (const Exact& operand : node.operand_bytes) bytes += Spilled(chip, operand);
  if (resident) return bytes;
  return bytes + MemoryBytes(chip, node.weights) + MemoryBytes(chip, node.cache_read) + node.cache_written +
         node.rows_read;
}

Exact Useful(const NodeCount& node) {
  Exact sum;
  for (const Product& product : node.products) sum += product.useful;
  return sum;
}

struct Scored {
  OpCount op;
  Times times;
};

// Scores nodes of one step on one chip; nodes of one kind are computed once.
class Scorer {
 public:
  Scorer(const ChipFigures& chip, const Graph& graph, const StepCount& step, int64_t shards)
      : chip_(chip),
        graph_(graph),
        step_(step),
        shards_(shards),
        residents_(ResidentsOf(chip, step)),
        kinds_(step.kinds.size()) {}

  const Residents& residents() const { return residents_; }

  // `useful`: multiply-adds of the source's node, or nullopt where this graph is its own source.
  absl::StatusOr<Scored> Op(NodeId id, std::optional<Exact> useful);

  // A node that only the source has: useful work, at every rung.
  absl::StatusOr<Scored> Lost(const Node& node, Exact useful) const;

 private:
  // What all nodes of a kind share. Seconds of each constraint alone, [0] unused.
  struct Kind {
    OpCount op;
    Times alone;
  };

  absl::StatusOr<Kind> Make(const NodeCount& node) const;
  double PeakSeconds(Exact useful) const {
    const double share = static_cast<double>(useful.value()) / static_cast<double>(shards_);
    return (Flops(2 * share) / chip_.best_rate).value();
  }

  const ChipFigures& chip_;
  const Graph& graph_;
  const StepCount& step_;
  const int64_t shards_;
  const Residents residents_;
  std::vector<std::optional<Kind>> kinds_;
};

absl::StatusOr<Scorer::Kind> Scorer::Make(const NodeCount& node) const {
  TWIN_ASSIGN_OR_RETURN(const Compute compute, ComputeOf(chip_, node, shards_));
  Exact activations = node.result_bytes;
  for (const Exact& operand : node.operand_bytes) activations += operand;
  const Exact memory = Traffic(chip_, node, residents_.on_chip(chip_));
  const Exact weights = CompactBytes(node.weights) + node.rows_read;
  const Exact cache = CompactBytes(node.cache_read) + node.cache_written;
  const Exact two = 2;
  const Exact devices = shards_;
  const Exact counts[] = {
      two * compute.useful,  two * compute.issued * devices, weights * devices, cache * devices,
      activations * devices, two * compute.tile * devices,   memory * devices,  compute.converted};
  for (const Exact& count : counts) {
    if (!count.ok()) return Overflow("");
  }
  Kind kind;
  kind.op = {
      .useful_flops = counts[0].value(),
      .issued_flops = counts[1].value(),
      .weight_bytes = counts[2].value(),
      .cache_bytes = counts[3].value(),
      .activation_bytes = counts[4].value(),
      .tile_flops = counts[5].value(),
      .memory_bytes = counts[6].value(),
      .note = absl::StrCat(compute.modes, compute.modes.empty() || node.note.empty() ? "" : "; ", node.note)};
  Seconds converting;
  if (compute.converted.value() > 0 && chip_.vector_rate.known()) {
    converting = Flops(static_cast<double>(compute.converted.value())) / chip_.vector_rate;
  }
  kind.alone = {0, std::max(compute.dtype, converting).value(), compute.shape.value(),
                (Bytes(static_cast<double>(memory.value())) / chip_.memory_bandwidth).value()};
  return kind;
}

absl::StatusOr<Scored> Scorer::Op(NodeId id, std::optional<Exact> useful) {
  const Node& of = graph_.nodes()[id];
  const int32_t at = step_.nodes[id].kind;
  if (!kinds_[at]) {
    absl::StatusOr<Kind> kind = Make(step_.kinds[at]);
    if (!kind.ok()) return WithPlace(kind.status(), of.path);
    kinds_[at] = *std::move(kind);
  }
  Scored scored{.op = kinds_[at]->op, .times = kinds_[at]->alone};
  scored.op.path = of.path;
  scored.op.op = std::string(Info(of.op).name.data(), Info(of.op).name.size());
  if (useful) {
    const Exact flops = Exact(2) * *useful;
    if (!flops.ok()) return Overflow(of.path);
    scored.op.useful_flops = flops.value();
  }
  // Each rung adds a constraint to the ones before it, so its time is never less.
  scored.times[0] = PeakSeconds(useful ? *useful : Useful(step_.kinds[at]));
  for (int rung = 1; rung < kRungs; ++rung) {
    scored.times[rung] = std::max(scored.times[rung], scored.times[rung - 1]);
  }
  return scored;
}

absl::StatusOr<Scored> Scorer::Lost(const Node& node, Exact useful) const {
  const Exact flops = Exact(2) * useful;
  if (!flops.ok()) return Overflow(node.path);
  Scored lost;
  lost.op = {.path = node.path,
             .op = std::string(Info(node.op).name.data(), Info(node.op).name.size()),
             .useful_flops = flops.value(),
             .note = "only in the source"};
  lost.times.fill(PeakSeconds(useful));
  return lost;
}

// All nodes of the twin, then those that only the source has.
absl::StatusOr<std::vector<Scored>> ScoreNodes(const Graph& graph, const Graph* source, const StepCount& step,
                                               const StepCount& source_step, Scorer& scorer) {
  std::vector<Scored> scored;
  scored.reserve(step.nodes.size());
  for (const Node& node : graph.nodes()) {
    std::optional<Exact> useful;
    if (source != nullptr) {
      const Node* same = source->FindNode(node.path);
      useful = same == nullptr ? Exact(0) : Useful(source_step.KindOf(same->id));
    }
    TWIN_ASSIGN_OR_RETURN(Scored op, scorer.Op(node.id, useful));
    scored.push_back(std::move(op));
  }
  if (source == nullptr) return scored;
  for (const Node& node : source->nodes()) {
    const NodeCount& kind = source_step.KindOf(node.id);
    if (kind.products.empty() || graph.FindNode(node.path) != nullptr) continue;
    TWIN_ASSIGN_OR_RETURN(Scored lost, scorer.Lost(node, Useful(kind)));
    scored.push_back(std::move(lost));
  }
  return scored;
}

// Rounds all times down to multiples of one power of two, so coarse that no sum of them needs more than 52
// bits: sums and differences of the ladder are then exact in any order. The relative loss is below 2^-50 of
// the step.
void Quantise(std::vector<Times>& times) {
  double sum = 0;
  for (const Times& op : times) sum += op[kRungs - 1];
  int exponent = 0;
  std::frexp(sum, &exponent);
  const int quantum = exponent + 1 - 52;
  for (Times& op : times) {
    for (double& time : op) time = std::ldexp(std::floor(std::ldexp(time, -quantum)), quantum);
  }
}

void FillLadder(std::vector<Times> times, Score& score) {
  Quantise(times);
  score.attribution.reserve(times.size());
  for (int rung = 0; rung < kRungs; ++rung) {
    RungRow row{.rung = absl::StrCat("R", rung),
                .name = std::string(kRungNames[rung].data(), kRungNames[rung].size())};
    for (const Times& op : times) row.seconds += op[rung];
    score.ladder.push_back(std::move(row));
  }
  for (const Times& op : times) {
    std::vector<double> steps = {op[0]};
    for (int rung = 1; rung < kRungs; ++rung) steps.push_back(op[rung] - op[rung - 1]);
    score.attribution.push_back(std::move(steps));
  }
}

// The smallest power of two of shards, above the workload's own, at which the step fits; 0 where none up to
// 4,096 does.
int64_t ShardsThatFit(const ChipFigures& chip, const Graph& graph, Workload workload) {
  workload.shards = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(workload.shards) + 1));
  for (; workload.shards <= 4096; workload.shards *= 2) {
    const absl::StatusOr<StepCount> step = CountStep(graph, workload);
    if (!step.ok()) continue;
    const Residents residents = ResidentsOf(chip, *step);
    const Exact all = residents.parameters + residents.cache;
    if (all.ok() && all.value() <= chip.memory_bytes) return workload.shards;
  }
  return 0;
}

void FillMemory(const ChipFigures& chip, const Graph& graph, const Residents& residents, Score& score) {
  score.parameter_bytes = residents.parameters.value();
  score.cache_bytes = residents.cache.value();
  score.memory_bytes = chip.memory_bytes;
  const int64_t needed = (residents.parameters + residents.cache).value();
  score.feasible = needed <= chip.memory_bytes;
  if (score.feasible) return;
  const int64_t shards = ShardsThatFit(chip, graph, score.workload);
  score.shortfall =
      absl::StrFormat("needs %.1f GB of a device's %.1f GB; %s", static_cast<double>(needed) / 1e9,
                      static_cast<double>(chip.memory_bytes) / 1e9,
                      shards > 0 ? absl::StrCat(shards, " shards would do")
                                 : std::string("no power of two of shards both divides its sizes and fits"));
}

double Tokens(const Workload& workload) {
  const double batch = static_cast<double>(workload.batch);
  return workload.phase == Phase::kDecode ? batch : batch * static_cast<double>(workload.context);
}

}  // namespace

absl::StatusOr<Score> ScoreGraph(const Graph& graph, const Graph* useful, const std::string& chip,
                                 const Workload& workload) {
  TWIN_ASSIGN_OR_RETURN(const ChipFigures* facts, FindChipFacts(chip));
  TWIN_RETURN_IF_ERROR(CheckFigures(*facts));
  TWIN_ASSIGN_OR_RETURN(const StepCount step, CountStep(graph, workload));
  StepCount source;
  if (useful != nullptr) {
    Workload whole = workload;
    whole.shards = 1;  // useful work does not depend on shards, and the source need not divide
    TWIN_ASSIGN_OR_RETURN(source, CountStep(*useful, whole));
  }
  Scorer scorer(*facts, graph, step, workload.shards);
  const Residents& residents = scorer.residents();
  if (!(residents.parameters + residents.cache).ok()) return Overflow(graph.name());
  TWIN_ASSIGN_OR_RETURN(std::vector<Scored> scored, ScoreNodes(graph, useful, step, source, scorer));

  Score score{.chip = facts->summary.id, .workload = workload};
  std::vector<Times> times;
  times.reserve(scored.size());
  score.ops.reserve(scored.size());
  for (Scored& op : scored) {
    times.push_back(op.times);
    score.ops.push_back(std::move(op.op));
  }
  FillLadder(std::move(times), score);
  FillMemory(*facts, graph, residents, score);
  const double seconds = score.ladder.back().seconds;
  if (score.feasible && seconds > 0) score.tokens_per_second = Tokens(workload) / seconds;
  return score;
}

}  // namespace twinforge
