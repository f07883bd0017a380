#include "tests/transforms/naive_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace twinforge {
namespace {

using Row = std::vector<double>;
using Rows = std::vector<Row>;  // [position][channel]

// A parameter's values with its shape.
struct Values {
  Shape shape;
  Row data;
  bool present = false;
  double at(std::initializer_list<int64_t> index) const {
    int64_t position = 0;
    size_t axis = 0;
    for (int64_t i : index) position = position * shape[axis++] + i;
    TWIN_CHECK(axis == shape.size(), "rank");
    return data[position];
  }
};

double Act(Activation act, double x) {
  switch (act) {
    case SILU:
      return x / (1 + std::exp(-x));
    case GELU:
      return x * 0.5 * (1 + std::erf(x / std::sqrt(2.0)));
    case GELU_TANH:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    default:
      TWIN_CHECK(false, "an activation that no small model has");
  }
}

double Cap(double x, double cap) { return cap == 0 ? x : cap * std::tanh(x / cap); }

double Dot(const Row& a, const Row& b) { return std::inner_product(a.begin(), a.end(), b.begin(), 0.0); }

Row Softmax(Row scores, double extra_logit) {
  double top = extra_logit;
  for (double s : scores) top = std::max(top, s);
  double sum = std::isinf(extra_logit) ? 0 : std::exp(extra_logit - top);
  for (double& s : scores) sum += s = std::exp(s - top);
  for (double& s : scores) s /= sum;
  return scores;
}

// Turns the first rotary_dim places of a head.
void Turn(const Rope& rope, int64_t position, Row& head) {
  if (rope.style() == Rope::ABSENT) return;
  TWIN_CHECK(rope.scaling().kind() == RopeScaling::NONE, "frequency scaling");
  const int64_t half = rope.rotary_dim() / 2;
  for (int64_t i = 0; i < half; ++i) {
    const double angle =
        static_cast<double>(position) *
        std::pow(rope.theta(), -2.0 * static_cast<double>(i) / static_cast<double>(rope.rotary_dim()));
    const int64_t a = rope.style() == Rope::HALVES ? i : 2 * i;
    const int64_t b = rope.style() == Rope::HALVES ? i + half : 2 * i + 1;
    const double x = head[a], y = head[b];
    head[a] = x * std::cos(angle) - y * std::sin(angle);
    head[b] = x * std::sin(angle) + y * std::cos(angle);
  }
}

// x / sqrt(sum x^2 / width + eps) * (offset + scale)
Row RmsNorm(Row x, const Values& scale, double eps, double offset, double width) {
  const double r = 1 / std::sqrt(Dot(x, x) / width + eps);
  for (size_t i = 0; i < x.size(); ++i) x[i] *= r * (offset + scale.data[i]);
  return x;
}

class Evaluator {
 public:
  Evaluator(const Graph& graph, const NaiveTensors& sources, const std::vector<int64_t>& tokens)
      : graph_(graph), sources_(sources), tokens_(tokens) {}

  Rows Run() {
    for (const Node& node : graph_.nodes()) results_[node.id] = Eval(node);
    return results_[graph_.outputs()[0].second];
  }

 private:
  Values Get(const Node& node, absl::string_view slot) const {
    Values values;
    if (!node.Has(slot)) return values;
    const NaiveTensor tensor = NaiveValue(graph_.param(node, slot).program, sources_);
    values.present = true;
    values.shape = tensor.shape;
    for (int64_t i = 0; i < ElementCount(tensor.shape); ++i)
      values.data.push_back(ToDouble(tensor.dtype, tensor.at(i)));
    return values;
  }

  // x [in] times a kernel whose in axes and out axes are each taken as one, plus a bias.
  static Row Linear(const Row& x, const Values& kernel, const Values& bias) {
    const int64_t in = static_cast<int64_t>(x.size());
    const int64_t out = static_cast<int64_t>(kernel.data.size()) / in;
    Row y(out, 0);
    for (int64_t i = 0; i < in; ++i) {
      for (int64_t o = 0; o < out; ++o) y[o] += x[i] * kernel.data[i * out + o];
    }
    for (int64_t o = 0; o < out && bias.present; ++o) y[o] += bias.data[o];
    return y;
  }

  static Rows Heads(const Row& x, int64_t heads) {
    Rows rows;
    const int64_t width = static_cast<int64_t>(x.size()) / heads;
    for (int64_t h = 0; h < heads; ++h) rows.emplace_back(x.begin() + h * width, x.begin() + (h + 1) * width);
    return rows;
  }

  Rows Eval(const Node& node) {
    const Rows x = node.operands.empty() ? Rows() : results_[node.operands[0]];
    switch (node.op) {
      case OpKind::kInput:
        return {};
      case OpKind::kAdd:
        return Add(x, results_[node.operands[1]]);
      case OpKind::kEmbedding:
        return Embed(node);
      case OpKind::kRmsNorm:
      case OpKind::kLayerNorm:
        return Norm(node, x);
      case OpKind::kAttention:
        return Attend(node, x);
      case OpKind::kLatentAttention:
        return AttendLatent(node, x);
      case OpKind::kMlp:
      case OpKind::kGatedMlp:
        return Mlp(node, x);
      case OpKind::kMoe:
        return Moe(node, x);
      case OpKind::kLmHead:
        return Head(node, x);
      default:
        break;
    }
    TWIN_CHECK(false, "an op that no small model has");
  }

  static Rows Add(Rows x, const Rows& y) {
    for (size_t t = 0; t < x.size(); ++t) {
      for (size_t i = 0; i < x[t].size(); ++i) x[t][i] += y[t][i];
    }
    return x;
  }

  Rows Embed(const Node& node) const {
    const Values table = Get(node, "table");
    const EmbeddingAttrs& attrs = node.attrs->embedding();
    const double factor = attrs.has_scale() ? attrs.scale() : 1;
    Rows rows;
    for (int64_t token : tokens_) {
      rows.emplace_back();
      for (int64_t i = 0; i < table.shape[1]; ++i) rows.back().push_back(factor * table.at({token, i}));
    }
    return rows;
  }

  Rows Norm(const Node& node, Rows x) const {
    const Values scale = Get(node, "scale"), bias = Get(node, "bias");
    const NormAttrs& attrs = node.attrs->norm();
    for (Row& row : x) {
      // Padding stands at the tail; a norm over the live places does not see it.
      const int64_t live =
          attrs.norm_dim() != 0 ? attrs.norm_dim() : graph_.param(node, "scale").type.axes[0].logical;
      if (node.op == OpKind::kLayerNorm) {
        const double mean = std::accumulate(row.begin(), row.begin() + live, 0.0) / static_cast<double>(live);
        for (int64_t i = 0; i < live; ++i) row[i] -= mean;
      }
      row = RmsNorm(row, scale, attrs.eps(), attrs.offset(), static_cast<double>(live));
      for (size_t i = 0; i < row.size() && bias.present; ++i) row[i] += bias.data[i];
    }
    return x;
  }

  Rows Attend(const Node& node, const Rows& x) const {
    const AttentionAttrs& attrs = node.attrs->attention();
    const ParamType& q_type = graph_.param(node, "q").type;
    const int64_t heads = q_type.Get("heads").size;
    const int64_t kv_heads = graph_.param(node, "k").type.Get("kv_heads").size;
    const double norm_width =
        static_cast<double>(attrs.qk_norm_dim() != 0 ? attrs.qk_norm_dim() : q_type.Get("head_dim").logical);
    const auto project = [&](const char* slot, const char* bias, int64_t count, const char* norm, bool turn) {
      std::vector<Rows> all;  // [position][head][place]
      const Values kernel = Get(node, slot), b = Get(node, bias),
                   scale = norm == nullptr ? Values() : Get(node, norm);
      for (size_t t = 0; t < x.size(); ++t) {
        Rows rows = Heads(Linear(x[t], kernel, b), count);
        for (Row& row : rows) {
          if (scale.present)
            row = RmsNorm(row, scale, attrs.qk_norm_eps(), attrs.qk_norm_offset(), norm_width);
          if (turn) Turn(attrs.rope(), static_cast<int64_t>(t), row);
        }
        all.push_back(rows);
      }
      return all;
    };
    const std::vector<Rows> q = project("q", "q_bias", heads, "q_norm", true);
    const std::vector<Rows> k = project("k", "k_bias", kv_heads, "k_norm", true);
    const std::vector<Rows> v = project("v", "v_bias", kv_heads, nullptr, false);
    const Values sinks = Get(node, "sinks");
    return Mix(node, q, k, v, heads / kv_heads, attrs.scale(), attrs.softcap(), attrs.causal(), sinks, {});
  }

  Rows Mix(const Node& node, const std::vector<Rows>& q, const std::vector<Rows>& k,
           const std::vector<Rows>& v, int64_t group, double scale, double softcap, bool causal,
           const Values& sinks, const Values& v_b) const {
    const Values o = Get(node, "o"), o_bias = Get(node, "o_bias");
    Rows out;
    for (size_t t = 0; t < q.size(); ++t) {
      Row joined;
      for (size_t h = 0; h < q[t].size(); ++h) {
        Row scores;
        for (size_t s = 0; s < (causal ? t + 1 : q.size()); ++s) {
          scores.push_back(Cap(scale * Dot(q[t][h], k[s][h / group]), softcap));
        }
        const Row p =
            Softmax(scores, sinks.present ? sinks.data[h] : -std::numeric_limits<double>::infinity());
        Row mixed(v[0][0].size(), 0);
        for (size_t s = 0; s < p.size(); ++s) {
          for (size_t i = 0; i < mixed.size(); ++i) mixed[i] += p[s] * v[s][h / group][i];
        }
        if (v_b.present) mixed = ThroughHead(mixed, v_b, static_cast<int64_t>(h));
        joined.insert(joined.end(), mixed.begin(), mixed.end());
      }
      out.push_back(Linear(joined, o, o_bias));
    }
    return out;
  }

  // x [kv_lora] through one head of a kernel [kv_lora, heads, width].
  static Row ThroughHead(const Row& x, const Values& kernel, int64_t head) {
    Row y(kernel.shape[2], 0);
    for (int64_t c = 0; c < kernel.shape[0]; ++c) {
      for (int64_t i = 0; i < kernel.shape[2]; ++i) y[i] += x[c] * kernel.at({c, head, i});
    }
    return y;
  }

  // The same head the other way: x [width] against each latent's row.
  static Row AgainstHead(const Row& x, const Values& kernel, int64_t head) {
    Row y(kernel.shape[0], 0);
    for (int64_t c = 0; c < kernel.shape[0]; ++c) {
      for (int64_t i = 0; i < kernel.shape[2]; ++i) y[c] += x[i] * kernel.at({c, head, i});
    }
    return y;
  }

  Rows AttendLatent(const Node& node, const Rows& x) const {
    const LatentAttentionAttrs& attrs = node.attrs->latent_attention();
    const int64_t heads = graph_.param(node, "q_nope").type.Get("heads").size;
    const Values none, q_a_norm = Get(node, "q_a_norm"), kv_a_norm = Get(node, "kv_a_norm"),
                       k_b = Get(node, "k_b"), v_b = Get(node, "v_b");
    std::vector<Rows> q, k, v;
    for (size_t t = 0; t < x.size(); ++t) {
      const auto low = [&](const char* kernel, const Values& norm) {
        Row row = Linear(x[t], Get(node, kernel), none);
        return RmsNorm(row, norm, attrs.norm_eps(), 0, static_cast<double>(row.size()));
      };
      const Row query = low("q_a", q_a_norm), latent = low("kv_a", kv_a_norm);
      Rows nope = Heads(Linear(query, Get(node, "q_nope"), none), heads);
      Rows rope = Heads(Linear(query, Get(node, "q_rope"), none), heads);
      Rows keys = Heads(Linear(latent, k_b, none), heads), values = Heads(Linear(latent, v_b, none), heads);
      if (attrs.absorbed()) {
        keys = values = Rows(heads, latent);
        for (int64_t h = 0; h < heads; ++h) nope[h] = AgainstHead(nope[h], k_b, h);
      }
      Row key_rope = Linear(x[t], Get(node, "k_rope"), none);
      Turn(attrs.rope(), static_cast<int64_t>(t), key_rope);
      for (int64_t h = 0; h < heads; ++h) {
        Turn(attrs.rope(), static_cast<int64_t>(t), rope[h]);
        nope[h].insert(nope[h].end(), rope[h].begin(), rope[h].end());
        keys[h].insert(keys[h].end(), key_rope.begin(), key_rope.end());
      }
      q.push_back(nope);
      k.push_back(keys);
      v.push_back(values);
    }
    return Mix(node, q, k, v, 1, attrs.scale(), 0, true, none, attrs.absorbed() ? v_b : none);
  }

  // One channel of an expert or a block before `down`.
  static double Channel(const MlpAttrs& attrs, double gate, double up) {
    if (!attrs.has_clamp_limit()) return Act(attrs.act(), gate) * up;
    const double limit = attrs.clamp_limit();
    gate = std::min(gate, limit);
    up = std::clamp(up, -limit, limit);
    return (up + attrs.up_offset()) * gate / (1 + std::exp(-attrs.clamp_alpha() * gate));
  }

  Rows Mlp(const Node& node, const Rows& x) const {
    const MlpAttrs& attrs = node.attrs->mlp();
    Rows out;
    for (const Row& row : x) {
      Row up = Linear(row, Get(node, "up"), Get(node, "up_bias"));
      if (node.Has("gate")) {
        const Row gate = Linear(row, Get(node, "gate"), Get(node, "gate_bias"));
        for (size_t i = 0; i < up.size(); ++i) up[i] = Channel(attrs, gate[i], up[i]);
      } else {
        for (double& v : up) v = Act(attrs.act(), v);
      }
      out.push_back(Linear(up, Get(node, "down"), Get(node, "down_bias")));
    }
    return out;
  }

  // Weight of each expert for one token; 0 where it was not chosen.
  Row Route(const Node& node, const Row& x) const {
    const MoeAttrs& attrs = node.attrs->moe();
    const Row logits = Linear(x, Get(node, "router"), Get(node, "router_bias"));
    Row score = logits;
    if (attrs.score() == MoeAttrs::SOFTMAX_ALL)
      score = Softmax(logits, -std::numeric_limits<double>::infinity());
    if (attrs.score() == MoeAttrs::SIGMOID) {
      for (double& s : score) s = 1 / (1 + std::exp(-s));
    }
    Row rank = score;
    const Values correction = Get(node, "router_correction");
    for (size_t e = 0; e < rank.size() && correction.present; ++e) rank[e] += correction.data[e];
    std::vector<size_t> order(rank.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return rank[a] > rank[b]; });
    order.resize(attrs.top_k());
    Row weight(score.size(), 0);
    double sum = 0;
    for (size_t e : order)
      sum += weight[e] = attrs.score() == MoeAttrs::SOFTMAX_TOP ? std::exp(logits[e]) : score[e];
    if (attrs.renormalize() || attrs.score() == MoeAttrs::SOFTMAX_TOP) {
      for (double& w : weight) w /= sum;
    }
    for (double& w : weight) w *= attrs.routed_scale() == 0 ? 1 : attrs.routed_scale();
    return weight;
  }

  // Element of an expert's kernel or bias, whether experts stand alone or in groups.
  static double ExpertAt(const Values& values, bool grouped, int64_t expert, int64_t channel, int64_t model,
                         bool down) {
    if (!grouped) return down ? values.at({expert, channel, model}) : values.at({expert, model, channel});
    const int64_t members = values.shape[down ? 1 : 2];
    const int64_t group = expert / members, member = expert % members;
    return down ? values.at({group, member, channel, model}) : values.at({group, model, member, channel});
  }

  static double ExpertBias(const Values& values, int64_t expert, int64_t i) {
    if (!values.present) return 0;
    if (values.shape.size() == 2) return values.at({expert, i});
    return values.at({expert / values.shape[1], expert % values.shape[1], i});
  }

  Rows Moe(const Node& node, const Rows& x) const {
    const MoeAttrs& attrs = node.attrs->moe();
    const ParamType& type = graph_.param(node, "gate").type;
    const bool grouped = type.Find("member") >= 0;
    const int64_t width = type.Get("d_ff").size;
    const Values gate = Get(node, "gate"), up = Get(node, "up"), down = Get(node, "down"), none;
    const Values gate_bias = Get(node, "gate_bias"), up_bias = Get(node, "up_bias"),
                 down_bias = Get(node, "down_bias");
    Rows out;
    for (const Row& row : x) {
      const int64_t d = static_cast<int64_t>(row.size());
      const Row weight = Route(node, row);
      Row sum(d, 0);
      for (int64_t e = 0; e < static_cast<int64_t>(weight.size()); ++e) {
        if (weight[e] == 0) continue;
        for (int64_t c = 0; c < width; ++c) {
          double g = ExpertBias(gate_bias, e, c), u = ExpertBias(up_bias, e, c);
          for (int64_t i = 0; i < d; ++i) {
            g += row[i] * ExpertAt(gate, grouped, e, c, i, false);
            u += row[i] * ExpertAt(up, grouped, e, c, i, false);
          }
          const double y = Channel(attrs.expert(), g, u);
          for (int64_t i = 0; i < d; ++i) sum[i] += weight[e] * y * ExpertAt(down, grouped, e, c, i, true);
        }
        for (int64_t i = 0; i < d; ++i) sum[i] += weight[e] * ExpertBias(down_bias, e, i);
      }
      if (node.Has("shared_up")) {
        Row shared = Linear(row, Get(node, "shared_up"), none);
        const Row shared_gate = Linear(row, Get(node, "shared_gate"), none);
        for (size_t i = 0; i < shared.size(); ++i)
          shared[i] = Channel(attrs.shared(), shared_gate[i], shared[i]);
        const Row y = Linear(shared, Get(node, "shared_down"), none);
        for (int64_t i = 0; i < d; ++i) sum[i] += y[i];
      }
      out.push_back(sum);
    }
    return out;
  }

  Rows Head(const Node& node, const Rows& x) const {
    const LmHeadAttrs& attrs = node.attrs->lm_head();
    const int64_t logical = graph_.param(node, "head").type.Get("vocab").logical;
    Rows out;
    for (const Row& row : x) {
      Row logits = Linear(row, Get(node, "head"), Get(node, "bias"));
      for (double& v : logits) v = Cap(v * (attrs.has_scale() ? attrs.scale() : 1), attrs.softcap());
      logits.resize(logical);
      out.push_back(logits);
    }
    return out;
  }

  const Graph& graph_;
  const NaiveTensors& sources_;
  const std::vector<int64_t>& tokens_;
  std::map<NodeId, Rows> results_;
};

}  // namespace

std::vector<std::vector<double>> NaiveOutput(const Graph& graph, const NaiveTensors& sources,
                                             const std::vector<int64_t>& tokens) {
  return Evaluator(graph, sources, tokens).Run();
}

}  // namespace twinforge
