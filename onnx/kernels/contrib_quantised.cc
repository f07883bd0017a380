// com.microsoft: products with packed weights, and mixtures of experts.
#include <algorithm>
#include <cmath>

#include "onnx/kernels/kernel.h"
#include "onnx/kernels/matmul.h"
#include "onnx/kernels/places.h"
#include "onnx/tensor.h"

namespace twinforge {
namespace {

// Number `i` of a row of packed bytes, the first in the low bits.
int64_t CodeAt(const std::vector<int64_t>& bytes, int64_t row_start, int64_t i, int64_t bits) {
  const int64_t per_byte = 8 / bits;
  return bytes[row_start + i / per_byte] >> (i % per_byte * bits) & ((int64_t{1} << bits) - 1);
}

bool IsPackable(int64_t bits) { return bits == 2 || bits == 4 || bits == 8; }

// a [.., K] times the transpose of a weight [N, K] in blocks of `block_size` numbers, each with scale and
// zero.
void MatMulNBits(OpCall& c) {
  const int64_t k = c.Int("K", 0), n = c.Int("N", 0), bits = c.Int("bits", 4), block = c.Int("block_size", 0);
  ONNX_EXPECT(
      c,
      k > 0 && n > 0 && IsPackable(bits) && block >= 16 && (block & (block - 1)) == 0 && block <= (1 << 20),
      "K, N, bits or block_size do not fit");
  if (c.Int("weight_prepacked", 0) != 0 || (c.Has(4) && c.In(4).count() > 0))
    return c.Refuse("prepacked weights and g_idx have no meaning here");
  const int64_t blocks = (k + block - 1) / block, row_bytes = blocks * block * bits / 8,
                zero_bytes = (blocks * bits + 7) / 8;
  ONNX_EXPECT(
      c, c.Affordable({n, k}) && c.In(1).type() == ElementType::kUint8 && c.In(1).count() == n * row_bytes,
      "the packed weight does not fit");
  ONNX_EXPECT(c, c.In(2).count() == n * blocks, "the scales are not one for each block");
  const std::vector<int64_t> packed = c.Ints(1);
  const std::vector<double> scales = c.Doubles(2);
  const bool floats = c.Has(3) && IsFloatingElement(c.In(3).type());
  ONNX_EXPECT(c, !c.Has(3) || c.In(3).count() == n * (floats ? blocks : zero_bytes),
              "the zero points are not one for each block");
  const std::vector<int64_t> zeros = c.Has(3) && !floats ? c.Ints(3) : std::vector<int64_t>();
  const std::vector<double> zero_numbers = floats ? c.Doubles(3) : std::vector<double>();
  ONNX_EXPECT(c, true, "");
  std::vector<double> weight(static_cast<size_t>(k * n));  // [K, N]
  for (int64_t row = 0; row < n; ++row) {
    for (int64_t i = 0; i < k; ++i) {
      const int64_t b = i / block;
      double zero = static_cast<double>(int64_t{1} << (bits - 1));
      if (floats) zero = zero_numbers[row * blocks + b];
      if (!zeros.empty()) zero = static_cast<double>(CodeAt(zeros, row * zero_bytes, b, bits));
      weight[i * n + row] =
          (static_cast<double>(CodeAt(packed, row * row_bytes, i, bits)) - zero) * scales[row * blocks + b];
    }
  }
  Product<double> y = MatmulOf<double>(c, c.In(0).shape(), c.Doubles(0), {k, n}, weight);
  ONNX_EXPECT(c, true, "");
  if (c.Has(5)) {
    const std::vector<double> bias = c.Doubles(5);
    ONNX_EXPECT(c, static_cast<int64_t>(bias.size()) == n, "the bias is not one for each column");
    for (size_t i = 0; i < y.values.size(); ++i) y.values[i] += bias[static_cast<int64_t>(i) % n];
  }
  c.Out(0, TensorOf<double>(c.In(0).type(), y.shape, y.values));
}

// One linear layer of all experts: rows [experts, out, in], and a bias.
struct ExpertLayer {
  int64_t experts = 0, out = 0, in = 0;
  std::vector<double> weight, bias;

  std::vector<double> operator()(int64_t expert, const std::vector<double>& x) const {
    std::vector<double> y(static_cast<size_t>(out));
    for (int64_t o = 0; o < out; ++o) {
      const double* row = weight.data() + (expert * out + o) * in;
      y[o] = bias.empty() ? 0 : bias[expert * out + o];
      for (int64_t i = 0; i < in; ++i) y[o] += row[i] * x[i];
    }
    return y;
  }
};

void ReadBias(OpCall& c, int at, ExpertLayer& layer) {
  if (!c.Has(at)) return;
  layer.bias = c.Doubles(at);
  if (static_cast<int64_t>(layer.bias.size()) != layer.experts * layer.out)
    c.Fail("a bias does not fit its experts");
}

ExpertLayer PlainLayer(OpCall& c, int weight_at, int bias_at) {
  ExpertLayer layer;
  if (!c.Has(weight_at)) return layer;
  const Shape& s = c.In(weight_at).shape();
  if (s.size() != 3) c.Fail("weights of experts have not three axes");
  if (!c.ok()) return layer;
  layer = {s[0], s[1], s[2], c.Doubles(weight_at), {}};
  ReadBias(c, bias_at, layer);
  return layer;
}

// Weights of `bits` bits with a scale for each row or each block of a row; zero is the middle of the range.
ExpertLayer PackedLayer(OpCall& c, int weight_at, int scale_at, int bias_at, int zero_at, int64_t bits,
                        int64_t block) {
  ExpertLayer layer;
  if (!c.Has(weight_at)) return layer;
  const Shape& s = c.In(weight_at).shape();
  if (s.size() != 3 || c.In(weight_at).type() != ElementType::kUint8 || !c.Has(scale_at))
    c.Fail("packed weights of experts do not fit");
  if (!c.ok()) return layer;
  layer = {s[0], s[1], s[2] * (8 / bits), {}, {}};
  const std::vector<int64_t> packed = c.Ints(weight_at);
  const std::vector<double> scales = c.Doubles(scale_at);
  const int64_t rows = layer.experts * layer.out, blocks = block > 0 ? (layer.in + block - 1) / block : 1,
                size = block > 0 ? block : layer.in;
  const int64_t zero_bytes = (blocks * bits + 7) / 8;
  if (static_cast<int64_t>(scales.size()) != rows * blocks)
    c.Fail("scales are not one for each row or block");
  const std::vector<int64_t> zeros = c.Has(zero_at) ? c.Ints(zero_at) : std::vector<int64_t>();
  if (!zeros.empty() && static_cast<int64_t>(zeros.size()) != rows * zero_bytes)
    c.Refuse("zero points in this shape have no meaning here");
  if (!c.ok() || !c.Affordable({rows, layer.in})) return layer;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < layer.in; ++i) {
      const int64_t b = i / size, zero = zeros.empty() ? int64_t{1} << (bits - 1)
                                                       : CodeAt(zeros, row * zero_bytes, b, bits);
      layer.weight.push_back(static_cast<double>(CodeAt(packed, row * s[2], i, bits) - zero) *
                             scales[row * blocks + b]);
    }
  }
  ReadBias(c, bias_at, layer);
  return layer;
}

// How gate and value lie in the first layer's output, and what becomes of them.
struct ExpertAct {
  std::string name;
  int64_t fusion = 0;  // 0 apart (a third layer), 1 alternating, 2 one half after the other
  double alpha = 1, beta = 0, limit = 0;
  bool limited = false;
};

double Activated(const ExpertAct& act, double x) {
  if (act.name == "relu") return x > 0 ? x : 0;
  if (act.name == "gelu") return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  if (act.name == "silu") return x / (1 + std::exp(-x));
  return x;
}

std::vector<double> SwiGlu(const ExpertAct& act, const std::vector<double>& x) {
  const size_t half = x.size() / 2;
  std::vector<double> y(half);
  for (size_t i = 0; i < half; ++i) {
    double gate = act.fusion == 1 ? x[2 * i] : x[i], linear = act.fusion == 1 ? x[2 * i + 1] : x[i + half];
    if (act.limited) {
      gate = std::min(gate, act.limit);
      linear = std::clamp(linear, -act.limit, act.limit);
    }
    y[i] = gate / (1 + std::exp(-act.alpha * gate)) * (linear + act.beta);
  }
  return y;
}

// Softmax over all experts, then the k largest; `normalise`: these again to a sum of 1.
std::vector<std::pair<int64_t, double>> Chosen(const double* logits, int64_t experts, int64_t k,
                                               bool normalise) {
  double most = logits[0], sum = 0, kept = 0;
  for (int64_t e = 0; e < experts; ++e) most = std::max(most, logits[e]);
  for (int64_t e = 0; e < experts; ++e) sum += std::exp(logits[e] - most);
  std::vector<std::pair<int64_t, double>> all;
  for (int64_t e = 0; e < experts; ++e) all.emplace_back(e, std::exp(logits[e] - most) / sum);
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  all.resize(static_cast<size_t>(k));
  for (const auto& [e, weight] : all) kept += weight;
  for (auto& [e, weight] : all) weight = normalise ? weight / kept : weight;
  return all;
}

void Mixture(OpCall& c, const ExpertLayer& fc1, const ExpertLayer& fc2, const ExpertLayer& fc3) {
  ExpertAct act{c.Str("activation_type", "relu"), c.Int("swiglu_fusion", 0),  c.Float("activation_alpha", 1),
                c.Float("activation_beta", 0),    c.Float("swiglu_limit", 0), c.HasAttr("swiglu_limit")};
  const bool fused = act.name == "swiglu", gated = fc3.experts != 0;
  ONNX_EXPECT(
      c, fused || act.name == "relu" || act.name == "gelu" || act.name == "silu" || act.name == "identity",
      "knows no such activation_type");
  if (c.Int("use_sparse_mixer", 0) != 0 || (fused && act.fusion == 0))
    return c.Refuse("use_sparse_mixer and an unfused swiglu have no meaning here");
  const OnnxTensor& x = c.In(0);
  const int64_t experts = fc1.experts, hidden = fc1.in, inter = fused ? fc1.out / 2 : fc1.out,
                k = c.Int("k", 1);
  ONNX_EXPECT(c,
              x.rank() >= 2 && x.shape().back() == hidden && c.In(1).rank() == 2 && c.In(1).dim(1) == experts,
              "input, router and experts do not fit");
  ONNX_EXPECT(c,
              fc2.experts == experts && fc2.in == inter && fc2.out == hidden &&
                  (!gated || (fc3.experts == experts && fc3.in == hidden && fc3.out == inter)),
              "the experts' layers do not fit each other");
  ONNX_EXPECT(c, k >= 1 && k <= experts && c.In(1).dim(0) * hidden == x.count(),
              "k is not within the experts");
  const std::vector<double> tokens = c.Doubles(0), router = c.Doubles(1);
  const bool normalise = c.Int("normalize_routing_weights", 0) != 0;
  const int64_t count = c.In(1).dim(0);
  ONNX_EXPECT(c, c.Spend(3.0 * static_cast<double>(count * k) * static_cast<double>(fc1.out * hidden)), "");
  std::vector<double> y(tokens.size());
  for (int64_t t = 0; t < count; ++t) {
    const std::vector<double> token(tokens.begin() + t * hidden, tokens.begin() + (t + 1) * hidden);
    for (const auto& [expert, weight] : Chosen(router.data() + t * experts, experts, k, normalise)) {
      std::vector<double> inside = fc1(expert, token);
      if (fused) inside = SwiGlu(act, inside);
      for (double& v : inside) v = fused ? v : Activated(act, v);
      if (gated) {
        const std::vector<double> gate = fc3(expert, token);
        for (size_t i = 0; i < inside.size(); ++i) inside[i] *= gate[i];
      }
      const std::vector<double> out = fc2(expert, inside);
      for (int64_t i = 0; i < hidden; ++i) y[t * hidden + i] += weight * out[i];
    }
  }
  c.Out(0, TensorOf<double>(x.type(), x.shape(), y));
}

// input, router, fc1, fc1_bias, fc2, fc2_bias, fc3, fc3_bias.
void Moe(OpCall& c) {
  ONNX_EXPECT(c, c.Has(2) && c.Has(4), "lacks its experts");
  const ExpertLayer fc1 = PlainLayer(c, 2, 3), fc2 = PlainLayer(c, 4, 5), fc3 = PlainLayer(c, 6, 7);
  if (c.ok()) Mixture(c, fc1, fc2, fc3);
}

// input, router, then weight, scales, bias of each layer, then three zero points.
void QMoe(OpCall& c) {
  const int64_t bits = c.Int("expert_weight_bits", 4), block = c.Int("block_size", 0);
  ONNX_EXPECT(c, c.Has(2) && c.Has(5) && IsPackable(bits) && block >= 0, "lacks its experts");
  if (c.Str("quant_type", "int") != "int") return c.Refuse("a quant_type other than int has no meaning here");
  for (int i = 14; i < c.inputs(); ++i) {
    if (c.Has(i)) return c.Refuse("its inputs behind the zero points have no meaning here");
  }
  const ExpertLayer fc1 = PackedLayer(c, 2, 3, 4, 11, bits, block),
                    fc2 = PackedLayer(c, 5, 6, 7, 12, bits, block),
                    fc3 = PackedLayer(c, 8, 9, 10, 13, bits, block);
  if (c.ok()) Mixture(c, fc1, fc2, fc3);
}

constexpr char kMs[] = "com.microsoft";
constexpr KernelRow kRows[] = {
    {"MatMulNBits", MatMulNBits, false, kMs, 3},
    {"MoE", Moe, false, kMs, 3},
    {"QMoE", QMoe, false, kMs, 4},
};

}  // namespace

absl::Span<const KernelRow> ContribQuantisedKernels() { return kRows; }

}  // namespace twinforge
