#include "ir/config_facts.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"

namespace twinforge {

using Fact = ConfigBinding::Fact;

absl::Status CannotSay(const Node& node, absl::string_view reason) {
  return Error(1602, node.path,
               node.step.empty() ? std::string(reason) : absl::StrCat("after step ", node.step, ": ", reason),
               kConfigHint);
}

bool Same(double a, double b) { return std::abs(a - b) <= 1e-12 * std::max(std::abs(a), std::abs(b)); }

bool IsAttention(const Node& node) {
  return node.op == OpKind::kAttention || node.op == OpKind::kLatentAttention;
}

double ScaleOf(const Node& node) {
  return node.op == OpKind::kAttention ? node.attrs->attention().scale()
                                       : node.attrs->latent_attention().scale();
}

const Rope& RopeOf(const Node& node) {
  return node.op == OpKind::kAttention ? node.attrs->attention().rope()
                                       : node.attrs->latent_attention().rope();
}

const ParamAxis& RotaryAxis(const Graph& graph, const Node& node) {
  if (node.op == OpKind::kAttention) return graph.param(node, "k").type.Get("head_dim");
  return graph.param(node, "k_rope").type.Get("rope_dim");
}

namespace {

bool IsNumber(const JsonValue& value) {
  return value.kind() == JsonValue::Kind::kInteger || value.kind() == JsonValue::Kind::kReal;
}

}  // namespace

Saying SayInteger(int64_t number) {
  return {
      JsonValue::Integer(number),
      [number](const JsonValue& v) { return IsNumber(v) && v.as_number() == static_cast<double>(number); },
      absl::StrCat(number)};
}

Saying SayTruth(bool truth) {
  return {JsonValue::Bool(truth),
          [truth](const JsonValue& v) {
            return v.kind() == JsonValue::Kind::kBool ? v.as_bool() == truth
                                                      : IsNumber(v) && v.as_number() == (truth ? 1 : 0);
          },
          truth ? "true" : "false"};
}

Saying SayWord(const std::string& word) {
  return {
      JsonValue::String(word),
      [word](const JsonValue& v) { return v.kind() == JsonValue::Kind::kString && v.as_string() == word; },
      word};
}

namespace {

Saying Real(double number) {
  return {JsonValue::Real(number),
          [number](const JsonValue& v) { return IsNumber(v) && v.as_number() == number; },
          JsonValue::Real(number).Text(0)};
}

// A runtime takes int(head_dim * factor) places.
Saying PartialRotary(int64_t rotary, int64_t head_dim) {
  double factor = static_cast<double>(rotary) / static_cast<double>(head_dim);
  while (static_cast<int64_t>(static_cast<double>(head_dim) * factor) < rotary)
    factor = std::nextafter(factor, 2.0);
  return {JsonValue::Real(factor),
          [=](const JsonValue& v) {
            return IsNumber(v) &&
                   static_cast<int64_t>(static_cast<double>(head_dim) * v.as_number()) == rotary;
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

absl::StatusOr<std::optional<Saying>> QuotientOf(const Graph& graph, const Node& node,
                                                 const ConfigBinding& binding) {
  const std::optional<int64_t> whole = AxisOf(graph, node, binding.axis),
                               part = AxisOf(graph, node, binding.text);
  if (!whole || !part) return std::nullopt;
  if (*whole % *part == 0) return SayInteger(*whole / *part);
  return CannotSay(node, absl::StrCat(binding.axis, " ", *whole, " is no multiple of ", binding.text, " ",
                                      *part, ", and ", binding.key, " counts in those"));
}

std::optional<Saying> EpsOf(const Node& node) {
  if (node.op == OpKind::kRmsNorm || node.op == OpKind::kLayerNorm) return Real(node.attrs->norm().eps());
  if (node.op == OpKind::kAttention && node.attrs->attention().has_qk_norm_eps()) {
    return Real(node.attrs->attention().qk_norm_eps());
  }
  return std::nullopt;  // the norms within latent attention have an eps of their own that no key says
}

}  // namespace

// What `node` says of the binding's fact; nothing where the node does not know it.
absl::StatusOr<std::optional<Saying>> SayingOf(const Graph& graph, const Node& node,
                                               const ConfigBinding& binding) {
  std::optional<Saying> saying;
  const bool turns = IsAttention(node) && RopeOf(node).style() != Rope::ABSENT;
  switch (binding.fact) {
    case Fact::kAxis:
      if (std::optional<int64_t> size = AxisOf(graph, node, binding.axis)) saying = SayInteger(*size);
      break;
    case Fact::kAxisQuotient:
      return QuotientOf(graph, node, binding);
    case Fact::kAxisSum: {
      const std::optional<int64_t> a = AxisOf(graph, node, binding.axis),
                                   b = AxisOf(graph, node, binding.text);
      if (a && b) saying = SayInteger(*a + *b);
      break;
    }
    case Fact::kRopeTheta:
      if (turns) saying = Real(RopeOf(node).theta());
      break;
    case Fact::kPartialRotary:
      if (turns) saying = PartialRotary(RopeOf(node).rotary_dim(), RotaryAxis(graph, node).size);
      break;
    case Fact::kRopeInterleaved:
      if (turns) saying = SayTruth(RopeOf(node).style() == Rope::INTERLEAVED);
      break;
    case Fact::kSoftmaxScalePower:
      if (IsAttention(node)) saying = ScalePower(ScaleOf(node));
      break;
    case Fact::kSoftmaxScale:
      if (IsAttention(node)) saying = Real(ScaleOf(node));
      break;
    case Fact::kNormEps:
      saying = EpsOf(node);
      break;
    case Fact::kTopK:
      if (node.op == OpKind::kMoe) saying = SayInteger(node.attrs->moe().top_k());
      break;
    case Fact::kDType:
    case Fact::kLayers:
    case Fact::kFixed:
      break;  // facts of the whole graph
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
  static const auto* const kNames = new std::map<DType, std::string>{{DType::kBF16, "bfloat16"},
                                                                     {DType::kF16, "float16"},
                                                                     {DType::kF32, "float32"},
                                                                     {DType::kF64, "float64"},
                                                                     {DType::kF8E4M3, "float8_e4m3fn"},
                                                                     {DType::kF8E5M2, "float8_e5m2"},
                                                                     {DType::kF8E4M3Fnuz, "float8_e4m3fnuz"},
                                                                     {DType::kF8E5M2Fnuz, "float8_e5m2fnuz"}};
  auto name = kNames->find(most);
  return name == kNames->end() ? "" : name->second;
}

}  // namespace twinforge
