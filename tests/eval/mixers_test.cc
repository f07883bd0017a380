// Recurrent mixers against their formulas, one step after another, and continued from a state.
#include <cmath>

#include "base/diagnostic.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/rewriter.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "tests/eval/single_op.h"
#include "weights/build.h"

namespace twinforge {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kBatch = 2, kSeq = 6, kModel = 4;

double Silu(double x) { return x / (1 + std::exp(-x)); }
double SoftPlus(double x) { return std::log(1 + std::exp(x)); }
double Logistic(double x) { return 1 / (1 + std::exp(-x)); }

Values4 Zeros(Shape shape) {
  const int64_t count = ElementCount(shape);
  return Values4(std::move(shape), std::vector<double>(count, 0));
}

// x kernel as [seq][channels], kernels of any out axes taken as one.
std::vector<std::vector<double>> Projected(const SingleOp& op, const Values4& x, int64_t b,
                                           const std::string& slot) {
  const Values4 kernel = op.Param(slot);
  const int64_t width = static_cast<int64_t>(kernel.data().size()) / kModel;
  std::vector<std::vector<double>> y(kSeq, std::vector<double>(width, 0));
  for (int64_t t = 0; t < kSeq; ++t) {
    for (int64_t c = 0; c < kModel; ++c) {
      for (int64_t i = 0; i < width; ++i) y[t][i] += x.at({b, t, c}) * kernel.data()[c * width + i];
    }
  }
  return y;
}

// Each channel's own few taps over what came before.
std::vector<std::vector<double>> Tapped(const SingleOp& op, const std::vector<std::vector<double>>& x,
                                        const std::string& slot, const std::string& bias) {
  const Values4 taps = op.Param(slot);
  const int64_t count = taps.shape()[0], width = static_cast<int64_t>(x[0].size());
  std::vector<std::vector<double>> y(kSeq, std::vector<double>(width, 0));
  for (int64_t t = 0; t < kSeq; ++t) {
    for (int64_t i = 0; i < width; ++i) {
      if (!bias.empty()) y[t][i] = op.Param(bias).data()[i];
      for (int64_t j = 0; j < count; ++j) {
        const int64_t at = t - count + 1 + j;
        if (at >= 0) y[t][i] += taps.data()[j * width + i] * x[at][i];
      }
    }
  }
  return y;
}

void AddThrough(const Values4& o, int64_t from, double value, Values4& y, int64_t b, int64_t t) {
  for (int64_t c = 0; c < kModel; ++c) y.at({b, t, c}) += value * o.data()[from * kModel + c];
}

void ExpectAllWays(const SingleOp& op, const Values4& x, const Values4& want) {
  ExpectSame(want, op.Run(x));
  ExpectSame(want, op.RunOnce(x));
  ExpectSame(want, op.RunInPieces(x, {kSeq}));
  ExpectSame(want, op.RunInPieces(x, {1, 2, 3}));
  ExpectSame(want, op.RunInPieces(x, {1, 1, 1, 1, 1, 1}));
}

TEST(ShortConv, IsItsFormula) {
  for (int64_t taps : {1, 3}) {
    const std::string n = std::to_string(taps);
    const SingleOp op("short_conv", "",
                      {{"b", "d_model=4 -> channels=5"},
                       {"c", "d_model=4 -> channels=5"},
                       {"x", "d_model=4 -> channels=5"},
                       {"taps", "tap=" + n + ", channels=5"},
                       {"o", "channels=5 -> d_model=4"},
                       {"taps_bias", "channels=5"}});
    const Values4 x = SingleOp::Random({kBatch, kSeq, kModel}, 21), o = op.Param("o");
    Values4 want = Zeros(x.shape());
    for (int64_t batch = 0; batch < kBatch; ++batch) {
      auto gated = Projected(op, x, batch, "x");
      const auto b = Projected(op, x, batch, "b"), c = Projected(op, x, batch, "c");
      for (int64_t t = 0; t < kSeq; ++t) {
        for (int64_t i = 0; i < 5; ++i) gated[t][i] *= b[t][i];
      }
      const auto mixed = Tapped(op, gated, "taps", "taps_bias");
      for (int64_t t = 0; t < kSeq; ++t) {
        for (int64_t i = 0; i < 5; ++i) AddThrough(o, i, c[t][i] * mixed[t][i], want, batch, t);
      }
    }
    ExpectAllWays(op, x, want);
  }
}

// 4 heads of 3 places, sharing b and c in 2 groups with 2 places of state.
SingleOp StateSpace(const std::string& attrs) {
  return SingleOp("state_space", attrs,
                  {{"z", "d_model=4 -> heads=4, head_dim=3"},
                   {"x", "d_model=4 -> heads=4, head_dim=3"},
                   {"b", "d_model=4 -> state_groups=2, state=2"},
                   {"c", "d_model=4 -> state_groups=2, state=2"},
                   {"dt", "d_model=4 -> heads=4"},
                   {"x_taps", "tap=3, heads=4, head_dim=3"},
                   {"b_taps", "tap=3, state_groups=2, state=2"},
                   {"c_taps", "tap=3, state_groups=2, state=2"},
                   {"x_taps_bias", "heads=4, head_dim=3"},
                   {"b_taps_bias", "state_groups=2, state=2"},
                   {"c_taps_bias", "state_groups=2, state=2"},
                   {"dt_bias", "heads=4"},
                   {"a_log", "heads=4"},
                   {"skip", "heads=4"},
                   {"norm", "heads=4, head_dim=3"},
                   {"o", "heads=4, head_dim=3 -> d_model=4"}});
}

TEST(StateSpace, IsItsFormula) {
  for (double longest : {0.0, 0.6}) {
    const SingleOp op = StateSpace("norm_eps: 0.001 min_step: 0.3 max_step: " + std::to_string(longest));
    const Values4 in = SingleOp::Random({kBatch, kSeq, kModel}, 22), o = op.Param("o"),
                  norm = op.Param("norm");
    Values4 want = Zeros(in.shape());
    for (int64_t batch = 0; batch < kBatch; ++batch) {
      auto x = Tapped(op, Projected(op, in, batch, "x"), "x_taps", "x_taps_bias");
      auto b = Tapped(op, Projected(op, in, batch, "b"), "b_taps", "b_taps_bias");
      auto c = Tapped(op, Projected(op, in, batch, "c"), "c_taps", "c_taps_bias");
      const auto dt = Projected(op, in, batch, "dt"), z = Projected(op, in, batch, "z");
      for (auto* rows : {&x, &b, &c}) {
        for (auto& row : *rows) {
          for (double& v : row) v = Silu(v);
        }
      }
      double h[4][3][2] = {};
      for (int64_t t = 0; t < kSeq; ++t) {
        double y[12], squares = 0;
        for (int64_t head = 0; head < 4; ++head) {
          double step = std::max(SoftPlus(dt[t][head] + op.Param("dt_bias").at({head})), 0.3);
          if (longest != 0) step = std::min(step, longest);
          const double decay = std::exp(-std::exp(op.Param("a_log").at({head})) * step);
          for (int64_t i = 0; i < 3; ++i) {
            double read = op.Param("skip").at({head}) * x[t][head * 3 + i];
            for (int64_t n = 0; n < 2; ++n) {
              h[head][i][n] = decay * h[head][i][n] + step * x[t][head * 3 + i] * b[t][head / 2 * 2 + n];
              read += h[head][i][n] * c[t][head / 2 * 2 + n];
            }
            y[head * 3 + i] = read * Silu(z[t][head * 3 + i]);
            squares += y[head * 3 + i] * y[head * 3 + i];
          }
        }
        for (int64_t i = 0; i < 12; ++i) {
          AddThrough(o, i, y[i] / std::sqrt(squares / 12 + 0.001) * norm.data()[i], want, batch, t);
        }
      }
    }
    ExpectAllWays(op, in, want);
  }
}

// 4 heads with 3 places of value, sharing q and k in 2 heads of 2 places.
SingleOp DeltaRule(const std::string& attrs) {
  return SingleOp("delta_rule", attrs,
                  {{"q", "d_model=4 -> key_heads=2, key_dim=2"},
                   {"k", "d_model=4 -> key_heads=2, key_dim=2"},
                   {"v", "d_model=4 -> heads=4, value_dim=3"},
                   {"z", "d_model=4 -> heads=4, value_dim=3"},
                   {"beta", "d_model=4 -> heads=4"},
                   {"decay", "d_model=4 -> heads=4"},
                   {"q_taps", "tap=4, key_heads=2, key_dim=2"},
                   {"k_taps", "tap=4, key_heads=2, key_dim=2"},
                   {"v_taps", "tap=4, heads=4, value_dim=3"},
                   {"decay_bias", "heads=4"},
                   {"a_log", "heads=4"},
                   {"norm", "value_dim=3"},
                   {"o", "heads=4, value_dim=3 -> d_model=4"}});
}

TEST(DeltaRule, IsItsFormula) {
  const SingleOp op = DeltaRule("norm_eps: 0.001 scale: 0.5");
  const Values4 in = SingleOp::Random({kBatch, kSeq, kModel}, 23), o = op.Param("o"), norm = op.Param("norm");
  Values4 want = Zeros(in.shape());
  for (int64_t batch = 0; batch < kBatch; ++batch) {
    auto q = Tapped(op, Projected(op, in, batch, "q"), "q_taps", "");
    auto k = Tapped(op, Projected(op, in, batch, "k"), "k_taps", "");
    auto v = Tapped(op, Projected(op, in, batch, "v"), "v_taps", "");
    const auto z = Projected(op, in, batch, "z"), raw_beta = Projected(op, in, batch, "beta"),
               raw_decay = Projected(op, in, batch, "decay");
    for (auto* rows : {&q, &k, &v}) {
      for (auto& row : *rows) {
        for (double& value : row) value = Silu(value);
      }
    }
    double memory[4][3][2] = {};
    for (int64_t t = 0; t < kSeq; ++t) {
      for (auto* rows : {&q, &k}) {
        for (int64_t head = 0; head < 2; ++head) {
          double* row = (*rows)[t].data() + head * 2;
          const double length = std::sqrt(row[0] * row[0] + row[1] * row[1] + 1e-6);
          for (int64_t i = 0; i < 2; ++i) row[i] /= length;
        }
      }
      for (int64_t head = 0; head < 4; ++head) {
        const double* key = k[t].data() + head / 2 * 2;
        const double* query = q[t].data() + head / 2 * 2;
        const double fall = SoftPlus(raw_decay[t][head] + op.Param("decay_bias").at({head}));
        const double alpha = std::exp(-std::exp(op.Param("a_log").at({head})) * fall);
        const double beta = Logistic(raw_beta[t][head]);
        double read[3], squares = 0;
        for (int64_t i = 0; i < 3; ++i) {
          // What the memory says of this key, and what it should say.
          double said = 0;
          for (int64_t n = 0; n < 2; ++n) said += alpha * memory[head][i][n] * key[n];
          const double correction = beta * (v[t][head * 3 + i] - said);
          read[i] = 0;
          for (int64_t n = 0; n < 2; ++n) {
            memory[head][i][n] = alpha * memory[head][i][n] + correction * key[n];
            read[i] += memory[head][i][n] * query[n] * 0.5;
          }
          squares += read[i] * read[i];
        }
        for (int64_t i = 0; i < 3; ++i) {
          const double y = read[i] / std::sqrt(squares / 3 + 0.001) * norm.at({i}) * Silu(z[t][head * 3 + i]);
          AddThrough(o, head * 3 + i, y, want, batch, t);
        }
      }
    }
  }
  ExpectAllWays(op, in, want);
}

TEST(Mixers, RefuseSizesAndSettingsThatDoNotFit) {
  const auto refuses = [](const SingleOp& op, const std::string& from, const std::string& to,
                          const std::string& reason) {
    std::string text = Text(op.graph());
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
      text.replace(at, from.size(), to);
    }
    const auto graph = ParseGraph(text);
    ASSERT_FALSE(graph.ok()) << reason;
    EXPECT_THAT(DiagnosticOf(graph.status())->message, HasSubstr(reason));
  };
  // A size, its sources' included.
  const auto resized = [&](const SingleOp& op, const std::string& axis, int64_t old_size, int64_t size,
                           const std::string& reason) {
    Graph graph = op.graph();
    Rewriter rewriter(graph, "resized");
    for (const auto& [role, param] : op.graph().params()) {
      ParamType type = param.type;
      const int at = type.Find(axis);
      if (at < 0) continue;
      EXPECT_EQ(type.axes[at].size, old_size);
      type.axes[at].size = type.axes[at].logical = size;
      rewriter.SetParam(role, type, Source(role, DType::kF64, type.shape()));
    }
    rewriter.InferTypes();
    const absl::Status verdict = Verify(graph);
    ASSERT_FALSE(verdict.ok()) << reason;
    EXPECT_THAT(DiagnosticOf(verdict)->message, HasSubstr(reason));
  };
  resized(StateSpace(""), "state_groups", 2, 3, "heads 4 is not a multiple of state_groups 3");
  resized(StateSpace(""), "tap", 3, 1, "x_taps is of one tap");
  resized(DeltaRule("scale: 1"), "key_heads", 2, 3, "heads 4 is not a multiple of key_heads 3");
  resized(DeltaRule("scale: 1"), "tap", 4, 1, "q_taps is of one tap");
  refuses(StateSpace("norm_eps: 1"), "norm_eps: 1", "norm_eps: -1", "norm_eps is -1");
  refuses(StateSpace("norm_eps: 1"), "norm_eps: 1", "min_step: -1", "steps from -1");
  refuses(DeltaRule("scale: 1"), "scale: 1", "scale: 0", "scale is 0");
  refuses(DeltaRule("scale: 1"), "scale: 1", "scale: 1 norm_eps: -1", "norm_eps is -1");
}

}  // namespace
}  // namespace twinforge
