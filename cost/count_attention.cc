#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "cost/node_counter.h"

namespace twinforge {

void NodeCounter::Scores(const Heads& heads, Exact pairs, int64_t keys) {
  const DType dtype = OperandType();
  const int64_t m = heads.queries * step_.fresh;
  const Exact group_pairs = pairs * heads.queries;
  const bool rectangle = group_pairs.value() == m * keys;
  const int64_t count = step_.batch * heads.groups;
  const Exact all_pairs = pairs * step_.workload.batch;
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

// `arrays` caches of [batch, row extents...] with the places between: keys and values, or one latent.
void NodeCounter::Cache(std::vector<int64_t> row_extents, int64_t arrays, int64_t window) {
  const auto within = [&](int64_t places, int64_t limit) {
    return window > 0 ? std::min(places, limit) : places;
  };
  const int64_t read = within(step_.past, window - 1);
  const int64_t kept = within(step_.past + step_.fresh, window);
  const DType dtype = step_.workload.precision.cache.value_or(OperandType());
  std::vector<int64_t> shape = {step_.batch};
  shape.insert(shape.end(), row_extents.begin(), row_extents.end() - 1);
  const size_t places = shape.size();
  shape.push_back(0);
  shape.push_back(row_extents.back());
  for (int64_t i = 0; i < arrays; ++i) {
    shape[places] = read;
    if (read > 0) out_.cache_read.push_back({dtype, shape});
    shape[places] = kept;
    out_.cache_kept.push_back({dtype, shape});
    shape[places] = within(step_.fresh, window);
    out_.cache_written += CompactBytes(dtype, shape);
  }
}

absl::Status NodeCounter::Attention() {
  const AttentionAttrs& attrs = node_.attrs->attention();
  if (!attrs.causal() && step_.workload.phase == Phase::kDecode) {
    return Error(1705, node_.path, "attention that is not causal has no decode step", "use --phase prefill");
  }
  for (absl::string_view slot : {"q", "k", "v", "o"}) TWIN_RETURN_IF_ERROR(Dense(slot, step_.rows));
  const ParamType& q = TypeOf("q");
  const ParamType& k = TypeOf("k");
  TWIN_ASSIGN_OR_RETURN(const int64_t heads, LocalSize(q.Get("heads")));
  TWIN_ASSIGN_OR_RETURN(const int64_t kv_heads, LocalSize(k.Get("kv_heads")));
  const int64_t head_dim = q.Get("head_dim").size;
  const int64_t places = step_.past + step_.fresh;
  const int64_t window = attrs.window();
  const int64_t keys = attrs.causal() && window > 0 ? std::min(places, window) : places;
  const Exact pairs =
      attrs.causal() ? CausalPairs(step_.past, step_.fresh, window) : Exact(step_.fresh) * places;
  const Exact useful = Exact(Logical("q", "heads")) * Logical("q", "head_dim");
  Scores({.groups = kv_heads,
          .queries = heads / kv_heads,
          .score_width = head_dim,
          .value_width = head_dim,
          .useful_scores = useful,
          .useful_values = useful},
         pairs, keys);
  if (attrs.causal()) Cache({kv_heads, head_dim}, 2, window);
  AllReduce();
  return absl::OkStatus();
}

// One query row per sequence and head: q k_b meets the latents, the mixed latents meet v_b.
absl::Status NodeCounter::Absorbed(int64_t heads) {
  const ParamType& k_b = TypeOf("k_b");
  const ParamType& v_b = TypeOf("v_b");
  const int64_t batch = step_.batch;
  const Exact all_batch = step_.workload.batch;
  for (absl::string_view slot : {"k_b", "v_b"}) TWIN_RETURN_IF_ERROR(Read(slot, 1));
  const int64_t lora = k_b.Get("kv_lora").size;
  const Exact latents = Exact(Logical("k_b", "heads")) * Logical("k_b", "kv_lora");
  out_.products.push_back({.m = batch,
                           .k = k_b.Get("nope_dim").size,
                           .n = lora,
                           .count = heads,
                           .left = ActivationType(k_b, "k_b"),
                           .right = KernelType(k_b, "k_b"),
                           .useful = latents * Logical("k_b", "nope_dim") * all_batch});
  out_.products.push_back({.m = batch,
                           .k = lora,
                           .n = v_b.Get("v_head_dim").size,
                           .count = heads,
                           .left = ActivationType(v_b, "v_b"),
                           .right = KernelType(v_b, "v_b"),
                           .useful = latents * Logical("v_b", "v_head_dim") * all_batch});
  const int64_t rope = TypeOf("k_rope").Get("rope_dim").size;
  const Exact rope_useful = Exact(Logical("k_b", "heads")) * Logical("k_rope", "rope_dim");
  const int64_t keys = step_.past + step_.fresh;
  Scores({.groups = 1,
          .queries = heads,
          .score_width = lora + rope,
          .value_width = lora,
          .useful_scores = latents + rope_useful,
          .useful_values = latents},
         CausalPairs(step_.past, step_.fresh, 0), keys);
  const bool absorbed = node_.attrs->latent_attention().absorbed();
  out_.note = absorbed ? "absorbed latent cache" : "latent cache, absorbed at best (absorb_mla makes it so)";
  return absl::OkStatus();
}

absl::Status NodeCounter::LatentAttention() {
  for (absl::string_view slot : {"q_a", "q_nope", "q_rope", "kv_a", "k_rope", "o"}) {
    if (node_.Has(slot)) TWIN_RETURN_IF_ERROR(Dense(slot, step_.rows));
  }
  const ParamType& k_b = TypeOf("k_b");
  TWIN_ASSIGN_OR_RETURN(const int64_t heads, LocalSize(k_b.Get("heads")));
  const int64_t rope = TypeOf("k_rope").Get("rope_dim").size;
  Cache({k_b.Get("kv_lora").size + rope}, 1, 0);
  AllReduce();
  if (step_.fresh == 1 && step_.past > 0) return Absorbed(heads);
  for (absl::string_view slot : {"k_b", "v_b"}) TWIN_RETURN_IF_ERROR(Dense(slot, step_.rows));
  const Exact all_heads = Logical("k_b", "heads");
  Scores({.groups = heads,
          .queries = 1,
          .score_width = k_b.Get("nope_dim").size + rope,
          .value_width = TypeOf("v_b").Get("v_head_dim").size,
          .useful_scores = all_heads * (Exact(Logical("k_b", "nope_dim")) + Logical("k_rope", "rope_dim")),
          .useful_values = all_heads * Logical("v_b", "v_head_dim")},
         CausalPairs(step_.past, step_.fresh, 0), step_.past + step_.fresh);
  out_.note = "expanded latent cache";
  return absl::OkStatus();
}

}  // namespace twinforge
