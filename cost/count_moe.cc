#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "cost/node_counter.h"

namespace twinforge {
namespace {

// Tokens fall on experts as if each chose at random: of `experts`, those that someone chose.
int64_t ExpectedDistinct(int64_t experts, int64_t choices, int64_t tokens) {
  const double missed =
      std::pow(1 - static_cast<double>(choices) / static_cast<double>(experts), static_cast<double>(tokens));
  return std::max<int64_t>(1, std::llround(std::ceil(static_cast<double>(experts) * (1 - missed) - 1e-9)));
}

// Choices that fall on one device of `ep`: an equal share, or where they fall at random the most that one of
// so many devices is expected to get, mean + deviation x sqrt(2 ln devices).
int64_t OfFullest(const Workload& workload, int64_t choices) {
  const int64_t share = CeilDiv(choices, workload.ep);
  if (!workload.padding.uneven || workload.ep == 1) return share;
  const double devices = static_cast<double>(workload.ep);
  const double mean = static_cast<double>(choices) / devices;
  const double most = mean + std::sqrt(2 * std::log(devices) * mean * (1 - 1 / devices));
  return std::clamp(std::llround(std::ceil(most)), static_cast<long long>(share),
                    static_cast<long long>(choices));
}

}  // namespace

// One kernel of the experts that are chosen, on the fullest device. Groups compute all their members for each
// token that chose one.
absl::Status NodeCounter::Expert(absl::string_view slot, Exact assigned, int64_t distinct) {
  const ParamType& type = TypeOf(slot);
  if (!type.is_kernel()) return Read(slot, distinct);
  TWIN_ASSIGN_OR_RETURN(const Extents extents, ExtentsOf(type));
  Store(type, slot, extents, distinct, out_.weights);
  const int member = type.Find("member");
  const int64_t logical_members = member < 0 ? 1 : type.axes[member].logical;
  Exact useful = Exact(step_.all_rows) * node_.attrs->moe().top_k() *
                 (extents.logical_in * extents.logical_out) / logical_members;
  const auto add = [&](int64_t rows, int64_t count) {
    if (rows == 0 || count == 0) return;
    Product product = {.m = rows,
                       .k = extents.in,
                       .n = extents.out,
                       .count = count,
                       .left = ActivationType(type, slot),
                       .right = KernelType(type, slot)};
    // No more of the layer's useful work than the product does at all; the rest is the next one's.
    product.useful = useful.ok() ? Min(useful, Macs(product) * step_.workload.devices()) : useful;
    useful += product.useful * -1;
    out_.products.push_back(product);
  };
  add(assigned.value() / distinct + 1, assigned.value() % distinct);
  add(assigned.value() / distinct, distinct - assigned.value() % distinct);
  return absl::OkStatus();
}

// Tokens travel to the devices of their experts and their results come back. A token sends one copy to each
// device that has an expert of its choice.
void NodeCounter::Dispatch(int64_t choices) {
  const Workload& workload = step_.workload;
  if (workload.ep == 1) return AllReduce();
  const Exact width = node_.type.axes.back().size.value().value_or(0);
  const Exact copies = Exact(CeilDiv(step_.all_rows, workload.devices())) * std::min(choices, workload.ep);
  const Exact elements = copies * width;
  const DType sent = workload.precision.activations.value_or(OperandType());
  for (const DType dtype : {sent, node_.type.dtype}) {
    out_.collectives.push_back({Collective::Kind::kAllToAll,
                                elements.ok() ? CompactBytes(dtype, {elements.value()}) : elements,
                                workload.devices(), SlicesOfStage()});
  }
}

absl::Status NodeCounter::Moe() {
  const MoeAttrs& attrs = node_.attrs->moe();
  const Workload& workload = step_.workload;
  TWIN_RETURN_IF_ERROR(DenseRows("router"));
  const ParamType& gate = TypeOf("gate");
  const int member = gate.Find("member");
  const int64_t members = member < 0 ? 1 : gate.axes[member].size;
  const int64_t stacks = gate.axes[0].logical;  // experts, or groups of them
  const bool same = workload.routing == Routing::kSame;
  // Stacks that one token's choices fall into, and that all tokens' choices fall into; then of one device.
  const int64_t choices = std::min(stacks, same ? CeilDiv(attrs.top_k(), members) : attrs.top_k());
  const int64_t tokens = workload.ep > 1 ? step_.all_rows : step_.rows;
  const Exact assigned = Exact(tokens) * choices;
  int64_t distinct = choices;
  if (workload.routing == Routing::kSpread && assigned.ok()) distinct = std::min(stacks, assigned.value());
  if (workload.routing == Routing::kExpected) distinct = ExpectedDistinct(stacks, choices, tokens);
  const Exact of_device = assigned.ok() ? Exact(OfFullest(workload, assigned.value())) : assigned;
  distinct = std::min(CeilDiv(distinct, workload.ep), std::max<int64_t>(of_device.value(), 1));
  for (absl::string_view slot : {"gate", "up", "down", "gate_bias", "up_bias", "down_bias"}) {
    if (node_.Has(slot)) TWIN_RETURN_IF_ERROR(Expert(slot, of_device, distinct));
  }
  for (absl::string_view slot : {"shared_gate", "shared_up", "shared_down"}) {
    if (node_.Has(slot)) TWIN_RETURN_IF_ERROR(DenseRows(slot));
  }
  Dispatch(choices);
  constexpr absl::string_view kNotes[] = {"every token takes the same experts (least)",
                                          "experts evenly loaded (most distinct)",
                                          "each token takes experts at random, evenly loaded"};
  out_.note = std::string(kNotes[static_cast<int>(workload.routing)]);
  return absl::OkStatus();
}

}  // namespace twinforge
