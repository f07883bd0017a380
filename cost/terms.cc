#include "cost/terms.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "cost/chip_file.h"
#include "cost/network.h"
#include "cost/shape.h"
#include "cost/units.h"

namespace twinforge {
namespace {

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

// Nodes, parameters and caches of each stage, a parameter counted where the stage meets it first; then those
// of the fullest one.
void AddResidents(const ChipFigures& chip, int64_t stages, StepTerms& terms) {
  const StepCount& step = terms.step;
  std::vector<std::vector<Exact>> stored(step.kinds.size());
  std::vector<Exact> cache(step.kinds.size());
  for (size_t kind = 0; kind < step.kinds.size(); ++kind) {
    for (const std::vector<StoredArray>& arrays : step.kinds[kind].stored)
      stored[kind].push_back(MemoryBytes(chip, arrays));
    cache[kind] = MemoryBytes(chip, step.kinds[kind].cache_kept) * terms.microbatches;
  }
  terms.stages.assign(stages, {.uses = std::vector<int64_t>(step.kinds.size())});
  for (const NodeUse& node : step.nodes) {
    StageTerms& stage = terms.stages[node.stage];
    ++stage.uses[node.kind];
    for (size_t i = 0; i < stored[node.kind].size(); ++i) {
      if ((node.keeps >> i & 1) != 0) stage.parameter_bytes += stored[node.kind][i];
    }
    (step.kinds[node.kind].state ? stage.state_bytes : stage.cache_bytes) += cache[node.kind];
  }
  Exact most = -1;
  for (const StageTerms& stage : terms.stages) {
    const Exact kept = stage.cache_bytes + stage.state_bytes;
    const Exact all = stage.parameter_bytes + kept;
    if (all.ok() && most.ok() && all.value() <= most.value()) continue;
    most = all;
    terms.parameter_bytes = stage.parameter_bytes;
    terms.cache_bytes = kept;
    if (!all.ok()) return;
  }
}

// Everything stays on chip between steps, and nothing need cross the memory bus: of the emptiest stage, so
// that no stage is charged for what it may keep.
bool StaysOnChip(const ChipFigures& chip, const StepTerms& terms) {
  for (const StageTerms& stage : terms.stages) {
    const Exact all = stage.parameter_bytes + stage.cache_bytes + stage.state_bytes;
    if (all.ok() && all.value() <= chip.on_chip_bytes) return true;
  }
  return false;
}

// What a node makes of the chip's matrix and vector units.
struct Compute {
  Exact useful;  // multiply-adds, all devices
  Exact issued;  // of one device
  Exact tile;
  Exact converted;    // elements
  Seconds dtype;      // useful work at legal rates, shared by all devices
  Seconds kernels;    // one device's work, idle places included: products with parameters
  Seconds attention;  // and others
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

absl::StatusOr<Compute> ComputeOf(const ChipFigures& chip, const NodeCount& node, int64_t devices) {
  Compute compute;
  for (const Product& product : node.products) {
    TWIN_ASSIGN_OR_RETURN(const MatmulMode* mode, FindMode(chip, product.left, product.right));
    const Exact tile = TileMacs(product, chip.shape);
    compute.useful += product.useful;
    compute.issued += Macs(product);
    compute.tile += tile;
    if (mode->converts_left) compute.converted += Exact(product.m) * product.k * product.count;
    if (mode->converts_right) compute.converted += Exact(product.k) * product.n * product.count;
    const double share = static_cast<double>(product.useful.value()) / static_cast<double>(devices);
    compute.dtype = compute.dtype + Flops(2 * share) / mode->rate;
    Seconds& shape = product.attention ? compute.attention : compute.kernels;
    shape = shape + Flops(2 * static_cast<double>(tile.value())) / mode->rate;
    NoteMode(product, *mode, compute.modes);
  }
  return compute;
}

// Operands and results that are larger than all on-chip memory: what exceeds it must leave and come back.
Exact Spilled(const ChipFigures& chip, Exact bytes) {
  return bytes.ok() && bytes.value() <= chip.on_chip_bytes ? Exact(0) : bytes + Exact(-chip.on_chip_bytes);
}

// What must cross the memory bus, by what it is.
struct Traffic {
  Exact weights;
  Exact cache;
  Exact spilled;
};

Traffic TrafficOf(const ChipFigures& chip, const NodeCount& node, bool resident) {
  Traffic traffic;
  traffic.spilled = Spilled(chip, node.result_bytes);
  for (const Exact& operand : node.operand_bytes) traffic.spilled += Spilled(chip, operand);
  if (resident) return traffic;
  traffic.weights = MemoryBytes(chip, node.weights) + node.rows_read;
  traffic.cache = MemoryBytes(chip, node.cache_read) + node.cache_written;
  return traffic;
}

double ReadSeconds(const ChipFigures& chip, Exact bytes) {
  return (Bytes(static_cast<double>(bytes.value())) / chip.memory_bandwidth).value();
}

absl::StatusOr<NodeTerms> TermsOfNode(const ChipFigures& chip, const NodeCount& node, const StepTerms& step,
                                      bool resident) {
  TWIN_ASSIGN_OR_RETURN(const Compute compute, ComputeOf(chip, node, step.devices));
  Exact activations = node.result_bytes;
  for (const Exact& operand : node.operand_bytes) activations += operand;
  const Traffic traffic = TrafficOf(chip, node, resident);
  const Exact memory = traffic.weights + traffic.cache + traffic.spilled;
  const Exact weights = CompactBytes(node.weights) + node.rows_read;
  const Exact cache = CompactBytes(node.cache_read) + node.cache_written;
  const Exact two = 2;
  const Exact times = step.microbatches;
  const Exact all = times * step.devices;
  const Exact counts[] = {two * compute.useful * times,
                          two * compute.issued * all,
                          weights * all,
                          cache * all,
                          activations * all,
                          two * compute.tile * all,
                          memory * all,
                          compute.converted};
  for (const Exact& count : counts) {
    if (!count.ok()) return CountOverflow("");
  }
  NodeTerms terms;
  terms.counts = {
      .useful_flops = counts[0].value(),
      .issued_flops = counts[1].value(),
      .weight_bytes = counts[2].value(),
      .cache_bytes = counts[3].value(),
      .activation_bytes = counts[4].value(),
      .tile_flops = counts[5].value(),
      .memory_bytes = counts[6].value(),
      .note = absl::StrCat(compute.modes, compute.modes.empty() || node.note.empty() ? "" : "; ", node.note)};
  Seconds converting;
  if (compute.converted.value() > 0 && chip.vector_rate.known()) {
    converting = Flops(static_cast<double>(compute.converted.value())) / chip.vector_rate;
  }
  terms.dtype = std::max(compute.dtype, converting).value();
  terms.kernels = compute.kernels.value();
  terms.attention = compute.attention.value();
  terms.shape = terms.kernels + terms.attention;
  terms.memory = ReadSeconds(chip, memory);
  terms.spilled = ReadSeconds(chip, traffic.spilled);
  terms.weight_read = ReadSeconds(chip, traffic.weights);
  terms.cache_read = ReadSeconds(chip, traffic.cache);
  terms.vector = ReadSeconds(chip, activations);
  terms.launches = !node.products.empty();
  terms.useful = compute.useful;
  return terms;
}

absl::Status AddExchanges(const Chip& chip, const NodeCount& node, NodeTerms& terms) {
  for (const Collective& collective : node.collectives) {
    if (!collective.bytes.ok()) return CountOverflow("");
    TWIN_ASSIGN_OR_RETURN(const Exchange exchange, ExchangeOf(chip, collective));
    terms.exchange += exchange.seconds;
    terms.messages += static_cast<double>(exchange.hops);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CountOverflow(absl::string_view place) {
  return Error(1707, place, "counts of this step exceed 64 bits", "is batch or context mistyped?");
}

double StageBoundSeconds(const StepTerms& terms, const StageTerms& stage) {
  double fetched = 0;
  double least = 0;
  for (size_t i = 0; i < terms.kinds.size(); ++i) {
    const NodeTerms& node = terms.kinds[i];
    const double uses = static_cast<double>(stage.uses[i]);
    fetched += uses * std::max(node.shape, node.memory);
    least += uses * std::max(node.shape, node.spilled);
  }
  return std::max(least, fetched - terms.spared);
}

double BoundSeconds(const StepTerms& terms) {
  double seconds = 0;
  for (const StageTerms& stage : terms.stages)
    seconds += static_cast<double>(stage.passes) * StageBoundSeconds(terms, stage);
  return seconds;
}

namespace {

// Kinds in the order in which nodes meet them, each with its terms.
absl::Status AddKinds(const ChipFigures& chip, const Chip& file, const Graph& graph, StepTerms& terms) {
  const bool resident = StaysOnChip(chip, terms);
  std::vector<bool> met(terms.step.kinds.size());
  for (NodeId id = 0; id < static_cast<NodeId>(terms.step.nodes.size()); ++id) {
    const NodeUse& use = terms.step.nodes[id];
    // Kinds are numbered in the order in which nodes meet them.
    if (met[use.kind]) continue;
    met[use.kind] = true;
    NodeCount count = terms.step.kinds[use.kind];
    for (size_t i = 0; i < count.updated.size(); ++i) {
      // A tied parameter is updated once.
      if ((use.keeps >> i & 1) != 0)
        count.weights.insert(count.weights.end(), count.updated[i].begin(), count.updated[i].end());
    }
    absl::StatusOr<NodeTerms> node = TermsOfNode(chip, count, terms, resident);
    if (!node.ok()) return WithPlace(node.status(), graph.nodes()[id].path);
    node->experts = graph.nodes()[id].op == OpKind::kMoe;
    terms.network.Update(AddExchanges(file, terms.step.kinds[use.kind], *node));
    terms.kinds.push_back(*std::move(node));
  }
  return absl::OkStatus();
}

// Every stage once, or the slowest alone: whichever takes longer at R3.
void ChoosePasses(StepTerms& terms) {
  std::vector<int64_t> passes(terms.stages.size(), 1);
  double way = 0, most = -1;
  size_t slowest = 0;
  for (size_t i = 0; i < terms.stages.size(); ++i) {
    const double seconds = StageBoundSeconds(terms, terms.stages[i]);
    way += seconds;
    if (seconds > most) slowest = i;
    most = std::max(most, seconds);
  }
  if (static_cast<double>(terms.microbatches) * most > way) {
    passes.assign(passes.size(), 0);
    passes[slowest] = terms.microbatches;
  }
  SetPasses(passes, terms);
}

// What the last node of a stage hands on, the longest of all: each device to the one in its place.
absl::Status AddSends(const Chip& file, const Workload& workload, StepTerms& terms) {
  const std::vector<NodeUse>& nodes = terms.step.nodes;
  for (size_t i = 1; i < nodes.size(); ++i) {
    if (nodes[i].stage == nodes[i - 1].stage) continue;
    const Exact bytes = terms.step.kinds[nodes[i - 1].kind].result_bytes;
    if (!bytes.ok()) return CountOverflow("");
    TWIN_ASSIGN_OR_RETURN(
        const Exchange exchange,
        ExchangeOf(file, {Collective::Kind::kSend, bytes, workload.pp, workload.dcn.pp ? workload.pp : 1}));
    terms.send = std::max(terms.send, exchange.seconds);
    terms.send_hops = std::max(terms.send_hops, static_cast<double>(exchange.hops));
  }
  return absl::OkStatus();
}

}  // namespace

void SetPasses(const std::vector<int64_t>& passes, StepTerms& terms) {
  TWIN_CHECK(passes.size() == terms.stages.size(), "a number for each stage");
  terms.uses.assign(terms.kinds.size(), 0);
  for (size_t i = 0; i < passes.size(); ++i) {
    terms.stages[i].passes = passes[i];
    for (size_t kind = 0; kind < terms.uses.size(); ++kind)
      terms.uses[kind] += passes[i] * terms.stages[i].uses[kind];
  }
}

absl::StatusOr<StepTerms> TermsOf(const ChipFigures& chip, const Graph& graph, const Workload& workload,
                                  const StepCount* alike) {
  StepTerms terms;
  TWIN_ASSIGN_OR_RETURN(terms.step,
                        alike == nullptr ? CountStep(graph, workload) : RecountStep(graph, workload, *alike));
  terms.devices = workload.devices();
  terms.groups = workload.dp;
  terms.sequences = workload.local_batch();
  terms.prompt = workload.chunk > 0 ? workload.past + workload.chunk : 0;
  terms.microbatches = workload.microbatches;
  terms.alone = workload.phase == Phase::kPrefill;
  terms.hosted = workload.training ? 0 : static_cast<double>(terms.sequences + (workload.chunk > 0 ? 1 : 0));
  TWIN_ASSIGN_OR_RETURN(const Chip* file, FindIn(ShippedChips(), chip.summary.id));
  AddResidents(chip, workload.pp, terms);
  if (!(terms.parameter_bytes + terms.cache_bytes).ok()) return CountOverflow(graph.name());
  TWIN_RETURN_IF_ERROR(AddKinds(chip, *file, graph, terms));
  ChoosePasses(terms);
  terms.network.Update(AddSends(*file, workload, terms));
  terms.spared = (workload.training ? 4 : 1) * ReadSeconds(chip, chip.on_chip_bytes);
  return terms;
}

absl::Status AddPadding(const ChipFigures& chip, const Graph& graph, const Workload& padded,
                        StepTerms& terms) {
  TWIN_ASSIGN_OR_RETURN(StepTerms other, TermsOf(chip, graph, padded, &terms.step));
  for (NodeId id = 0; id < static_cast<NodeId>(terms.step.nodes.size()); ++id) {
    std::shared_ptr<const NodeTerms>& into = terms.kinds[terms.step.nodes[id].kind].padded;
    if (into == nullptr)
      into = std::make_shared<NodeTerms>(std::move(other.kinds[other.step.nodes[id].kind]));
  }
  return absl::OkStatus();
}

}  // namespace twinforge
