// A mixture of experts: the router, the experts, those that every token sees.
#include "absl/strings/str_cat.h"
#include "reference/einsum.h"
#include "reference/python.h"
#include "reference/torch_emitter.h"

namespace twinforge {
namespace {

// Lines that leave `choice` only within the best groups.
std::string GroupLines(const MoeAttrs& attrs, ConfigFields& config, absl::string_view choice,
                       absl::string_view top_k) {
  const std::string groups = config.Int("router_groups", attrs.groups());
  const std::string top = config.Int("router_top_groups", attrs.top_groups());
  return absl::StrCat("    grouped = ", choice, ".unflatten(-1, (", groups, ", -1))\n",
                      "    best = grouped.topk(min(2, grouped.shape[-1])).values.sum(dim=-1)",
                      "  # a group is as good as its best two\n",
                      "    kept = torch.zeros_like(best, dtype=torch.bool).scatter(-1, ", top_k, "(best, ",
                      top, "), True)\n",
                      "    choice = grouped.masked_fill(~kept[..., None], float(\"-inf\")).flatten(-2)\n");
}

}  // namespace

std::string TorchEmitter::Route(const Node& node) {
  const MoeAttrs& attrs = node.attrs->moe();
  const bool logistic = attrs.score() == MoeAttrs::SIGMOID;
  const std::string widen = Widen();
  const std::string product =
      Project(node, logistic ? absl::StrCat(widen, "(x)") : "x", "router", "router_bias");
  std::string scores = absl::StrCat(widen, "(", product, ")");
  if (attrs.score() == MoeAttrs::SOFTMAX_ALL) scores = absl::StrCat("torch.softmax(", scores, ", dim=-1)");
  if (logistic) scores = absl::StrCat("torch.sigmoid(", product, ")");
  std::string text = absl::StrCat(
      "def route(self, x):\n    \"\"\"[batch, seq, experts]: each expert's weight for each token, 0 where it "
      "is not chosen.\"\"\"\n    scores = ",
      scores, "\n");
  std::string choice = "scores";
  if (node.Has("router_correction")) {
    absl::StrAppend(&text, "    choice = scores + self.router_correction.to(scores.dtype)\n");
    choice = "choice";
  }
  const std::string top_k = TopK();
  if (attrs.groups() > 1) {
    text += GroupLines(attrs, config_, choice, top_k);
    choice = "choice";
  }
  absl::StrAppend(&text, "    chosen = ", top_k, "(", choice, ", ",
                  config_.Int("top_k", attrs.top_k(), "experts that a token sees"), ")\n",
                  "    weights = scores.gather(-1, chosen)\n");
  if (attrs.score() == MoeAttrs::SOFTMAX_TOP) {
    text += "    weights = torch.softmax(weights, dim=-1)\n";
  } else if (attrs.renormalize()) {
    absl::StrAppend(&text, "    weights = weights / (weights.sum(dim=-1, keepdim=True)",
                    logistic ? " + 1e-20" : "", ")\n");
  }
  if (attrs.routed_scale() != 0 && attrs.routed_scale() != 1) {
    absl::StrAppend(&text, "    weights = weights * ", config_.Float("routed_scale", attrs.routed_scale()),
                    "\n");
  }
  return text + "    return torch.zeros_like(scores).scatter(-1, chosen, weights).to(x.dtype)\n";
}

std::string TorchEmitter::Moe(const Node& node) {
  const MoeAttrs& attrs = node.attrs->moe();
  const std::string route = Route(node), gated = Gate(attrs.expert());
  const AxisLetters down = LettersOf(program_.Held(node, "down"));
  std::string text = InOrder({"gate = ", Project(node, "x", "gate", "gate_bias"),
                              "\nup = ", Project(node, "x", "up", "up_bias"), "\ninner = ", gated,
                              "(gate, up)\nweights = self.route(x).reshape(inner.shape[:-1])\n",
                              "y = ", Dot(), "(\"bs", down.lead, down.in, ",", down.held, "->bs", down.out,
                              "\", inner * weights[..., None], self.down)\n"});
  if (node.Has("down_bias")) {
    const AxisLetters bias = LettersOf(program_.Held(node, "down_bias"));
    const std::string experts = bias.held.substr(0, bias.held.size() - 1);
    absl::StrAppend(&text, "y = y + ", Dot(), "(\"bs", experts, ",", bias.held, "->bs",
                    bias.held.substr(bias.held.size() - 1), "\", weights, self.down_bias)\n");
  }
  if (node.Has("shared_up")) {
    const std::string shared = Gate(attrs.shared());
    text += InOrder({"shared = ", shared, "(", Project(node, "x", "shared_gate"), ", ",
                     Project(node, "x", "shared_up"), ")\ny = y + ", Project(node, "shared", "shared_down"),
                     "\n"});
  }
  return functions_.Define(
      "Moe",
      absl::StrCat("class $(Block):\n    \"\"\"Every expert's output times its weight, summed: what is "
                   "not chosen has weight 0.\"\"\"\n\n",
                   Indented(route, 4), "\n    def forward(self, x):\n", Indented(text, 8),
                   "        return y\n"));
}

}  // namespace twinforge
