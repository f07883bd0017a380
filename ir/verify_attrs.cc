#include "ir/verify_attrs.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"

namespace twinforge {
namespace {

absl::Status Fault(const Node& node, absl::string_view message) { return Error(1501, node.path, message); }

bool Positive(double x) { return std::isfinite(x) && x > 0; }
bool NotNegative(double x) { return std::isfinite(x) && x >= 0; }

// Enumerations are open in proto3: a text may hold a number that has no name.
bool IsActivation(Activation act) { return Activation_IsValid(act) && act != ACTIVATION_UNSET; }

// Some slots come together: all of `slots` or none.
absl::Status AllOrNone(const Node& node, std::initializer_list<absl::string_view> slots) {
  const absl::string_view first = *slots.begin();
  for (absl::string_view slot : slots) {
    if (node.Has(slot) != node.Has(first)) {
      return Fault(node, absl::StrCat("slots ", first, " and ", slot, " come together or not at all"));
    }
  }
  return absl::OkStatus();
}

absl::Status VerifyRope(const Node& node, const Rope& rope, int64_t head_dim) {
  if (rope.style() == Rope::ABSENT) return absl::OkStatus();
  if (rope.style() != Rope::HALVES && rope.style() != Rope::INTERLEAVED)
    return Fault(node, "unknown rope style");
  if (!Positive(rope.theta())) return Fault(node, absl::StrCat("rope theta is ", rope.theta()));
  if (rope.rotary_dim() < 2 || rope.rotary_dim() % 2 != 0 || rope.rotary_dim() > head_dim) {
    return Fault(node, absl::StrCat("rotary_dim ", rope.rotary_dim(), " of a head of ", head_dim,
                                    ": it is even, at least 2 and no more than the head"));
  }
  const RopeScaling& scaling = rope.scaling();
  if (!RopeScaling::Kind_IsValid(scaling.kind())) return Fault(node, "unknown rope scaling");
  if (scaling.kind() != RopeScaling::NONE && scaling.kind() != RopeScaling::LONGROPE &&
      !Positive(scaling.factor())) {
    return Fault(node, absl::StrCat("rope scaling factor is ", scaling.factor()));
  }
  if (scaling.kind() == RopeScaling::LONGROPE && (scaling.short_factor_size() * 2 != rope.rotary_dim() ||
                                                  scaling.long_factor_size() * 2 != rope.rotary_dim())) {
    return Fault(node, "longrope factors are not rotary_dim / 2 numbers each");
  }
  return absl::OkStatus();
}

absl::Status VerifyAttention(const Graph& graph, const Node& node) {
  const AttentionAttrs& attrs = node.attrs->attention();
  const int64_t heads = graph.param(node, "q").type.Get("heads").size;
  const ParamType& k = graph.param(node, "k").type;
  const int64_t kv_heads = k.Get("kv_heads").size;
  if (heads % kv_heads != 0) {
    return Fault(node, absl::StrCat("heads ", heads, " is not a multiple of kv_heads ", kv_heads));
  }
  if (!Positive(attrs.scale())) return Fault(node, absl::StrCat("softmax scale is ", attrs.scale()));
  if (!AttentionAttrs::ScaleRule_IsValid(attrs.scale_rule())) return Fault(node, "unknown scale rule");
  if (attrs.window() < 0) return Fault(node, absl::StrCat("window is ", attrs.window()));
  if (!NotNegative(attrs.softcap())) return Fault(node, absl::StrCat("softcap is ", attrs.softcap()));
  TWIN_RETURN_IF_ERROR(AllOrNone(node, {"q_norm", "k_norm"}));
  if (node.Has("q_norm") != attrs.has_qk_norm_eps() || !NotNegative(attrs.qk_norm_eps())) {
    return Fault(node, "qk_norm_eps stands where q_norm and k_norm do, and is not negative");
  }
  const int64_t head_dim = k.Get("head_dim").size;
  if (attrs.qk_norm_dim() < 0 || attrs.qk_norm_dim() > head_dim) {
    return Fault(node, absl::StrCat("qk_norm_dim ", attrs.qk_norm_dim(), " of a head of ", head_dim));
  }
  return VerifyRope(node, attrs.rope(), head_dim);
}

absl::Status VerifyLatentAttention(const Graph& graph, const Node& node) {
  const LatentAttentionAttrs& attrs = node.attrs->latent_attention();
  TWIN_RETURN_IF_ERROR(AllOrNone(node, {"q_a", "q_a_norm"}));
  if (node.Has("q_a_bias") && !node.Has("q_a")) return Fault(node, "q_a_bias without q_a");
  const absl::string_view want = node.Has("q_a") ? "q_lora" : "d_model";
  for (absl::string_view slot : {"q_nope", "q_rope"}) {
    const std::string& reads = graph.param(node, slot).type.axes[0].name;
    if (reads != want) return Fault(node, absl::StrCat(slot, " reads ", reads, ", not ", want));
  }
  if (!Positive(attrs.scale())) return Fault(node, absl::StrCat("softmax scale is ", attrs.scale()));
  if (!AttentionAttrs::ScaleRule_IsValid(attrs.scale_rule())) return Fault(node, "unknown scale rule");
  if (!NotNegative(attrs.norm_eps())) return Fault(node, absl::StrCat("norm_eps is ", attrs.norm_eps()));
  return VerifyRope(node, attrs.rope(), graph.param(node, "k_rope").type.Get("rope_dim").size);
}

absl::Status VerifyMlp(const Node& node, const MlpAttrs& attrs) {
  const bool clamped = attrs.act() == ACTIVATION_UNSET && attrs.has_clamp_limit();
  if (!clamped && !IsActivation(attrs.act())) return Fault(node, "no activation that is known");
  if (attrs.has_clamp_limit() && !Positive(attrs.clamp_limit())) {
    return Fault(node, absl::StrCat("clamp_limit is ", attrs.clamp_limit()));
  }
  if (!std::isfinite(attrs.clamp_alpha()) || !std::isfinite(attrs.up_offset())) {
    return Fault(node, "clamp_alpha or up_offset is no finite number");
  }
  return absl::OkStatus();
}

// Experts one by one or joined in groups, and all slots alike.
absl::Status VerifyGrouping(const Graph& graph, const Node& node) {
  const ParamType& up = graph.param(node, "up").type;
  const std::string& lead = up.axes[0].name;
  for (absl::string_view slot : {"gate", "down", "gate_bias", "up_bias", "down_bias"}) {
    if (!node.Has(slot)) continue;
    const std::string& other = graph.param(node, slot).type.axes[0].name;
    if (other != lead) return Fault(node, absl::StrCat(slot, " has axis ", other, ", up has ", lead));
  }
  if (lead == "expert") return absl::OkStatus();
  const int64_t groups = up.Get("expert_group").size;
  const int64_t member = up.Get("member").size;
  const int64_t experts = graph.param(node, "router").type.Get("expert").size;
  if (member * groups == experts) return absl::OkStatus();
  return Fault(node, absl::StrCat(groups, " groups of ", member, " are not ", experts, " experts"));
}

absl::Status VerifyMoe(const Graph& graph, const Node& node) {
  const MoeAttrs& attrs = node.attrs->moe();
  const int64_t experts = graph.param(node, "router").type.Get("expert").logical;
  if (attrs.top_k() < 1 || attrs.top_k() > experts) {
    return Fault(node, absl::StrCat("top_k ", attrs.top_k(), " of ", experts, " experts"));
  }
  if (!MoeAttrs::Score_IsValid(attrs.score())) return Fault(node, "unknown score");
  if (!NotNegative(attrs.routed_scale()))
    return Fault(node, absl::StrCat("routed_scale is ", attrs.routed_scale()));
  if (attrs.groups() < 0 || attrs.top_groups() < 0 || attrs.top_groups() > attrs.groups() ||
      (attrs.groups() > 0 && experts % attrs.groups() != 0)) {
    return Fault(node, absl::StrCat("top ", attrs.top_groups(), " of ", attrs.groups(), " groups of ",
                                    experts, " experts"));
  }
  TWIN_RETURN_IF_ERROR(VerifyGrouping(graph, node));
  TWIN_RETURN_IF_ERROR(VerifyMlp(node, attrs.expert()));
  TWIN_RETURN_IF_ERROR(AllOrNone(node, {"shared_gate", "shared_up", "shared_down"}));
  return node.Has("shared_up") ? VerifyMlp(node, attrs.shared()) : absl::OkStatus();
}

absl::Status VerifyNorm(const Graph& graph, const Node& node) {
  const NormAttrs& attrs = node.attrs->norm();
  const int64_t size = graph.param(node, "scale").type.axes[0].size;
  if (attrs.norm_dim() < 0 || attrs.norm_dim() > size) {
    return Fault(node, absl::StrCat("norm_dim ", attrs.norm_dim(), " of ", size, " places"));
  }
  if (NotNegative(attrs.eps()) && std::isfinite(attrs.offset())) return absl::OkStatus();
  return Fault(node, absl::StrCat("eps is ", attrs.eps(), ", offset ", attrs.offset()));
}

absl::Status VerifyEmbedding(const Node& node) {
  const EmbeddingAttrs& attrs = node.attrs->embedding();
  if (std::isfinite(attrs.scale()) && attrs.position_offset() >= 0) return absl::OkStatus();
  return Fault(node, absl::StrCat("scale is ", attrs.scale(), ", position_offset ", attrs.position_offset()));
}

absl::Status VerifyHead(const Node& node) {
  const LmHeadAttrs& attrs = node.attrs->lm_head();
  if (NotNegative(attrs.softcap()) && std::isfinite(attrs.scale())) return absl::OkStatus();
  return Fault(node, absl::StrCat("softcap is ", attrs.softcap(), ", scale ", attrs.scale()));
}

}  // namespace

absl::Status VerifyAttrs(const Graph& graph, const Node& node) {
  switch (node.op) {
    case OpKind::kInput:
    case OpKind::kAdd:
    case OpKind::kLinear:
    case OpKind::kSlice:
      return absl::OkStatus();  // InferType judges a slice against its operand
    case OpKind::kActivation:
      if (IsActivation(node.attrs->activation().act())) return absl::OkStatus();
      return Fault(node, "no activation that is known");
    case OpKind::kEmbedding:
      return VerifyEmbedding(node);
    case OpKind::kRmsNorm:
    case OpKind::kLayerNorm:
      return VerifyNorm(graph, node);
    case OpKind::kAttention:
      return VerifyAttention(graph, node);
    case OpKind::kLatentAttention:
      return VerifyLatentAttention(graph, node);
    case OpKind::kMlp:
    case OpKind::kGatedMlp:
      return VerifyMlp(node, node.attrs->mlp());
    case OpKind::kMoe:
      return VerifyMoe(graph, node);
    case OpKind::kLmHead:
      return VerifyHead(node);
  }
  return absl::OkStatus();
}

}  // namespace twinforge
