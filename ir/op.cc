#include "ir/op.h"

#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "ir/ops/composite.h"

namespace twinforge {
namespace {

SlotInfo Main(absl::string_view name, absl::string_view axes) { return {name, true, true, axes}; }
SlotInfo Required(absl::string_view name, absl::string_view axes) { return {name, false, true, axes}; }
SlotInfo Optional(absl::string_view name, absl::string_view axes) { return {name, false, false, axes}; }

// Takes `operands` activations.
OpInfo Primitive(OpKind kind, absl::string_view name, int operands, AttrsKind attrs = AttrsKind::kNone) {
  return {kind, name, attrs, nullptr, operands, 0, {}};
}

OpInfo Composite(OpKind kind, absl::string_view name, const CompositeOp& definition, AttrsKind attrs,
                 std::vector<SlotInfo> slots) {
  return {kind, name, attrs, &definition, 1, 0, std::move(slots)};
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

void AddPrimitives(std::vector<OpInfo>& rows) {
  using K = OpKind;
  using A = AttrsKind;
  rows.push_back(Primitive(K::kInput, "input", 0));
  rows.push_back(Primitive(K::kParam, "param", 0));
  rows.back().slots = {Main("value", "* | * -> * | * ; * | * ; * -> *")};
  rows.push_back(Primitive(K::kConstant, "constant", 0, A::kConstant));
  rows.push_back(Primitive(K::kIota, "iota", 0, A::kIota));
  rows.push_back(Primitive(K::kDimensionSize, "dimension_size", 1, A::kAxis));
  const std::pair<K, const char*> two[] = {{K::kAdd, "add"},           {K::kSubtract, "subtract"},
                                           {K::kMultiply, "multiply"}, {K::kDivide, "divide"},
                                           {K::kMaximum, "maximum"},   {K::kMinimum, "minimum"},
                                           {K::kPower, "power"}};
  for (const auto& [kind, name] : two) rows.push_back(Primitive(kind, name, 2));
  rows.push_back(Primitive(K::kCompare, "compare", 2, A::kCompare));
  const std::pair<K, const char*> one[] = {
      {K::kNegate, "negate"}, {K::kAbs, "abs"},       {K::kExp, "exp"},           {K::kLog, "log"},
      {K::kSqrt, "sqrt"},     {K::kRsqrt, "rsqrt"},   {K::kTanh, "tanh"},         {K::kErf, "erf"},
      {K::kSine, "sine"},     {K::kCosine, "cosine"}, {K::kLogistic, "logistic"}, {K::kFloor, "floor"},
      {K::kSign, "sign"}};
  for (const auto& [kind, name] : one) rows.push_back(Primitive(kind, name, 1));
  rows.push_back(Primitive(K::kConvert, "convert", 1, A::kConvert));
  rows.push_back(Primitive(K::kSelect, "select", 3));
  rows.push_back(Primitive(K::kBroadcast, "broadcast", 1, A::kBroadcast));
  rows.push_back(Primitive(K::kReshape, "reshape", 1, A::kType));
  rows.push_back(Primitive(K::kTranspose, "transpose", 1, A::kTranspose));
  rows.push_back(Primitive(K::kSlice, "slice", 1, A::kSlice));
  rows.push_back(Primitive(K::kConcat, "concat", 1, A::kAxis));
  rows.back().optional_operands = -1;
  rows.push_back(Primitive(K::kPad, "pad", 1, A::kPad));
  rows.push_back(Primitive(K::kReverse, "reverse", 1, A::kAxis));
  rows.push_back(Primitive(K::kReduce, "reduce", 1, A::kReduce));
  rows.push_back(Primitive(K::kDot, "dot", 2, A::kDot));
  rows.push_back(Primitive(K::kGather, "gather", 2, A::kAxis));
  rows.push_back(Primitive(K::kTopK, "top_k", 1, A::kTopK));
  rows.push_back(Primitive(K::kConv, "conv", 2, A::kConv));
  rows.push_back(Primitive(K::kScan, "scan", 3, A::kScan));
  rows.push_back(Primitive(K::kOpaque, "opaque", 0, A::kOpaque));
  rows.back().optional_operands = -1;
}

void AddComposites(std::vector<OpInfo>& rows) {
  using K = OpKind;
  using A = AttrsKind;
  rows.push_back(Composite(K::kLinear, "linear", kLinearOp, A::kNone,
                           {Main("kernel", "* -> *"), Optional("bias", "*")}));
  rows.push_back(
      Composite(K::kEmbedding, "embedding", kEmbeddingOp, A::kEmbedding,
                {Main("table", "vocab -> d_model"), Optional("position_table", "positions -> d_model"),
                 Optional("type_table", "types -> d_model")}));
  rows.push_back(Composite(K::kRmsNorm, "rms_norm", kRmsNormOp, A::kNorm, {Main("scale", "d_model")}));
  rows.push_back(Composite(K::kLayerNorm, "layer_norm", kLayerNormOp, A::kNorm,
                           {Main("scale", "d_model"), Optional("bias", "d_model")}));
  rows.push_back(Composite(K::kAttention, "attention", kAttentionOp, A::kAttention, AttentionSlots()));
  rows.push_back(Composite(K::kLatentAttention, "latent_attention", kLatentAttentionOp, A::kLatentAttention,
                           LatentAttentionSlots()));
  rows.push_back(Composite(K::kMlp, "mlp", kMlpOp, A::kMlp,
                           {Required("up", "d_model -> d_ff"), Required("down", "d_ff -> d_model"),
                            Optional("up_bias", "d_ff"), Optional("down_bias", "d_model")}));
  rows.push_back(Composite(K::kGatedMlp, "gated_mlp", kGatedMlpOp, A::kMlp,
                           {Required("gate", "d_model -> d_ff"), Required("up", "d_model -> d_ff"),
                            Required("down", "d_ff -> d_model"), Optional("gate_bias", "d_ff"),
                            Optional("up_bias", "d_ff"), Optional("down_bias", "d_model")}));
  rows.push_back(Composite(K::kMoe, "moe", kMoeOp, A::kMoe, MoeSlots()));
  rows.push_back(Composite(K::kLmHead, "lm_head", kLmHeadOp, A::kLmHead,
                           {Main("head", "d_model -> vocab"), Optional("bias", "vocab")}));
  rows.push_back(Composite(K::kActivation, "activation", kActivationOp, A::kActivation, {}));
  rows.push_back(Composite(K::kRope, "rope", kRopeOp, A::kRope, {}));
  rows.back().operands = 2;
  rows.push_back(Composite(K::kRouter, "router", kRouterOp, A::kRouter, {}));
  rows.back().optional_operands = 1;
}

// Depthwise kernels are vectors over taps and channels: nothing is contracted but the taps.
std::vector<SlotInfo> StateSpaceSlots() {
  return {Required("z", "d_model -> heads head_dim"),
          Required("x", "d_model -> heads head_dim"),
          Required("b", "d_model -> state_groups state"),
          Required("c", "d_model -> state_groups state"),
          Required("dt", "d_model -> heads"),
          Required("x_taps", "tap heads head_dim"),
          Required("b_taps", "tap state_groups state"),
          Required("c_taps", "tap state_groups state"),
          Optional("x_taps_bias", "heads head_dim"),
          Optional("b_taps_bias", "state_groups state"),
          Optional("c_taps_bias", "state_groups state"),
          Required("dt_bias", "heads"),
          Required("a_log", "heads"),
          Required("skip", "heads"),
          Required("norm", "heads head_dim"),
          Required("o", "heads head_dim -> d_model")};
}

std::vector<SlotInfo> DeltaRuleSlots() {
  return {Required("q", "d_model -> key_heads key_dim"),
          Required("k", "d_model -> key_heads key_dim"),
          Required("v", "d_model -> heads value_dim"),
          Required("z", "d_model -> heads value_dim"),
          Required("beta", "d_model -> heads"),
          Required("decay", "d_model -> heads"),
          Required("q_taps", "tap key_heads key_dim"),
          Required("k_taps", "tap key_heads key_dim"),
          Required("v_taps", "tap heads value_dim"),
          Required("decay_bias", "heads"),
          Required("a_log", "heads"),
          Required("norm", "value_dim"),
          Required("o", "heads value_dim -> d_model")};
}

void AddMixers(std::vector<OpInfo>& rows) {
  using K = OpKind;
  using A = AttrsKind;
  rows.push_back(Composite(K::kConvStem, "conv_stem", kConvStemOp, A::kConvStem,
                           {Main("kernel", "width channels -> d_model | height width channels -> d_model"),
                            Optional("bias", "d_model")}));
  rows.push_back(Composite(
      K::kShortConv, "short_conv", kShortConvOp, A::kShortConv,
      {Required("b", "d_model -> channels"), Required("c", "d_model -> channels"),
       Required("x", "d_model -> channels"), Required("taps", "tap channels"),
       Required("o", "channels -> d_model"), Optional("b_bias", "channels"), Optional("c_bias", "channels"),
       Optional("x_bias", "channels"), Optional("taps_bias", "channels"), Optional("o_bias", "d_model")}));
  rows.push_back(Composite(K::kStateSpace, "state_space", kStateSpaceOp, A::kStateSpace, StateSpaceSlots()));
  rows.push_back(Composite(K::kDeltaRule, "delta_rule", kDeltaRuleOp, A::kDeltaRule, DeltaRuleSlots()));
}

// In the order of OpKind.
std::vector<OpInfo> MakeCatalogue() {
  std::vector<OpInfo> rows;
  AddPrimitives(rows);
  AddComposites(rows);
  AddMixers(rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    TWIN_CHECK(static_cast<size_t>(rows[i].kind) == i, "the catalogue is in the order of OpKind");
  }
  return rows;
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
