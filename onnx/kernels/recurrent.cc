// RNN, GRU and LSTM: one step after the other.
#include <algorithm>
#include <cmath>
#include <functional>

#include "absl/strings/ascii.h"
#include "onnx/kernels/kernel.h"
#include "onnx/kernels/places.h"
#include "onnx/tensor.h"

namespace twinforge {
namespace {

using Activation = std::function<double(double)>;

double SigmoidOf(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }

// By name, in any case; nullptr where there is none of that name.
Activation ActivationOf(const std::string& given, std::optional<double> alpha, std::optional<double> beta) {
  const std::string name = absl::AsciiStrToLower(given);
  const auto a = [&](double absent) { return alpha.value_or(absent); };
  const auto b = [&](double absent) { return beta.value_or(absent); };
  if (name == "sigmoid") return SigmoidOf;
  if (name == "tanh") return [](double x) { return std::tanh(x); };
  if (name == "relu") return [](double x) { return x > 0 ? x : 0; };
  if (name == "softsign") return [](double x) { return x / (1 + std::fabs(x)); };
  if (name == "softplus")
    return [](double x) { return std::log1p(std::exp(-std::fabs(x))) + std::max(x, 0.0); };
  if (name == "affine") return [s = a(1), t = b(0)](double x) { return s * x + t; };
  if (name == "leakyrelu") return [s = a(0.01)](double x) { return x < 0 ? s * x : x; };
  if (name == "thresholdedrelu") return [s = a(1)](double x) { return x > s ? x : 0; };
  if (name == "scaledtanh") return [s = a(1), t = b(1)](double x) { return s * std::tanh(t * x); };
  if (name == "hardsigmoid")
    return [s = a(0.2), t = b(0.5)](double x) { return std::clamp(s * x + t, 0.0, 1.0); };
  if (name == "elu") return [s = a(1)](double x) { return x < 0 ? s * std::expm1(x) : x; };
  return nullptr;
}

// Everything of one node, in the layout [time, batch, ...], whichever the file has.
struct Recurrence {
  int64_t time = 0, batch = 0, input = 0, hidden = 0, directions = 1, gates = 1;
  std::vector<double> x, w, r, bias, h0, c0, peephole;
  std::vector<int64_t> lengths;
  std::vector<Activation> activations;  // of all directions, one after the other
  double clip = 0;
  bool reverse = false, batch_first = false;
};

std::vector<double> Optional(OpCall& c, int i, const Shape& wanted, bool transposed) {
  if (!c.Has(i)) return std::vector<double>(static_cast<size_t>(ElementCount(wanted)), 0);
  const OnnxTensor in = transposed && c.In(i).rank() == 3 ? Permuted(c.In(i), {1, 0, 2}) : c.In(i);
  if (in.shape() != wanted || in.is_string())
    c.Fail("an input is " + ShapeText(in.shape()) + ", not " + ShapeText(wanted));
  return c.ok() ? Elements<double>(in) : std::vector<double>();
}

void ReadActivations(OpCall& c, Recurrence& rec, const std::vector<std::string>& defaults) {
  std::vector<std::string> names = c.StrsAttr("activations");
  const std::vector<double> alpha = c.FloatsAttr("activation_alpha"), beta = c.FloatsAttr("activation_beta");
  const size_t wanted = defaults.size() * static_cast<size_t>(rec.directions);
  if (names.empty()) {
    for (int64_t d = 0; d < rec.directions; ++d) names.insert(names.end(), defaults.begin(), defaults.end());
  }
  if (names.size() != wanted) return c.Fail("activations are not as many as the gates of each direction");
  const auto at = [](const std::vector<double>& v, size_t k) {
    return k < v.size() ? std::optional<double>(v[k]) : std::nullopt;
  };
  for (size_t k = 0; k < names.size(); ++k) {
    rec.activations.push_back(ActivationOf(names[k], at(alpha, k), at(beta, k)));
    if (rec.activations.back() == nullptr) c.Fail("knows no such activation");
  }
}

Recurrence RecurrenceOf(OpCall& c, int64_t gates, const std::vector<std::string>& defaults) {
  Recurrence rec;
  rec.gates = gates;
  rec.batch_first = c.Int("layout", 0) != 0;
  const std::string direction = c.Str("direction", "forward");
  rec.directions = direction == "bidirectional" ? 2 : 1;
  rec.reverse = direction == "reverse";
  rec.clip = c.Float("clip", 0);
  if (c.In(0).rank() != 3 || c.In(1).rank() != 3 || c.In(2).rank() != 3)
    c.Fail("its inputs have not three axes");
  if (!c.ok()) return rec;
  const Shape& shape = c.In(0).shape();
  rec.time = shape[rec.batch_first ? 1 : 0];
  rec.batch = shape[rec.batch_first ? 0 : 1];
  rec.input = shape[2];
  rec.hidden = c.In(2).dim(2);
  if (c.Int("hidden_size", rec.hidden) != rec.hidden) c.Fail("hidden_size is not the weights'");
  const int64_t rows = gates * rec.hidden;
  rec.x = Optional(c, 0, {rec.time, rec.batch, rec.input}, rec.batch_first);
  rec.w = Optional(c, 1, {rec.directions, rows, rec.input}, false);
  rec.r = Optional(c, 2, {rec.directions, rows, rec.hidden}, false);
  rec.bias = Optional(c, 3, {rec.directions, 2 * rows}, false);
  rec.lengths.assign(static_cast<size_t>(rec.batch), rec.time);
  if (c.Has(4)) rec.lengths = c.Ints(4);
  rec.h0 = Optional(c, 5, {rec.directions, rec.batch, rec.hidden}, rec.batch_first);
  if (gates == 4) {
    rec.c0 = Optional(c, 6, {rec.directions, rec.batch, rec.hidden}, rec.batch_first);
    rec.peephole = Optional(c, 7, {rec.directions, 3 * rec.hidden}, false);
  }
  if (static_cast<int64_t>(rec.lengths.size()) != rec.batch)
    c.Fail("lengths are not one for each of the batch");
  for (const int64_t length : rec.lengths) {
    if (length < 0 || length > rec.time) c.Fail("a length is beyond the input");
  }
  ReadActivations(c, rec, defaults);
  c.Spend(static_cast<double>(rec.directions * rec.time * rec.batch) *
          static_cast<double>(rows * (rec.input + rec.hidden)));
  return rec;
}

// One step of one sequence: what a cell sees.
struct Cell {
  const Recurrence& rec;
  int64_t direction;
  const double* x;  // [input]
  double* h;        // [hidden], before and after
  double* state;    // the same, of LSTM

  double Clipped(double v) const { return rec.clip > 0 ? std::clamp(v, -rec.clip, rec.clip) : v; }
  double Activate(size_t k, double v) const {
    return rec.activations[static_cast<size_t>(direction) *
                               (rec.activations.size() / static_cast<size_t>(rec.directions)) +
                           k](Clipped(v));
  }
  int64_t Row(int64_t gate, int64_t i) const { return (direction * rec.gates + gate) * rec.hidden + i; }
  double FromInput(int64_t gate, int64_t i) const {
    double sum = rec.bias[(direction * 2 * rec.gates + gate) * rec.hidden + i];
    const double* w = rec.w.data() + Row(gate, i) * rec.input;
    for (int64_t k = 0; k < rec.input; ++k) sum += w[k] * x[k];
    return sum;
  }
  double FromHidden(int64_t gate, int64_t i, const double* hidden) const {
    double sum = rec.bias[(direction * 2 * rec.gates + rec.gates + gate) * rec.hidden + i];
    const double* r = rec.r.data() + Row(gate, i) * rec.hidden;
    for (int64_t k = 0; k < rec.hidden; ++k) sum += r[k] * hidden[k];
    return sum;
  }
};

using StepOf = void (*)(const Cell& cell, bool option);

void RunRecurrence(OpCall& c, const Recurrence& rec, StepOf step, bool option) {
  ONNX_EXPECT(c, c.Affordable({rec.time, rec.directions, rec.batch, rec.hidden}), "");
  std::vector<double> y(static_cast<size_t>(rec.time * rec.directions * rec.batch * rec.hidden)),
      h = rec.h0, state = rec.c0;
  state.resize(h.size());
  for (int64_t d = 0; d < rec.directions; ++d) {
    const bool backwards = rec.reverse || d == 1;
    for (int64_t b = 0; b < rec.batch; ++b) {
      const int64_t at = (d * rec.batch + b) * rec.hidden;
      for (int64_t s = 0; s < rec.lengths[b]; ++s) {
        const int64_t t = backwards ? rec.lengths[b] - 1 - s : s;
        step({rec, d, rec.x.data() + (t * rec.batch + b) * rec.input, h.data() + at, state.data() + at},
             option);
        std::copy(h.begin() + at, h.begin() + at + rec.hidden,
                  y.begin() + ((t * rec.directions + d) * rec.batch + b) * rec.hidden);
      }
    }
  }
  const ElementType type = c.In(0).type();
  OnnxTensor all = TensorOf<double>(type, {rec.time, rec.directions, rec.batch, rec.hidden}, y);
  OnnxTensor last = TensorOf<double>(type, {rec.directions, rec.batch, rec.hidden}, h);
  OnnxTensor cell = TensorOf<double>(type, {rec.directions, rec.batch, rec.hidden}, state);
  if (rec.batch_first) {
    all = Permuted(all, {2, 0, 1, 3});
    last = Permuted(last, {1, 0, 2});
    cell = Permuted(cell, {1, 0, 2});
  }
  c.Out(0, all);
  c.Out(1, last);
  if (rec.gates == 4) c.Out(2, cell);
}

void StepRnn(const Cell& cell, bool) {
  const int64_t hidden = cell.rec.hidden;
  std::vector<double> next(static_cast<size_t>(hidden));
  for (int64_t i = 0; i < hidden; ++i)
    next[i] = cell.Activate(0, cell.FromInput(0, i) + cell.FromHidden(0, i, cell.h));
  std::copy(next.begin(), next.end(), cell.h);
}

// Gates z, r, h. `after`: the reset gate is applied after the product with the hidden state.
void StepGru(const Cell& cell, bool after) {
  const int64_t hidden = cell.rec.hidden;
  std::vector<double> z(static_cast<size_t>(hidden)), r(z.size()), reset(z.size()), next(z.size());
  for (int64_t i = 0; i < hidden; ++i) {
    z[i] = cell.Activate(0, cell.FromInput(0, i) + cell.FromHidden(0, i, cell.h));
    r[i] = cell.Activate(0, cell.FromInput(1, i) + cell.FromHidden(1, i, cell.h));
    reset[i] = r[i] * cell.h[i];
  }
  for (int64_t i = 0; i < hidden; ++i) {
    const double from = after ? r[i] * cell.FromHidden(2, i, cell.h) : cell.FromHidden(2, i, reset.data());
    next[i] = (1 - z[i]) * cell.Activate(1, cell.FromInput(2, i) + from) + z[i] * cell.h[i];
  }
  std::copy(next.begin(), next.end(), cell.h);
}

// Gates i, o, f, c; peepholes i, o, f. `coupled`: the forget gate is one less the input gate.
void StepLstm(const Cell& cell, bool coupled) {
  const int64_t hidden = cell.rec.hidden;
  const double* p = cell.rec.peephole.data() + cell.direction * 3 * hidden;
  std::vector<double> next(static_cast<size_t>(hidden));
  for (int64_t i = 0; i < hidden; ++i) {
    const auto sum = [&](int64_t gate) { return cell.FromInput(gate, i) + cell.FromHidden(gate, i, cell.h); };
    const double before = cell.state[i];
    const double in = cell.Activate(0, sum(0) + p[i] * before);
    const double forget = coupled ? 1 - in : cell.Activate(0, sum(2) + p[2 * hidden + i] * before);
    cell.state[i] = forget * before + in * cell.Activate(1, sum(3));
    next[i] = cell.Activate(0, sum(1) + p[hidden + i] * cell.state[i]) * cell.Activate(2, cell.state[i]);
  }
  std::copy(next.begin(), next.end(), cell.h);
}

void Rnn(OpCall& c) {
  const Recurrence rec = RecurrenceOf(c, 1, {"Tanh"});
  if (c.ok()) RunRecurrence(c, rec, StepRnn, false);
}
void Gru(OpCall& c) {
  const Recurrence rec = RecurrenceOf(c, 3, {"Sigmoid", "Tanh"});
  if (c.ok()) RunRecurrence(c, rec, StepGru, c.Int("linear_before_reset", 0) != 0);
}
void Lstm(OpCall& c) {
  const Recurrence rec = RecurrenceOf(c, 4, {"Sigmoid", "Tanh", "Tanh"});
  if (c.ok()) RunRecurrence(c, rec, StepLstm, c.Int("input_forget", 0) != 0);
}

constexpr KernelRow kRows[] = {{"RNN", Rnn}, {"GRU", Gru}, {"LSTM", Lstm}};

}  // namespace

absl::Span<const KernelRow> RecurrentKernels() { return kRows; }

}  // namespace twinforge
