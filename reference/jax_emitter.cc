#include "reference/jax_emitter.h"

#include "absl/strings/str_cat.h"
#include "reference/einsum.h"
#include "reference/python.h"

namespace twinforge {

JaxEmitter::JaxEmitter(const ReferenceProgram& program) : program_(program) {
  for (const Node& node : graph().nodes()) {
    if (node.op != OpKind::kAttention) continue;
    windows_ = windows_ || node.attrs->attention().window() != 0;
    chunks_ = chunks_ || node.attrs->attention().chunk() != 0;
  }
}

const ParamType& JaxEmitter::TypeOf(const Node& node, absl::string_view slot) const {
  return graph().param(node, slot).type;
}

std::string JaxEmitter::Widen() {
  return functions_.Define("widen", R"(def $(x):
    """x in float32, or in float64 if it is that."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))
)");
}

std::string JaxEmitter::WideDot() {
  return functions_.Define("wide_dot", R"(def $(spec, x, y):
    """einsum in the dtype of x, its sums in float32 and left so."""
    wide = jnp.promote_types(x.dtype, jnp.float32)  # "highest": no float32 is cut to bfloat16 on the way
    return jnp.einsum(spec, x, y.astype(x.dtype), precision="highest", preferred_element_type=wide)
)");
}

std::string JaxEmitter::Dot() {
  const std::string wide = WideDot();
  return functions_.Define("dot", absl::StrCat(R"(def $(spec, x, kernel, bias=None):
    """einsum, rounded to the dtype of x, plus a bias over the last axes."""
    y = )",
                                               wide, R"((spec, x, kernel).astype(x.dtype)
    return y if bias is None else y + bias.astype(x.dtype)
)"));
}

std::string JaxEmitter::Slot(const Node& node, absl::string_view slot, absl::string_view p) const {
  return IsLeaf(node) ? std::string(p) : absl::StrCat(p, "[\"", slot, "\"]");
}

std::string JaxEmitter::Project(const Node& node, absl::string_view x, absl::string_view slot,
                                absl::string_view bias, absl::string_view rows) {
  const HeldParam& held = program_.Held(node, slot);
  if (IsPacked(held)) return PackedProduct(node, x, slot, bias, ProductSpec(held, rows));
  std::string call = absl::StrCat(Dot(), "(\"", ProductSpec(held, rows), "\", ", x, ", ", Slot(node, slot));
  if (!bias.empty() && node.Has(bias)) absl::StrAppend(&call, ", ", Slot(node, bias));
  return call + ")";
}

std::string JaxEmitter::SoftCap(std::string x, double cap, absl::string_view name) {
  if (cap == 0) return x;
  const std::string field = config_.Float(name, cap, "cap * tanh(x / cap)");
  return absl::StrCat(field, " * jnp.tanh(", x, " / ", field, ")");
}

}  // namespace twinforge
