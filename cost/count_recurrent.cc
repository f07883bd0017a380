// Mixers that remember in a state of fixed size: taps of a short convolution, memories of a recurrence.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "cost/node_counter.h"

namespace twinforge {

absl::Status NodeCounter::CheckRecurs() const {
  if (step_.workload.sp == 1) return absl::OkStatus();
  return Error(1702, node_.path, "a recurrence runs along its sequence, which sp would split",
               "split by tp, dp and ep instead");
}

// A causal convolution of each channel alone: no matrix product. It keeps the last taps - 1 places.
absl::Status NodeCounter::Taps(absl::string_view slot) {
  const ParamType& type = TypeOf(slot);
  std::vector<int64_t> shape = {step_.sequences, 0};
  for (size_t i = 1; i < type.axes.size(); ++i) {
    TWIN_ASSIGN_OR_RETURN(const int64_t size, LocalSize(type.axes[i]));
    shape.push_back(size);
  }
  const int64_t before = type.axes[0].size - 1;
  const DType dtype = OperandType();
  if (before == 0) return absl::OkStatus();
  for (const StepPart& part : step_.parts) {
    shape[0] = part.sequences;
    shape[1] = std::min(part.past, before);
    if (shape[1] > 0) out_.cache_read.push_back({dtype, shape});
    shape[1] = before;
    out_.cache_kept.push_back({dtype, shape});
    shape[1] = std::min(part.fresh, before);
    out_.cache_written += CompactBytes(dtype, shape);
  }
  return absl::OkStatus();
}

// Two forms give the same places; each part of a step takes the one with fewer operations.
//
//   step by step   every place reads the memory:  places x heads x value x key
//   by pairs       scores of keys and a masked mix of values, where nothing was remembered before:
//                  pairs x (groups x key + heads x value)
//
// The updates of a memory are outer products, which no matrix unit need compute. Kernels that work in chunks
// do both, and neither form's count is above theirs.
void NodeCounter::Recur(const Recurrence& r) {
  const DType wide = OperandType() == DType::kF64 ? DType::kF64 : DType::kF32;
  const auto add = [&](const Product& shape, Exact useful) {
    for (int64_t pass = 0; pass < r.passes; ++pass) {
      out_.products.push_back(shape);
      Product& product = out_.products.back();
      product.left = product.right = wide;
      product.attention = true;
      product.useful = useful;
    }
  };
  const Exact memory = r.all_heads * r.all_value * r.all_key;
  for (const StepPart& part : step_.parts) {
    const Exact pairs = CausalPairs(0, part.fresh, 0);
    const Exact scores = pairs * r.all_groups * r.all_key, mixed = pairs * r.all_heads * r.all_value;
    const Exact by_pairs = scores + mixed, by_steps = memory * part.fresh;
    const bool few =
        part.past == 0 && by_pairs.ok() && (!by_steps.ok() || by_pairs.value() < by_steps.value());
    const int64_t groups = part.sequences * r.groups;
    if (few) {
      add({.kind = Product::Kind::kScores,
           .m = part.fresh,
           .k = r.key,
           .n = part.fresh,
           .count = groups,
           .pairs = pairs.value()},
          scores * part.all);
      add({.kind = Product::Kind::kMix,
           .m = part.fresh,
           .k = part.fresh,
           .n = r.value,
           .count = part.sequences * r.heads,
           .pairs = pairs.value()},
          mixed * part.all);
    } else {
      add({.m = part.fresh, .k = r.key, .n = r.heads / r.groups * r.value, .count = groups},
          by_steps * part.all);
    }
    const std::vector<int64_t> shape = {part.sequences, r.heads, r.value, r.key};
    if (part.past > 0) out_.cache_read.push_back({wide, shape});
    out_.cache_kept.push_back({wide, shape});
    out_.cache_written += CompactBytes(wide, shape);
  }
  out_.note = "recurrence at its least: step by step, or by pairs of new places";
}

absl::Status NodeCounter::ShortConv() {
  TWIN_RETURN_IF_ERROR(CheckRecurs());
  out_.state = true;
  for (absl::string_view slot : {"b", "c", "x", "o"}) TWIN_RETURN_IF_ERROR(DenseRows(slot));
  TWIN_RETURN_IF_ERROR(Taps("taps"));
  AllReduce();
  return absl::OkStatus();
}

absl::Status NodeCounter::StateSpace() {
  TWIN_RETURN_IF_ERROR(CheckRecurs());
  out_.state = true;
  for (absl::string_view slot : {"z", "x", "b", "c", "dt", "o"}) TWIN_RETURN_IF_ERROR(DenseRows(slot));
  for (absl::string_view slot : {"x_taps", "b_taps", "c_taps"}) TWIN_RETURN_IF_ERROR(Taps(slot));
  const ParamType& x = TypeOf("x");
  const ParamType& b = TypeOf("b");
  TWIN_ASSIGN_OR_RETURN(const int64_t heads, LocalSize(x.Get("heads")));
  TWIN_ASSIGN_OR_RETURN(const int64_t groups, LocalSize(b.Get("state_groups")));
  Recur({.heads = heads,
         .groups = groups,
         .value = x.Get("head_dim").size,
         .key = b.Get("state").size,
         .all_heads = Logical("x", "heads"),
         .all_groups = Logical("b", "state_groups"),
         .all_value = Logical("x", "head_dim"),
         .all_key = Logical("b", "state")});
  // Its norm is over the heads of all devices: one sum of squares for each place.
  const int64_t shards = step_.workload.shards;
  if (shards > 1)
    out_.collectives.push_back(
        {Collective::Kind::kAllReduce, Exact(step_.rows) * 4, shards, SlicesOfShards()});
  AllReduce();
  return absl::OkStatus();
}

// Each place reads the memory twice: what its key already holds, and what its query asks for.
absl::Status NodeCounter::DeltaRule() {
  TWIN_RETURN_IF_ERROR(CheckRecurs());
  out_.state = true;
  for (absl::string_view slot : {"q", "k", "v", "z", "beta", "decay", "o"})
    TWIN_RETURN_IF_ERROR(DenseRows(slot));
  for (absl::string_view slot : {"q_taps", "k_taps", "v_taps"}) TWIN_RETURN_IF_ERROR(Taps(slot));
  const ParamType& v = TypeOf("v");
  const ParamType& k = TypeOf("k");
  TWIN_ASSIGN_OR_RETURN(const int64_t heads, LocalSize(v.Get("heads")));
  TWIN_ASSIGN_OR_RETURN(const int64_t groups, LocalSize(k.Get("key_heads")));
  Recur({.heads = heads,
         .groups = groups,
         .value = v.Get("value_dim").size,
         .key = k.Get("key_dim").size,
         .all_heads = Logical("v", "heads"),
         .all_groups = Logical("k", "key_heads"),
         .all_value = Logical("v", "value_dim"),
         .all_key = Logical("k", "key_dim"),
         .passes = 2});
  AllReduce();
  return absl::OkStatus();
}

}  // namespace twinforge
