#include "reference/torch_emitter.h"

#include "absl/strings/str_cat.h"
#include "reference/einsum.h"
#include "reference/python.h"

namespace twinforge {

TorchEmitter::TorchEmitter(const ReferenceProgram& program) : program_(program) {
  for (const Node& node : graph().nodes()) {
    if (node.op != OpKind::kAttention) continue;
    windows_ = windows_ || node.attrs->attention().window() != 0;
    chunks_ = chunks_ || node.attrs->attention().chunk() != 0;
  }
}

const ParamType& TorchEmitter::TypeOf(const Node& node, absl::string_view slot) const {
  return graph().param(node, slot).type;
}

std::string TorchEmitter::Widen() {
  return functions_.Define("widen", R"(def $(x):
    """x in float32, or in float64 if it is that."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
)");
}

std::string TorchEmitter::WideDot() {
  const std::string widen = Widen();
  return functions_.Define("wide_dot", absl::StrCat(R"(def $(spec, x, y):
    """einsum of values in the dtype of x, its products and sums in float32 and left so."""
    return torch.einsum(spec, )",
                                                    widen, "(x), ", widen, "(y.to(x.dtype)))\n"));
}

std::string TorchEmitter::Dot() {
  return functions_.Define("dot", R"(def $(spec, x, kernel, bias=None):
    """einsum in the dtype of x, plus a bias over the last axes."""
    y = torch.einsum(spec, x, kernel.to(x.dtype))
    return y if bias is None else y + bias.to(x.dtype)
)");
}

std::string TorchEmitter::TopK() {
  return functions_.Define("top_k", R"(def $(x, k):
    """Places of the k largest along the last axis; of equal ones the first."""
    return torch.sort(x, dim=-1, descending=True, stable=True).indices[..., :k]
)");
}

std::string TorchEmitter::Project(const Node& node, absl::string_view x, absl::string_view slot,
                                  absl::string_view bias, absl::string_view rows) {
  std::string call =
      absl::StrCat(Dot(), "(\"", ProductSpec(program_.Held(node, slot), rows), "\", ", x, ", self.", slot);
  if (!bias.empty() && node.Has(bias)) absl::StrAppend(&call, ", self.", bias);
  return call + ")";
}

std::string TorchEmitter::SoftCap(std::string x, double cap, absl::string_view name) {
  if (cap == 0) return x;
  const std::string field = config_.Float(name, cap, "cap * tanh(x / cap)");
  return absl::StrCat(field, " * torch.tanh(", x, " / ", field, ")");
}

std::string TorchEmitter::Block(absl::string_view name, absl::string_view arguments, absl::string_view body,
                                absl::string_view meaning) {
  std::string text = "class $(Block):\n";
  if (!meaning.empty()) absl::StrAppend(&text, "    \"\"\"", meaning, "\"\"\"\n\n");
  absl::StrAppend(&text, "    def forward(self, ", arguments, "):\n", Indented(body, 8));
  return functions_.Define(name, text);
}

}  // namespace twinforge
