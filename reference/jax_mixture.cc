// A mixture of experts: the router, the experts, those that every token sees.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "reference/einsum.h"
#include "reference/jax_emitter.h"
#include "reference/python.h"

namespace twinforge {
namespace {

// Lines that leave `choice` only within the best groups.
std::string GroupLines(const MoeAttrs& attrs, ConfigFields& config) {
  const std::string groups = config.Int("router_groups", attrs.groups());
  const std::string top = config.Int("router_top_groups", attrs.top_groups());
  return absl::StrCat("    grouped = choice.reshape(*choice.shape[:-1], ", groups, ", -1)\n",
                      "    best = jax.lax.top_k(grouped, min(2, grouped.shape[-1]))[0].sum(axis=-1)  # a "
                      "group is as good as its best two\n",
                      "    kept = jax.nn.one_hot(jax.lax.top_k(best, ", top, ")[1], ", groups,
                      ").sum(axis=-2) > 0\n",
                      "    choice = jnp.where(kept[..., None], grouped, -jnp.inf).reshape(choice.shape)\n");
}

}  // namespace

std::string JaxEmitter::Route(const Node& node) {
  const MoeAttrs& attrs = node.attrs->moe();
  const bool logistic = attrs.score() == MoeAttrs::SIGMOID;
  const std::string widen = Widen();
  const std::string product =
      Project(node, logistic ? absl::StrCat(widen, "(x)") : "x", "router", "router_bias");
  std::string scores = absl::StrCat(widen, "(", product, ")");
  if (attrs.score() == MoeAttrs::SOFTMAX_ALL) scores = absl::StrCat("jax.nn.softmax(", scores, ", axis=-1)");
  if (logistic) scores = absl::StrCat("jax.nn.sigmoid(", product, ")");
  std::string text = absl::StrCat(
      "def $(x, p):\n    \"\"\"[batch, seq, top_k] twice: which experts a token sees, and the weight of "
      "each.\"\"\"\n    scores = ",
      scores, "\n");
  std::string choice = "scores";
  if (node.Has("router_correction")) {
    absl::StrAppend(&text, "    choice = scores + p[\"router_correction\"].astype(scores.dtype)\n");
    choice = "choice";
  }
  if (attrs.groups() > 1) {
    if (choice == "scores") text += "    choice = scores\n";
    text += GroupLines(attrs, config_);
    choice = "choice";
  }
  const std::string top = config_.Int("top_k", attrs.top_k(), "experts that a token sees");
  absl::StrAppend(&text, "    chosen = jax.lax.top_k(", choice, ", ", top, ")[1]\n",
                  "    weights = jnp.take_along_axis(scores, chosen, axis=-1)\n");
  if (attrs.score() == MoeAttrs::SOFTMAX_TOP) {
    text += "    weights = jax.nn.softmax(weights, axis=-1)\n";
  } else if (attrs.renormalize()) {
    absl::StrAppend(&text, "    weights = weights / (weights.sum(axis=-1, keepdims=True)",
                    logistic ? " + 1e-20" : "", ")\n");
  }
  if (attrs.routed_scale() != 0 && attrs.routed_scale() != 1) {
    absl::StrAppend(&text, "    weights = weights * ", config_.Float("routed_scale", attrs.routed_scale()),
                    "\n");
  }
  return functions_.Define("route", text + "    return chosen, weights\n");
}

std::string JaxEmitter::EveryExpert(const Node& node) {
  const std::string gated = Gate(node.attrs->moe().expert());
  const AxisLetters down = LettersOf(program_.Held(node, "down"));
  const ParamType& router = TypeOf(node, "router");
  int64_t count = 1;
  for (size_t axis = router.lead + router.in; axis < router.axes.size(); ++axis)
    count *= router.axes[axis].size;
  const std::string experts = config_.Int("experts", count);
  std::string text = InOrder(
      {"def $(x, p, chosen, weights):\n    \"\"\"Every expert's output times its weight, summed: what is not "
       "chosen has weight 0.\"\"\"\n",
       "    gate = ",
       Project(node, "x", "gate", "gate_bias"),
       "\n    up = ",
       Project(node, "x", "up", "up_bias"),
       "\n    inner = ",
       gated,
       "(gate, up)\n    places = jax.nn.one_hot(chosen, ",
       experts,
       ", dtype=weights.dtype)\n    weights = (places * weights[..., None]).sum(axis=-2).astype(x.dtype)"
       ".reshape(inner.shape[:-1])\n",
       node.Has("down_bias") ? "    y = " : "    return ",
       Dot(),
       "(\"bs",
       down.lead,
       down.in,
       ",",
       down.held,
       "->bs",
       down.out,
       "\", inner * weights[..., None], p[\"down\"])\n"});
  if (!node.Has("down_bias")) return functions_.Define("every_expert", text);
  const AxisLetters bias = LettersOf(program_.Held(node, "down_bias"));
  const size_t last = bias.held.size() - 1;
  return functions_.Define(
      "every_expert",
      InOrder({text, "    return y + ", Dot(), "(\"bs", bias.held.substr(0, last), ",", bias.held, "->bs",
               bias.held.substr(last), "\", weights, p[\"down_bias\"])\n"}));
}

std::string JaxEmitter::Moe(const Node& node) {
  const MoeAttrs& attrs = node.attrs->moe();
  const bool shares = node.Has("shared_up");
  std::string text = InOrder({"def $(x, p):\n    chosen, weights = ", Route(node), "(x, p)\n"});
  const std::string every = EveryExpert(node);
  if (HasExpertKernel(node)) {
    text += InOrder({"    options = ", KernelOptions(), "()\n    if options is None:\n        y = ", every,
                     "(x, p, chosen, weights)\n    else:\n        y = ", ChosenExperts(node),
                     "(x, p, chosen, weights, options)\n", shares ? "" : "    return y\n"});
  } else {
    absl::StrAppend(&text, shares ? "    y = " : "    return ", every, "(x, p, chosen, weights)\n");
  }
  if (!shares) return functions_.Define("moe", text);
  const std::string shared = Gate(attrs.shared());
  text += InOrder({"    shared = ", shared, "(", Project(node, "x", "shared_gate"), ", ",
                   Project(node, "x", "shared_up"), ")\n    return y + ",
                   Project(node, "shared", "shared_down"), "\n"});
  return functions_.Define("moe", text);
}

}  // namespace twinforge
