// Sequence mixers beside attention, and products in other notations.
#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "onnx/kernels/attention.h"
#include "onnx/kernels/kernel.h"
#include "onnx/kernels/matmul.h"
#include "onnx/kernels/places.h"

namespace twinforge {
namespace {

double Silu(double x) { return x / (1 + std::exp(-x)); }

struct LinearSizes {
  int64_t batch, time, heads, kv_heads, width, v_width;
};

// A state [width, v_width] for each key head: faded by exp(decay), then told key and value.
void LinearAttention(OpCall& c) {
  const std::string rule = c.Str("update_rule", "gated_delta");
  const bool gated = rule == "gated" || rule == "gated_delta",
             delta = rule == "delta" || rule == "gated_delta";
  ONNX_EXPECT(c, gated || delta || rule == "linear", "knows no such update_rule");
  for (int i = 0; i < 3; ++i)
    ONNX_EXPECT(c, c.Has(i) && c.In(i).rank() == 3, "takes [batch, time, heads * width]");
  LinearSizes s{
      c.In(0).dim(0), c.In(0).dim(1), HeadCount(c, "q_num_heads"), HeadCount(c, "kv_num_heads"), 0, 0};
  ONNX_EXPECT(c, s.heads > 0 && s.kv_heads > 0 && s.heads % s.kv_heads == 0,
              "the heads are no multiple of the key heads");
  s.width = c.In(0).dim(2) / s.heads;
  s.v_width = c.In(2).dim(2) / s.kv_heads;
  ONNX_EXPECT(c,
              c.In(0).dim(2) == s.heads * s.width &&
                  c.In(1).shape() == Shape({s.batch, s.time, s.kv_heads * s.width}) &&
                  c.In(2).shape() == Shape({s.batch, s.time, s.kv_heads * s.v_width}),
              "queries, keys and values do not fit");
  const std::vector<double> q = c.Doubles(0), k = c.Doubles(1), v = c.Doubles(2);
  const Shape state_shape = {s.batch, s.kv_heads, s.width, s.v_width};
  ONNX_EXPECT(c,
              c.Affordable(state_shape) && c.Spend(4.0 * static_cast<double>(s.batch * s.time * s.heads) *
                                                   static_cast<double>(s.width * s.v_width)),
              "");
  std::vector<double> state(static_cast<size_t>(ElementCount(state_shape)), 0);
  if (c.Has(3)) state = c.Doubles(3);
  ONNX_EXPECT(c, !c.Has(3) || c.In(3).shape() == state_shape, "the past state does not fit");
  ONNX_EXPECT(c, (!gated || c.Has(4)) && (!delta || c.Has(5)), "lacks decay or beta");
  const std::vector<double> decay = gated ? c.Doubles(4) : std::vector<double>(),
                            beta = delta ? c.Doubles(5) : std::vector<double>();
  const int64_t tokens = s.batch * s.time, decay_width = gated && tokens > 0 ? c.In(4).count() / tokens : 0,
                beta_width = delta && tokens > 0 ? c.In(5).count() / tokens : 0;
  ONNX_EXPECT(c, tokens == 0 || !gated || decay_width == s.kv_heads || decay_width == s.kv_heads * s.width,
              "the decay does not fit");
  ONNX_EXPECT(c, tokens == 0 || !delta || beta_width == s.kv_heads || beta_width == 1, "beta does not fit");
  double scale = c.Float("scale", 0);
  if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(s.width));
  std::vector<double> y(static_cast<size_t>(tokens * s.heads * s.v_width));
  for (int64_t line = 0; line < s.batch * s.kv_heads; ++line) {
    const int64_t b = line / s.kv_heads, h = line % s.kv_heads, group = s.heads / s.kv_heads;
    double* at = state.data() + line * s.width * s.v_width;
    for (int64_t t = b * s.time; t < (b + 1) * s.time; ++t) {
      const double *key = k.data() + (t * s.kv_heads + h) * s.width,
                   *value = v.data() + (t * s.kv_heads + h) * s.v_width;
      const double rate = delta ? beta[t * beta_width + (beta_width == 1 ? 0 : h)] : 1;
      for (int64_t i = 0; gated && i < s.width; ++i) {
        const double fade =
            std::exp(decay[t * decay_width + (decay_width == s.kv_heads ? h : h * s.width + i)]);
        for (int64_t j = 0; j < s.v_width; ++j) at[i * s.v_width + j] *= fade;
      }
      std::vector<double> told(value, value + s.v_width);
      for (int64_t i = 0; delta && i < s.width; ++i) {
        for (int64_t j = 0; j < s.v_width; ++j) told[j] -= at[i * s.v_width + j] * key[i];
      }
      for (int64_t i = 0; i < s.width; ++i) {
        for (int64_t j = 0; j < s.v_width; ++j) at[i * s.v_width + j] += rate * key[i] * told[j];
      }
      for (int64_t g = h * group; g < (h + 1) * group; ++g) {
        const double* query = q.data() + (t * s.heads + g) * s.width;
        double* to = y.data() + (t * s.heads + g) * s.v_width;
        for (int64_t i = 0; i < s.width; ++i) {
          for (int64_t j = 0; j < s.v_width; ++j) to[j] += scale * query[i] * at[i * s.v_width + j];
        }
      }
    }
  }
  c.Out(0, TensorOf<double>(c.In(0).type(), {s.batch, s.time, s.heads * s.v_width}, y));
  c.Out(1, TensorOf<double>(c.Has(3) ? c.In(3).type() : c.In(0).type(), state_shape, state));
}

// Each channel with its own taps over what came before; the last of them are carried on.
void CausalConvWithState(OpCall& c) {
  const Shape &xs = c.In(0).shape(), &ws = c.In(1).shape();
  const std::string activation = c.Str("activation", "none");
  const bool silu = activation == "silu" || activation == "swish";
  ONNX_EXPECT(c, xs.size() == 3 && ws.size() == 3 && ws[0] == xs[1] && ws[1] == 1 && ws[2] >= 1,
              "takes [batch, channels, length] and [channels, 1, taps]");
  ONNX_EXPECT(c, silu || activation == "none", "knows no such activation");
  const int64_t lines = xs[0] * xs[1], length = xs[2], taps = ws[2];
  const Shape state_shape = {xs[0], xs[1], taps - 1};
  const std::vector<double> x = c.Doubles(0), w = c.Doubles(1),
                            bias =
                                c.Has(2) ? c.Doubles(2) : std::vector<double>(static_cast<size_t>(xs[1]), 0);
  ONNX_EXPECT(c, static_cast<int64_t>(bias.size()) == xs[1] && (!c.Has(3) || c.In(3).shape() == state_shape),
              "bias or past state do not fit");
  ONNX_EXPECT(c, c.Affordable(state_shape) && c.Affordable({lines, length + taps}), "");
  const std::vector<double> past =
      c.Has(3) ? c.Doubles(3) : std::vector<double>(static_cast<size_t>(ElementCount(state_shape)), 0);
  ONNX_EXPECT(c, c.Spend(static_cast<double>(lines) * static_cast<double>(length * taps)), "");
  const std::vector<double> all = Appended(past, x, lines, taps - 1, length, 1);
  std::vector<double> y, state;
  for (int64_t line = 0; line < lines; ++line) {
    const double* row = all.data() + line * (length + taps - 1);
    for (int64_t t = 0; t < length; ++t) {
      double sum = bias[line % xs[1]];
      for (int64_t k = 0; k < taps; ++k) sum += row[t + k] * w[line % xs[1] * taps + k];
      y.push_back(silu ? Silu(sum) : sum);
    }
    state.insert(state.end(), row + length, row + length + taps - 1);
  }
  c.Out(0, TensorOf<double>(c.In(0).type(), xs, y));
  c.Out(1, TensorOf<double>(c.In(0).type(), state_shape, state));
}

// Attention whose scores and probabilities pass through subgraphs.
void FlexAttention(OpCall& c) {
  for (int i = 0; i < 3; ++i)
    ONNX_EXPECT(c, c.Has(i) && c.In(i).rank() == 4, "takes [batch, heads, length, width]");
  const Shape q = c.In(0).shape(), k = c.In(1).shape(), v = c.In(2).shape();
  ONNX_EXPECT(c,
              q[0] == k[0] && q[0] == v[0] && k[1] == v[1] && k[2] == v[2] && q[3] == k[3] && k[1] > 0 &&
                  q[1] % k[1] == 0,
              "queries, keys and values do not fit");
  const ElementType type = c.In(0).type();
  const ElementType inside =
      ElementTypeFromCode(c.Int("softmax_precision", type == ElementType::kDouble ? 11 : 1))
          .value_or(ElementType::kFloat);
  ONNX_EXPECT(c, IsFloatingElement(inside), "softmax_precision is no floating type");
  const double root = RoundedTo(type, std::sqrt(c.Float("scale", 1 / std::sqrt(static_cast<double>(q[3])))));
  AttentionSpec spec;
  spec.sizes = {q[0], q[1], k[1], q[2], k[2], q[3], v[3]};
  spec.scale = root * root;
  spec.keep = 0;
  const std::vector<double> values = c.Doubles(2);
  const AttentionResult plain = AttentionOf(c, spec, c.Doubles(0), c.Doubles(1), values);
  ONNX_EXPECT(c, true, "");
  const Shape shape = {q[0], q[1], q[2], k[2]};
  const auto modified = [&](const char* body, OnnxTensor x) {
    if (c.Body(body) == nullptr) return x;
    std::vector<OnnxValue> out = c.RunBody(body, {x});
    if (c.ok() && (out.size() != 1 || !out[0].is_tensor() || out[0].tensor().shape() != shape ||
                   out[0].tensor().is_string()))
      c.Fail("a subgraph changes the shape");
    return c.ok() ? out[0].tensor() : x;
  };
  std::vector<double> p =
      Elements<double>(modified("score_mod", TensorOf<double>(inside, shape, plain.scores)));
  ONNX_EXPECT(c, true, "");
  for (int64_t line = 0; line < q[0] * q[1] * q[2]; ++line) {
    double* row = p.data() + line * k[2];
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < k[2]; ++j) most = std::max(most, row[j]);
    for (int64_t j = 0; j < k[2]; ++j) sum += row[j] = std::exp(row[j] - most);
    for (int64_t j = 0; j < k[2]; ++j) row[j] /= sum;
  }
  p = Elements<double>(modified("prob_mod", TensorOf<double>(inside, shape, p)));
  ONNX_EXPECT(c, true, "");
  std::vector<double> y(static_cast<size_t>(q[0] * q[1] * q[2] * v[3]));
  for (int64_t bh = 0; bh < q[0] * q[1]; ++bh) {
    const int64_t kv = bh / q[1] * k[1] + bh % q[1] / (q[1] / k[1]);
    MultiplyInto(p.data() + bh * q[2] * k[2], values.data() + kv * k[2] * v[3], y.data() + bh * q[2] * v[3],
                 q[2], k[2], v[3]);
  }
  c.Out(0, TensorOf<double>(c.In(2).type(), {q[0], q[1], q[2], v[3]}, y));
}

void SwiGlu(OpCall& c) {
  const double alpha = c.Float("alpha", 1);
  ONNX_EXPECT(c, c.In(0).shape() == c.In(1).shape() && c.In(0).type() == c.In(1).type(),
              "its inputs differ in shape or type");
  std::vector<double> a = c.Doubles(0);
  const std::vector<double> b = c.Doubles(1);
  ONNX_EXPECT(c, true, "");
  for (size_t k = 0; k < a.size(); ++k) a[k] = a[k] / (1 + std::exp(-alpha * a[k])) * b[k];
  c.Out(0, TensorOf<double>(c.In(0).type(), c.In(0).shape(), a));
}

// ---- products in other notations

// Labels of each term, "..." written out as capital digits of its axes; the last entry is the result's.
std::vector<std::vector<std::string>> LabelsOf(OpCall& c, const std::string& equation) {
  const std::string text = absl::StrReplaceAll(equation, {{" ", ""}});
  const std::vector<std::string> sides = absl::StrSplit(text, "->");
  std::vector<std::string> terms = absl::StrSplit(sides[0], ',');
  std::vector<std::vector<std::string>> labels;
  std::map<std::string, int> times;
  int64_t widest = 0;
  if (static_cast<int>(terms.size()) != c.inputs() || sides.size() > 2)
    return c.Fail("its equation does not fit the inputs"), labels;
  const auto split = [](const std::string& term, int64_t hidden, int64_t all) {
    std::vector<std::string> out;
    for (size_t i = 0; i < term.size(); ++i) {
      if (term.compare(i, 3, "...") == 0) {
        for (int64_t d = all - hidden; d < all; ++d) out.push_back("." + std::to_string(d));
        i += 2;
      } else {
        out.push_back(std::string(1, term[i]));
      }
    }
    return out;
  };
  std::vector<int64_t> hidden;
  for (size_t t = 0; t < terms.size(); ++t) {
    const bool dots = terms[t].find("...") != std::string::npos;
    hidden.push_back(dots ? c.In(static_cast<int>(t)).rank() - static_cast<int64_t>(terms[t].size()) + 3 : 0);
    if (hidden.back() < 0) return c.Fail("a term has more labels than its input axes"), labels;
    widest = std::max(widest, hidden.back());
  }
  for (size_t t = 0; t < terms.size(); ++t) {
    labels.push_back(split(terms[t], hidden[t], widest));
    for (const std::string& label : labels.back()) ++times[label];
  }
  std::vector<std::string> result;
  if (sides.size() == 2) {
    result = split(sides[1], widest, widest);
  } else {  // all that occur once, in order, behind the axes of "..."
    for (int64_t d = 0; d < widest; ++d) result.push_back("." + std::to_string(d));
    for (const auto& [label, count] : times) {
      if (count == 1 && label[0] != '.') result.push_back(label);
    }
  }
  labels.push_back(result);
  return labels;
}

// Sums over all labels that the result has not, one product for each combination.
void Einsum(OpCall& c) {
  const std::vector<std::vector<std::string>> labels = LabelsOf(c, c.Str("equation", ""));
  ONNX_EXPECT(c, !labels.empty(), "has no equation");
  std::map<std::string, int64_t> size;
  for (int t = 0; t < c.inputs(); ++t) {
    ONNX_EXPECT(c,
                c.In(t).rank() == static_cast<int64_t>(labels[t].size()) && c.In(t).type() == c.In(0).type(),
                "a term does not fit its input");
    for (size_t d = 0; d < labels[t].size(); ++d) {
      int64_t& known = size.emplace(labels[t][d], 1).first->second;
      const int64_t extent = c.In(t).shape()[d];
      ONNX_EXPECT(c, known == 1 || extent == 1 || known == extent, "a label has two extents");
      if (known == 1) known = extent;
    }
  }
  std::vector<std::string> order = labels.back();
  Shape shape, all;
  for (const std::string& label : order) {
    ONNX_EXPECT(c, size.count(label) != 0, "the result has a label of no input");
    shape.push_back(size[label]);
  }
  for (const auto& [label, extent] : size) {
    if (std::find(order.begin(), order.end(), label) == order.end()) order.push_back(label);
  }
  double work = c.inputs();
  for (const std::string& label : order) {
    all.push_back(size[label]);
    work *= static_cast<double>(size[label]);
  }
  ONNX_EXPECT(c, c.Affordable(shape) && c.Affordable(all) && c.Spend(work), "");
  const auto strides_of = [&](const std::vector<std::string>& own, const Shape& extents) {
    const std::vector<int64_t> strides = Strides(extents);
    std::vector<int64_t> by_label(order.size(), 0);
    for (size_t d = 0; d < own.size(); ++d) {
      const size_t at = static_cast<size_t>(std::find(order.begin(), order.end(), own[d]) - order.begin());
      if (extents[d] != 1) by_label[at] += strides[d];
    }
    return by_label;
  };
  const std::vector<int64_t> to = StridedPlaces(all, strides_of(labels.back(), shape), 0);
  const bool numbers = WithCarrier(c.In(0).type(), [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> terms(to.size(), T{1}), y(static_cast<size_t>(ElementCount(shape)), T{0});
    for (int t = 0; t < c.inputs(); ++t) {
      const std::vector<T> x = Elements<T>(c.In(t));
      const std::vector<int64_t> from = StridedPlaces(all, strides_of(labels[t], c.In(t).shape()), 0);
      for (size_t k = 0; k < terms.size(); ++k) terms[k] *= x[from[k]];
    }
    for (size_t k = 0; k < terms.size(); ++k) y[to[k]] += terms[k];
    c.Out(0, TensorOf<T>(c.In(0).type(), shape, y));
  });
  ONNX_EXPECT(c, numbers, "takes numbers");
}

double Determinant(std::vector<double> a, int64_t n) {
  double det = 1;
  for (int64_t i = 0; i < n; ++i) {
    int64_t pivot = i;
    for (int64_t r = i + 1; r < n; ++r) {
      if (std::fabs(a[r * n + i]) > std::fabs(a[pivot * n + i])) pivot = r;
    }
    if (a[pivot * n + i] == 0) return 0;
    if (pivot != i) {
      std::swap_ranges(a.begin() + i * n, a.begin() + (i + 1) * n, a.begin() + pivot * n);
      det = -det;
    }
    det *= a[i * n + i];
    for (int64_t r = i + 1; r < n; ++r) {
      const double factor = a[r * n + i] / a[i * n + i];
      for (int64_t k = i; k < n; ++k) a[r * n + k] -= factor * a[i * n + k];
    }
  }
  return det;
}

void Det(OpCall& c) {
  const Shape& x = c.In(0).shape();
  ONNX_EXPECT(c, x.size() >= 2 && x[x.size() - 1] == x[x.size() - 2], "takes square matrices");
  const std::vector<double> v = c.Doubles(0);
  const Shape shape(x.begin(), x.end() - 2);
  const int64_t n = x.back();
  ONNX_EXPECT(c, c.Spend(static_cast<double>(v.size()) * static_cast<double>(n)), "");
  std::vector<double> y;
  for (int64_t k = 0; k < ElementCount(shape); ++k)
    y.push_back(Determinant({v.begin() + k * n * n, v.begin() + (k + 1) * n * n}, n));
  c.Out(0, TensorOf<double>(c.In(0).type(), shape, y));
}

constexpr KernelRow kRows[] = {
    {"LinearAttention", LinearAttention},
    {"CausalConvWithState", CausalConvWithState},
    {"FlexAttention", FlexAttention, false, "ai.onnx.preview"},
    {"SwiGLU", SwiGlu},
    {"Einsum", Einsum},
    {"Det", Det},
};

}  // namespace

absl::Span<const KernelRow> MixerKernels() { return kRows; }

}  // namespace twinforge
