#include "eval/evaluate.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "eval/kernels.h"
#include "eval/retype.h"
#include "eval/whole_sequence.h"
#include "ir/decompose.h"

namespace twinforge {
namespace {

using Symbols = std::map<std::string, int64_t>;

constexpr absl::string_view kPositions = "positions";
constexpr absl::string_view kTokenTypes = "token_types";
constexpr absl::string_view kPast = "past";

absl::Status Wrong(absl::string_view place, absl::string_view message) { return Error(1901, place, message); }

absl::Status TooLarge(absl::string_view place, const Shape& shape) {
  return Error(1902, place, absl::StrCat("a value of ", ShapeText(shape)),
               "evaluate a smaller model, fewer sequences or shorter ones");
}

absl::StatusOr<Shape> Extents(absl::string_view place, const Type& type, const Symbols& symbols,
                              int64_t most) {
  Shape shape;
  for (const Axis& axis : type.axes) {
    const std::optional<int64_t> size = axis.size.Bind(symbols);
    if (!size || *size < 0) {
      return Wrong(place, absl::StrCat("axis ", axis.name, "=", axis.size.Text(), " has no size"));
    }
    shape.push_back(*size);
  }
  const std::optional<int64_t> count = CheckedElementCount(shape);
  if (count && *count <= most) return shape;
  return TooLarge(place, shape);
}

// The symbol that a size is, if it is one alone.
std::optional<std::string> SymbolOf(const Dim& dim) {
  if (dim.value()) return std::nullopt;
  const std::string text = dim.Text();
  if (text.find_first_of(" *+") != std::string::npos) return std::nullopt;
  return text;
}

// Values of a graph's nodes as they come and go: one is dropped after its last user.
class Values {
 public:
  explicit Values(const Graph& graph) : values_(graph.nodes().size()) {
    last_use_.resize(graph.nodes().size(), -1);
    for (const Node& node : graph.nodes()) {
      const std::vector<NodeId>& users = graph.UsersOf(node.id);
      if (!users.empty()) last_use_[node.id] = users.back();
    }
    for (const auto& [name, value] : graph.outputs()) last_use_[value] = static_cast<NodeId>(values_.size());
  }

  const Tensor& at(NodeId id) const { return values_[id]; }
  void Set(NodeId id, Tensor value) { values_[id] = std::move(value); }
  std::vector<Tensor> OperandsOf(const Node& node) const {
    std::vector<Tensor> operands;
    for (NodeId id : node.operands) operands.push_back(values_[id]);
    return operands;
  }
  void DropAfter(const Node& node) {
    for (NodeId id : node.operands) {
      if (last_use_[id] == node.id) values_[id] = Tensor();
    }
    if (last_use_[node.id] < 0) values_[node.id] = Tensor();
  }

 private:
  std::vector<Tensor> values_;
  std::vector<NodeId> last_use_;
};

// A composite's decomposition, shared by all nodes of the same op, attributes and types.
struct Body {
  Graph graph;
  std::map<std::string, std::string> slot_of;  // role in `graph` -> slot
};

// What one call adds to the graph: sizes, side inputs, state.
struct Call {
  Symbols symbols;
  Tensor positions, token_types;
  DecodeState* state = nullptr;
  NamedTensors new_state;
};

class GraphEvaluation : public Evaluation {
 public:
  GraphEvaluation(Graph graph, const ParamSource& params, EvalOptions options)
      : graph_(std::move(graph)), params_(params), options_(std::move(options)) {
    for (auto& bodies : body_of_) bodies.resize(graph_.nodes().size(), nullptr);
  }

  absl::StatusOr<NamedTensors> Run(const NamedTensors& inputs, DecodeState* state) override {
    if (state != nullptr) TWIN_RETURN_IF_ERROR(CheckGoesOn("past"));
    Call call;
    call.state = state;
    if (state != nullptr) call.symbols[std::string(kPast)] = state->past;
    Values values(graph_);
    TWIN_RETURN_IF_ERROR(Bind(inputs, call, values));
    for (const Node& node : graph_.nodes()) {
      if (node.op != OpKind::kInput) {
        TWIN_ASSIGN_OR_RETURN(Tensor value, Eval(node, values.OperandsOf(node), call));
        values.Set(node.id, std::move(value));
      }
      if (options_.observe) options_.observe(node, values.at(node.id));
      values.DropAfter(node);
    }
    NamedTensors outputs;
    for (const auto& [name, id] : graph_.outputs()) outputs[name] = values.at(id);
    if (state != nullptr) {
      state->past += call.positions.count() == 0 ? 0 : call.positions.shape()[1];
      state->values = std::move(call.new_state);
    }
    return outputs;
  }

 private:
  // ---- inputs

  absl::Status Bind(const NamedTensors& inputs, Call& call, Values& values) {
    for (const auto& [name, tensor] : inputs) {
      const Node* node = graph_.FindNode(name);
      const bool known =
          (node != nullptr && node->op == OpKind::kInput) || name == kPositions || name == kTokenTypes;
      if (!known) return Wrong(name, "the graph has no such input");
    }
    for (NodeId id : graph_.inputs()) {
      const Node& node = graph_.node(id);
      const auto given = inputs.find(node.path);
      if (given == inputs.end()) return Wrong(node.path, "the input is missing");
      TWIN_RETURN_IF_ERROR(BindShape(node, given->second.shape(), call));
      TWIN_ASSIGN_OR_RETURN(Tensor value, AsType(node.path, given->second, node.type.dtype));
      values.Set(id, std::move(value));
    }
    call.symbols.emplace(kPast, 0);
    for (NodeId id : graph_.inputs()) {
      const Node& node = graph_.node(id);
      TWIN_ASSIGN_OR_RETURN(const Shape want,
                            Extents(node.path, node.type, call.symbols, options_.max_elements));
      if (want == values.at(id).shape()) continue;
      return Wrong(node.path, absl::StrCat("the input is ", ShapeText(values.at(id).shape()), " where ",
                                           Text(node.type), " is ", ShapeText(want)));
    }
    return BindSides(inputs, call, values);
  }

  absl::Status BindShape(const Node& node, const Shape& shape, Call& call) const {
    if (shape.size() != node.type.axes.size()) {
      return Wrong(node.path, absl::StrCat("the input is ", ShapeText(shape), ", not ", Text(node.type)));
    }
    for (size_t i = 0; i < shape.size(); ++i) {
      const std::optional<std::string> symbol = SymbolOf(node.type.axes[i].size);
      // Nothing may have come before; everything else is there.
      if (shape[i] < 1 && symbol != kPast) {
        return Wrong(node.path, absl::StrCat("the input is empty: ", ShapeText(shape)));
      }
      if (!symbol) continue;
      const auto [at, fresh] = call.symbols.emplace(*symbol, shape[i]);
      if (!fresh && at->second != shape[i]) {
        return Wrong(node.path,
                     absl::StrCat(*symbol, " is ", shape[i], " here and ", at->second, " elsewhere"));
      }
    }
    return absl::OkStatus();
  }

  // What is written out as primitives takes a whole sequence from its first token.
  absl::Status CheckGoesOn(absl::string_view what) const {
    const Node* fixed = FirstOverTokens(graph_);
    if (fixed == nullptr) return absl::OkStatus();
    return Wrong(what, absl::StrCat(fixed->path,
                                    " is a primitive over a whole sequence: it counts tokens from 0, "
                                    "and remembers none"));
  }

  // A side input that is not what is usual, where the graph does not look at it. Some have it as an input.
  absl::Status CheckSide(absl::string_view name, const Tensor& usual, const Tensor& side) const {
    if (side.values() == usual.values() || graph_.FindNode(name) != nullptr) return absl::OkStatus();
    if (name == kPositions) return CheckGoesOn(name);
    const bool written_out = std::any_of(graph_.nodes().begin(), graph_.nodes().end(),
                                         [](const Node& node) { return node.op == OpKind::kParam; });
    if (!written_out || TakesTokenTypes(graph_)) return absl::OkStatus();
    return Wrong(name, "the graph is written out as primitives, and they take type 0 throughout");
  }

  // Whole numbers stay whole; anything else is not rounded silently.
  static absl::StatusOr<Tensor> AsType(absl::string_view place, const Tensor& x, DType dtype) {
    if (x.dtype() == dtype) return x;
    if (!IsInteger(dtype)) {
      if (IsFloat(x.dtype())) return x.Converted(dtype);
      return Wrong(place, absl::StrCat("the input is ", Name(x.dtype()), ", not of floating type"));
    }
    Tensor result = x.Converted(dtype);
    if (IsInteger(x.dtype()) && result.values() == x.values()) return result;
    return Wrong(place, absl::StrCat("the input is ", Name(x.dtype()), " or beyond ", Name(dtype),
                                     "; whole numbers are wanted"));
  }

  // positions and token_types, as given or as usual. They go with the first input that has a sequence.
  absl::Status BindSides(const NamedTensors& inputs, Call& call, const Values& values) const {
    Shape shape;
    for (NodeId id : graph_.inputs()) {
      if (shape.empty() && values.at(id).rank() >= 2)
        shape = {values.at(id).shape()[0], values.at(id).shape()[1]};
    }
    if (shape.empty()) return absl::OkStatus();
    std::vector<double> places;
    for (int64_t i = 0; i < shape[0] * shape[1]; ++i) {
      places.push_back(static_cast<double>(call.symbols[std::string(kPast)] + i % shape[1]));
    }
    call.positions = Tensor(DType::kI32, shape, std::move(places));
    call.token_types = Tensor(DType::kI32, shape, std::vector<double>(shape[0] * shape[1], 0.0));
    for (auto& [name, side] :
         {std::pair(kPositions, &call.positions), std::pair(kTokenTypes, &call.token_types)}) {
      const auto given = inputs.find(std::string(name));
      if (given == inputs.end()) continue;
      if (given->second.shape() != shape) {
        return Wrong(name, absl::StrCat("the input is ", ShapeText(given->second.shape()), ", not ",
                                        ShapeText(shape)));
      }
      const Tensor usual = std::move(*side);
      TWIN_ASSIGN_OR_RETURN(*side, AsType(name, given->second, DType::kI32));
      TWIN_RETURN_IF_ERROR(CheckSide(name, usual, *side));
      for (double value : side->values()) {
        if (value < 0) return Wrong(name, absl::StrCat(value, " is below 0"));
      }
    }
    return absl::OkStatus();
  }

  // ---- nodes

  absl::StatusOr<Tensor> Eval(const Node& node, std::vector<Tensor> operands, Call& call) {
    if (node.op == OpKind::kParam) return ParamValue(std::string(node.Role("value")));
    if (Info(node.op).composite != nullptr) return EvalComposite(node, std::move(operands), call);
    TWIN_ASSIGN_OR_RETURN(const Shape shape,
                          Extents(node.path, node.type, call.symbols, options_.max_elements));
    return EvalPrimitive(graph_, node, operands, shape);
  }

  absl::StatusOr<Tensor> EvalComposite(const Node& node, std::vector<Tensor> operands, Call& call) {
    const std::vector<StateSlot> slots =
        call.state == nullptr ? std::vector<StateSlot>() : StateOf(graph_, node);
    TWIN_ASSIGN_OR_RETURN(const Body* body, BodyOf(node, !slots.empty()));
    const Graph& graph = body->graph;
    Values values(graph);
    size_t next = 0;
    for (Tensor& operand : operands) values.Set(graph.inputs()[next++], std::move(operand));
    for (const StateSlot& slot : slots) {
      TWIN_ASSIGN_OR_RETURN(Tensor value, StateValue(node, slot, call));
      values.Set(graph.inputs()[next++], std::move(value));
    }
    if (next < graph.inputs().size()) {
      values.Set(graph.inputs()[next++], call.positions);
      values.Set(graph.inputs()[next++], call.token_types);
    }
    for (const Node& part : graph.nodes()) {
      if (part.op == OpKind::kInput) continue;
      if (part.op == OpKind::kParam) {
        const std::string& slot = body->slot_of.at(std::string(part.Role("value")));
        TWIN_ASSIGN_OR_RETURN(Tensor value, ParamValue(std::string(node.Role(slot))));
        values.Set(part.id, std::move(value));
        continue;
      }
      TWIN_ASSIGN_OR_RETURN(const Shape shape,
                            Extents(part.path, part.type, call.symbols, options_.max_elements));
      TWIN_ASSIGN_OR_RETURN(Tensor value, EvalPrimitive(graph, part, values.OperandsOf(part), shape));
      values.Set(part.id, std::move(value));
      values.DropAfter(part);
    }
    for (size_t i = 0; i < slots.size(); ++i) {
      call.new_state[absl::StrCat(node.path, ".", slots[i].name)] = values.at(graph.outputs()[1 + i].second);
    }
    return values.at(graph.outputs()[0].second);
  }

  // What the node remembers; 0 throughout (mostly of no extent) before the first call.
  absl::StatusOr<Tensor> StateValue(const Node& node, const StateSlot& slot, const Call& call) const {
    const std::string name = absl::StrCat(node.path, ".", slot.name);
    TWIN_ASSIGN_OR_RETURN(const Shape shape, Extents(name, slot.type, call.symbols, options_.max_elements));
    const auto known = call.state->values.find(name);
    if (known == call.state->values.end() && call.state->past == 0) {
      return Tensor(slot.type.dtype, shape, std::vector<double>(ElementCount(shape), 0.0));
    }
    if (known != call.state->values.end() && known->second.shape() == shape) return known->second;
    return Wrong(name, absl::StrCat("the state does not hold ", ShapeText(shape), " as ", call.state->past,
                                    " tokens of this batch leave it"));
  }

  absl::StatusOr<const Body*> BodyOf(const Node& node, bool with_state) {
    const Body*& body = body_of_[with_state ? 1 : 0][node.id];
    if (body != nullptr) return body;
    std::string key =
        absl::StrCat(Info(node.op).name, with_state ? " with state " : " ", node.attrs->SerializeAsString());
    for (NodeId id : node.operands) absl::StrAppend(&key, " ", Text(graph_.node(id).type));
    for (const auto& [slot, role] : node.params) {
      absl::StrAppend(&key, " ", slot, "=", Text(graph_.FindParam(role)->type));
    }
    std::unique_ptr<Body>& known = bodies_[key];
    if (known == nullptr) {
      TWIN_ASSIGN_OR_RETURN(Graph graph,
                            DecompositionOf(graph_, node, DecompositionDepth::kPrimitives, with_state));
      known = std::make_unique<Body>(Body{std::move(graph), {}});
      for (const auto& [slot, role] : node.params) known->slot_of[role] = slot;
    }
    return body = known.get();
  }

  absl::StatusOr<Tensor> ParamValue(const std::string& role) {
    const auto known = values_.find(role);
    if (known != values_.end()) return known->second;
    const Param* param = graph_.FindParam(role);
    if (param->program->element_count() > options_.max_elements) return TooLarge(role, param->type.shape());
    TWIN_ASSIGN_OR_RETURN(Tensor value, params_.Value(*param));
    TWIN_CHECK(value.shape() == param->type.shape(), "a parameter's value has its type's extents");
    if (options_.keep_params) values_[role] = value;
    return value;
  }

  const Graph graph_;
  const ParamSource& params_;
  const EvalOptions options_;
  NamedTensors values_;  // of parameters
  std::map<std::string, std::unique_ptr<Body>> bodies_;
  std::vector<const Body*> body_of_[2];  // by node: without and with state
};

}  // namespace

namespace {

absl::Status RefuseComplex(const Graph& graph) {
  const auto refused = [](absl::string_view place) {
    return Error(1903, place, "complex numbers are carried along, not evaluated");
  };
  for (const Node& node : graph.nodes()) {
    if (node.type.dtype == DType::kC64) return refused(node.path);
  }
  for (const auto& [role, param] : graph.params()) {
    if (param.type.dtype == DType::kC64) return refused(role);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Evaluation>> Evaluation::Make(const Graph& graph, const ParamSource& params,
                                                             EvalOptions options) {
  TWIN_RETURN_IF_ERROR(RefuseComplex(graph));
  if (!options.dtype) {
    if (options.unrounded_weights) return Wrong("", "unrounded weights are weights in f64");
    return std::make_unique<GraphEvaluation>(graph, params, std::move(options));
  }
  const DType dtype = *options.dtype;
  if (dtype != DType::kF64 && dtype != DType::kF32 && dtype != DType::kBF16 && dtype != DType::kF16) {
    return Wrong("", absl::StrCat("evaluates in f64, f32, bf16 or f16, not in ", Name(dtype)));
  }
  if (options.unrounded_weights && dtype != DType::kF64)
    return Wrong("", "unrounded weights are weights in f64");
  TWIN_ASSIGN_OR_RETURN(Graph retyped, Retyped(graph, dtype, options.unrounded_weights));
  return std::make_unique<GraphEvaluation>(std::move(retyped), params, std::move(options));
}

absl::StatusOr<NamedTensors> Evaluate(const Graph& graph, const ParamSource& params,
                                      const NamedTensors& inputs, const EvalOptions& options,
                                      DecodeState* state) {
  TWIN_ASSIGN_OR_RETURN(std::unique_ptr<Evaluation> evaluation, Evaluation::Make(graph, params, options));
  return evaluation->Run(inputs, state);
}

}  // namespace twinforge
