// config.json from the graph: each bound key says what the graph says, or the twin is refused.
//
// Four questions, in this order. Is every node a block that a config has words for (CheckBlocks)? Does a
// plain runtime derive something that the graph contradicts (CheckRuntime)? Is there a key, or another
// model_type, for each softmax scale (ChooseCarrier)? What does each key have to say, and does the source's
// spelling say it already (Writer)?
#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "ir/config_facts.h"
#include "ir/layout.h"
#include "ir/layout_parts.h"
#include "ir/rope.h"
#include "re2/re2.h"

namespace twinforge {
namespace {

using Fact = ConfigBinding::Fact;

bool IsScale(const ConfigBinding& binding) {
  return binding.fact == Fact::kSoftmaxScale || binding.fact == Fact::kSoftmaxScalePower;
}

// Which nodes a binding speaks of. Patterns are compiled once.
class Scopes {
 public:
  bool Covers(const ConfigBinding& binding, const Node& node) {
    if (binding.scope.empty()) return true;
    std::unique_ptr<RE2>& pattern = patterns_[binding.scope];
    if (pattern == nullptr) {
      pattern = std::make_unique<RE2>(binding.scope, RE2::Quiet);
      TWIN_CHECK(pattern->ok(), absl::StrCat("a family's scope is no pattern: ", binding.scope));
    }
    return RE2::FullMatch(node.path, *pattern);
  }

 private:
  absl::flat_hash_map<std::string, std::unique_ptr<RE2>> patterns_;
};

// ---- what a config has words for

// Residual sums and a pooler's slice are in every runtime; other primitives are a block taken apart.
absl::Status CheckBlocks(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    const bool known = node.op == OpKind::kInput || node.op == OpKind::kAdd || node.op == OpKind::kSlice;
    if (known || Info(node.op).composite != nullptr) continue;
    return CannotSay(node,
                     absl::StrCat(node.path, " is a primitive (", Info(node.op).name,
                                  "), and a config names whole blocks; raise_composites folds them back"));
  }
  return absl::OkStatus();
}

// ---- what a plain runtime derives

absl::Status CheckHead(const Layout& layout, const Graph& graph, const Node& node) {
  const ParamType& q = graph.param(node, "q").type;
  const int64_t heads = q.Get("heads").size, head_dim = q.Get("head_dim").size,
                d_model = q.Get("d_model").size;
  if (!layout.head_dim_is_key && heads * head_dim != d_model) {
    return CannotSay(node, absl::StrCat("this family derives head_dim as ", d_model, " / ", heads,
                                        ", the twin has ", head_dim));
  }
  if (layout.heads_divide_d_model && d_model % heads != 0) {
    return CannotSay(node, absl::StrCat("this family's config refuses ", heads,
                                        " heads, which do not divide d_model ", d_model));
  }
  if (!node.Has("q_norm")) return absl::OkStatus();
  const int64_t stated = node.attrs->attention().qk_norm_dim();
  const int64_t mean_over = stated != 0 ? stated : q.Get("head_dim").logical;
  if (mean_over == head_dim) return absl::OkStatus();
  return CannotSay(node, absl::StrCat("q and k norms take their mean over ", mean_over, " of ", head_dim,
                                      " places, a plain runtime over all"));
}

absl::Status CheckRope(const Layout& layout, const Graph& graph, const Node& node,
                       const std::vector<ConfigBinding>& bindings, Scopes& scopes) {
  const Rope& rope = RopeOf(node);
  if (rope.style() == Rope::ABSENT) return absl::OkStatus();
  const int64_t size = RotaryAxis(graph, node).size;
  const bool partial = layout.partial_rotary_is_key && node.op == OpKind::kAttention;
  if (rope.rotary_dim() != size && !partial) {
    return CannotSay(node, absl::StrCat("rotary_dim ", rope.rotary_dim(), " of a head of ", size,
                                        ": a plain runtime turns the whole head"));
  }
  // Measured with phi3: its config class divides d_model by heads there, whatever head_dim says.
  if (rope.scaling().kind() == RopeScaling::LONGROPE && node.op == OpKind::kAttention &&
      (graph.param(node, "q").type.Get("heads").padded() ||
       graph.param(node, "q").type.Get("d_model").padded())) {
    return CannotSay(node, "loaders count longrope's factors by d_model / heads, and one of them was padded");
  }
  for (const ConfigBinding& binding : bindings) {
    if (binding.fact == Fact::kRopeInterleaved && scopes.Covers(binding, node)) return absl::OkStatus();
  }
  if (rope.style() == layout.rope_style) return absl::OkStatus();
  return CannotSay(node, "a plain runtime of this family pairs a head's places the other way");
}

absl::Status CheckNorm(const Graph& graph, const Node& node) {
  const ParamAxis& axis = graph.param(node, "scale").type.axes[0];
  const int64_t stated = node.attrs->norm().norm_dim();
  const int64_t mean_over = stated != 0 ? stated : axis.logical;
  if (mean_over == axis.size) return absl::OkStatus();
  return CannotSay(node, absl::StrCat("its mean is over ", mean_over, " of ", axis.size,
                                      " places, a plain runtime's over all"));
}

// Families that scale their embeddings derive the factor from the width.
absl::Status CheckEmbedding(const Graph& graph, const Node& node) {
  const EmbeddingAttrs& attrs = node.attrs->embedding();
  const double derived = std::sqrt(static_cast<double>(graph.param(node, "table").type.Get("d_model").size));
  if (!attrs.has_scale() || Same(attrs.scale(), derived)) return absl::OkStatus();
  return CannotSay(
      node, absl::StrCat("rows are multiplied by ", attrs.scale(), ", a plain runtime takes ", derived));
}

// Whoever reads a plain config expands keys and values.
absl::Status CheckAbsorbed(const Node& node) {
  if (node.op != OpKind::kLatentAttention || !node.attrs->latent_attention().absorbed())
    return absl::OkStatus();
  return CannotSay(node, "its scores are taken among latents, a plain runtime expands keys and values");
}

// A padded vocabulary is hidden by a bias, or by generation_config's suppress_tokens.
absl::Status CheckVocab(const Layout& layout, const Graph& graph, const Node& node) {
  const ParamAxis& vocab = graph.param(node, "head").type.Get("vocab");
  if (!vocab.padded() || node.Has("bias") || layout.masks_suppressed_tokens) return absl::OkStatus();
  return CannotSay(node, absl::StrCat("nothing hides ", vocab.size - vocab.logical, " padded logits"));
}

absl::Status CheckRuntime(const Layout& layout, const Graph& graph,
                          const std::vector<ConfigBinding>& bindings, Scopes& scopes) {
  for (const Node& node : graph.nodes()) {
    if (node.op == OpKind::kAttention) TWIN_RETURN_IF_ERROR(CheckHead(layout, graph, node));
    if (IsAttention(node)) TWIN_RETURN_IF_ERROR(CheckRope(layout, graph, node, bindings, scopes));
    if (node.op == OpKind::kRmsNorm || node.op == OpKind::kLayerNorm)
      TWIN_RETURN_IF_ERROR(CheckNorm(graph, node));
    TWIN_RETURN_IF_ERROR(CheckAbsorbed(node));
    if (node.op == OpKind::kEmbedding) TWIN_RETURN_IF_ERROR(CheckEmbedding(graph, node));
    if (node.op == OpKind::kLmHead) TWIN_RETURN_IF_ERROR(CheckVocab(layout, graph, node));
  }
  return absl::OkStatus();
}

// ---- carriers

// The first attention whose softmax scale is neither derived nor bound to a key; nullptr if none.
const Node* UnsaidScale(const Graph& graph, const std::vector<ConfigBinding>& bindings, Scopes& scopes) {
  for (const Node& node : graph.nodes()) {
    if (!IsAttention(node) || Same(ScaleOf(node), DefaultScale(graph, node))) continue;
    bool bound = false;
    for (const ConfigBinding& binding : bindings)
      bound = bound || (IsScale(binding) && scopes.Covers(binding, node));
    if (!bound) return &node;
  }
  return nullptr;
}

std::vector<ConfigBinding> WithCarrier(std::vector<ConfigBinding> bindings, const Carrier& carrier) {
  for (const ConfigBinding& added : carrier.bindings) {
    bindings.erase(std::remove_if(bindings.begin(), bindings.end(),
                                  [&](const ConfigBinding& own) { return own.key == added.key; }),
                   bindings.end());
  }
  bindings.insert(bindings.end(), carrier.bindings.begin(), carrier.bindings.end());
  return bindings;
}

// The bindings to write: the layout's, or those of the first carrier that says every scale.
absl::StatusOr<std::pair<std::vector<ConfigBinding>, const Carrier*>> ChooseBindings(const Layout& layout,
                                                                                     const Graph& graph,
                                                                                     Scopes& scopes) {
  const Node* unsaid = UnsaidScale(graph, layout.bindings, scopes);
  if (unsaid == nullptr) return std::make_pair(layout.bindings, static_cast<const Carrier*>(nullptr));
  for (const Carrier& carrier : layout.carriers) {
    std::vector<ConfigBinding> bindings = WithCarrier(layout.bindings, carrier);
    if (UnsaidScale(graph, bindings, scopes) == nullptr) return std::make_pair(std::move(bindings), &carrier);
  }
  return CannotSay(
      *unsaid, absl::StrCat("softmax scale ", ScaleOf(*unsaid), " is not the ", DefaultScale(graph, *unsaid),
                            " that a plain runtime derives, and no key says it"));
}

// ---- writing

class Writer {
 public:
  Writer(const Graph& graph, const JsonValue& config, Scopes& scopes)
      : graph_(graph), source_(config), config_(config), scopes_(scopes) {}

  absl::Status Write(const std::vector<ConfigBinding>& bindings);
  absl::Status WriteTies(const std::vector<Tie>& ties);
  void Set(absl::string_view key, JsonValue value) { config_.Set(key, std::move(value)); }
  JsonValue Take() { return std::move(config_); }

 private:
  absl::StatusOr<std::optional<Saying>> Agree(const ConfigBinding& binding);
  absl::Status WriteFact(const std::vector<const ConfigBinding*>& bindings, const Saying& saying);
  absl::Status WriteKey(const std::string& key, const Saying& saying);

  const JsonValue* Present(const std::string& key) const {
    const JsonValue* value = config_.FindPath(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }

  // Whether the value that a runtime takes for an absent key is still what it was for the source.
  bool StillImplied(const ConfigBinding& binding) const {
    for (const std::string& key : binding.implied_from) {
      const JsonValue* before = source_.FindPath(key);
      const JsonValue* now = config_.FindPath(key);
      if ((before == nullptr) != (now == nullptr) || (now != nullptr && before->Text(0) != now->Text(0)))
        return false;
    }
    return true;
  }

  const Graph& graph_;
  const JsonValue& source_;
  JsonValue config_;
  Scopes& scopes_;
  std::map<std::string, std::string> said_;  // key -> what this run made it say
};

// What all nodes in scope say; TF1602 where two differ.
absl::StatusOr<std::optional<Saying>> Writer::Agree(const ConfigBinding& binding) {
  if (binding.fact == Fact::kLayers) return SayInteger(LayersOf(graph_));
  if (binding.fact == Fact::kDType) {
    std::string name = DTypeOf(graph_);
    return name.empty() ? std::nullopt : std::make_optional(SayWord(name));
  }
  std::optional<Saying> all;
  const Node* first = nullptr;
  for (const Node& node : graph_.nodes()) {
    if (!scopes_.Covers(binding, node)) continue;
    TWIN_ASSIGN_OR_RETURN(std::optional<Saying> one, SayingOf(graph_, node, binding));
    if (!one) continue;
    if (!all) {
      all = std::move(one);
      first = &node;
    } else if (all->text != one->text) {
      return CannotSay(node, absl::StrCat(binding.key, " can't be ", all->text, " for ", first->path, " and ",
                                          one->text, " here"));
    }
  }
  return all;
}

absl::Status Writer::WriteKey(const std::string& key, const Saying& saying) {
  auto [at, fresh] = said_.emplace(key, saying.text);
  if (!fresh && at->second != saying.text) {
    return Error(1602, key,
                 absl::StrCat("one key for two facts of the twin, ", at->second, " and ", saying.text),
                 kConfigHint);
  }
  const JsonValue* present = Present(key);
  if (present == nullptr || !saying.said_by(*present)) config_.Set(key, saying.fresh);
  return absl::OkStatus();
}

// The keys that are there are rewritten; where none is, the first that may be added says what is not implied.
absl::Status Writer::WriteFact(const std::vector<const ConfigBinding*>& bindings, const Saying& saying) {
  bool written = false, implied = false, known = false;
  const ConfigBinding* addable = nullptr;
  for (const ConfigBinding* binding : bindings) {
    if (Present(binding->key) != nullptr) {
      TWIN_RETURN_IF_ERROR(WriteKey(binding->key, saying));
      written = true;
    }
    if (binding->implied) {
      known = true;
      implied = implied || (StillImplied(*binding) && saying.said_by(JsonValue::Real(*binding->implied)));
    }
    if (!binding->only_if_present && addable == nullptr) addable = binding;
  }
  if (written || implied) return absl::OkStatus();
  if (addable != nullptr) return WriteKey(addable->key, saying);
  if (!known) return absl::OkStatus();
  return Error(1602, bindings[0]->key,
               absl::StrCat("the twin needs ", saying.text, " here, and this config has no such key"),
               kConfigHint);
}

absl::Status Writer::Write(const std::vector<ConfigBinding>& bindings) {
  // Several keys may say one fact (rope_theta, rope_parameters.rope_theta): they are judged together.
  std::map<std::tuple<Fact, std::string, std::string, std::string>, std::vector<const ConfigBinding*>> facts;
  std::vector<const ConfigBinding*> order;
  for (const ConfigBinding& binding : bindings) {
    if (binding.fact == Fact::kFixed) {
      TWIN_ASSIGN_OR_RETURN(JsonValue fixed, ParseJson(binding.text, binding.key));
      const JsonValue* present = config_.FindPath(binding.key);
      const bool stands = present != nullptr && present->Text(0) == fixed.Text(0);
      if (!stands && !(binding.only_if_present && present == nullptr))
        config_.Set(binding.key, std::move(fixed));
      continue;
    }
    auto& group = facts[{binding.fact, binding.axis, binding.scope, binding.text}];
    if (group.empty()) order.push_back(&binding);
    group.push_back(&binding);
  }
  // What other keys imply is judged once they are written.
  std::stable_partition(order.begin(), order.end(),
                        [](const ConfigBinding* binding) { return binding->implied_from.empty(); });
  for (const ConfigBinding* first : order) {
    TWIN_ASSIGN_OR_RETURN(const std::optional<Saying> saying, Agree(*first));
    if (!saying) continue;
    TWIN_RETURN_IF_ERROR(WriteFact(facts[{first->fact, first->axis, first->scope, first->text}], *saying));
  }
  return absl::OkStatus();
}

absl::Status Writer::WriteTies(const std::vector<Tie>& ties) {
  for (const Tie& tie : ties) {
    if (tie.key.empty() || graph_.FindParam(tie.role) == nullptr) continue;
    const Saying saying = SayTruth(IsTied(graph_, tie));
    if (Present(tie.key) == nullptr && tie.implied && saying.fresh.as_bool() == *tie.implied) continue;
    TWIN_RETURN_IF_ERROR(WriteKey(tie.key, saying));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<JsonValue> ConfigFromGraph(const Layout& layout, const Graph& graph, const JsonValue& config) {
  TWIN_RETURN_IF_ERROR(CheckBlocks(graph));
  Scopes scopes;
  TWIN_ASSIGN_OR_RETURN(const auto chosen, ChooseBindings(layout, graph, scopes));
  const auto& [bindings, carrier] = chosen;
  TWIN_RETURN_IF_ERROR(CheckRuntime(layout, graph, bindings, scopes));
  Writer writer(graph, config, scopes);
  if (carrier != nullptr) writer.Set("model_type", JsonValue::String(carrier->model_type));
  TWIN_RETURN_IF_ERROR(writer.Write(bindings));
  TWIN_RETURN_IF_ERROR(writer.WriteTies(layout.ties));
  return writer.Take();
}

}  // namespace twinforge
