// Calls of Pallas kernels: what the module needs to call them, and mixtures computed by them.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "reference/einsum.h"
#include "reference/jax_emitter.h"
#include "reference/python.h"

namespace twinforge {
namespace {

// [expert, in, out], or [expert, out, in].
bool IsStackOfMatrices(const HeldParam& held) {
  const ParamType& type = held.param->type;
  return type.lead == 1 && type.in == 1 && type.axes.size() == 3 && held.order[0] == 0;
}

}  // namespace

void JaxEmitter::UseKernel(std::string name) {
  if (std::find(kernels_.begin(), kernels_.end(), name) == kernels_.end())
    kernels_.push_back(std::move(name));
}

std::string JaxEmitter::KernelOptions() {
  config_.String("kernels", "auto", "on TPUs; \"off\", \"interpret\", or compiled for \"v5e\", \"v6e\", ..");
  // XLA derives how a mesh computes what devices split, and cannot split a kernel.
  const absl::string_view alone = IsSharded() ? " and jax.device_count() == 1" : "";
  return functions_.Define("kernel_options", absl::StrCat(R"(def $():
    """What kernels are called with, or None where plain JAX takes their place."""
    if CONFIG.kernels == "off":
        return None
    if CONFIG.kernels == "auto":
        return {} if jax.default_backend() == "tpu")",
                                                          alone, R"( else None
    return {"interpret": True} if CONFIG.kernels == "interpret" else {"chip": CONFIG.kernels}
)"));
}

bool JaxEmitter::HasExpertKernel(const Node& node) const {
  if (node.op != OpKind::kMoe) return false;
  for (const char* slot : {"gate", "up", "down"}) {
    if (!IsStackOfMatrices(program_.Held(node, slot))) return false;
  }
  return true;
}

// product(x, experts["gate"]), and the bias of each row's expert.
std::string JaxEmitter::ExpertProduct(const Node& node, absl::string_view x, absl::string_view slot) const {
  const bool out_in = program_.Held(node, slot).order[1] == 2;
  std::string call =
      absl::StrCat("product(", x, ", experts[\"", slot, "\"]", out_in ? ", out_in=True)" : ")");
  const std::string bias = absl::StrCat(slot, "_bias");
  if (node.Has(bias)) absl::StrAppend(&call, " + p[\"", bias, "\"][rows.expert].astype(x.dtype)");
  return call;
}

std::string JaxEmitter::ChosenExperts(const Node& node) {
  UseKernel("grouped_matmul");
  const std::string gated = Gate(node.attrs->moe().expert()), wide = WideDot();
  const std::string experts = config_.Int("experts", TypeOf(node, "gate").axes[0].size);
  return functions_.Define(
      "chosen_experts",
      InOrder(
          {"def $(x, p, chosen, weights, options):\n",
           "    \"\"\"The same of the experts that are chosen: a row for each choice, sorted by "
           "expert.\"\"\"\n",
           "    experts, layer = p.get(\"stack\", (p, None))\n",
           "    rows = grouped_matmul.sort_rows(chosen, ",
           experts,
           ", x.dtype, **options)\n",
           "    product = functools.partial(grouped_matmul.aligned, alignment=rows.alignment, layer=layer, "
           "**options)\n",
           "    tokens = rows.gather(x.reshape(-1, x.shape[-1]))\n",
           "    gate = ",
           ExpertProduct(node, "tokens", "gate"),
           "\n",
           "    up = ",
           ExpertProduct(node, "tokens", "up"),
           "\n",
           "    y = ",
           ExpertProduct(node, absl::StrCat(gated, "(gate, up)"), "down"),
           "\n",
           "    return ",
           wide,
           "(\"bsk,bskd->bsd\", weights, y[rows.place]).astype(x.dtype)\n"}));
}

// What a step of a loop over layers is given of their stack.
std::string JaxEmitter::LayerOf(const std::vector<NodeId>& layer) {
  std::string text = "def $(stack, row):\n";
  std::string value = "jax.tree.map(lambda of: of[row], stack)";
  std::vector<std::string> kept;
  for (const NodeId id : layer) {
    const Node& node = graph().node(id);
    if (!HasExpertKernel(node)) continue;
    const std::string key = absl::StrCat("\"", ReferenceProgram::Suffix(node.path), "\"");
    kept.push_back(absl::StrCat(key, ": p[", key, "] | {\"stack\": (stack[", key, "], row)}"));
  }
  if (kept.empty()) {
    return functions_.Define(
        "layer_of",
        absl::StrCat(text, "    \"\"\"The parameters of one layer.\"\"\"\n    return ", value, "\n"));
  }
  return functions_.Define(
      "layer_of",
      absl::StrCat(
          text,
          "    \"\"\"The parameters of one layer; of experts the stack too, where a kernel reads them: "
          "a layer cut out\n    of it would be copied first.\"\"\"\n    p = ",
          value, "\n    return p | {", absl::StrJoin(kept, ", "), "}\n"));
}

}  // namespace twinforge
