// com.microsoft: normalisations and activations that exporters of language models write.
#include <cmath>

#include "onnx/kernels/kernel.h"
#include "onnx/kernels/matmul.h"
#include "onnx/kernels/places.h"
#include "onnx/tensor.h"

namespace twinforge {
namespace {

// Lines of `width` numbers brought to mean 0 (where `centred`) and mean square 1, then scaled and shifted.
struct NormalisedLines {
  std::vector<double> y, mean, inverse;
};

NormalisedLines NormaliseLines(OpCall& c, const std::vector<double>& x, int64_t width, double epsilon,
                               bool centred, const std::vector<double>& gamma,
                               const std::vector<double>& beta) {
  NormalisedLines out;
  if (static_cast<int64_t>(gamma.size()) != width || (!beta.empty() && beta.size() != gamma.size())) {
    c.Fail("gamma or beta is not one number for each of the last axis");
    return out;
  }
  out.y = x;
  for (int64_t line = 0; width > 0 && line < static_cast<int64_t>(x.size()) / width; ++line) {
    double* row = out.y.data() + line * width;
    double mean = 0, square = 0;
    for (int64_t i = 0; centred && i < width; ++i) mean += row[i] / static_cast<double>(width);
    for (int64_t i = 0; i < width; ++i)
      square += (row[i] - mean) * (row[i] - mean) / static_cast<double>(width);
    const double inverse = 1 / std::sqrt(square + epsilon);
    for (int64_t i = 0; i < width; ++i)
      row[i] = (row[i] - mean) * inverse * gamma[i] + (beta.empty() ? 0 : beta[i]);
    out.mean.push_back(mean);
    out.inverse.push_back(inverse);
  }
  return out;
}

std::vector<double> DoublesOrNone(OpCall& c, int i) {
  return c.Has(i) ? c.Doubles(i) : std::vector<double>();
}

Shape WithLastOne(Shape shape) {
  if (!shape.empty()) shape.back() = 1;
  return shape;
}

void SimplifiedLayerNormalization(OpCall& c) {
  const OnnxTensor& x = c.In(0);
  const int64_t axis = c.Axis(c.Int("axis", -1), x.rank());
  ONNX_EXPECT(c, x.rank() > 0, "takes no scalar");
  int64_t width = 1;
  Shape statistics = x.shape();
  for (int64_t d = axis; d < x.rank(); ++d) {
    width *= x.dim(d);
    statistics[d] = 1;
  }
  const std::vector<double> ones(static_cast<size_t>(width), 1), gamma = c.Doubles(1);
  NormalisedLines out = NormaliseLines(c, c.Doubles(0), width, c.Float("epsilon", 1e-5f), false, ones, {});
  ONNX_EXPECT(c, BroadcastsTo(c.In(1).shape(), x.shape()), "gamma does not broadcast to the input");
  const std::vector<int64_t> at = BroadcastPlaces(c.In(1).shape(), x.shape());
  for (size_t k = 0; k < at.size(); ++k) out.y[k] *= gamma[at[k]];
  c.Out(0, TensorOf<double>(x.type(), x.shape(), out.y));
  c.Out(1, TensorOf<double>(ElementType::kFloat, statistics, out.inverse));
}

// input + skip (+ bias), normalised; the sum is the fourth output.
void Skip(OpCall& c, bool centred, int bias_at) {
  const OnnxTensor& x = c.In(0);
  ONNX_EXPECT(c, x.rank() >= 2 && BroadcastsTo(c.In(1).shape(), x.shape()),
              "skip does not broadcast to the input");
  std::vector<double> sum = c.Doubles(0);
  const std::vector<double> skip = c.Doubles(1), bias = DoublesOrNone(c, bias_at);
  const int64_t width = x.shape().back();
  ONNX_EXPECT(c, bias.empty() || static_cast<int64_t>(bias.size()) == width,
              "the bias is not one number for each of the last axis");
  const std::vector<int64_t> at = BroadcastPlaces(c.In(1).shape(), x.shape());
  for (size_t k = 0; k < sum.size(); ++k)
    sum[k] += skip[at[k]] + (bias.empty() ? 0 : bias[static_cast<int64_t>(k) % width]);
  const NormalisedLines out = NormaliseLines(c, sum, width, c.Float("epsilon", 1e-12f), centred, c.Doubles(2),
                                             centred ? DoublesOrNone(c, 3) : std::vector<double>());
  ONNX_EXPECT(c, true, "");
  c.Out(0, TensorOf<double>(x.type(), x.shape(), out.y));
  c.Out(1, TensorOf<double>(ElementType::kFloat, WithLastOne(x.shape()), out.mean));
  c.Out(2, TensorOf<double>(ElementType::kFloat, WithLastOne(x.shape()), out.inverse));
  c.Out(3, TensorOf<double>(x.type(), x.shape(), sum));
}
void SkipLayerNormalization(OpCall& c) { Skip(c, true, 4); }
void SkipSimplifiedLayerNormalization(OpCall& c) { Skip(c, false, 3); }

// One row of a table for each id, added to `sum`.
void AddRows(OpCall& c, int table_at, const std::vector<int64_t>& ids, int64_t width,
             std::vector<double>& sum) {
  ONNX_EXPECT(c, c.Has(table_at) && c.In(table_at).rank() == 2 && c.In(table_at).dim(1) == width,
              "a table has another width");
  const std::vector<double> table = c.Doubles(table_at);
  for (size_t t = 0; t < ids.size(); ++t) {
    ONNX_EXPECT(c, ids[t] >= 0 && ids[t] < c.In(table_at).dim(0), "an id is no row of its table");
    for (int64_t i = 0; i < width; ++i) sum[static_cast<int64_t>(t) * width + i] += table[ids[t] * width + i];
  }
}

// ids, segments, three tables, gamma, beta, mask, positions.
void EmbedLayerNormalization(OpCall& c) {
  ONNX_EXPECT(c, c.In(0).rank() == 2 && c.Has(2) && c.Has(3) && c.Has(5) && c.Has(6) && c.In(2).rank() == 2,
              "lacks ids or tables");
  const int64_t batch = c.In(0).dim(0), length = c.In(0).dim(1), width = c.In(2).dim(1);
  std::vector<int64_t> positions;
  for (int64_t t = 0; t < batch * length; ++t) positions.push_back(length == 0 ? 0 : t % length);
  if (c.Has(8)) {
    const std::vector<int64_t> given = c.Ints(8);
    ONNX_EXPECT(
        c,
        static_cast<int64_t>(given.size()) == batch * length || static_cast<int64_t>(given.size()) == length,
        "positions are not one for each token");
    for (size_t t = 0; t < positions.size(); ++t) positions[t] = given[t % given.size()];
  }
  ONNX_EXPECT(c, c.Affordable({batch, length, width}), "");
  std::vector<double> sum(static_cast<size_t>(batch * length * width));
  AddRows(c, 2, c.Ints(0), width, sum);
  if (c.ok()) AddRows(c, 3, positions, width, sum);
  if (c.ok() && c.Has(1)) AddRows(c, 4, c.Ints(1), width, sum);
  ONNX_EXPECT(c, true, "");
  const NormalisedLines out =
      NormaliseLines(c, sum, width, c.Float("epsilon", 1e-12f), true, c.Doubles(5), c.Doubles(6));
  std::vector<int64_t> counts(static_cast<size_t>(batch), 0);
  if (c.Has(7) && c.Int("mask_index_type", 1) != 0) {
    const std::vector<int64_t> mask = c.Ints(7);
    ONNX_EXPECT(c, static_cast<int64_t>(mask.size()) == batch * length,
                "the mask is not one number for each token");
    for (size_t t = 0; t < mask.size(); ++t) counts[static_cast<int64_t>(t) / length] += mask[t] != 0 ? 1 : 0;
  }
  ONNX_EXPECT(c, true, "");
  const ElementType type = c.In(2).type();
  c.Out(0, TensorOf<double>(type, {batch, length, width}, out.y));
  c.Out(1, TensorOf<int64_t>(ElementType::kInt32, {batch}, counts));
  c.Out(2, TensorOf<double>(type, {batch, length, width}, sum));
}

double GeluExact(double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }
double GeluTanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

// f(x + bias), the bias along the last axis.
template <typename F>
void MapBiased(OpCall& c, F&& f) {
  std::vector<double> x = c.Doubles(0);
  const std::vector<double> bias = DoublesOrNone(c, 1);
  ONNX_EXPECT(
      c, bias.empty() || (c.In(0).rank() > 0 && c.In(0).shape().back() == static_cast<int64_t>(bias.size())),
      "the bias is not one number for each of the last axis");
  for (size_t k = 0; k < x.size(); ++k) x[k] = f(bias.empty() ? x[k] : x[k] + bias[k % bias.size()]);
  c.Out(0, TensorOf<double>(c.In(0).type(), c.In(0).shape(), x));
}
void BiasGelu(OpCall& c) { MapBiased(c, GeluExact); }
void FastGelu(OpCall& c) { MapBiased(c, GeluTanh); }
void QuickGelu(OpCall& c) {
  const double alpha = c.Float("alpha", 1.702f);
  MapBiased(c, [alpha](double x) { return x / (1 + std::exp(-alpha * x)); });
}

void FusedMatMul(OpCall& c) {
  const auto turned = [&](int i, const char* name) {
    if (c.Int(name, 0) == 0 || c.In(i).rank() < 2) return c.In(i);
    std::vector<int64_t> axes = Counted(c.In(i).rank());
    std::swap(axes[axes.size() - 1], axes[axes.size() - 2]);
    return Permuted(c.In(i), axes);
  };
  if (c.Int("transBatchA", 0) != 0 || c.Int("transBatchB", 0) != 0)
    return c.Refuse("transBatchA and transBatchB have no meaning here");
  const OnnxTensor a = turned(0, "transA"), b = turned(1, "transB");
  ONNX_EXPECT(c, IsFloatingElement(a.type()) && a.type() == b.type(), "takes floating numbers of one type");
  Product<double> y = MatmulOf<double>(c, a.shape(), Elements<double>(a), b.shape(), Elements<double>(b));
  ONNX_EXPECT(c, true, "");
  const double alpha = c.Float("alpha", 1);
  for (double& v : y.values) v *= alpha;
  c.Out(0, TensorOf<double>(a.type(), y.shape, y.values));
}

constexpr char kMs[] = "com.microsoft";
constexpr KernelRow kRows[] = {
    {"SimplifiedLayerNormalization", SimplifiedLayerNormalization, false, "", 2},
    {"SimplifiedLayerNormalization", SimplifiedLayerNormalization, false, kMs, 2},
    {"SkipLayerNormalization", SkipLayerNormalization, false, kMs, 3},
    {"SkipSimplifiedLayerNormalization", SkipSimplifiedLayerNormalization, false, kMs, 3},
    {"EmbedLayerNormalization", EmbedLayerNormalization, false, kMs, 1},
    {"BiasGelu", BiasGelu, false, kMs, 2},
    {"FastGelu", FastGelu, false, kMs, 1},
    {"Gelu", BiasGelu, false, kMs, 1},
    {"QuickGelu", QuickGelu, false, kMs, 1},
    {"FusedMatMul", FusedMatMul, false, kMs, 2},
};

}  // namespace

absl::Span<const KernelRow> ContribNormKernels() { return kRows; }

}  // namespace twinforge
