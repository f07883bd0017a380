#include "onnx/kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "onnx/kernels/kernel.h"
#include "onnx/kernels/places.h"

namespace twinforge {
namespace {

constexpr double kHidden = -std::numeric_limits<double>::infinity();

// In place; true where the row sees a key.
bool SoftmaxRow(double* row, int64_t count, const double* sink, ElementType type) {
  double most = sink != nullptr ? *sink : kHidden, sum = 0;
  for (int64_t j = 0; j < count; ++j) most = std::fmax(most, row[j]);
  if (most == kHidden) return false;
  if (sink != nullptr) sum = std::exp(*sink - most);
  for (int64_t j = 0; j < count; ++j)
    sum += row[j] = RoundedTo(type, std::exp(RoundedTo(type, row[j] - most)));
  sum = RoundedTo(type, sum);
  for (int64_t j = 0; j < count; ++j) row[j] = RoundedTo(type, row[j] / sum);
  return true;
}

}  // namespace

AttentionResult AttentionOf(OpCall& c, const AttentionSpec& spec, const std::vector<double>& q,
                            const std::vector<double>& k, const std::vector<double>& v) {
  const AttentionSizes& s = spec.sizes;
  AttentionResult out;
  const Shape scores = {s.batch, s.heads, s.queries, s.keys},
              result = {s.batch, s.heads, s.queries, s.v_width};
  if (!c.Affordable(scores) || !c.Affordable(result)) return out;
  if (!c.Spend(static_cast<double>(ElementCount(scores)) * static_cast<double>(s.width + s.v_width)))
    return out;
  out.y.assign(static_cast<size_t>(ElementCount(result)), 0);
  if (spec.keep >= 0) out.scores.resize(static_cast<size_t>(ElementCount(scores)));
  std::vector<double> row(static_cast<size_t>(s.keys));
  for (int64_t line = 0; line < s.batch * s.heads * s.queries; ++line) {
    const int64_t head = line / s.queries % s.heads, b = line / (s.queries * s.heads);
    const int64_t kv = b * s.kv_heads + head / (s.heads / s.kv_heads);
    double* y = out.y.data() + line * s.v_width;
    double* kept = spec.keep >= 0 ? out.scores.data() + line * s.keys : nullptr;
    bool sees = spec.bias.empty();
    for (int64_t j = 0; j < s.keys; ++j) {
      double score = 0;
      for (int64_t d = 0; d < s.width; ++d)
        score += q[line * s.width + d] * k[(kv * s.keys + j) * s.width + d];
      score = RoundedTo(spec.score_type, score * spec.scale);
      if (spec.keep == 0) kept[j] = score;
      if (spec.softcap > 0)
        score = RoundedTo(spec.score_type, spec.softcap * std::tanh(score / spec.softcap));
      if (spec.keep == 1) kept[j] = score;
      if (!spec.bias.empty()) {
        const double bias = spec.bias[line * s.keys + j];
        sees = sees || bias != kHidden;
        score = RoundedTo(spec.score_type, score + bias);
      }
      if (spec.keep == 2) kept[j] = score;
      row[j] = score;
    }
    const double* sink = spec.sinks.empty() ? nullptr : &spec.sinks[head];
    if (!sees || !SoftmaxRow(row.data(), s.keys, sink, spec.softmax_type))
      std::fill(row.begin(), row.end(), 0);
    if (spec.keep == 3) std::copy(row.begin(), row.end(), kept);
    for (int64_t j = 0; j < s.keys; ++j) {
      const double p = RoundedTo(spec.score_type, row[j]);
      if (p == 0) continue;
      for (int64_t d = 0; d < s.v_width; ++d) y[d] += p * v[(kv * s.keys + j) * s.v_width + d];
    }
  }
  return out;
}

int64_t HeadCount(OpCall& c, absl::string_view attribute) {
  const int64_t heads = c.Int(attribute, 0);
  if (heads > (1 << 16)) c.Fail("has more heads than any model");
  return heads;
}

std::vector<double> SplitHeads(const std::vector<double>& x, int64_t batch, int64_t length, int64_t heads,
                               int64_t width) {
  std::vector<double> y(x.size());
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t t = 0; t < length; ++t) {
      for (int64_t h = 0; h < heads; ++h) {
        const double* from = x.data() + ((b * length + t) * heads + h) * width;
        std::copy(from, from + width, y.data() + ((b * heads + h) * length + t) * width);
      }
    }
  }
  return y;
}

std::vector<double> JoinHeads(const std::vector<double>& x, int64_t batch, int64_t length, int64_t heads,
                              int64_t width) {
  return SplitHeads(x, batch, heads, length, width);
}

std::vector<double> Appended(const std::vector<double>& past, const std::vector<double>& x, int64_t outer,
                             int64_t before, int64_t length, int64_t width) {
  std::vector<double> y;
  y.reserve(past.size() + x.size());
  for (int64_t o = 0; o < outer; ++o) {
    y.insert(y.end(), past.begin() + o * before * width, past.begin() + (o + 1) * before * width);
    y.insert(y.end(), x.begin() + o * length * width, x.begin() + (o + 1) * length * width);
  }
  return y;
}

namespace {

// An input as [batch, heads, length, width], whichever of its two spellings it has.
struct Heads {
  int64_t batch = 0, heads = 0, length = 0, width = 0;
  std::vector<double> x;
};

Heads HeadsOf(OpCall& c, int i, int64_t heads) {
  Heads out;
  const Shape& shape = c.In(i).shape();
  out.x = c.Doubles(i);
  if (!c.ok()) return out;
  if (shape.size() == 4) {
    out.batch = shape[0], out.heads = shape[1], out.length = shape[2], out.width = shape[3];
  } else if (shape.size() == 3 && heads > 0 && shape[2] % heads == 0) {
    out.batch = shape[0], out.heads = heads, out.length = shape[1], out.width = shape[2] / heads;
    out.x = SplitHeads(out.x, out.batch, out.length, heads, out.width);
  } else {
    c.Fail(
        "its inputs are neither [batch, heads, length, width] nor [batch, length, heads * width] with a "
        "number of heads");
  }
  return out;
}

void AppendPast(OpCall& c, Heads& now, int past) {
  const Shape& shape = c.In(past).shape();
  ONNX_EXPECT(c, shape.size() == 4 && shape[0] == now.batch && shape[1] == now.heads && shape[3] == now.width,
              "a past does not fit what is appended to it");
  now.x = Appended(c.Doubles(past), now.x, now.batch * now.heads, shape[2], now.length, now.width);
  now.length += shape[2];
}

// The mask: bool hides where false, numbers are added. Keys beyond its last axis are hidden.
void AddMask(OpCall& c, AttentionSpec& spec) {
  const AttentionSizes& s = spec.sizes;
  const OnnxTensor& mask = c.In(3);
  const bool hides = mask.type() == ElementType::kBool;
  Shape shape = mask.shape();
  ONNX_EXPECT(c, !shape.empty() && shape.back() <= s.keys, "the mask has more keys than there are");
  const int64_t given = shape.back();
  std::vector<double> values = c.Doubles(3), padded;
  Shape stretched = shape;
  stretched.back() = s.keys;
  ONNX_EXPECT(c, c.Affordable(stretched), "");
  ONNX_EXPECT(c, true, "");
  const int64_t rows = ElementCount(Shape(shape.begin(), shape.end() - 1));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t j = 0; j < s.keys; ++j) {
      const double v = j < given ? values[row * given + j] : hides ? 0 : kHidden;
      padded.push_back(!hides ? v : v != 0 ? 0 : kHidden);
    }
  }
  shape.back() = s.keys;
  const Shape scores = {s.batch, s.heads, s.queries, s.keys};
  ONNX_EXPECT(c, BroadcastsTo(shape, scores), "the mask does not broadcast to [batch, heads, queries, keys]");
  const std::vector<int64_t> at = BroadcastPlaces(shape, scores);
  for (size_t k = 0; k < at.size(); ++k) spec.bias[k] += padded[at[k]];
}

// What a query may see by position: it stands `offset` keys behind the first.
struct Window {
  bool causal = false;
  int64_t left = -1, right = -1;
  std::vector<int64_t> offset;  // of each in the batch
  std::vector<int64_t> length;  // keys that count, of each in the batch; empty: all
};

void AddWindow(AttentionSpec& spec, const Window& w) {
  const AttentionSizes& s = spec.sizes;
  int64_t k = 0;
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      for (int64_t i = 0; i < s.queries; ++i) {
        const int64_t p = i + w.offset[b];
        for (int64_t j = 0; j < s.keys; ++j, ++k) {
          const bool hidden = (w.causal && j > p) || (w.left >= 0 && p - j > w.left) ||
                              (w.right >= 0 && j - p > w.right) || (!w.length.empty() && j >= w.length[b]);
          if (hidden) spec.bias[k] = kHidden;
        }
      }
    }
  }
}

void Attention(OpCall& c) {
  ONNX_EXPECT(c, c.Has(1) && c.Has(2), "has no key or no value");
  const ElementType type = c.In(0).type();
  ONNX_EXPECT(c, IsFloatingElement(type), "takes floating numbers");
  const int64_t kv_heads = HeadCount(c, "kv_num_heads");
  const Heads q = HeadsOf(c, 0, HeadCount(c, "q_num_heads"));
  Heads k = HeadsOf(c, 1, kv_heads), v = HeadsOf(c, 2, kv_heads);
  ONNX_EXPECT(c,
              q.batch == k.batch && k.batch == v.batch && k.heads == v.heads && k.length == v.length &&
                  q.width == k.width,
              "queries, keys and values do not fit each other");
  ONNX_EXPECT(c, k.heads > 0 && q.heads % k.heads == 0, "the heads are no multiple of the key heads");
  ONNX_EXPECT(c, c.Has(4) == c.Has(5), "has a past of one of keys and values");
  const int64_t before = c.Has(4) ? (c.In(4).rank() == 4 ? c.In(4).dim(2) : 0) : 0;
  if (c.Has(4)) AppendPast(c, k, 4);
  if (c.Has(5)) AppendPast(c, v, 5);
  ONNX_EXPECT(c, k.length == v.length, "the pasts of keys and values differ in length");
  AttentionSpec spec;
  spec.sizes = {q.batch, q.heads, k.heads, q.length, k.length, q.width, v.width};
  // The scale is applied as its root to both sides, each rounded to the inputs' type.
  const double root =
      RoundedTo(type, std::sqrt(c.Float("scale", 1 / std::sqrt(static_cast<double>(q.width)))));
  const auto scaled = [&](const std::vector<double>& x) {
    std::vector<double> y;
    for (const double v : x) y.push_back(RoundedTo(type, v * root));
    return y;
  };
  spec.softcap = c.Float("softcap", 0);
  spec.score_type = type;
  const int64_t precision = c.Int("softmax_precision", static_cast<int64_t>(type));
  spec.softmax_type = ElementTypeFromCode(precision).value_or(type);
  ONNX_EXPECT(c, IsFloatingElement(spec.softmax_type), "softmax_precision is no floating type");
  spec.keep = c.Wants(3) ? c.Int("qk_matmul_output_mode", 0) : -1;
  ONNX_EXPECT(c, spec.keep <= 3, "qk_matmul_output_mode is not 0 to 3");
  const Shape scores = {q.batch, q.heads, q.length, k.length};
  ONNX_EXPECT(c, c.Affordable(scores), "");
  Window window{
      c.Int("is_causal", 0) != 0, c.Int("left_window_size", -1), c.Int("right_window_size", -1), {}, {}};
  window.offset.assign(static_cast<size_t>(q.batch), before);
  if (c.Has(6)) {
    ONNX_EXPECT(c, !c.Has(4), "has a past and lengths of a cache");
    window.length = c.Ints(6);
    ONNX_EXPECT(c, static_cast<int64_t>(window.length.size()) == q.batch,
                "lengths are not one for each of the batch");
    for (size_t b = 0; b < window.length.size(); ++b) window.offset[b] = window.length[b] - q.length;
  }
  spec.bias.assign(static_cast<size_t>(ElementCount(scores)), 0);
  if (c.Has(3)) AddMask(c, spec);
  ONNX_EXPECT(c, true, "");
  AddWindow(spec, window);
  AttentionResult result = AttentionOf(c, spec, scaled(q.x), scaled(k.x), v.x);
  ONNX_EXPECT(c, true, "");
  Shape shape = {q.batch, q.heads, q.length, v.width};
  if (c.In(0).rank() == 3) {
    result.y = JoinHeads(result.y, q.batch, q.length, q.heads, v.width);
    shape = {q.batch, q.length, q.heads * v.width};
  }
  c.Out(0, TensorOf<double>(type, shape, result.y));
  c.Out(1, TensorOf<double>(c.In(1).type(), {k.batch, k.heads, k.length, k.width}, k.x));
  c.Out(2, TensorOf<double>(c.In(2).type(), {v.batch, v.heads, v.length, v.width}, v.x));
  if (spec.keep >= 0) c.Out(3, TensorOf<double>(type, scores, result.scores));
}

void RotaryEmbedding(OpCall& c) {
  const OnnxTensor& x = c.In(0);
  const bool four = x.rank() == 4;
  const int64_t heads = four ? x.dim(1) : HeadCount(c, "num_heads");
  Heads h = HeadsOf(c, 0, heads);
  std::vector<double> cosine = c.Doubles(1), sine = c.Doubles(2);
  ONNX_EXPECT(c, c.In(1).shape() == c.In(2).shape() && c.In(1).rank() == (c.Has(3) ? 2 : 3),
              "its caches do not fit");
  const int64_t given = c.Int("rotary_embedding_dim", 0), rotated = given == 0 ? h.width : given,
                half = rotated / 2;
  ONNX_EXPECT(c, rotated > 0 && rotated % 2 == 0 && rotated <= h.width && c.In(1).shape().back() == half,
              "the caches' width is not half of what is rotated");
  std::vector<int64_t> at = Counted(h.batch * h.length);
  if (c.Has(3)) {
    at = c.Ints(3);
    ONNX_EXPECT(c, static_cast<int64_t>(at.size()) == h.batch * h.length,
                "positions are not one for each token");
  }
  for (const int64_t p : at)
    ONNX_EXPECT(c, p >= 0 && (p + 1) * half <= static_cast<int64_t>(cosine.size()),
                "a position lies beyond the caches");
  const bool interleaved = c.Int("interleaved", 0) != 0;
  for (int64_t line = 0; line < h.batch * h.heads * h.length; ++line) {
    const int64_t t = line % h.length, b = line / (h.length * h.heads);
    double* row = h.x.data() + line * h.width;
    for (int64_t d = 0; d < half; ++d) {
      double& u = row[interleaved ? 2 * d : d];
      double& w = row[interleaved ? 2 * d + 1 : d + half];
      const double cs = cosine[at[b * h.length + t] * half + d], sn = sine[at[b * h.length + t] * half + d];
      const double real = cs * u - sn * w, imaginary = sn * u + cs * w;
      u = real;
      w = imaginary;
    }
  }
  if (!four) h.x = JoinHeads(h.x, h.batch, h.length, h.heads, h.width);
  c.Out(0, TensorOf<double>(x.type(), x.shape(), h.x));
}

constexpr KernelRow kRows[] = {{"Attention", Attention}, {"RotaryEmbedding", RotaryEmbedding}};

}  // namespace

absl::Span<const KernelRow> AttentionKernels() { return kRows; }

}  // namespace twinforge
