#include "ir/op.h"

#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "base/check.h"

namespace twinforge {
namespace {

std::vector<OpInfo> MakeCatalogue() {
  const bool kMain = true;
  const bool kRequired = true;
  const bool kOptional = false;
  return {
      {OpKind::kInput, "input", AttrsKind::kNone, false, 0, {}},
      {OpKind::kAdd, "add", AttrsKind::kNone, false, 2, {}},
      {OpKind::kActivation, "activation", AttrsKind::kActivation, false, 1, {}},
      {OpKind::kSlice, "slice", AttrsKind::kSlice, false, 1, {}},
      {OpKind::kLinear,
       "linear",
       AttrsKind::kNone,
       true,
       1,
       {{"kernel", kMain, kRequired, "* -> *"}, {"bias", false, kOptional, "*"}}},
      {OpKind::kEmbedding,
       "embedding",
       AttrsKind::kEmbedding,
       true,
       1,
       {{"table", kMain, kRequired, "vocab -> d_model"},
        {"position_table", false, kOptional, "positions -> d_model"},
        {"type_table", false, kOptional, "types -> d_model"}}},
      {OpKind::kRmsNorm, "rms_norm", AttrsKind::kNorm, true, 1, {{"scale", kMain, kRequired, "d_model"}}},
      {OpKind::kLayerNorm,
       "layer_norm",
       AttrsKind::kNorm,
       true,
       1,
       {{"scale", kMain, kRequired, "d_model"}, {"bias", false, kOptional, "d_model"}}},
      {OpKind::kAttention,
       "attention",
       AttrsKind::kAttention,
       true,
       1,
       {{"q", false, kRequired, "d_model -> heads head_dim"},
        {"k", false, kRequired, "d_model -> kv_heads head_dim"},
        {"v", false, kRequired, "d_model -> kv_heads head_dim"},
        {"o", false, kRequired, "heads head_dim -> d_model"},
        {"q_bias", false, kOptional, "heads head_dim"},
        {"k_bias", false, kOptional, "kv_heads head_dim"},
        {"v_bias", false, kOptional, "kv_heads head_dim"},
        {"o_bias", false, kOptional, "d_model"},
        {"q_norm", false, kOptional, "head_dim"},
        {"k_norm", false, kOptional, "head_dim"},
        {"sinks", false, kOptional, "heads"}}},
      // The query comes through a low-rank bottleneck (q_a, its norm, then up), or straight from x.
      {OpKind::kLatentAttention,
       "latent_attention",
       AttrsKind::kLatentAttention,
       true,
       1,
       {{"q_a", false, kOptional, "d_model -> q_lora"},
        {"q_a_norm", false, kOptional, "q_lora"},
        {"q_nope", false, kRequired, "q_lora -> heads nope_dim | d_model -> heads nope_dim"},
        {"q_rope", false, kRequired, "q_lora -> heads rope_dim | d_model -> heads rope_dim"},
        {"kv_a", false, kRequired, "d_model -> kv_lora"},
        {"k_rope", false, kRequired, "d_model -> rope_dim"},
        {"kv_a_norm", false, kRequired, "kv_lora"},
        {"k_b", false, kRequired, "kv_lora -> heads nope_dim"},
        {"v_b", false, kRequired, "kv_lora -> heads v_head_dim"},
        {"o", false, kRequired, "heads v_head_dim -> d_model"},
        {"q_a_bias", false, kOptional, "q_lora"},
        {"kv_a_bias", false, kOptional, "kv_lora"},
        {"k_rope_bias", false, kOptional, "rope_dim"},
        {"o_bias", false, kOptional, "d_model"}}},
      {OpKind::kMlp,
       "mlp",
       AttrsKind::kMlp,
       true,
       1,
       {{"up", false, kRequired, "d_model -> d_ff"},
        {"down", false, kRequired, "d_ff -> d_model"},
        {"up_bias", false, kOptional, "d_ff"},
        {"down_bias", false, kOptional, "d_model"}}},
      {OpKind::kGatedMlp,
       "gated_mlp",
       AttrsKind::kMlp,
       true,
       1,
       {{"gate", false, kRequired, "d_model -> d_ff"},
        {"up", false, kRequired, "d_model -> d_ff"},
        {"down", false, kRequired, "d_ff -> d_model"},
        {"gate_bias", false, kOptional, "d_ff"},
        {"up_bias", false, kOptional, "d_ff"},
        {"down_bias", false, kOptional, "d_model"}}},
      // The second forms are experts joined in groups: expert_group * member == expert.
      {OpKind::kMoe,
       "moe",
       AttrsKind::kMoe,
       true,
       1,
       {{"router", false, kRequired, "d_model -> expert"},
        {"router_bias", false, kOptional, "expert"},
        {"router_correction", false, kOptional, "expert"},
        {"gate", false, kRequired, "expert ; d_model -> d_ff | expert_group ; d_model -> member d_ff"},
        {"up", false, kRequired, "expert ; d_model -> d_ff | expert_group ; d_model -> member d_ff"},
        {"down", false, kRequired, "expert ; d_ff -> d_model | expert_group ; member d_ff -> d_model"},
        {"gate_bias", false, kOptional, "expert ; d_ff | expert_group ; member d_ff"},
        {"up_bias", false, kOptional, "expert ; d_ff | expert_group ; member d_ff"},
        {"down_bias", false, kOptional, "expert ; d_model | expert_group ; member d_model"},
        {"shared_gate", false, kOptional, "d_model -> shared_ff"},
        {"shared_up", false, kOptional, "d_model -> shared_ff"},
        {"shared_down", false, kOptional, "shared_ff -> d_model"}}},
      {OpKind::kLmHead,
       "lm_head",
       AttrsKind::kLmHead,
       true,
       1,
       {{"head", kMain, kRequired, "d_model -> vocab"}, {"bias", false, kOptional, "vocab"}}},
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
