// config.json from the graph: each bound key says what the graph says, or the twin is refused.
//
// Three questions, in this order. Does a plain runtime derive something that the graph
// contradicts (CheckRuntime)? Is there a key, or another model_type, for each softmax
// scale (ChooseCarrier)? What does each key have to say, and does the source's spelling
// say it already (Writer)?
#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "ir/layout.h"
#include "ir/layout_parts.h"
#include "ir/rope.h"
#include "re2/re2.h"

namespace twinforge {
namespace {

using Fact = ConfigBinding::Fact;

constexpr absl::string_view kHint = "use the portable form of the step, or write the twin's own layout with --to twin";

absl::Status CannotSay(const Node& node, absl::string_view reason) {
  return Error(1602, node.path, node.step.empty() ? std::string(reason) : absl::StrCat("after step ", node.step, ": ", reason),
               kHint);
}

// What runtimes compute in double from a config and what a step computed may differ in the last places.
bool Same(double a, double b) { return std::abs(a - b) <= 1e-12 * std::max(std::abs(a), std::abs(b)); }

bool IsAttention(const Node& node) { return node.op == OpKind::kAttention || node.op == OpKind::kLatentAttention; }

double ScaleOf(const Node& node) {
  return node.op == OpKind::kAttention ? node.attrs->attention().scale() : node.attrs->latent_attention().scale();
}

const Rope& RopeOf(const Node& node) {
  return node.op == OpKind::kAttention ? node.attrs->attention().rope() : node.attrs->latent_attention().rope();
}

// The axis whose places turn: a head, or the rotary part of a latent one.
const ParamAxis& RotaryAxis(const Graph& graph, const Node& node) {
  if (node.op == OpKind::kAttention) return graph.param(node, "k").type.Get("head_dim");
  return graph.param(node, "k_rope").type.Get("rope_dim");
}

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

// ---- what a plain runtime derives

absl::Status CheckHead(const Layout& layout, const Graph& graph, const Node& node) {
  const ParamType& q = graph.param(node, "q").type;
  const int64_t heads = q.Get("heads").size, head_dim = q.Get("head_dim").size, d_model = q.Get("d_model").size;
  if (!layout.head_dim_is_key && heads * head_dim != d_model) {
    return CannotSay(node, absl::StrCat("this family derives head_dim as ", d_model, " / ", heads, ", the twin has ",
                                        head_dim));
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
  for (const ConfigBinding& binding : bindings) {
    if (binding.fact == Fact::kRopeInterleaved && scopes.Covers(binding, node)) return absl::OkStatus();
  }
  if (rope.style() == layout.rope_style) return absl::OkStatus();
  return CannotSay(node, "a plain runtime of this family pairs a head's places the other way");
}

absl::Status CheckNorm(const Graph& graph, const Node& node) {
  const ParamAxis& axis = graph.param(node, "scale").type.axes[0];
  if (!axis.padded()) return absl::OkStatus();
  return CannotSay(node, absl::StrCat("its mean is over ", axis.logical, " of ", axis.size,
                                      " places, a plain runtime's over all"));
}

// A padded vocabulary is hidden by a bias, or by generation_config's suppress_tokens.
absl::Status CheckVocab(const Layout& layout, const Graph& graph, const Node& node) {
  const ParamAxis& vocab = graph.param(node, "head").type.Get("vocab");
  if (!vocab.padded() || node.Has("bias") || layout.masks_suppressed_tokens) return absl::OkStatus();
  return CannotSay(node, absl::StrCat("nothing hides ", vocab.size - vocab.logical, " padded logits"));
}

absl::Status CheckRuntime(const Layout& layout, const Graph& graph, const std::vector<ConfigBinding>& bindings,
                          Scopes& scopes) {
  for (const Node& node : graph.nodes()) {
    if (node.op == OpKind::kAttention) TWIN_RETURN_IF_ERROR(CheckHead(layout, graph, node));
    if (IsAttention(node)) TWIN_RETURN_IF_ERROR(CheckRope(layout, graph, node, bindings, scopes));
    if (node.op == OpKind::kRmsNorm || node.op == OpKind::kLayerNorm) TWIN_RETURN_IF_ERROR(CheckNorm(graph, node));
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
    for (const ConfigBinding& binding : bindings) bound = bound || (IsScale(binding) && scopes.Covers(binding, node));
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
  return CannotSay(*unsaid, absl::StrCat("softmax scale ", ScaleOf(*unsaid), " is not the ",
                                         DefaultScale(graph, *unsaid), " that a plain runtime derives, and no key says it"));
}

// ---- facts

// What one fact has to say: a fresh value, and whether a number that stands there says it already.
struct Saying {
  JsonValue fresh;
  std::function<bool(const JsonValue&)> said_by;
  std::string text;   // to compare and to report
};

bool IsNumber(const JsonValue& value) {
  return value.kind() == JsonValue::Kind::kInteger || value.kind() == JsonValue::Kind::kReal;
}

Saying Integer(int64_t number) {
  return {JsonValue::Integer(number),
          [number](const JsonValue& v) { return IsNumber(v) && v.as_number() == static_cast<double>(number); },
          absl::StrCat(number)};
}

Saying Real(double number) {
  return {JsonValue::Real(number), [number](const JsonValue& v) { return IsNumber(v) && v.as_number() == number; },
          JsonValue::Real(number).Text(0)};
}

Saying Truth(bool truth) {
  return {JsonValue::Bool(truth),
          [truth](const JsonValue& v) {
            return v.kind() == JsonValue::Kind::kBool ? v.as_bool() == truth : IsNumber(v) && v.as_number() == (truth ? 1 : 0);
          },
          truth ? "true" : "false"};
}

Saying Word(std::string word) {
  return {JsonValue::String(word),
          [word](const JsonValue& v) { return v.kind() == JsonValue::Kind::kString && v.as_string() == word; }, word};
}

// A runtime takes int(head_dim * factor) places.
Saying PartialRotary(int64_t rotary, int64_t head_dim) {
  double factor = static_cast<double>(rotary) / static_cast<double>(head_dim);
  while (static_cast<int64_t>(static_cast<double>(head_dim) * factor) < rotary) factor = std::nextafter(factor, 2.0);
  return {JsonValue::Real(factor),
          [=](const JsonValue& v) {
            return IsNumber(v) && static_cast<int64_t>(static_cast<double>(head_dim) * v.as_number()) == rotary;
          },
          absl::StrCat(rotary, "/", head_dim)};
}

Saying ScalePower(double scale) {
  double power = 1.0 / (scale * scale);
  if (Same(std::round(power), power)) power = std::round(power);
  const bool whole = power == std::round(power);
  return {whole ? JsonValue::Integer(static_cast<int64_t>(power)) : JsonValue::Real(power),
          [scale](const JsonValue& v) { return IsNumber(v) && Same(std::pow(v.as_number(), -0.5), scale); },
          JsonValue::Real(scale).Text(0)};
}

std::optional<int64_t> AxisOf(const Graph& graph, const Node& node, absl::string_view axis) {
  for (const auto& [slot, role] : node.params) {
    const ParamType& type = graph.FindParam(role)->type;
    const int at = type.Find(axis);
    if (at >= 0) return type.axes[at].size;
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<Saying>> QuotientOf(const Graph& graph, const Node& node, const ConfigBinding& binding) {
  const std::optional<int64_t> whole = AxisOf(graph, node, binding.axis), part = AxisOf(graph, node, binding.text);
  if (!whole || !part) return std::nullopt;
  if (*whole % *part == 0) return Integer(*whole / *part);
  return CannotSay(node, absl::StrCat(binding.axis, " ", *whole, " is no multiple of ", binding.text, " ", *part, ", and ",
                                      binding.key, " counts in those"));
}

std::optional<Saying> EpsOf(const Node& node) {
  if (node.op == OpKind::kRmsNorm || node.op == OpKind::kLayerNorm) return Real(node.attrs->norm().eps());
  if (node.op == OpKind::kAttention && node.attrs->attention().has_qk_norm_eps()) {
    return Real(node.attrs->attention().qk_norm_eps());
  }
  return std::nullopt;  // the norms within latent attention have an eps of their own that no key says
}

// What `node` says of the binding's fact; nothing where the node does not know it.
absl::StatusOr<std::optional<Saying>> SayingOf(const Graph& graph, const Node& node, const ConfigBinding& binding) {
  std::optional<Saying> saying;
  const bool turns = IsAttention(node) && RopeOf(node).style() != Rope::ABSENT;
  switch (binding.fact) {
    case Fact::kAxis:
      if (std::optional<int64_t> size = AxisOf(graph, node, binding.axis)) saying = Integer(*size);
      break;
    case Fact::kAxisQuotient: return QuotientOf(graph, node, binding);
    case Fact::kAxisSum: {
      const std::optional<int64_t> a = AxisOf(graph, node, binding.axis), b = AxisOf(graph, node, binding.text);
      if (a && b) saying = Integer(*a + *b);
      break;
    }
    case Fact::kRopeTheta:
      if (turns) saying = Real(RopeOf(node).theta());
      break;
    case Fact::kPartialRotary:
      if (turns) saying = PartialRotary(RopeOf(node).rotary_dim(), RotaryAxis(graph, node).size);
      break;
    case Fact::kRopeInterleaved:
      if (turns) saying = Truth(RopeOf(node).style() == Rope::INTERLEAVED);
      break;
    case Fact::kSoftmaxScalePower:
      if (IsAttention(node)) saying = ScalePower(ScaleOf(node));
      break;
    case Fact::kSoftmaxScale:
      if (IsAttention(node)) saying = Real(ScaleOf(node));
      break;
    case Fact::kNormEps: saying = EpsOf(node); break;
    case Fact::kTopK:
      if (node.op == OpKind::kMoe) saying = Integer(node.attrs->moe().top_k());
      break;
    case Fact::kDType:
    case Fact::kLayers:
    case Fact::kFixed: break;  // facts of the whole graph
  }
  return saying;
}

// The number of `layers.N.` prefixes among paths.
int64_t LayersOf(const Graph& graph) {
  int64_t layers = 0;
  for (const Node& node : graph.nodes()) {
    absl::string_view path = node.path;
    if (path.substr(0, 7) != "layers.") continue;
    path.remove_prefix(7);
    int64_t number = 0;
    if (absl::SimpleAtoi(path.substr(0, path.find('.')), &number)) layers = std::max(layers, number + 1);
  }
  return layers;
}

// As torch spells the dtype that most bytes of parameters have; "" where torch has no such type.
std::string DTypeOf(const Graph& graph) {
  std::map<DType, int64_t> bytes;
  for (const auto& [role, param] : graph.params()) {
    bytes[param.type.dtype] += param.program->element_count() * BitWidth(param.type.dtype);
  }
  DType most = DType::kF32;
  int64_t weight = -1;
  for (const auto& [dtype, count] : bytes) {
    if (count <= weight) continue;
    most = dtype;
    weight = count;
  }
  static const auto* const kNames = new std::map<DType, std::string>{
      {DType::kBF16, "bfloat16"},        {DType::kF16, "float16"},           {DType::kF32, "float32"},
      {DType::kF64, "float64"},          {DType::kF8E4M3, "float8_e4m3fn"},  {DType::kF8E5M2, "float8_e5m2"},
      {DType::kF8E4M3Fnuz, "float8_e4m3fnuz"}, {DType::kF8E5M2Fnuz, "float8_e5m2fnuz"}};
  auto name = kNames->find(most);
  return name == kNames->end() ? "" : name->second;
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
      if ((before == nullptr) != (now == nullptr) || (now != nullptr && before->Text(0) != now->Text(0))) return false;
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
  if (binding.fact == Fact::kLayers) return Integer(LayersOf(graph_));
  if (binding.fact == Fact::kDType) {
    std::string name = DTypeOf(graph_);
    return name.empty() ? std::nullopt : std::make_optional(Word(std::move(name)));
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
      return CannotSay(node, absl::StrCat(binding.key, " can't be ", all->text, " for ", first->path, " and ", one->text,
                                          " here"));
    }
  }
  return all;
}

absl::Status Writer::WriteKey(const std::string& key, const Saying& saying) {
  auto [at, fresh] = said_.emplace(key, saying.text);
  if (!fresh && at->second != saying.text) {
    return Error(1602, key, absl::StrCat("one key for two facts of the twin, ", at->second, " and ", saying.text), kHint);
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
  return Error(1602, bindings[0]->key, absl::StrCat("the twin needs ", saying.text, " here, and this config has no such key"),
               kHint);
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
      if (!stands && !(binding.only_if_present && present == nullptr)) config_.Set(binding.key, std::move(fixed));
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
    const Saying saying = Truth(IsTied(graph_, tie));
    if (Present(tie.key) == nullptr && tie.implied && saying.fresh.as_bool() == *tie.implied) continue;
    TWIN_RETURN_IF_ERROR(WriteKey(tie.key, saying));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<JsonValue> ConfigFromGraph(const Layout& layout, const Graph& graph, const JsonValue& config) {
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
