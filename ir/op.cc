#include "ir/op.h"

#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "base/check.h"

namespace twinforge {
namespace {

SlotInfo Main(absl::string_view name, absl::string_view axes) { return {name, true, true, axes}; }
SlotInfo Required(absl::string_view name, absl::string_view axes) { return {name, false, true, axes}; }
SlotInfo Optional(absl::string_view name, absl::string_view axes) { return {name, false, false, axes}; }

OpInfo Primitive(OpKind kind, absl::string_view name, AttrsKind attrs, int operands) {
  return {kind, name, attrs, false, operands, {}};
}

OpInfo Composite(OpKind kind, absl::string_view name, AttrsKind attrs, std::vector<SlotInfo> slots) {
  return {kind, name, attrs, true, 1, std::move(slots)};
}

std::vector<SlotInfo> AttentionSlots() {
  return {Required("q", "d_model -> heads head_dim"),
          Required("k", "d_model -> kv_heads head_dim"),
          Required("v", "d_model -> kv_heads head_dim"),
          Required("o", "heads head_dim -> d_model"),
          Optional("q_bias", "heads head_dim"),
          Optional("k_bias", "kv_heads head_dim"),
          Optional("v_bias", "kv_heads head_dim"),
          Optional("o_bias", "d_model"),
          Optional("q_norm", "head_dim"),
          Optional("k_norm", "head_dim"),
          Optional("sinks", "heads")};
}

// The query comes through a low-rank bottleneck (q_a, its norm, then up), or straight from x.
std::vector<SlotInfo> LatentAttentionSlots() {
  return {Optional("q_a", "d_model -> q_lora"),
          Optional("q_a_norm", "q_lora"),
          Required("q_nope", "q_lora -> heads nope_dim | d_model -> heads nope_dim"),
          Required("q_rope", "q_lora -> heads rope_dim | d_model -> heads rope_dim"),
          Required("kv_a", "d_model -> kv_lora"),
          Required("k_rope", "d_model -> rope_dim"),
          Required("kv_a_norm", "kv_lora"),
          Required("k_b", "kv_lora -> heads nope_dim"),
          Required("v_b", "kv_lora -> heads v_head_dim"),
          Required("o", "heads v_head_dim -> d_model"),
          Optional("q_a_bias", "q_lora"),
          Optional("kv_a_bias", "kv_lora"),
          Optional("k_rope_bias", "rope_dim"),
          Optional("o_bias", "d_model")};
}

// The second forms are experts joined in groups: expert_group * member == expert.
std::vector<SlotInfo> MoeSlots() {
  return {Required("router", "d_model -> expert"),
          Optional("router_bias", "expert"),
          Optional("router_correction", "expert"),
          Required("gate", "expert ; d_model -> d_ff | expert_group ; d_model -> member d_ff"),
          Required("up", "expert ; d_model -> d_ff | expert_group ; d_model -> member d_ff"),
          Required("down", "expert ; d_ff -> d_model | expert_group ; member d_ff -> d_model"),
          Optional("gate_bias", "expert ; d_ff | expert_group ; member d_ff"),
          Optional("up_bias", "expert ; d_ff | expert_group ; member d_ff"),
          Optional("down_bias", "expert ; d_model | expert_group ; member d_model"),
          Optional("shared_gate", "d_model -> shared_ff"),
          Optional("shared_up", "d_model -> shared_ff"),
          Optional("shared_down", "shared_ff -> d_model")};
}

// In the order of OpKind.
std::vector<OpInfo> MakeCatalogue() {
  return {
      Primitive(OpKind::kInput, "input", AttrsKind::kNone, 0),
      Primitive(OpKind::kAdd, "add", AttrsKind::kNone, 2),
      Primitive(OpKind::kActivation, "activation", AttrsKind::kActivation, 1),
      Primitive(OpKind::kSlice, "slice", AttrsKind::kSlice, 1),
      Composite(OpKind::kLinear, "linear", AttrsKind::kNone,
                {Main("kernel", "* -> *"), Optional("bias", "*")}),
      Composite(OpKind::kEmbedding, "embedding", AttrsKind::kEmbedding,
                {Main("table", "vocab -> d_model"), Optional("position_table", "positions -> d_model"),
                 Optional("type_table", "types -> d_model")}),
      Composite(OpKind::kRmsNorm, "rms_norm", AttrsKind::kNorm, {Main("scale", "d_model")}),
      Composite(OpKind::kLayerNorm, "layer_norm", AttrsKind::kNorm,
                {Main("scale", "d_model"), Optional("bias", "d_model")}),
      Composite(OpKind::kAttention, "attention", AttrsKind::kAttention, AttentionSlots()),
      Composite(OpKind::kLatentAttention, "latent_attention", AttrsKind::kLatentAttention,
                LatentAttentionSlots()),
      Composite(OpKind::kMlp, "mlp", AttrsKind::kMlp,
                {Required("up", "d_model -> d_ff"), Required("down", "d_ff -> d_model"),
                 Optional("up_bias", "d_ff"), Optional("down_bias", "d_model")}),
      Composite(OpKind::kGatedMlp, "gated_mlp", AttrsKind::kMlp,
                {Required("gate", "d_model -> d_ff"), Required("up", "d_model -> d_ff"),
                 Required("down", "d_ff -> d_model"), Optional("gate_bias", "d_ff"),
                 Optional("up_bias", "d_ff"), Optional("down_bias", "d_model")}),
      Composite(OpKind::kMoe, "moe", AttrsKind::kMoe, MoeSlots()),
      Composite(OpKind::kLmHead, "lm_head", AttrsKind::kLmHead,
                {Main("head", "d_model -> vocab"), Optional("bias", "vocab")}),
  };
}

const std::vector<OpInfo>& Catalogue() {
  static const auto* const catalogue = new std::vector<OpInfo>(MakeCatalogue());
  return *catalogue;
}

std::vector<absl::string_view> Words(absl::string_view text) {
  return absl::StrSplit(text, ' ', absl::SkipEmpty());
}

std::vector<SlotForm> ParseForms(absl::string_view axes) {
  std::vector<SlotForm> forms;
  for (absl::string_view text : absl::StrSplit(axes, '|')) {
    SlotForm form;
    const size_t semicolon = text.find(';');
    if (semicolon != absl::string_view::npos) {
      form.lead = Words(text.substr(0, semicolon));
      text.remove_prefix(semicolon + 1);
    }
    const size_t arrow = text.find("->");
    if (arrow != absl::string_view::npos) {
      form.in = Words(text.substr(0, arrow));
      text.remove_prefix(arrow + 2);
    }
    form.out = Words(text);
    forms.push_back(std::move(form));
  }
  return forms;
}

}  // namespace

const OpInfo& Info(OpKind kind) { return Catalogue()[static_cast<size_t>(kind)]; }

absl::Span<const OpInfo> AllOps() { return Catalogue(); }

std::optional<OpKind> OpKindFromName(absl::string_view name) {
  for (const OpInfo& info : Catalogue()) {
    if (info.name == name) return info.kind;
  }
  return std::nullopt;
}

const SlotInfo* FindSlot(OpKind kind, absl::string_view slot) {
  for (const SlotInfo& info : Info(kind).slots) {
    if (info.name == slot) return &info;
  }
  return nullptr;
}

absl::Span<const SlotForm> FormsOf(const SlotInfo& slot) {
  static const auto* const table = [] {
    auto* forms = new std::map<const SlotInfo*, std::vector<SlotForm>>;
    for (const OpInfo& op : Catalogue()) {
      for (const SlotInfo& info : op.slots) (*forms)[&info] = ParseForms(info.axes);
    }
    return forms;
  }();
  auto at = table->find(&slot);
  TWIN_CHECK(at != table->end(), "the slot is not the catalogue's own");
  return at->second;
}

}  // namespace twinforge
