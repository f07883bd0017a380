#include "reference/onnx/scope_writer.h"

#include "base/check.h"
#include "base/status_macros.h"
#include "reference/onnx/attention_match.h"
#include "reference/onnx/spelling.h"

namespace twinforge {
namespace {

bool Is(const Graph& graph, NodeId id, OpKind op) { return id >= 0 && graph.node(id).op == op; }

// The operand of a node of that kind, or -1.
NodeId Under(const Graph& graph, NodeId id, OpKind op, size_t operand = 0) {
  return Is(graph, id, op) ? graph.node(id).operands[operand] : -1;
}

// Whether the mean of a norm is over the places that there are.
bool IsUnpadded(const Graph& graph, const Node& node) {
  const ParamAxis& axis = graph.param(node, "scale").type.axes[0];
  const int64_t width = node.attrs->norm().norm_dim();
  return (width == 0 ? axis.logical : width) == axis.size;
}

}  // namespace

LaidValue OnnxScopeWriter::ValueOf(OnnxScope& scope, NodeId id) {
  const auto weight = scope.weights.find(id);
  if (weight == scope.weights.end()) return scope.values.at(id);
  LaidValue value = WholeTensor(body_, tensor_of_(weight->second.role), weight->second.dtype);
  value.type = scope.graph.node(id).type;
  return value;
}

// What a block asks of `starts` is whether a key comes before its row's first one. Asked of a mask: whether
// it is no token. Padding sees itself, so that each row has a key.
bool OnnxScopeWriter::AppendMaskRead(OnnxScope& scope, const Node& node) {
  if (node.operands.empty() || scope.starts < 0) return false;
  const Graph& graph = scope.graph;
  const NodeId first = node.operands[0];
  if (node.op == OpKind::kBroadcast && first == scope.starts) return true;
  if (node.op == OpKind::kMinimum && Under(graph, first, OpKind::kBroadcast) == scope.starts) {
    scope.first_seen[node.id] = node.operands[1];
    return true;
  }
  const auto query = scope.first_seen.find(first);
  if (query == scope.first_seen.end()) return false;
  TWIN_CHECK(node.op == OpKind::kCompare && node.attrs->compare().direction() == CompareAttrs::LE,
             "a row's first place is compared with keys");
  const LaidValue own = body_.Elementwise(
      "Equal", {ValueOf(scope, query->second), ValueOf(scope, node.operands[1])}, node.type);
  const LaidValue token = body_.Broadcast(*mask_, node.type, {0, 2});
  scope.values[node.id] = body_.Elementwise("Or", {token, own}, node.type);
  return true;
}

// (c ? (d ? x : n) : n) is c and d ? x : n, and conditions are small and shared where scores are neither.
bool OnnxScopeWriter::AppendHiddenAgain(OnnxScope& scope, const Node& node) {
  const Graph& graph = scope.graph;
  if (node.op != OpKind::kSelect || !Is(graph, node.operands[1], OpKind::kSelect)) return false;
  const Node& inner = graph.node(node.operands[1]);
  const Node &outside = graph.node(node.operands[2]), &inside = graph.node(inner.operands[2]);
  if (outside.op != OpKind::kConstant || inside.op != OpKind::kConstant || outside.type != inside.type ||
      outside.attrs->SerializeAsString() != inside.attrs->SerializeAsString()) {
    return false;
  }
  const auto before = scope.shown.find(inner.id);
  const bool first = before == scope.shown.end();
  const LaidValue where = first ? ValueOf(scope, inner.operands[0]) : before->second.where;
  const NodeId x = first ? inner.operands[1] : before->second.x;
  const Type condition{DType::kBool, node.type.axes};
  const LaidValue both = body_.Elementwise("And", {ValueOf(scope, node.operands[0]), where}, condition);
  scope.shown[node.id] = {both, x};
  scope.values[node.id] =
      body_.Elementwise("Where", {both, ValueOf(scope, x), ValueOf(scope, outside.id)}, node.type);
  return true;
}

// Weights are converted, multiplied with and looked up in as they lie.
bool OnnxScopeWriter::AppendWeightRead(OnnxScope& scope, const Node& node) {
  const bool product = node.op == OpKind::kDot && node.operands.size() == 2;
  if (node.operands.empty()) return false;
  const auto weight = scope.weights.find(node.operands[product ? 1 : 0]);
  if (weight == scope.weights.end()) return false;
  const OnnxScope::WeightRead of = weight->second;
  if (node.op == OpKind::kConvert) {
    scope.weights[node.id] = {of.role, node.type.dtype};
    return true;
  }
  const WeightTensor tensor = tensor_of_(of.role);
  if (product) {
    scope.values[node.id] =
        TensorProduct(body_, ValueOf(scope, node.operands[0]), tensor, node.attrs->dot(), node.type);
    return true;
  }
  if (node.op != OpKind::kGather || node.attrs->axis().axis() != 0) return false;
  scope.values[node.id] = TensorRows(body_, tensor, ValueOf(scope, node.operands[1]), of.dtype, node.type);
  return true;
}

bool OnnxScopeWriter::AppendSoftmax(OnnxScope& scope, const Node& node) {
  const NodeId w = UnderSoftmax(scope.graph, node.id);
  if (w < 0) return false;
  const std::string x = body_.Full(ValueOf(scope, w));
  scope.values[node.id] =
      LaidInOrder(body_.nodes().Op("Softmax", {x}, {OnnxAttribute("axis", int64_t{-1})}), node.type);
  return true;
}

// [batch, 1, seq, keys], or without the batch where every row sees the same.
std::string OnnxScopeWriter::SeenByAll(OnnxScope& scope, const std::vector<NodeId>& broadcasts) {
  const std::vector<Axis>& axes = scope.graph.node(broadcasts[0]).type.axes;  // [batch, kv, seq, group, keys]
  const Type type{DType::kBool, {axes[0], axes[2], axes[4]}};
  std::optional<LaidValue> all;
  for (NodeId id : broadcasts) {
    const LaidValue& seen = scope.values.at(id);
    const LaidValue own{seen.name, type, {seen.place[0], seen.place[2], seen.place[4]}};
    all = all ? body_.Elementwise("And", {*all, own}, type) : own;
  }
  if (all->place[0] < 0) return body_.InOrder(*all, {1, 2});
  return body_.nodes().Op("Unsqueeze", {body_.Full(*all), body_.nodes().Integers({1})});
}

bool OnnxScopeWriter::AppendAttention(OnnxScope& scope, const Node& node) {
  if (body_.opset() < 23 || node.type.dtype != DType::kF32) return false;
  const std::optional<MatchedAttention> found = MatchAttention(scope.graph, node);
  if (!found) return false;
  const LaidValue q = ValueOf(scope, found->q);
  const std::vector<Dim> dims = DimsOf(q.type);
  const std::vector<Dim> by_group = {dims[0], dims[2], dims[3], dims[1], dims[4]};
  const std::vector<Dim> by_head = {dims[0], dims[2] * dims[3], dims[1], dims[4]};
  std::vector<std::string> inputs = {body_.Reshaped(body_.Full(q, {0, 2, 3, 1, 4}), by_group, by_head),
                                     body_.Full(ValueOf(scope, found->k), {0, 2, 1, 3}),
                                     body_.Full(ValueOf(scope, found->v), {0, 2, 1, 3})};
  if (!found->seen.empty()) inputs.push_back(SeenByAll(scope, found->seen));
  const std::string mixed =
      body_.nodes().Op("Attention", inputs, {OnnxAttribute("scale", static_cast<float>(found->scale))});
  std::vector<Dim> from = by_head, to = by_group;
  from[3] = to[4] = node.type.axes[4].size;
  scope.values[node.id] = {body_.Reshaped(mixed, from, to), node.type, {0, 1, 3, 2, 4}};
  return true;
}

LaidValue OnnxScopeWriter::Norm(OnnxScope& scope, const Node& node, absl::string_view op) {
  const NormAttrs& attrs = node.attrs->norm();
  const auto vector = [&](absl::string_view slot) {
    return WholeTensor(body_, tensor_of_(std::string(node.Role(slot))), node.type.dtype);
  };
  LaidValue scale = vector("scale");
  if (attrs.offset() != 0) {
    const std::string offset = body_.nodes().Number(node.type.dtype, attrs.offset());
    scale.name = body_.nodes().Op("Add", {scale.name, offset});
  }
  std::vector<std::string> inputs = {body_.Full(ValueOf(scope, node.operands[0])), scale.name};
  if (node.Has("bias")) inputs.push_back(vector("bias").name);
  const OnnxAttributeList attributes = {OnnxAttribute("axis", int64_t{-1}),
                                        OnnxAttribute("epsilon", static_cast<float>(attrs.eps()))};
  return LaidInOrder(body_.nodes().Op(op, inputs, attributes), node.type);
}

// The operator turns [batch, seq, heads * width]; its tables are those of the decomposition.
absl::StatusOr<LaidValue> OnnxScopeWriter::Rotary(OnnxScope& scope, const Node& node) {
  TWIN_ASSIGN_OR_RETURN(const Graph body,
                        DecompositionOf(scope.graph, node, DecompositionDepth::kPrimitives, false));
  OnnxScope inner{.graph = body};
  for (size_t i = 0; i < node.operands.size(); ++i)
    inner.values[body.inputs()[i]] = ValueOf(scope, node.operands[i]);
  std::string tables[2];
  for (const Node& part : body.nodes()) {
    if (part.op == OpKind::kInput) continue;
    TWIN_RETURN_IF_ERROR(Append(inner, part));
    // The first one that is spread over the heads.
    if (part.op != OpKind::kBroadcast || part.type.axes.size() != node.type.axes.size()) continue;
    for (NodeId at = part.operands[0]; at >= 0;) {
      const Node& from = body.node(at);
      const bool cosine = from.op == OpKind::kCosine;
      if (cosine || from.op == OpKind::kSine) {
        std::string& table = tables[cosine ? 0 : 1];
        if (table.empty()) table = body_.Full(inner.values.at(part.operands[0]));
        break;
      }
      at = from.op == OpKind::kMultiply || from.op == OpKind::kConvert ? from.operands[0] : -1;
    }
  }
  TWIN_CHECK(!tables[0].empty() && !tables[1].empty(), "a rope has cosines and sines");
  const Rope& rope = node.attrs->rope();
  const LaidValue x = ValueOf(scope, node.operands[0]);
  const std::vector<Dim> dims = DimsOf(x.type);
  Dim heads(1);
  for (size_t i = 2; i + 1 < dims.size(); ++i) heads = heads * dims[i];
  const std::vector<Dim> flat = {dims[0], dims[1], heads * dims.back()};
  const OnnxAttributeList attributes = {
      OnnxAttribute("interleaved", int64_t{rope.style() == Rope::INTERLEAVED}),
      OnnxAttribute("num_heads", heads.value().value_or(1)),
      OnnxAttribute("rotary_embedding_dim",
                    rope.rotary_dim() == dims.back().value() ? 0 : rope.rotary_dim())};
  const std::string turned = body_.nodes().Op(
      "RotaryEmbedding", {body_.Reshaped(body_.Full(x), dims, flat), tables[0], tables[1]}, attributes);
  return LaidInOrder(body_.Reshaped(turned, flat, dims), node.type);
}

absl::StatusOr<std::optional<LaidValue>> OnnxScopeWriter::Whole(OnnxScope& scope, const Node& node) {
  // In other types the operators round in places of their own.
  if (node.type.dtype != DType::kF32) return std::nullopt;
  if (node.op == OpKind::kLayerNorm && IsUnpadded(scope.graph, node))
    return Norm(scope, node, "LayerNormalization");
  if (body_.opset() < 23) return std::nullopt;
  if (node.op == OpKind::kRmsNorm && IsUnpadded(scope.graph, node))
    return Norm(scope, node, "RMSNormalization");
  if (node.op != OpKind::kRope) return std::nullopt;
  TWIN_ASSIGN_OR_RETURN(LaidValue turned, Rotary(scope, node));
  return turned;
}

// A composite inside a decomposition: it has neither state nor parameters.
absl::StatusOr<LaidValue> OnnxScopeWriter::WrittenOut(OnnxScope& scope, const Node& node) {
  TWIN_ASSIGN_OR_RETURN(const std::optional<LaidValue> whole, Whole(scope, node));
  if (whole) return *whole;
  TWIN_ASSIGN_OR_RETURN(const Graph body,
                        DecompositionOf(scope.graph, node, DecompositionDepth::kPrimitives, false));
  OnnxScope inner{.graph = body};
  for (size_t i = 0; i < node.operands.size(); ++i)
    inner.values[body.inputs()[i]] = ValueOf(scope, node.operands[i]);
  TWIN_RETURN_IF_ERROR(AppendAll(inner));
  return ValueOf(inner, body.outputs()[0].second);
}

absl::Status OnnxScopeWriter::Append(OnnxScope& scope, const Node& node) {
  body_.nodes().At(node.path);
  if (node.op == OpKind::kParam) {
    scope.weights[node.id] = {std::string(node.Role("value")), node.type.dtype};
    return absl::OkStatus();
  }
  if (AppendMaskRead(scope, node) || AppendWeightRead(scope, node) || AppendHiddenAgain(scope, node) ||
      AppendSoftmax(scope, node) || AppendAttention(scope, node)) {
    return absl::OkStatus();
  }
  if (Info(node.op).composite != nullptr) {
    TWIN_ASSIGN_OR_RETURN(scope.values[node.id], WrittenOut(scope, node));
    return absl::OkStatus();
  }
  std::vector<LaidValue> operands;
  for (NodeId id : node.operands) operands.push_back(ValueOf(scope, id));
  TWIN_ASSIGN_OR_RETURN(scope.values[node.id], SpellInOnnx({body_, scope.graph, node, operands}));
  return absl::OkStatus();
}

absl::Status OnnxScopeWriter::AppendAll(OnnxScope& scope) {
  for (const Node& node : scope.graph.nodes()) {
    if (node.op != OpKind::kInput) TWIN_RETURN_IF_ERROR(Append(scope, node));
  }
  return absl::OkStatus();
}

}  // namespace twinforge
