// com.microsoft: attention as onnxruntime defines it. Its CPU kernels are the judge (tests/onnx).
#include <algorithm>
#include <cmath>
#include <limits>

#include "onnx/kernels/attention.h"
#include "onnx/kernels/kernel.h"
#include "onnx/kernels/matmul.h"
#include "onnx/kernels/places.h"

namespace twinforge {
namespace {

constexpr double kHidden = -std::numeric_limits<double>::infinity();

// [batch, heads, length, width].
struct HeadTensor {
  int64_t batch = 0, heads = 0, length = 0, width = 0;
  std::vector<double> x;
};

// Columns `begin` to `begin + heads * width` of [batch, length, all], as heads.
HeadTensor HeadsFrom(const std::vector<double>& x, int64_t batch, int64_t length, int64_t all, int64_t begin,
                     int64_t heads, int64_t width) {
  std::vector<double> part;
  for (int64_t row = 0; row < batch * length; ++row) {
    const double* from = x.data() + row * all + begin;
    part.insert(part.end(), from, from + heads * width);
  }
  return {batch, heads, length, width, SplitHeads(part, batch, length, heads, width)};
}

HeadTensor FourAxes(OpCall& c, int i) {
  const Shape& s = c.In(i).shape();
  if (s.size() != 4) c.Fail("a past or key has not four axes");
  return c.ok() ? HeadTensor{s[0], s[1], s[2], s[3], c.Doubles(i)} : HeadTensor();
}

void AppendTo(OpCall& c, const HeadTensor& past, HeadTensor& now) {
  ONNX_EXPECT(c, past.batch == now.batch && past.heads == now.heads && past.width == now.width,
              "a past does not fit what is appended to it");
  now.x = Appended(past.x, now.x, now.batch * now.heads, past.length, now.length, now.width);
  now.length += past.length;
}

OnnxTensor AsTensor(ElementType type, const HeadTensor& h) {
  return TensorOf<double>(type, {h.batch, h.heads, h.length, h.width}, h.x);
}

// Turns pairs of each row by the angles of its position; `rotated` numbers of each head.
void Rotate(OpCall& c, HeadTensor& h, const std::vector<int64_t>& positions, int cos_at, int sin_at,
            bool interleaved) {
  const std::vector<double> cosine = c.Doubles(cos_at), sine = c.Doubles(sin_at);
  ONNX_EXPECT(c, c.In(cos_at).rank() == 2 && c.In(cos_at).shape() == c.In(sin_at).shape(),
              "its caches do not fit");
  const int64_t half = c.In(cos_at).dim(1);
  ONNX_EXPECT(c, 2 * half <= h.width, "its caches are wider than a head");
  for (const int64_t p : positions)
    ONNX_EXPECT(c, p >= 0 && p < c.In(cos_at).dim(0), "a position lies beyond the caches");
  for (int64_t line = 0; line < h.batch * h.heads * h.length; ++line) {
    const int64_t p = positions[line / (h.length * h.heads) * h.length + line % h.length];
    double* row = h.x.data() + line * h.width;
    for (int64_t d = 0; d < half; ++d) {
      double& u = row[interleaved ? 2 * d : d];
      double& w = row[interleaved ? 2 * d + 1 : d + half];
      const double cs = cosine[p * half + d], sn = sine[p * half + d], real = cs * u - sn * w;
      w = sn * u + cs * w;
      u = real;
    }
  }
}

void RotaryEmbedding(OpCall& c) {
  const OnnxTensor& x = c.In(0);
  if (c.Int("is_packed_batching", 0) != 0) return c.Refuse("is_packed_batching has no meaning here");
  const int64_t given = c.Int("rotary_embedding_dim", 0);
  ONNX_EXPECT(c, x.rank() == 3 || x.rank() == 4, "takes three or four axes");
  ONNX_EXPECT(c, c.In(2).rank() == 2, "its caches do not fit");
  const int64_t heads = x.rank() == 4 ? x.dim(1)
                        : given > 0   ? HeadCount(c, "num_heads")
                                      : x.dim(2) / std::max<int64_t>(1, 2 * c.In(2).dim(1));
  ONNX_EXPECT(c, heads > 0 && (x.rank() == 4 || x.dim(2) % heads == 0),
              "num_heads does not divide the input");
  HeadTensor h = x.rank() == 4
                     ? FourAxes(c, 0)
                     : HeadsFrom(c.Doubles(0), x.dim(0), x.dim(1), x.dim(2), 0, heads, x.dim(2) / heads);
  std::vector<int64_t> positions = c.Ints(1);
  ONNX_EXPECT(c, true, "");
  if (positions.size() == 1) {
    const int64_t first = positions[0];
    positions.clear();
    for (int64_t t = 0; t < h.batch * h.length; ++t) positions.push_back(first + t % h.length);
  }
  ONNX_EXPECT(c, static_cast<int64_t>(positions.size()) == h.batch * h.length,
              "positions are not one for each token");
  Rotate(c, h, positions, 2, 3, c.Int("interleaved", 0) != 0);
  ONNX_EXPECT(c, true, "");
  c.Out(0, TensorOf<double>(x.type(), x.shape(),
                            x.rank() == 4 ? h.x : JoinHeads(h.x, h.batch, h.length, h.heads, h.width)));
}

// Adds input `at`, which broadcasts to the scores; its last axis may reach beyond the keys.
void AddBias(OpCall& c, int at, AttentionSpec& spec) {
  if (!c.Has(at)) return;
  const AttentionSizes& s = spec.sizes;
  const Shape& shape = c.In(at).shape();
  ONNX_EXPECT(c,
              shape.size() == 4 && (shape[0] == 1 || shape[0] == s.batch) &&
                  (shape[1] == 1 || shape[1] == s.heads) && shape[2] == s.queries && shape[3] >= s.keys,
              "the attention bias does not fit the scores");
  const std::vector<double> bias = c.Doubles(at);
  for (size_t k = 0; k < spec.bias.size(); ++k) {
    const int64_t p = static_cast<int64_t>(k), j = p % s.keys, i = p / s.keys % s.queries,
                  h = p / (s.keys * s.queries) % s.heads, b = p / (s.keys * s.queries * s.heads);
    spec.bias[k] +=
        bias[(((shape[0] == 1 ? 0 : b) * shape[1] + (shape[1] == 1 ? 0 : h)) * shape[2] + i) * shape[3] + j];
  }
}

struct GroupQuery {
  HeadTensor q, k, v;
  std::vector<int64_t> before, total;  // keys before the new ones, and all of them, of each in the batch
};

// Queries, keys and values, packed in one input or in three.
bool ReadGroupQuery(OpCall& c, GroupQuery& g) {
  const int64_t heads = HeadCount(c, "num_heads"), kv_heads = HeadCount(c, "kv_num_heads");
  if (heads <= 0 || kv_heads <= 0 || heads % kv_heads != 0 || c.In(0).rank() != 3)
    return c.Fail("its heads do not fit"), false;
  const int64_t batch = c.In(0).dim(0), length = c.In(0).dim(1), all = c.In(0).dim(2);
  const std::vector<double> x = c.Doubles(0);
  const bool packed = !c.Has(1);
  const int64_t width = all / (packed ? heads + 2 * kv_heads : heads);
  if (width * (packed ? heads + 2 * kv_heads : heads) != all || c.Has(1) != c.Has(2))
    return c.Fail("its heads do not divide the input"), false;
  g.q = HeadsFrom(x, batch, length, all, 0, heads, width);
  if (packed) {
    g.k = HeadsFrom(x, batch, length, all, heads * width, kv_heads, width);
    g.v = HeadsFrom(x, batch, length, all, (heads + kv_heads) * width, kv_heads, width);
    return true;
  }
  const Shape wanted = {batch, length, kv_heads * width};
  if (c.In(1).shape() != wanted || c.In(2).shape() != wanted)
    return c.Fail("keys or values do not fit the queries"), false;
  g.k = HeadsFrom(c.Doubles(1), batch, length, kv_heads * width, 0, kv_heads, width);
  g.v = HeadsFrom(c.Doubles(2), batch, length, kv_heads * width, 0, kv_heads, width);
  return true;
}

// The cache after this step: what came before, the new rows, zeros up to `room`.
HeadTensor CacheOf(OpCall& c, const GroupQuery& g, const HeadTensor& now, int past_at, int64_t room) {
  HeadTensor cache{now.batch, now.heads, room, now.width, {}};
  HeadTensor past{now.batch, now.heads, 0, now.width, {}};
  if (c.Has(past_at)) past = FourAxes(c, past_at);
  if (c.ok() && (past.batch != now.batch || past.heads != now.heads || past.width != now.width))
    c.Fail("a past does not fit");
  if (!c.Affordable({now.batch, now.heads, room, now.width})) return cache;
  cache.x.assign(static_cast<size_t>(now.batch * now.heads * room * now.width), 0);
  for (int64_t line = 0; line < now.batch * now.heads; ++line) {
    const int64_t before = g.before[line / now.heads];
    if (before < 0 || before > past.length || before + now.length > room)
      return c.Fail("seqlens_k does not fit the past"), cache;
    double* to = cache.x.data() + line * room * now.width;
    const double* old = past.x.data() + line * past.length * now.width;
    std::copy(old, old + before * now.width, to);
    const double* fresh = now.x.data() + line * now.length * now.width;
    std::copy(fresh, fresh + now.length * now.width, to + before * now.width);
  }
  return cache;
}

bool RefusesGroupQuery(OpCall& c) {
  if (c.Int("kv_cache_bit_width", 0) != 0 || c.Str("k_quant_type", "NONE") != "NONE" ||
      c.Str("v_quant_type", "NONE") != "NONE")
    return c.Refuse("a quantised cache has no meaning here"), true;
  for (int i = 12; i < c.inputs(); ++i) {
    if (c.Has(i)) return c.Refuse("its inputs behind head_sink have no meaning here"), true;
  }
  if (c.Int("qk_output", 0) != 0) return c.Refuse("qk_output has no meaning here"), true;
  return false;
}

// query, key, value, past_key, past_value, seqlens_k, total_sequence_length, cos, sin, positions, bias, sink.
void GroupQueryAttention(OpCall& c) {
  if (RefusesGroupQuery(c)) return;
  GroupQuery g;
  if (!ReadGroupQuery(c, g)) return;
  ONNX_EXPECT(c, c.Has(5) && c.Has(6), "lacks seqlens_k or total_sequence_length");
  const std::vector<int64_t> lengths = c.Ints(5);
  const int64_t total = c.IntScalar(6, 0), news = g.q.length;
  ONNX_EXPECT(c, static_cast<int64_t>(lengths.size()) == g.q.batch && total >= 0,
              "seqlens_k is not one for each of the batch");
  const bool first = news == total;  // a prompt, padded on the right
  std::vector<int64_t> positions;
  for (const int64_t length : lengths) {
    ONNX_EXPECT(c, length >= 0 && length < total, "seqlens_k is beyond total_sequence_length");
    g.total.push_back(length + 1);
    g.before.push_back(first ? 0 : length + 1 - news);
    for (int64_t t = 0; t < news; ++t) positions.push_back(std::max<int64_t>(g.before.back(), 0) + t);
  }
  if (c.Has(9)) positions = c.Ints(9);
  ONNX_EXPECT(c, static_cast<int64_t>(positions.size()) == g.q.batch * news,
              "positions are not one for each token");
  if (c.Int("do_rotary", 0) != 0) {
    ONNX_EXPECT(c, c.Has(7) && c.Has(8), "lacks the rotary caches");
    const bool interleaved = c.Int("rotary_interleaved", 0) != 0;
    Rotate(c, g.q, positions, 7, 8, interleaved);
    if (c.ok()) Rotate(c, g.k, positions, 7, 8, interleaved);
  }
  ONNX_EXPECT(c, true, "");
  const int64_t past = c.Has(3) && c.In(3).rank() == 4 ? c.In(3).dim(2) : 0, room = std::max(total, past);
  const HeadTensor k = CacheOf(c, g, g.k, 3, room), v = CacheOf(c, g, g.v, 4, room);
  ONNX_EXPECT(c, true, "");
  AttentionSpec spec;
  spec.sizes = {g.q.batch, g.q.heads, k.heads, news, room, k.width, v.width};
  const double scale = c.Float("scale", 0);
  spec.scale = scale == 0 ? 1 / std::sqrt(static_cast<double>(k.width)) : scale;
  spec.softcap = c.Float("softcap", 0);
  if (c.Has(11)) spec.sinks = c.Doubles(11);
  if (c.Int("smooth_softmax", 0) > 0 && spec.sinks.empty())
    spec.sinks.assign(static_cast<size_t>(g.q.heads), 0);
  ONNX_EXPECT(c, spec.sinks.empty() || static_cast<int64_t>(spec.sinks.size()) == g.q.heads,
              "head_sink is not one for each head");
  ONNX_EXPECT(c, c.Affordable({g.q.batch, g.q.heads, news, room}), "");
  spec.bias.assign(static_cast<size_t>(g.q.batch * g.q.heads * news * room), 0);
  if (c.Has(10)) {
    ONNX_EXPECT(c, c.In(10).rank() == 4 && c.In(10).dim(3) >= total && room == total,
                "the attention bias does not fit the scores");
    AddBias(c, 10, spec);
  }
  const int64_t window = c.Int("local_window_size", -1);
  const bool causal = c.Int("causal", 1) != 0;
  for (size_t n = 0; n < spec.bias.size(); ++n) {
    const int64_t p = static_cast<int64_t>(n), j = p % room, i = p / room % news,
                  b = p / (room * news * g.q.heads);
    const int64_t at = g.before[b] + i;
    if ((causal && j > at) || (!causal && j >= g.total[b]) || (window > 0 && at - j >= window))
      spec.bias[n] = kHidden;
  }
  AttentionResult result = AttentionOf(c, spec, g.q.x, k.x, v.x);
  ONNX_EXPECT(c, true, "");
  const ElementType type = c.In(0).type();
  c.Out(0, TensorOf<double>(type, {g.q.batch, news, g.q.heads * v.width},
                            JoinHeads(result.y, g.q.batch, news, g.q.heads, v.width)));
  c.Out(1, AsTensor(type, k));
  c.Out(2, AsTensor(type, v));
}

// A mask of keys: lengths [batch], ends and starts [2 * batch], 0 and 1 [batch, keys], the same for each
// query [batch, queries, keys]. What is masked gets mask_filter_value.
void AddKeyMask(OpCall& c, int at, AttentionSpec& spec) {
  if (!c.Has(at)) return;
  const AttentionSizes& s = spec.sizes;
  const Shape& shape = c.In(at).shape();
  const double hidden = c.Float("mask_filter_value", -10000);
  const std::vector<int64_t> mask = c.Ints(at);
  const bool lengths = shape == Shape({s.batch}), spans = shape == Shape({2 * s.batch}),
             keys = shape == Shape({s.batch, s.keys}), each = shape == Shape({s.batch, s.queries, s.keys});
  if (c.ok() && !lengths && !spans && !keys && !each)
    return c.Refuse("a mask " + ShapeText(shape) + " has no meaning here");
  ONNX_EXPECT(c, true, "");
  for (size_t k = 0; k < spec.bias.size(); ++k) {
    const int64_t p = static_cast<int64_t>(k), j = p % s.keys, i = p / s.keys % s.queries,
                  b = p / (s.keys * s.queries * s.heads);
    const bool seen = lengths ? j < mask[b]
                      : spans ? j < mask[b] && j >= mask[s.batch + b]
                      : keys  ? mask[b * s.keys + j] != 0
                              : mask[(b * s.queries + i) * s.keys + j] != 0;
    if (!seen) spec.bias[k] += hidden;
  }
}

// What both kinds of attention with as many key heads as query heads end in.
void Attend(OpCall& c, const HeadTensor& q, const HeadTensor& k, const HeadTensor& v, int mask_at,
            int bias_at, int64_t before) {
  ONNX_EXPECT(c,
              q.batch == k.batch && q.heads == k.heads && k.heads == v.heads && k.length == v.length &&
                  q.width == k.width && k.batch == v.batch,
              "queries, keys and values do not fit");
  AttentionSpec spec;
  spec.sizes = {q.batch, q.heads, k.heads, q.length, k.length, q.width, v.width};
  const double scale = c.Float("scale", 0);
  spec.scale = scale == 0 ? 1 / std::sqrt(static_cast<double>(q.width)) : scale;
  // A mask of -10000 takes digits from what it is added to.
  spec.score_type = c.In(0).type() == ElementType::kDouble ? ElementType::kDouble : ElementType::kFloat;
  ONNX_EXPECT(c, c.Affordable({q.batch, q.heads, q.length, k.length}), "");
  spec.bias.assign(static_cast<size_t>(q.batch * q.heads * q.length * k.length), 0);
  AddKeyMask(c, mask_at, spec);
  if (c.ok()) AddBias(c, bias_at, spec);
  ONNX_EXPECT(c, true, "");
  if (c.Int("unidirectional", 0) != 0) {
    for (size_t n = 0; n < spec.bias.size(); ++n) {
      const int64_t j = static_cast<int64_t>(n) % k.length, i = static_cast<int64_t>(n) / k.length % q.length;
      if (j > i + before) spec.bias[n] = kHidden;
    }
  }
  const AttentionResult result = AttentionOf(c, spec, q.x, k.x, v.x);
  ONNX_EXPECT(c, true, "");
  c.Out(0, TensorOf<double>(c.In(0).type(), {q.batch, q.length, q.heads * v.width},
                            JoinHeads(result.y, q.batch, q.length, q.heads, v.width)));
}

// Part `which` of [batch, length, heads, parts, width].
HeadTensor Unpacked(OpCall& c, int i, int64_t which) {
  const Shape& s = c.In(i).shape();
  const OnnxTensor turned = Permuted(c.In(i), {3, 0, 2, 1, 4});
  const std::vector<double> all = Elements<double>(turned);
  const int64_t part = s[0] * s[1] * s[2] * s[4];
  return {s[0], s[2], s[1], s[4], {all.begin() + which * part, all.begin() + (which + 1) * part}};
}

// query, key, value, bias, key_padding_mask, attention_bias, past_key, past_value.
void MultiHeadAttention(OpCall& c) {
  const int64_t heads = HeadCount(c, "num_heads");
  ONNX_EXPECT(c, heads > 0 && IsFloatingElement(c.In(0).type()), "has no heads");
  for (int i = 8; i < c.inputs(); ++i) {
    if (c.Has(i)) return c.Refuse("its inputs behind past_value have no meaning here");
  }
  HeadTensor part[3];
  const bool packed = c.In(0).rank() == 5;
  std::vector<double> bias = c.Has(3) ? c.Doubles(3) : std::vector<double>();
  for (int i = 0; i < 3; ++i) {
    if (packed || (c.Has(1) && c.In(1).rank() == 5 && i > 0)) {
      const int from = packed ? 0 : 1;
      ONNX_EXPECT(c, c.In(from).dim(3) == (packed ? 3 : 2) && c.In(from).dim(2) == heads,
                  "packed keys and values do not fit");
      part[i] = Unpacked(c, from, packed ? i : i - 1);
    } else {
      ONNX_EXPECT(c, c.Has(i), "lacks keys or values");
      const Shape& s = c.In(i).shape();
      ONNX_EXPECT(c, s.size() == 4 || (s.size() == 3 && s[2] % heads == 0),
                  "its heads do not divide the input");
      part[i] =
          s.size() == 4 ? FourAxes(c, i) : HeadsFrom(c.Doubles(i), s[0], s[1], s[2], 0, heads, s[2] / heads);
    }
  }
  ONNX_EXPECT(c, part[0].heads == heads && part[1].heads == heads && part[2].heads == heads,
              "its heads do not fit");
  int64_t at = 0;
  const bool biased = !bias.empty();
  ONNX_EXPECT(
      c,
      !biased || static_cast<int64_t>(bias.size()) == heads * (part[0].width + part[1].width + part[2].width),
      "the bias does not fit");
  for (HeadTensor& p : part) {
    for (size_t k = 0; biased && k < p.x.size(); ++k) {
      const int64_t n = static_cast<int64_t>(k), head = n / (p.width * p.length) % heads;
      p.x[k] += bias[at + head * p.width + n % p.width];
    }
    at += heads * p.width;
  }
  const int64_t before = c.Has(6) && c.In(6).rank() == 4 ? c.In(6).dim(2) : 0;
  if (c.Has(6)) AppendTo(c, FourAxes(c, 6), part[1]);
  if (c.Has(7)) AppendTo(c, FourAxes(c, 7), part[2]);
  ONNX_EXPECT(c, true, "");
  Attend(c, part[0], part[1], part[2], 4, 5, before);
  c.Out(1, AsTensor(c.In(0).type(), part[1]));
  c.Out(2, AsTensor(c.In(0).type(), part[2]));
}

// input, weights [in, q + k + v], bias, mask, past [2, batch, heads, length, width], attention_bias.
void MergedAttention(OpCall& c) {
  const int64_t heads = HeadCount(c, "num_heads");
  ONNX_EXPECT(c, heads > 0 && c.In(0).rank() == 3 && c.In(1).rank() == 2, "has no heads, or another rank");
  if (c.Int("do_rotary", 0) != 0 || c.Has(6))
    return c.Refuse("do_rotary and shared pasts have no meaning here");
  const int64_t batch = c.In(0).dim(0), length = c.In(0).dim(1), all = c.In(1).dim(1);
  const std::vector<int64_t> sizes = c.IntsAttr("qkv_hidden_sizes", {all / 3, all / 3, all / 3});
  ONNX_EXPECT(c,
              sizes.size() == 3 && sizes[0] > 0 && sizes[1] == sizes[0] && sizes[2] > 0 &&
                  sizes[0] + sizes[1] + sizes[2] == all && sizes[0] % heads == 0 && sizes[2] % heads == 0,
              "its heads do not divide the weights");
  Product<double> qkv = MatmulOf<double>(c, c.In(0).shape(), c.Doubles(0), c.In(1).shape(), c.Doubles(1));
  if (c.ok() && c.Has(2)) {
    const std::vector<double> bias = c.Doubles(2);
    ONNX_EXPECT(c, static_cast<int64_t>(bias.size()) == all, "the bias does not fit");
    for (size_t k = 0; k < qkv.values.size(); ++k) qkv.values[k] += bias[static_cast<int64_t>(k) % all];
  }
  ONNX_EXPECT(c, true, "");
  const HeadTensor q = HeadsFrom(qkv.values, batch, length, all, 0, heads, sizes[0] / heads);
  HeadTensor k = HeadsFrom(qkv.values, batch, length, all, sizes[0], heads, sizes[1] / heads);
  HeadTensor v = HeadsFrom(qkv.values, batch, length, all, sizes[0] + sizes[1], heads, sizes[2] / heads);
  int64_t before = 0;
  if (c.Has(4)) {
    const Shape& s = c.In(4).shape();
    ONNX_EXPECT(c, s.size() == 5 && s[0] == 2, "the past has not five axes");
    const std::vector<double> past = c.Doubles(4);
    const auto half = static_cast<int64_t>(past.size()) / 2;
    before = s[3];
    AppendTo(c, {s[1], s[2], s[3], s[4], {past.begin(), past.begin() + half}}, k);
    if (c.ok()) AppendTo(c, {s[1], s[2], s[3], s[4], {past.begin() + half, past.end()}}, v);
  }
  ONNX_EXPECT(c, true, "");
  Attend(c, q, k, v, 3, 5, before);
  if (!c.Wants(1)) return;
  ONNX_EXPECT(c, k.width == v.width, "keys and values differ in width");
  std::vector<double> present = k.x;
  present.insert(present.end(), v.x.begin(), v.x.end());
  c.Out(1, TensorOf<double>(c.In(0).type(), {2, k.batch, k.heads, k.length, k.width}, present));
}

constexpr char kMs[] = "com.microsoft";
constexpr KernelRow kRows[] = {
    {"RotaryEmbedding", RotaryEmbedding, false, kMs, 4},
    {"GroupQueryAttention", GroupQueryAttention, false, kMs, 1},
    {"MultiHeadAttention", MultiHeadAttention, false, kMs, 1},
    {"Attention", MergedAttention, false, kMs, 2},
};

}  // namespace

absl::Span<const KernelRow> ContribAttentionKernels() { return kRows; }

}  // namespace twinforge
