// Attention in its spellings, and what stands in its place: what is kept for the next step has its own shape.
#include "onnx/infer/rule.h"

namespace twinforge {
namespace {

// One of queries, keys and values: [batch, heads, length, width], or [batch, length, heads * width].
struct HeadShape {
  KnownDim batch, heads, length, width;
};

KnownDim HeadsAttr(InferCall& c, absl::string_view name) {
  const int64_t heads = c.Int(name, 0);
  return heads > 0 ? KnownDim(Dim(heads)) : std::nullopt;
}

HeadShape HeadsIn(const OnnxFact& x, const KnownDim& heads) {
  if (x.Rank() == 4) return {x.Extent(0), x.Extent(1), x.Extent(2), x.Extent(3)};
  if (x.Rank() != 3) return {};
  return {x.Extent(0), heads, x.Extent(1), DimQuotient(x.Extent(2), heads)};
}

// Of a past that is left out, no length.
KnownDim PastLength(InferCall& c, int i) { return c.Has(i) ? c.In(i).Extent(-2) : KnownDim(Dim(0)); }

// query, key, value, mask, past_key, past_value, lengths.
void AttentionRule(InferCall& c) {
  const KnownDim kv_heads = HeadsAttr(c, "kv_num_heads");
  const HeadShape q = HeadsIn(c.In(0), HeadsAttr(c, "q_num_heads"));
  HeadShape k = HeadsIn(c.In(1), kv_heads), v = HeadsIn(c.In(2), kv_heads);
  KnownDim batch = q.batch;
  c.Meet(batch, k.batch, "queries and keys differ in batch");
  c.Meet(batch, v.batch, "queries and values differ in batch");
  c.Meet(k.length, v.length, "keys and values differ in length");
  const KnownDim total = DimSum(PastLength(c, 4), k.length);
  c.Out(0).type = c.In(0).type;
  if (c.In(0).Rank() == 4) c.Out(0).shape = KnownDims{batch, q.heads, q.length, v.width};
  if (c.In(0).Rank() == 3) c.Out(0).shape = KnownDims{batch, q.length, DimProduct(q.heads, v.width)};
  c.Out(1).type = c.In(1).type;
  c.Out(1).shape = KnownDims{batch, k.heads, total, k.width};
  c.Out(2).type = c.In(2).type;
  c.Out(2).shape = KnownDims{batch, v.heads, total, v.width};
  c.Out(3).type = c.In(0).type;
  c.Out(3).shape = KnownDims{batch, q.heads, q.length, total};
}

// query, key, value, past_key, past_value, seqlens_k, total_sequence_length.
void GroupQueryAttentionRule(InferCall& c) {
  const KnownDim heads = HeadsAttr(c, "num_heads"), kv_heads = HeadsAttr(c, "kv_num_heads");
  for (int i = 0; i < c.outputs(); ++i) c.Out(i).type = i < 3 ? c.In(0).type : std::nullopt;
  if (!c.RankIs(0, 3, "the query")) return;
  const OnnxFact& x = c.In(0);
  const bool packed = !c.Has(1);
  const KnownDim width = DimQuotient(x.Extent(2), packed ? DimSum(heads, DimSum(kv_heads, kv_heads)) : heads);
  c.Out(0).shape = KnownDims{x.Extent(0), x.Extent(1), DimProduct(heads, width)};
  // The cache has room for the past and for all tokens of this step, whichever is more.
  const KnownDim room = DimMax(c.Scalar(6), PastLength(c, 3));
  if (c.Int("kv_cache_bit_width", 0) != 0) return;
  if (c.Has(3)) c.Out(1).type = c.In(3).type;
  if (c.Has(4)) c.Out(2).type = c.In(4).type;
  c.Out(1).shape = c.Out(2).shape = KnownDims{x.Extent(0), kv_heads, room, width};
}

// query, key, value, bias, key_padding_mask, attention_bias, past_key, past_value; or packed in one or two.
void MultiHeadAttentionRule(InferCall& c) {
  const KnownDim heads = HeadsAttr(c, "num_heads");
  for (int i = 0; i < c.outputs(); ++i) c.Out(i).type = i < 3 ? c.In(0).type : std::nullopt;
  const OnnxFact &query = c.In(0), &key = c.In(1);
  HeadShape q, k, v;
  if (query.Rank() == 5) {
    q = k = v = {query.Extent(0), heads, query.Extent(1), query.Extent(4)};
  } else if (query.Rank() == 3 && key.Rank() == 5) {
    q = HeadsIn(query, heads);
    k = v = {key.Extent(0), heads, key.Extent(1), key.Extent(4)};
  } else if (query.Rank() == 3) {
    q = HeadsIn(query, heads);
    k = HeadsIn(key, heads);
    v = HeadsIn(c.In(2), heads);
  } else {
    return;
  }
  c.Out(0).shape = KnownDims{q.batch, q.length, DimProduct(heads, v.width)};
  c.Out(1).shape = KnownDims{q.batch, heads, DimSum(PastLength(c, 6), k.length), k.width};
  c.Out(2).shape = KnownDims{q.batch, heads, DimSum(PastLength(c, 7), v.length), v.width};
}

// input, weights [in, q + k + v], bias, mask, past [2, batch, heads, length, width].
void MergedAttentionRule(InferCall& c) {
  c.Out(0).type = c.Out(1).type = c.In(0).type;
  if (!c.RankIs(0, 3, "the input")) return;
  const OnnxFact& x = c.In(0);
  const KnownDim heads = HeadsAttr(c, "num_heads"), third = DimQuotient(c.In(1).Extent(1), Dim(3));
  const std::optional<std::vector<int64_t>> sizes = c.Ints("qkv_hidden_sizes");
  const KnownDim hidden = !sizes ? third : sizes->size() == 3 ? KnownDim(Dim((*sizes)[2])) : std::nullopt;
  c.Out(0).shape = KnownDims{x.Extent(0), x.Extent(1), hidden};
  if (c.Int("past_present_share_buffer", 0) != 0) return;
  const KnownDim total = DimSum(PastLength(c, 4), x.Extent(1));
  c.Out(1).shape = KnownDims{Dim(2), x.Extent(0), heads, total, DimQuotient(hidden, heads)};
}

void RotaryRule(InferCall& c) { c.Like(0, 0); }

// query, key, value [batch, time, heads * width], state.
void LinearAttentionRule(InferCall& c) {
  const KnownDim heads = HeadsAttr(c, "q_num_heads"), kv_heads = HeadsAttr(c, "kv_num_heads");
  const KnownDim v_width = DimQuotient(c.In(2).Extent(2), kv_heads);
  c.Out(0).type = c.In(0).type;
  c.Out(0).shape = KnownDims{c.In(0).Extent(0), c.In(0).Extent(1), DimProduct(heads, v_width)};
  c.Out(1).type = c.Has(3) ? c.In(3).type : c.In(0).type;
  c.Out(1).shape = KnownDims{c.In(0).Extent(0), kv_heads, DimQuotient(c.In(0).Extent(2), heads), v_width};
}

void CausalConvRule(InferCall& c) {
  c.Like(0, 0);
  c.Out(1).type = c.In(0).type;
  c.Out(1).shape = KnownDims{c.In(0).Extent(0), c.In(0).Extent(1), DimDifference(c.In(1).Extent(2), Dim(1))};
}

void FlexAttentionRule(InferCall& c) {
  c.Out(0).type = c.In(2).type;
  c.Out(0).shape = KnownDims{c.In(0).Extent(0), c.In(0).Extent(1), c.In(0).Extent(2), c.In(2).Extent(3)};
}

constexpr char kMs[] = "com.microsoft";
constexpr InferRow kRows[] = {
    {"Attention", AttentionRule},
    {"RotaryEmbedding", RotaryRule},
    {"RotaryEmbedding", RotaryRule, kMs, 4},
    {"GroupQueryAttention", GroupQueryAttentionRule, kMs, 1},
    {"MultiHeadAttention", MultiHeadAttentionRule, kMs, 1},
    {"Attention", MergedAttentionRule, kMs, 2},
    {"LinearAttention", LinearAttentionRule},
    {"CausalConvWithState", CausalConvRule},
    {"FlexAttention", FlexAttentionRule, "ai.onnx.preview"},
};

}  // namespace

absl::Span<const InferRow> AttentionRules() { return kRows; }

}  // namespace twinforge
