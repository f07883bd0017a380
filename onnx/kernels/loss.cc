// What training asks for: losses, dropout, one step of an optimiser.
#include <algorithm>
#include <cmath>
#include <functional>

#include "onnx/kernels/kernel.h"
#include "onnx/kernels/places.h"
#include "onnx/tensor.h"

namespace twinforge {
namespace {

// -weight[target] * logits[n, target, d...], reduced. Input `weight_at` has a weight for each class.
void Loss(OpCall& c, const std::vector<double>& logits, int weight_at) {
  const OnnxTensor& x = c.In(0);
  const std::vector<int64_t> target = c.Ints(1);
  ONNX_EXPECT(c, x.rank() >= 2, "takes [batch, classes, ...]");
  Shape beside = x.shape();
  beside.erase(beside.begin() + 1);
  ONNX_EXPECT(c, c.In(1).shape() == beside, "the targets do not fit the scores");
  const AxisView view = ViewAt(x.shape(), 1);
  std::vector<double> weight(static_cast<size_t>(view.size), 1);
  if (c.Has(weight_at)) weight = c.Doubles(weight_at);
  ONNX_EXPECT(c, static_cast<int64_t>(weight.size()) == view.size, "the weights are not one for each class");
  const bool ignores = c.HasAttr("ignore_index");
  const int64_t ignored = c.Int("ignore_index", 0);
  std::vector<double> loss(target.size(), 0);
  double sum = 0, weights = 0;
  for (size_t k = 0; k < target.size(); ++k) {
    if (ignores && target[k] == ignored) continue;
    ONNX_EXPECT(c, target[k] >= 0 && target[k] < view.size, "a target is no class");
    const int64_t at = static_cast<int64_t>(k), o = at / view.inner, n = at % view.inner;
    loss[k] = -weight[target[k]] * logits[(o * view.size + target[k]) * view.inner + n];
    sum += loss[k];
    weights += weight[target[k]];
  }
  const std::string reduction = c.Str("reduction", "mean");
  if (reduction == "none") return c.Out(0, TensorOf<double>(x.type(), beside, loss));
  ONNX_EXPECT(c, reduction == "sum" || reduction == "mean", "knows no such reduction");
  c.Out(0, ScalarOf(x.type(), reduction == "sum" ? sum : sum / weights));
}

void NegativeLogLikelihoodLoss(OpCall& c) { Loss(c, c.Doubles(0), 2); }

void SoftmaxCrossEntropyLoss(OpCall& c) {
  std::vector<double> x = c.Doubles(0);
  ONNX_EXPECT(c, c.In(0).rank() >= 2, "takes [batch, classes, ...]");
  const AxisView view = ViewAt(c.In(0).shape(), 1);
  for (int64_t line = 0; line < view.outer * view.inner && view.size > 0; ++line) {
    double* at = x.data() + line / view.inner * view.size * view.inner + line % view.inner;
    double most = at[0], sum = 0;
    for (int64_t i = 0; i < view.size; ++i) most = std::max(most, at[i * view.inner]);
    for (int64_t i = 0; i < view.size; ++i) sum += std::exp(at[i * view.inner] - most);
    for (int64_t i = 0; i < view.size; ++i) at[i * view.inner] -= most + std::log(sum);
  }
  Loss(c, x, 2);
  c.Out(1, TensorOf<double>(c.In(0).type(), c.In(0).shape(), x));
}

// Without training nothing is dropped. With training what is dropped is random, and no meaning.
void Dropout(OpCall& c) {
  const bool training = c.opset() >= 12 ? c.IntScalar(2, 0) != 0 : c.opset() < 7 && c.Int("is_test", 0) == 0;
  const double ratio = c.opset() >= 12 ? c.DoubleScalar(1, 0.5) : c.Float("ratio", 0.5);
  if (training && ratio != 0) return c.Refuse("drops at random, in training");
  ONNX_EXPECT(c, true, "");
  c.Out(0, c.In(0));
  const std::vector<int64_t> kept(static_cast<size_t>(c.In(0).count()), 1);
  c.Out(1, TensorOf<int64_t>(c.opset() < 10 ? c.In(0).type() : ElementType::kBool, c.In(0).shape(), kept));
}

// What an optimiser holds for one tensor: the tensor, its gradient, and one or two states.
using Step = std::function<void(double& x, double g, double& v, double& h)>;

// r, t, then n tensors, n gradients, and n of each state; new tensors and states.
void Optimise(OpCall& c, int states, const Step& step) {
  const int kinds = 2 + states, n = (c.inputs() - 2) / kinds;
  ONNX_EXPECT(c, n >= 1 && c.inputs() == 2 + n * kinds,
              "its inputs are not one of each kind for each tensor");
  for (int i = 0; i < n; ++i) {
    for (int k = 0; k < kinds; ++k) {
      ONNX_EXPECT(c, c.Has(2 + i + k * n) && c.In(2 + i + k * n).shape() == c.In(2 + i).shape(),
                  "a gradient or state differs in shape");
    }
    std::vector<double> x = c.Doubles(2 + i), v = c.Doubles(2 + i + 2 * n), h(x.size());
    const std::vector<double> g = c.Doubles(2 + i + n);
    if (states == 2) h = c.Doubles(2 + i + 3 * n);
    ONNX_EXPECT(c, true, "");
    for (size_t k = 0; k < x.size(); ++k) step(x[k], g[k], v[k], h[k]);
    const Shape& shape = c.In(2 + i).shape();
    c.Out(i, TensorOf<double>(c.In(2 + i).type(), shape, x));
    c.Out(i + n, TensorOf<double>(c.In(2 + i + 2 * n).type(), shape, v));
    if (states == 2) c.Out(i + 2 * n, TensorOf<double>(c.In(2 + i + 3 * n).type(), shape, h));
  }
}

void Adagrad(OpCall& c) {
  const double r = c.DoubleScalar(0, 0) / (1 + c.DoubleScalar(1, 0) * c.Float("decay_factor", 0));
  const double norm = c.Float("norm_coefficient", 0), epsilon = c.Float("epsilon", 1e-6f);
  Optimise(c, 1, [=](double& x, double g, double& v, double&) {
    const double full = norm * x + g;
    v += full * full;
    x -= r * full / (std::sqrt(v) + epsilon);
  });
}

void Adam(OpCall& c) {
  const double alpha = c.Float("alpha", 0.9f), beta = c.Float("beta", 0.999f),
               epsilon = c.Float("epsilon", 1e-6f);
  const double norm = c.Float("norm_coefficient", 0), after = c.Float("norm_coefficient_post", 0),
               t = c.DoubleScalar(1, 0);
  const double rate = c.DoubleScalar(0, 0);
  const double r = t > 0 ? rate * std::sqrt(1 - std::pow(beta, t)) / (1 - std::pow(alpha, t)) : rate;
  Optimise(c, 2, [=](double& x, double g, double& v, double& h) {
    const double full = norm * x + g;
    v = alpha * v + (1 - alpha) * full;
    h = beta * h + (1 - beta) * full * full;
    x = (1 - after) * (x - r * v / (std::sqrt(h) + epsilon));
  });
}

void Momentum(OpCall& c) {
  const double alpha = c.Float("alpha", 0), norm = c.Float("norm_coefficient", 0), r = c.DoubleScalar(0, 0);
  const double beta = c.DoubleScalar(1, 0) > 0 ? c.Float("beta", 0) : 1;
  const bool nesterov = c.Str("mode", "standard") == "nesterov";
  Optimise(c, 1, [=](double& x, double g, double& v, double&) {
    const double full = norm * x + g;
    v = alpha * v + beta * full;
    x -= r * (nesterov ? full + alpha * v : v);
  });
}

constexpr char kTraining[] = "ai.onnx.preview.training";
constexpr KernelRow kRows[] = {
    {"NegativeLogLikelihoodLoss", NegativeLogLikelihoodLoss},
    {"SoftmaxCrossEntropyLoss", SoftmaxCrossEntropyLoss},
    {"Dropout", Dropout},
    {"Adagrad", Adagrad, false, kTraining},
    {"Adam", Adam, false, kTraining},
    {"Momentum", Momentum, false, kTraining},
};

}  // namespace

absl::Span<const KernelRow> LossKernels() { return kRows; }

}  // namespace twinforge
