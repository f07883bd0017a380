#include "importers/blueprint.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/diagnostic.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "importers/config_kinds.h"
#include "importers/config_sizes.h"
#include "importers/rope_config.h"
#include "ir/builder.h"
#include "ir/rope.h"

namespace twinforge {
namespace {

// Where axes of one node have other sizes than the dims of their names, or other names.
using AxisSizes = std::map<std::string, int64_t>;

constexpr double kMostElements = 7.2e16;  // 2^56, of one parameter: products stay whole numbers
absl::StatusOr<Activation> ActivationOf(const MlpSpec& spec, const ConfigView& config) {
  TWIN_ASSIGN_OR_RETURN(std::string word, config.GetString(config.FirstKey(spec.act_key()), spec.act()));
  if (word.empty()) word = spec.act();
  static const auto* const table = new std::map<std::string, Activation>{{"silu", SILU},
                                                                         {"swish", SILU},
                                                                         {"gelu", GELU},
                                                                         {"gelu_python", GELU},
                                                                         {"gelu_pytorch_tanh", GELU_TANH},
                                                                         {"gelu_new", GELU_TANH},
                                                                         {"gelu_fast", GELU_TANH},
                                                                         {"relu", RELU},
                                                                         {"tanh", TANH},
                                                                         {"quick_gelu", QUICK_GELU},
                                                                         {"relu2", RELU2},
                                                                         {"sigmoid", SIGMOID}};
  const auto found = table->find(word);
  if (found == table->end()) {
    return Error(1407, config.place(),
                 absl::StrCat("\"", config.KeyToName(spec.act_key()), "\": activation ",
                              JsonQuoted(word, 100), " is not supported"));
  }
  return found->second;
}

// Appends planned nodes; keeps the first error, so that the block below reads like what it builds.
class Planner {
 public:
  Planner(const FamilySpec& family, const ConfigView& config, DType dtype)
      : family_(family), config_(config), dtype_(dtype) {}

  absl::StatusOr<Blueprint> Plan();

 private:
  bool Holds(const Condition& condition) const { return config_.Holds(condition, plan_.architecture); }
  absl::Status CheckForm() const;
  // What is multiplied or divided by: above 0 where a key says it.
  absl::StatusOr<double> Factor(const Number& number) const {
    return config_.GetWithin(number, kLeastConfigFactor, kMostConfigNumber);
  }

  int Node(OpKind op, std::string path, std::vector<int> operands, OpAttrs attrs = {},
           const std::set<std::string>& present = {}, const AxisSizes& sizes = {}, int form = 0);
  int Linear(const std::string& path, int x, absl::string_view in, absl::string_view out);
  int Norm(const std::string& path, int x);
  void AddOptional(const google::protobuf::RepeatedPtrField<SlotSpec>& slots,
                   std::set<std::string>& present) const;

  absl::Status Attributes();  // everything that is the same in each layer
  absl::StatusOr<Rope> RopeOf(const RopeSpec& spec, const std::string& dim) const;
  absl::StatusOr<AttentionAttrs> AttentionOf() const;
  absl::StatusOr<LatentAttentionAttrs> LatentOf() const;
  absl::StatusOr<MoeAttrs> MoeOf() const;

  int Embed();
  int Attend(int64_t layer, const std::string& at, int x);
  int Feed(int64_t layer, const std::string& at, int x);
  int Sublayer(int64_t layer, const std::string& at, bool attention, int x);
  void Finish(int x);

  const FamilySpec& family_;
  const ConfigView& config_;
  const DType dtype_;
  Blueprint plan_;
  double eps_ = 0;
  AttentionAttrs attention_;
  LatentAttentionAttrs latent_;
  int64_t window_ = 0;
  std::vector<bool> windowed_;
  MlpAttrs mlp_;
  MoeAttrs moe_;
  std::vector<bool> sparse_;
};

int Planner::Node(OpKind op, std::string path, std::vector<int> operands, OpAttrs attrs,
                  const std::set<std::string>& present, const AxisSizes& sizes, int form) {
  PlannedNode node{op, std::move(path), std::move(operands), std::move(attrs), {}};
  for (const SlotInfo& slot : Info(op).slots) {
    if (!slot.required && !present.contains(std::string(slot.name))) continue;
    const absl::Span<const SlotForm> forms = FormsOf(slot);
    const SlotForm& axes = forms[std::min<size_t>(form, forms.size() - 1)];
    ParamType type;
    type.dtype = slot.name == "router_correction" ? DType::kF32 : dtype_;
    type.lead = static_cast<int>(axes.lead.size());
    type.in = static_cast<int>(axes.in.size());
    for (const auto* names : {&axes.lead, &axes.in, &axes.out}) {
      for (const auto& name : *names) {
        const std::string axis(name);
        const auto own = sizes.find(axis);
        const auto dim = plan_.dims.find(axis);
        TWIN_CHECK(own != sizes.end() || dim != plan_.dims.end(),
                   absl::StrCat(family_.name(), ": no dim is called ", axis, " (", node.path, ")"));
        const int64_t size = own != sizes.end() ? own->second : dim->second;
        type.axes.push_back({axis, size, size});
      }
    }
    std::string role = RoleOf(op, node.path, slot.name);
    plan_.types[role] = std::move(type);
    node.params.emplace_back(std::string(slot.name), std::move(role));
  }
  plan_.nodes.push_back(std::move(node));
  return static_cast<int>(plan_.nodes.size()) - 1;
}

int Planner::Linear(const std::string& path, int x, absl::string_view in, absl::string_view out) {
  PlannedNode node{OpKind::kLinear, path, {x}, {}, {{"kernel", path}, {"bias", absl::StrCat(path, ".bias")}}};
  const int64_t width = plan_.dims.at("d_model");
  ParamType kernel;
  kernel.dtype = dtype_;
  kernel.in = 1;
  kernel.axes = {{std::string(in), width, width}, {std::string(out), width, width}};
  ParamType bias;
  bias.dtype = dtype_;
  bias.axes = {kernel.axes[1]};
  plan_.types[node.params[0].second] = std::move(kernel);
  plan_.types[node.params[1].second] = std::move(bias);
  plan_.nodes.push_back(std::move(node));
  return static_cast<int>(plan_.nodes.size()) - 1;
}

int Planner::Norm(const std::string& path, int x) {
  const NormSpec& spec = family_.block().norm();
  OpAttrs attrs;
  attrs.mutable_norm()->set_eps(eps_);
  attrs.mutable_norm()->set_offset(spec.offset());
  const bool rms = spec.kind() == NormSpec::RMS;
  const std::set<std::string> present = rms ? std::set<std::string>{} : std::set<std::string>{"bias"};
  return Node(rms ? OpKind::kRmsNorm : OpKind::kLayerNorm, path, {x}, std::move(attrs), present);
}

void Planner::AddOptional(const google::protobuf::RepeatedPtrField<SlotSpec>& slots,
                          std::set<std::string>& present) const {
  for (const SlotSpec& spec : slots) {
    if (!spec.has_when() || Holds(spec.when())) present.insert(spec.slot().begin(), spec.slot().end());
  }
}

absl::StatusOr<Rope> Planner::RopeOf(const RopeSpec& spec, const std::string& dim) const {
  return RopeFromConfig(spec, config_, plan_.dims.at(dim), plan_.architecture);
}

absl::StatusOr<AttentionAttrs> Planner::AttentionOf() const {
  const AttentionSpec& spec = family_.block().attention();
  AttentionAttrs attrs;
  if (!spec.bidirectional()) TWIN_RETURN_IF_ERROR(config_.CheckCausal());
  if (plan_.dims.at("heads") % plan_.dims.at("kv_heads") != 0) {
    return Error(1414, config_.place(),
                 absl::StrCat(plan_.dims.at("heads"), " heads do not divide by ", plan_.dims.at("kv_heads"),
                              " key and value heads"));
  }
  attrs.set_scale(DefaultScale(plan_.dims.at("head_dim")));
  attrs.set_scale_rule(AttentionAttrs::HEAD_DIM);
  if (spec.has_scale_power()) {
    TWIN_ASSIGN_OR_RETURN(const double power, Factor(spec.scale_power()));
    attrs.set_scale(1 / std::sqrt(power));
    attrs.set_scale_rule(AttentionAttrs::EXPLICIT);
  }
  if (spec.has_rope()) {
    TWIN_ASSIGN_OR_RETURN(*attrs.mutable_rope(), RopeOf(spec.rope(), "head_dim"));
  }
  attrs.set_causal(!spec.bidirectional());
  TWIN_ASSIGN_OR_RETURN(const double softcap, Factor(spec.softcap()));
  attrs.set_softcap(softcap);
  if (spec.qk_norm()) {
    attrs.set_qk_norm_eps(eps_);
    attrs.set_qk_norm_offset(family_.block().norm().offset());
  }
  return attrs;
}

absl::StatusOr<LatentAttentionAttrs> Planner::LatentOf() const {
  const LatentAttentionSpec& spec = family_.block().latent_attention();
  LatentAttentionAttrs attrs;
  TWIN_RETURN_IF_ERROR(config_.CheckCausal());
  TWIN_ASSIGN_OR_RETURN(*attrs.mutable_rope(), RopeOf(spec.rope(), "rope_dim"));
  attrs.set_scale(
      DefaultLatentScale(plan_.dims.at("nope_dim") + plan_.dims.at("rope_dim"), attrs.rope().scaling()));
  attrs.set_scale_rule(AttentionAttrs::HEAD_DIM);
  attrs.set_norm_eps(spec.norm_eps());
  return attrs;
}

absl::StatusOr<MoeAttrs> Planner::MoeOf() const {
  const MoeSpec& spec = family_.block().moe();
  MoeAttrs attrs;
  TWIN_ASSIGN_OR_RETURN(int64_t top_k, config_.GetWhole(spec.top_k()));
  const int64_t experts = plan_.dims.at("expert");
  if (top_k < 1 || top_k > experts) {
    return Error(1414, config_.place(),
                 absl::StrCat("\"", config_.KeyToName(spec.top_k().key()), "\": a token cannot choose ",
                              top_k, " of ", experts, " experts"));
  }
  attrs.set_top_k(top_k);
  attrs.set_score(spec.score());
  TWIN_ASSIGN_OR_RETURN(const bool renormalize, config_.GetFlag(config_.FirstKey(spec.renormalize().key()),
                                                                spec.renormalize().absent()));
  attrs.set_renormalize(renormalize);
  TWIN_ASSIGN_OR_RETURN(const double routed_scale, Factor(spec.routed_scale()));
  attrs.set_routed_scale(routed_scale);
  TWIN_ASSIGN_OR_RETURN(const int64_t groups, config_.GetWholeWithin(spec.groups(), 1, experts));
  TWIN_ASSIGN_OR_RETURN(const int64_t top_groups, config_.GetWholeWithin(spec.top_groups(), 1, experts));
  if (groups > 1 && (experts % groups != 0 || top_groups < 1 || top_groups > groups)) {
    return Error(1414, config_.place(),
                 absl::StrCat(experts, " experts cannot lie in ", groups, " groups of which ", top_groups,
                              " are chosen"));
  }
  attrs.set_groups(groups > 1 ? groups : 0);
  attrs.set_top_groups(groups > 1 ? top_groups : 0);
  TWIN_ASSIGN_OR_RETURN(Activation act, ActivationOf(spec.expert(), config_));
  attrs.mutable_expert()->set_act(act);
  if (spec.has_clamp_limit()) {
    TWIN_ASSIGN_OR_RETURN(const double limit, Factor(spec.clamp_limit()));
    TWIN_ASSIGN_OR_RETURN(double alpha, config_.Get(spec.clamp_alpha()));
    attrs.mutable_expert()->set_clamp_limit(limit);
    attrs.mutable_expert()->set_clamp_alpha(alpha);
    attrs.mutable_expert()->set_up_offset(spec.up_offset());
  }
  std::set<std::string> present;
  AddOptional(spec.optional(), present);
  if (present.contains("shared_gate")) attrs.mutable_shared()->set_act(act);
  return attrs;
}

absl::Status Planner::Attributes() {
  const BlockSpec& block = family_.block();
  TWIN_ASSIGN_OR_RETURN(eps_, config_.GetWithin(block.norm().eps(), 0, 1));
  if (block.has_attention()) {
    TWIN_ASSIGN_OR_RETURN(attention_, AttentionOf());
    const WindowSpec& window = block.attention().window();
    windowed_.assign(plan_.layers, false);
    if (block.attention().has_window() && (!window.has_when() || Holds(window.when()))) {
      TWIN_ASSIGN_OR_RETURN(window_, config_.GetWholeWithin(window.size(), 1, kMostConfigSize));
      TWIN_ASSIGN_OR_RETURN(windowed_, config_.Layers(window.layers(), plan_.layers));
    }
    if (window.layers().types_key().empty())
      TWIN_RETURN_IF_ERROR(config_.CheckLayerTypes(window_ > 0 ? "sliding_attention" : "full_attention"));
  } else {
    TWIN_ASSIGN_OR_RETURN(latent_, LatentOf());
  }
  if (block.has_mlp()) {
    TWIN_ASSIGN_OR_RETURN(Activation act, ActivationOf(block.mlp(), config_));
    mlp_.set_act(act);
  }
  sparse_.assign(plan_.layers, false);
  if (block.has_moe()) {
    TWIN_ASSIGN_OR_RETURN(sparse_, config_.Layers(block.moe().layers(), plan_.layers));
    TWIN_ASSIGN_OR_RETURN(moe_, MoeOf());
  }
  return absl::OkStatus();
}

int Planner::Embed() {
  const EmbeddingSpec& spec = family_.embedding();
  OpAttrs attrs;
  std::set<std::string> present;
  if (spec.positions()) present.insert("position_table");
  if (spec.types()) present.insert("type_table");
  attrs.mutable_embedding();
  if (!spec.scale_sqrt().empty()) {
    attrs.mutable_embedding()->set_scale(std::sqrt(static_cast<double>(plan_.dims.at(spec.scale_sqrt()))));
  }
  const int x = Node(OpKind::kEmbedding, "embed", {-1}, std::move(attrs), present);
  return spec.norm() ? Norm("embed_norm", x) : x;
}

int Planner::Attend(int64_t layer, const std::string& at, int x) {
  const BlockSpec& block = family_.block();
  std::set<std::string> present;
  OpAttrs attrs;
  if (block.has_latent_attention()) {
    const LatentAttentionSpec& spec = block.latent_attention();
    const bool low_rank = Holds(spec.q_lora());
    if (low_rank) present = {"q_a", "q_a_norm"};
    AddOptional(spec.optional(), present);
    if (!low_rank) present.erase("q_a_bias");
    *attrs.mutable_latent_attention() = latent_;
    return Node(OpKind::kLatentAttention, at + ".attn", {x}, std::move(attrs), present, {}, low_rank ? 0 : 1);
  }
  if (block.attention().qk_norm()) present = {"q_norm", "k_norm"};
  AddOptional(block.attention().optional(), present);
  *attrs.mutable_attention() = attention_;
  attrs.mutable_attention()->set_window(windowed_[layer] ? window_ : 0);
  return Node(OpKind::kAttention, at + ".attn", {x}, std::move(attrs), present);
}

int Planner::Feed(int64_t layer, const std::string& at, int x) {
  const BlockSpec& block = family_.block();
  std::set<std::string> present;
  OpAttrs attrs;
  if (sparse_[layer]) {
    AddOptional(block.moe().optional(), present);
    *attrs.mutable_moe() = moe_;
    return Node(OpKind::kMoe, at + ".moe", {x}, std::move(attrs), present,
                {{"d_ff", plan_.dims.at(block.moe().d_ff())}});
  }
  AddOptional(block.mlp().optional(), present);
  *attrs.mutable_mlp() = mlp_;
  return Node(block.mlp().gated() ? OpKind::kGatedMlp : OpKind::kMlp, at + ".mlp", {x}, std::move(attrs),
              present);
}

// One of a block's two halves: attention or feed-forward, with its norms and the residual add.
int Planner::Sublayer(int64_t layer, const std::string& at, bool attention, int x) {
  const BlockSpec::Place place = family_.block().place();
  const bool before = place != BlockSpec::POST;
  const std::string after = attention ? ".norm_attn" : ".norm_mlp";
  int y = before ? Norm(at + (attention ? ".norm_in" : ".norm_mid"), x) : x;
  y = attention ? Attend(layer, at, y) : Feed(layer, at, y);
  if (place == BlockSpec::SANDWICH) y = Norm(at + after, y);
  y = Node(OpKind::kAdd, at + (attention ? ".add_attn" : ".add_mlp"), {x, y});
  return place == BlockSpec::POST ? Norm(at + after, y) : y;
}

void Planner::Finish(int x) {
  if (family_.block().place() != BlockSpec::POST) x = Norm("norm", x);
  const HeadSpec& head = family_.head();
  const bool has_head = family_.has_head() && (!head.has_when() || Holds(head.when()));
  if (!has_head) plan_.outputs.emplace_back("hidden", x);
  if (has_head) {
    int y = x;
    if (head.has_transform()) {
      y = Linear("head_dense", y, "d_model", "d_head");
      OpAttrs act;
      act.mutable_activation()->set_act(mlp_.act());
      y = Node(OpKind::kActivation, "head_act", {y}, std::move(act));
      y = Norm("head_norm", y);
    }
    OpAttrs attrs;
    attrs.mutable_lm_head()->set_softcap(Factor(head.softcap()).value_or(0));
    const std::set<std::string> present =
        head.bias() ? std::set<std::string>{"bias"} : std::set<std::string>{};
    plan_.outputs.emplace_back("logits", Node(OpKind::kLmHead, "lm_head", {y}, std::move(attrs), present));
  }
  if (family_.has_pooler() && Holds(family_.pooler().when())) {
    OpAttrs first;
    first.mutable_slice()->set_axis("seq");
    first.mutable_slice()->set_size(1);
    int y = Node(OpKind::kSlice, "pooler_first", {x}, std::move(first));
    y = Linear("pooler_dense", y, "d_model", "d_pool");
    OpAttrs act;
    act.mutable_activation()->set_act(TANH);
    plan_.outputs.emplace_back("pooled", Node(OpKind::kActivation, "pooler_act", {y}, std::move(act)));
  }
}

absl::Status Planner::CheckForm() const {
  const auto& known = family_.architecture();
  if (std::find(known.begin(), known.end(), plan_.architecture) == known.end()) {
    return Error(
        1404, config_.place(),
        absl::StrCat("\"architectures\": ", JsonQuoted(plan_.architecture, 100), " is not supported"),
        absl::StrCat("of this family: ", absl::StrJoin(known, ", ")));
  }
  for (const RefusalRule& refusal : family_.refuse()) {
    if (!Holds(refusal.when())) continue;
    return Error(1407, config_.place(), absl::StrCat("\"", refusal.when().key(), "\": ", refusal.message()),
                 refusal.hint());
  }
  return CheckFlags(family_, config_);
}

absl::StatusOr<Blueprint> Planner::Plan() {
  TWIN_ASSIGN_OR_RETURN(plan_.architecture, config_.Architecture(family_.architecture(0)));
  TWIN_RETURN_IF_ERROR(CheckForm());
  TWIN_ASSIGN_OR_RETURN(plan_.dims, SizesOf(family_, config_));
  plan_.layers = plan_.dims.at("layers");
  TWIN_RETURN_IF_ERROR(Attributes());
  TWIN_RETURN_IF_ERROR(Factor(family_.head().softcap()).status());
  int x = Embed();
  for (int64_t layer = 0; layer < plan_.layers; ++layer) {
    const std::string at = absl::StrCat("layers.", layer);
    x = Sublayer(layer, at, true, x);
    x = Sublayer(layer, at, false, x);
  }
  Finish(x);
  for (const auto& [role, type] : plan_.types) {
    double elements = 1;
    for (const ParamAxis& axis : type.axes) elements *= static_cast<double>(axis.size);
    if (elements > kMostElements) return TooLarge(config_, role);
  }
  return std::move(plan_);
}

}  // namespace

absl::StatusOr<Blueprint> MakeBlueprint(const FamilySpec& family, const ConfigView& config, DType dtype) {
  return Planner(family, config, dtype).Plan();
}

}  // namespace twinforge
