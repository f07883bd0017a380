#include "ir/rope.h"

#include <cmath>

#include "base/check.h"

namespace twinforge {

double DefaultScale(int64_t head_dim) { return std::pow(static_cast<double>(head_dim), -0.5); }

double DefaultLatentScale(int64_t qk_dim, const RopeScaling& scaling) {
  const double scale = DefaultScale(qk_dim);
  if (scaling.kind() == RopeScaling::NONE || scaling.mscale_all_dim() == 0) return scale;
  if (scaling.factor() <= 1) return scale;
  const double mscale = 0.1 * scaling.mscale_all_dim() * std::log(scaling.factor()) + 1.0;
  return scale * mscale * mscale;
}

double DefaultScale(const Graph& graph, const Node& node) {
  if (node.op == OpKind::kAttention) return DefaultScale(graph.param(node, "q").type.Get("head_dim").size);
  TWIN_CHECK(node.op == OpKind::kLatentAttention, "only attention has a softmax scale");
  const int64_t qk_dim = graph.param(node, "q_nope").type.Get("nope_dim").size +
                         graph.param(node, "q_rope").type.Get("rope_dim").size;
  return DefaultLatentScale(qk_dim, node.attrs->latent_attention().rope().scaling());
}

}  // namespace twinforge
