#include "cost/terms.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
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

// Sums of all nodes, each parameter counted where it is met first.
void AddResidents(const ChipFigures& chip, StepTerms& terms) {
  const StepCount& step = terms.step;
  std::vector<std::vector<Exact>> stored(step.kinds.size());
  std::vector<Exact> cache(step.kinds.size());
  for (size_t kind = 0; kind < step.kinds.size(); ++kind) {
    for (const std::vector<StoredArray>& arrays : step.kinds[kind].stored)
      stored[kind].push_back(MemoryBytes(chip, arrays));
    cache[kind] = MemoryBytes(chip, step.kinds[kind].cache_kept);
  }
  for (const NodeUse& node : step.nodes) {
    for (size_t i = 0; i < stored[node.kind].size(); ++i) {
      if ((node.keeps >> i & 1) != 0) terms.parameter_bytes += stored[node.kind][i];
    }
    terms.cache_bytes += cache[node.kind];
  }
}

// Everything stays on chip between steps, and nothing need cross the memory bus.
bool StaysOnChip(const ChipFigures& chip, const StepTerms& terms) {
  const Exact all = terms.parameter_bytes + terms.cache_bytes;
  return all.ok() && all.value() <= chip.on_chip_bytes;
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

absl::StatusOr<NodeTerms> TermsOfNode(const ChipFigures& chip, const NodeCount& node, int64_t devices,
                                      bool resident) {
  TWIN_ASSIGN_OR_RETURN(const Compute compute, ComputeOf(chip, node, devices));
  Exact activations = node.result_bytes;
  for (const Exact& operand : node.operand_bytes) activations += operand;
  const Traffic traffic = TrafficOf(chip, node, resident);
  const Exact memory = traffic.weights + traffic.cache + traffic.spilled;
  const Exact weights = CompactBytes(node.weights) + node.rows_read;
  const Exact cache = CompactBytes(node.cache_read) + node.cache_written;
  const Exact two = 2;
  const Exact all = devices;
  const Exact counts[] = {two * compute.useful, two * compute.issued * all, weights * all, cache * all,
                          activations * all,    two * compute.tile * all,   memory * all,  compute.converted};
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

double BoundSeconds(const StepTerms& terms) {
  double fetched = 0;
  double least = 0;
  for (size_t i = 0; i < terms.kinds.size(); ++i) {
    const NodeTerms& node = terms.kinds[i];
    const double uses = static_cast<double>(terms.uses[i]);
    fetched += uses * std::max(node.shape, node.memory);
    least += uses * std::max(node.shape, node.spilled);
  }
  return std::max(least, fetched - terms.spared);
}

absl::StatusOr<StepTerms> TermsOf(const ChipFigures& chip, const Graph& graph, const Workload& workload) {
  StepTerms terms;
  TWIN_ASSIGN_OR_RETURN(terms.step, CountStep(graph, workload));
  terms.devices = workload.devices();
  terms.groups = workload.dp;
  terms.sequences = workload.local_batch();
  terms.hosted = workload.training ? 0 : static_cast<double>(terms.sequences);
  TWIN_ASSIGN_OR_RETURN(const Chip* file, FindIn(ShippedChips(), chip.summary.id));
  AddResidents(chip, terms);
  if (!(terms.parameter_bytes + terms.cache_bytes).ok()) return CountOverflow(graph.name());
  const bool resident = StaysOnChip(chip, terms);
  terms.spared = (workload.training ? 4 : 1) * ReadSeconds(chip, chip.on_chip_bytes);
  terms.uses.resize(terms.step.kinds.size());
  for (NodeId id = 0; id < static_cast<NodeId>(terms.step.nodes.size()); ++id) {
    const int32_t kind = terms.step.nodes[id].kind;
    // Kinds are numbered in the order in which nodes meet them.
    if (++terms.uses[kind] > 1) continue;
    NodeCount count = terms.step.kinds[kind];
    for (size_t i = 0; i < count.updated.size(); ++i) {
      // A tied parameter is updated once.
      if ((terms.step.nodes[id].keeps >> i & 1) != 0)
        count.weights.insert(count.weights.end(), count.updated[i].begin(), count.updated[i].end());
    }
    absl::StatusOr<NodeTerms> node = TermsOfNode(chip, count, terms.devices, resident);
    if (!node.ok()) return WithPlace(node.status(), graph.nodes()[id].path);
    node->experts = graph.nodes()[id].op == OpKind::kMoe;
    terms.network.Update(AddExchanges(*file, terms.step.kinds[kind], *node));
    terms.kinds.push_back(*std::move(node));
  }
  return terms;
}

}  // namespace twinforge
