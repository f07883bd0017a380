#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "cost/node_counter.h"

namespace twinforge {

// Devices of `sp` share the pairs; with one query to a sequence they share its keys.
void NodeCounter::Scores(const Heads& heads, const StepPart& part, Exact pairs, int64_t all_keys) {
  const int64_t sp = step_.workload.sp;
  const int64_t keys = part.fresh == 1 ? CeilDiv(all_keys, sp) : all_keys;
  const DType dtype = OperandType();
  const int64_t m = heads.queries * part.own;
  const Exact own_pairs = pairs.ok() ? Exact(CeilDiv(pairs.value(), sp)) : pairs;
  const Exact group_pairs = own_pairs * heads.queries;
  const bool rectangle = group_pairs.value() == m * keys;
  const int64_t count = part.sequences * heads.groups;
  const Exact all_pairs = pairs * part.all;
  out_.products.push_back({.kind = rectangle ? Product::Kind::kDense : Product::Kind::kScores,
                           .m = m,
                           .k = heads.score_width,
                           .n = keys,
                           .count = count,
                           .pairs = group_pairs.value(),
                           .left = dtype,
                           .right = dtype,
                           .attention = true,
                           .useful = all_pairs * heads.useful_scores});
  out_.products.push_back({.kind = rectangle ? Product::Kind::kDense : Product::Kind::kMix,
                           .m = m,
                           .k = keys,
                           .n = heads.value_width,
                           .count = count,
                           .pairs = group_pairs.value(),
                           .left = dtype,
                           .right = dtype,
                           .attention = true,
                           .useful = all_pairs * heads.useful_values});
}

// [batch, row extents...] with the places between, of which devices of `sp` have equal shares.
void NodeCounter::Cache(const CacheRows& rows, const StepPart& part) {
  const int64_t places = part.past + part.fresh;
  int64_t read = part.past, kept = places;
  if (rows.chunk > 0) {
    read = part.past % rows.chunk;
    kept = (places - 1) % rows.chunk + 1;
  }
  if (rows.window > 0) {
    read = std::min(read, rows.window - 1);
    kept = std::min(kept, rows.window);
  }
  const int64_t written = std::min(part.fresh, kept);
  const int64_t sp = step_.workload.sp;
  const DType dtype = step_.workload.precision.cache.value_or(OperandType());
  std::vector<int64_t> shape = {part.sequences};
  shape.insert(shape.end(), rows.extents.begin(), rows.extents.end() - 1);
  const size_t at = shape.size();
  shape.push_back(0);
  shape.push_back(rows.extents.back());
  for (int64_t i = 0; i < rows.arrays; ++i) {
    shape[at] = CeilDiv(RoundUp(read, step_.workload.padding.page).value(), sp);
    if (read > 0) out_.cache_read.push_back({dtype, shape});
    shape[at] = CeilDiv(kept, sp);
    out_.cache_kept.push_back({dtype, shape});
    shape[at] = CeilDiv(written, sp);
    out_.cache_written += CompactBytes(dtype, shape);
  }
}

// Whichever sends less:
//
//   keys and values   every device meets those of all places, of a window those just before its own
//   results           every device has a part of each query's result, its largest score and its sum
void NodeCounter::ExchangeParts(const StepPart& part, Exact bytes_of_place, int64_t window, int64_t heads,
                                int64_t width) {
  const Workload& workload = step_.workload;
  const int64_t places = part.past + part.fresh;
  if (workload.sp == 1 || places == 1) return;
  const int64_t sp = workload.sp, slices = workload.dcn.sp ? sp : 1;
  const int64_t own = CeilDiv(places, sp);
  const bool near = window > 0 && window - 1 < places - own;
  const Exact keys = bytes_of_place * part.sequences * (near ? window - 1 : own);
  const Exact results = Exact(part.sequences) * part.fresh * heads * (width + 2) * 4;
  // A gather sends its bytes to all others; a sum sends 2 (sp - 1) / sp of them.
  const Exact keys_sent = near ? keys * sp : keys * sp * (sp - 1);
  const Exact results_sent = results * 2 * (sp - 1);
  const bool sums = results_sent.ok() && (!keys_sent.ok() || results_sent.value() < keys_sent.value());
  const Collective::Kind kind = sums   ? Collective::Kind::kAllReduce
                                : near ? Collective::Kind::kSend
                                       : Collective::Kind::kAllGather;
  out_.collectives.push_back({kind, sums ? results : keys, sp, slices});
}

absl::Status NodeCounter::Attention() {
  const AttentionAttrs& attrs = node_.attrs->attention();
  if (!attrs.causal() && step_.workload.phase == Phase::kDecode) {
    return Error(1705, node_.path, "attention that is not causal has no decode step", "use --phase prefill");
  }
  if (!attrs.causal() && step_.workload.past > 0) {
    return Error(1705, node_.path,
                 "attention that is not causal keeps no cache, so no tokens precede the new ones",
                 "leave out --past");
  }
  for (absl::string_view slot : {"q", "k", "v", "o"}) TWIN_RETURN_IF_ERROR(DenseRows(slot));
  const ParamType& q = TypeOf("q");
  const ParamType& k = TypeOf("k");
  TWIN_ASSIGN_OR_RETURN(const int64_t heads, LocalSize(q.Get("heads")));
  TWIN_ASSIGN_OR_RETURN(const int64_t kv_heads, LocalSize(k.Get("kv_heads")));
  const int64_t head_dim = q.Get("head_dim").size;
  const int64_t window = attrs.window(), chunk = attrs.chunk();
  const DType cached = step_.workload.precision.cache.value_or(OperandType());
  const Exact useful = Exact(Logical("q", "heads")) * Logical("q", "head_dim");
  for (const StepPart& part : step_.parts) {
    const int64_t places = part.past + part.fresh;
    const bool one_chunk = chunk > 0 && part.past % chunk + part.fresh <= chunk;
    int64_t keys = attrs.causal() && one_chunk ? part.past % chunk + part.fresh : places;
    if (attrs.causal() && window > 0) keys = std::min(keys, window);
    const Exact pairs =
        attrs.causal() ? ChunkedPairs(part.past, part.fresh, window, chunk) : Exact(part.fresh) * places;
    Scores({.groups = kv_heads,
            .queries = heads / kv_heads,
            .score_width = head_dim,
            .value_width = head_dim,
            .useful_scores = useful,
            .useful_values = useful},
           part, pairs, keys);
    const CacheRows rows = {.extents = {kv_heads, head_dim}, .arrays = 2, .window = window, .chunk = chunk};
    if (attrs.causal()) Cache(rows, part);
    const int64_t seen = !attrs.causal() ? 0 : chunk > 0 && (window == 0 || chunk < window) ? chunk : window;
    ExchangeParts(part, CompactBytes(cached, {2, kv_heads, head_dim}), seen, heads, head_dim);
  }
  AllReduce();
  return absl::OkStatus();
}

// One query row per sequence and head: q k_b meets the latents, the mixed latents meet v_b.
absl::Status NodeCounter::Absorbed(const StepPart& part, int64_t heads) {
  const ParamType& k_b = TypeOf("k_b");
  const ParamType& v_b = TypeOf("v_b");
  const Exact all = part.all;
  const int64_t lora = k_b.Get("kv_lora").size;
  const Exact latents = Exact(Logical("k_b", "heads")) * Logical("k_b", "kv_lora");
  out_.products.push_back({.m = part.sequences,
                           .k = k_b.Get("nope_dim").size,
                           .n = lora,
                           .count = heads,
                           .left = ActivationType(k_b, "k_b"),
                           .right = KernelType(k_b, "k_b"),
                           .useful = latents * Logical("k_b", "nope_dim") * all});
  out_.products.push_back({.m = part.sequences,
                           .k = lora,
                           .n = v_b.Get("v_head_dim").size,
                           .count = heads,
                           .left = ActivationType(v_b, "v_b"),
                           .right = KernelType(v_b, "v_b"),
                           .useful = latents * Logical("v_b", "v_head_dim") * all});
  const int64_t rope = TypeOf("k_rope").Get("rope_dim").size;
  const Exact rope_useful = Exact(Logical("k_b", "heads")) * Logical("k_rope", "rope_dim");
  Scores({.groups = 1,
          .queries = heads,
          .score_width = lora + rope,
          .value_width = lora,
          .useful_scores = latents + rope_useful,
          .useful_values = latents},
         part, CausalPairs(part.past, part.fresh, 0), part.past + part.fresh);
  ExchangeParts(part, CompactBytes(OperandType(), {lora + rope}), 0, heads, lora);
  return absl::OkStatus();
}

// Keys and values of every head from the new latents.
absl::Status NodeCounter::Expanded(const StepPart& part, int64_t heads) {
  const ParamType& k_b = TypeOf("k_b");
  const int64_t rope = TypeOf("k_rope").Get("rope_dim").size;
  const int64_t nope = k_b.Get("nope_dim").size, value = TypeOf("v_b").Get("v_head_dim").size;
  const bool whole = step_.parts.size() == 1;
  const int64_t rows = whole ? step_.rows : part.sequences * part.own;
  for (absl::string_view slot : {"k_b", "v_b"})
    TWIN_RETURN_IF_ERROR(Multiply(slot, rows, Exact(part.all) * part.fresh));
  const Exact all_heads = Logical("k_b", "heads");
  Scores({.groups = heads,
          .queries = 1,
          .score_width = nope + rope,
          .value_width = value,
          .useful_scores = all_heads * (Exact(Logical("k_b", "nope_dim")) + Logical("k_rope", "rope_dim")),
          .useful_values = all_heads * Logical("v_b", "v_head_dim")},
         part, CausalPairs(part.past, part.fresh, 0), part.past + part.fresh);
  ExchangeParts(part, CompactBytes(OperandType(), {heads * (nope + value) + rope}), 0, heads, value);
  return absl::OkStatus();
}

absl::Status NodeCounter::LatentAttention() {
  for (absl::string_view slot : {"q_a", "q_nope", "q_rope", "kv_a", "k_rope", "o"}) {
    if (node_.Has(slot)) TWIN_RETURN_IF_ERROR(DenseRows(slot));
  }
  const ParamType& k_b = TypeOf("k_b");
  TWIN_ASSIGN_OR_RETURN(const int64_t heads, LocalSize(k_b.Get("heads")));
  const int64_t rope = TypeOf("k_rope").Get("rope_dim").size;
  AllReduce();
  for (absl::string_view slot : {"k_b", "v_b"}) TWIN_RETURN_IF_ERROR(Read(slot, 1));
  const bool absorbs = node_.attrs->latent_attention().absorbed();
  for (const StepPart& part : step_.parts) {
    Cache({.extents = {k_b.Get("kv_lora").size + rope}}, part);
    const bool absorbed = part.fresh == 1 && part.past > 0;
    TWIN_RETURN_IF_ERROR(absorbed ? Absorbed(part, heads) : Expanded(part, heads));
    const absl::string_view note = !absorbed ? "expanded latent cache"
                                   : absorbs ? "absorbed latent cache"
                                             : "latent cache, absorbed at best (absorb_mla makes it so)";
    if (!absl::StrContains(out_.note, note)) absl::StrAppend(&out_.note, out_.note.empty() ? "" : "; ", note);
  }
  return absl::OkStatus();
}

}  // namespace twinforge
