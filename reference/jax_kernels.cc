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
  std::vector<std::string> names;
  for (const NodeId id : layer) {
    const Node& node = graph().node(id);
    if (ReadsStack(node)) names.push_back(absl::StrCat("\"", ReferenceProgram::Suffix(node.path), "\""));
  }
  if (names.empty()) {
    return functions_.Define("layer_of", R"(def $(stack, row):
    """The parameters of one layer."""
    return jax.tree.map(lambda of: of[row], stack)
)");
  }
  return functions_.Define("layer_of",
                           absl::StrCat(R"(def $(stack, row):
    """The parameters of one layer; the stack too where a kernel reads it, for a layer cut out would be copied first."""
    p = jax.tree.map(lambda of: of[row], stack)
    return p | {name: p[name] | {"stack": (stack[name], row)} for name in ()",
                                        absl::StrJoin(names, ", "), names.size() == 1 ? "," : "", ")}\n"));
}

// ---- weights of which few are kept

bool JaxEmitter::IsPacked(const HeldParam& held) const {
  if (!held.kept || IsSharded()) return false;
  const KeptGroups& kept = *held.kept;
  int64_t bits = 0;  // of a place in its group
  while ((int64_t{1} << bits) < kept.of) ++bits;
  // Whole tiles of 16-bit numbers, codes of a word: what the kernel asks for.
  return kept.stride % (kept.along_in ? 16 : 128) == 0 && std::min(kept.of, kept.keep * bits) <= 32;
}

bool JaxEmitter::HasPacked() const {
  return std::any_of(program_.held.begin(), program_.held.end(),
                     [&](const auto& row) { return IsPacked(row.second); });
}

bool JaxEmitter::ReadsStack(const Node& node) const {
  return HasExpertKernel(node) || std::any_of(node.params.begin(), node.params.end(), [&](const auto& slot) {
           return IsPacked(program_.held.at(slot.second));
         });
}

std::string JaxEmitter::PackedProduct(const Node& node, absl::string_view x, absl::string_view slot,
                                      absl::string_view bias, const std::string& spec) {
  UseKernel("nm_pack");
  UseKernel("strided_nm_matmul");
  const std::string dot = Dot(), options = KernelOptions();
  const std::string name = functions_.Define("kept_dot", InOrder({R"(def $(spec, x, p, slot, out, bias=None):
    """dot with a weight of which few are kept: packed, so that the rest is not read, or dense with its zeros."""
    stack, layer = p.get("stack", (p, None))
    weight = stack[slot]
    if not isinstance(weight, nm_pack.Packed):
        return )",
                                                                  dot, R"((spec, x, p[slot], bias)
    options = )",
                                                                  options, R"(()
    rows = x.reshape(-1, weight.shape[0])
    if options is None:
        y = strided_nm_matmul.reference(rows, weight, layer=layer)
    else:
        y = strided_nm_matmul.kernel(rows, weight, layer=layer, **options)
    y = y.reshape(*x.shape[:2], *out)
    return y if bias is None else y + bias.astype(x.dtype)
)"}));
  const ParamType& type = TypeOf(node, slot);
  std::vector<int64_t> out;
  for (size_t axis = type.in; axis < type.axes.size(); ++axis) out.push_back(type.axes[axis].size);
  return absl::StrCat(name, "(\"", spec, "\", ", x, ", p, \"", slot, "\", ", PyTuple(out),
                      bias.empty() || !node.Has(bias) ? "" : absl::StrCat(", ", Slot(node, bias)), ")");
}

// packed(read("layers.0.mlp.down"), (0, 1), (96, 48), (2, 4, 16, "in"))
std::string JaxEmitter::PackedLeaf(const HeldParam& held) const {
  const ParamType& type = held.param->type;
  std::vector<int64_t> axes(held.order.size());  // that put the held ones in canonical order
  for (size_t i = 0; i < held.order.size(); ++i) axes[held.order[i]] = static_cast<int64_t>(i);
  int64_t in = 1, out = 1;
  for (size_t axis = 0; axis < type.axes.size(); ++axis)
    (static_cast<int>(axis) < type.in ? in : out) *= type.axes[axis].size;
  return absl::StrCat("packed(\n                ", held.expression, ", ", PyTuple(axes), ", ",
                      PyTuple({in, out}), ", (", held.kept->keep, ", ", held.kept->of, ", ",
                      held.kept->stride, ", \"", held.kept->along_in ? "in" : "out", "\"))");
}

}  // namespace twinforge
