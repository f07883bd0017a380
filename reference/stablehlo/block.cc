#include "reference/stablehlo/block.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "ir/builder.h"
#include "reference/stablehlo/composite_attributes.h"
#include "reference/stablehlo/spelling.h"

namespace twinforge {

absl::StatusOr<MlirType> StableHloSizes::Bind(const std::string& place, const Type& type) const {
  const std::map<std::string, int64_t> symbols = {
      {"batch", batch}, {"seq", sequence}, {"past", decode ? context - sequence : 0}};
  MlirType bound{type.dtype, {}};
  if (type.dtype == DType::kC64) return Error(1620, place, "complex numbers have no StableHLO here");
  for (const Axis& axis : type.axes) {
    const std::optional<int64_t> size = axis.size.Bind(symbols);
    if (!size)
      return Error(1620, place, absl::StrCat("axis ", axis.name, "=", axis.size.Text(), " has no size"));
    bound.shape.push_back(*size);
  }
  if (CheckedElementCount(bound.shape)) return bound;
  return Error(1621, place, absl::StrCat("a value of ", ShapeText(bound.shape), " is beyond all bounds"));
}

bool IsWrittenOut(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [](const Node& node) {
    return Info(node.op).composite == nullptr && node.op != OpKind::kInput && node.op != OpKind::kAdd &&
           node.op != OpKind::kSlice;
  });
}

std::string SharedFunctions::NameOf(const std::string& stem, const std::string& text) {
  const auto [at, fresh] = names_.emplace(text, absl::StrCat(stem, "_", names_.size()));
  if (fresh) absl::StrAppend(&text_, "  func.func private @", at->second, text);
  return at->second;
}

bool Grows(const StateSlot& slot) {
  return std::any_of(slot.type.axes.begin(), slot.type.axes.end(),
                     [](const Axis& axis) { return axis.size == Dim::Symbol("past"); });
}

bool Remembers(const Graph& graph, const Node& node) {
  if (node.op == OpKind::kAttention && !node.attrs->attention().causal()) return false;
  return !StateOf(graph, node).empty();
}

bool TakesPadding(const Graph& graph, const Node& node) {
  if (node.op == OpKind::kAttention && node.attrs->attention().chunk() != 0) return false;
  const std::vector<StateSlot> slots = StateOf(graph, node);
  return std::all_of(slots.begin(), slots.end(), Grows);
}

namespace {

// Writes the body of one function.
class BlockWriter {
 public:
  BlockWriter(const Graph& graph, const Node& node, const WeightArguments& weights,
              const StableHloSizes& sizes, SharedFunctions& products)
      : graph_(graph), node_(node), weights_(weights), sizes_(sizes), products_(products) {}

  absl::Status Write(bool ragged, BlockFunction& block) {
    TWIN_ASSIGN_OR_RETURN(const Graph body, Decomposed(ragged));
    for (const Node& part : body.nodes()) {
      if (part.op == OpKind::kInput && body.UsersOf(part.id).empty() && !IsOutput(body, part.id)) continue;
      TWIN_RETURN_IF_ERROR(Append(body, part));
    }
    std::vector<MlirValue> results;
    for (const auto& [name, id] : body.outputs()) results.push_back(ValueOf(id));
    for (const MlirValue& result : results) block.results.push_back(result.type);
    block.arguments = std::move(arguments_);
    const std::string types = MlirTypes(results);
    block.text = absl::StrCat("  func.func private @", block.name, "(", absl::StrJoin(declared_, ", "),
                              ") -> ", types, " {\n", text_.text(), "    return ", MlirNames(results), " : ",
                              types.substr(1, types.size() - 2), "\n  }\n");
    return absl::OkStatus();
  }

 private:
  static bool IsOutput(const Graph& body, NodeId id) {
    return std::any_of(body.outputs().begin(), body.outputs().end(),
                       [id](const auto& output) { return output.second == id; });
  }

  // The block in primitives. Its inputs are what a module gives, in inputs_.
  absl::StatusOr<Graph> Decomposed(bool ragged) {
    Builder body(node_.path);
    DecompositionInputs inputs;
    const auto add = [&](const std::string& name, const Type& type, BlockArgument argument) {
      const NodeId id = body.Input(name, type);
      inputs_[id] = std::move(argument);
      return id;
    };
    for (size_t i = 0; i < node_.operands.size(); ++i) {
      inputs.operands.push_back(add(i == 0 ? "x" : absl::StrCat("x_", i), graph_.node(node_.operands[i]).type,
                                    {BlockInput::kOperand, i, ""}));
    }
    if (Remembers(graph_, node_)) slots_ = StateOf(graph_, node_);
    for (size_t i = 0; i < slots_.size(); ++i) {
      inputs.state.push_back(
          add(absl::StrCat("cache_", slots_[i].name), slots_[i].type, {BlockInput::kState, i, ""}));
    }
    if (!node_.operands.empty() && graph_.node(node_.operands[0]).type.axes.size() >= 2) {
      const std::vector<Axis>& axes = graph_.node(node_.operands[0]).type.axes;
      const Type type{DType::kI32, {axes[0], axes[1]}};
      inputs.positions = add("positions", type, {BlockInput::kPositions, 0, ""});
      inputs.token_types = add("token_types", type, {BlockInput::kTokenTypes, 0, ""});
      if (ragged) {
        inputs.starts = add("starts", {DType::kI32, {axes[0]}}, {BlockInput::kStarts, 0, ""});
      }
    }
    TWIN_ASSIGN_OR_RETURN(const Decomposition done,
                          EmitDecomposition(graph_, node_, inputs, DecompositionDepth::kPrimitives, body));
    body.Output("result", done.result);
    for (size_t i = 0; i < slots_.size(); ++i)
      body.Output(absl::StrCat("new_", slots_[i].name), done.state[i]);
    return body.Finish();
  }

  // ---- arguments, each declared where it is first looked at

  MlirValue Declare(const std::string& name, const MlirType& type, BlockArgument argument) {
    const MlirValue value{absl::StrCat("%", MlirIdentifier(name)), type};
    declared_.push_back(absl::StrCat(value.name, ": ", MlirText(type)));
    arguments_.push_back(std::move(argument));
    return value;
  }

  MlirValue Position() {
    const MlirType type{DType::kI32, {}};
    if (!sizes_.decode) return text_.Constant(0, type);
    if (position_.name.empty()) position_ = Declare("position", type, {BlockInput::kPosition, 0, ""});
    return position_;
  }

  StoredWeight Weight(const std::string& slot) {
    const Param& param = graph_.param(node_, slot);
    const WeightArguments::Unit unit = weights_.UnitOf(param.role);
    MlirValue& stored = units_[unit.name];
    if (stored.name.empty()) {
      // "qkv", not "layers.3.attn.qkv": a function is for every layer.
      const Bundle* bundle = graph_.BundleOf(param.role);
      const std::string name = bundle == nullptr ? slot : bundle->role.substr(bundle->role.rfind('.') + 1);
      stored = Declare(names_.insert(name).second ? name : absl::StrCat(name, "_", units_.size()), unit.type,
                       {BlockInput::kWeight, 0, slot});
    }
    return {&graph_, &param, graph_.BundleOf(param.role), stored};
  }

  // ---- nodes

  // The value of a node, a weight's written out where something looks at it as a whole.
  MlirValue ValueOf(NodeId id) {
    const auto weight = weight_of_.find(id);
    if (weight == weight_of_.end()) return values_.at(id);
    return WholeWeight(text_, Weight(weight->second.slot), weight->second.dtype);
  }

  absl::Status Append(const Graph& body, const Node& part) {
    if (part.op == OpKind::kInput) return AppendInput(body, part);
    if (part.op == OpKind::kParam) {
      const std::string role(part.Role("value"));
      for (const auto& [slot, own] : node_.params) {
        if (own == role) weight_of_[part.id] = {slot, part.type.dtype};
      }
      return absl::OkStatus();
    }
    if (AppendStateRead(part) || AppendWeightRead(part)) return absl::OkStatus();
    TWIN_ASSIGN_OR_RETURN(const MlirType type, sizes_.Bind(part.path, part.type));
    std::vector<MlirValue> operands;
    for (NodeId id : part.operands) operands.push_back(ValueOf(id));
    values_[part.id] = Spell({text_, body, part, operands, type});
    return absl::OkStatus();
  }

  absl::Status AppendInput(const Graph& body, const Node& part) {
    const BlockArgument& argument = inputs_.at(part.id);
    TWIN_ASSIGN_OR_RETURN(MlirType type, sizes_.Bind(part.path, part.type));
    if (argument.input == BlockInput::kState) {
      growing_.insert_or_assign(part.id, Grows(slots_[argument.index]));
      if (!sizes_.decode) {
        // Nothing came before: what grows is not there yet, the rest is 0.
        if (!growing_.at(part.id)) values_[part.id] = text_.Constant(0, type);
        return absl::OkStatus();
      }
      if (growing_.at(part.id)) type.shape[1] = sizes_.context;
    }
    values_[part.id] = Declare(part.path, type, argument);
    return absl::OkStatus();
  }

  bool IsGrowing(NodeId id) const {
    const auto state = growing_.find(id);
    return state != growing_.end() && state->second;
  }

  // What grows is looked at in two ways: how long it is, and with the new places behind it.
  bool AppendStateRead(const Node& part) {
    if (part.operands.empty() || !IsGrowing(part.operands[0])) return false;
    if (part.op == OpKind::kDimensionSize) {
      values_[part.id] = Position();
      return true;
    }
    TWIN_CHECK(part.op == OpKind::kConcat && part.operands.size() == 2, "a cache is read as a whole");
    const MlirValue fresh = ValueOf(part.operands[1]);
    if (!sizes_.decode) {
      values_[part.id] = fresh;
      return true;
    }
    const MlirValue cache = ValueOf(part.operands[0]);
    std::vector<MlirValue> at(cache.type.shape.size(), text_.Constant(0, {DType::kI32, {}}));
    at[1] = Position();
    values_[part.id] = text_.UpdateSlice(cache, fresh, at);
    return true;
  }

  // Where few of a weight's places are kept, the product is a composite of its own: a kernel may skip the
  // rest.
  MlirValue Product(const MlirValue& x, const StoredWeight& weight, const DotAttrs& dot) {
    const std::optional<KeptGroups> kept = weights_.KeptIn(*weight.param);
    if (!kept) return WeightProduct(text_, x, weight, dot);
    MlirBody body;
    StoredWeight inner = weight;
    inner.stored.name = "%w";
    const MlirValue y = WeightProduct(body, {"%x", x.type}, inner, dot);
    const std::string name = products_.NameOf(
        "nm_matmul", absl::StrCat("(%x: ", MlirText(x.type), ", %w: ", MlirText(inner.stored.type), ") -> ",
                                  MlirText(y.type), " {\n", body.text(), "    return ", y.name, " : ",
                                  MlirText(y.type), "\n  }\n"));
    return text_.Op(
        absl::StrCat("stablehlo.composite \"twinforge.nm_matmul\" ", MlirNames({x, weight.stored}),
                     " {composite_attributes = ", AttributesText(*kept), ", decomposition = @", name,
                     ", version = 1 : i32} : ", MlirTypes({x, weight.stored}), " -> ", MlirText(y.type)),
        y.type);
  }

  // Weights are converted, multiplied with and looked up in as they lie.
  bool AppendWeightRead(const Node& part) {
    const NodeId read = part.op == OpKind::kDot && part.operands.size() == 2 ? part.operands[1]
                        : part.operands.empty()                              ? -1
                                                                             : part.operands[0];
    const auto weight = weight_of_.find(read);
    if (weight == weight_of_.end()) return false;
    const WeightRead of = weight->second;
    if (part.op == OpKind::kConvert) {
      weight_of_[part.id] = {of.slot, part.type.dtype};
      return true;
    }
    if (part.op == OpKind::kDot) {
      values_[part.id] = Product(ValueOf(part.operands[0]), Weight(of.slot), part.attrs->dot());
      return true;
    }
    if (part.op != OpKind::kGather || part.attrs->axis().axis() != 0) return false;
    values_[part.id] = WeightRows(text_, Weight(of.slot), ValueOf(part.operands[1]), of.dtype);
    return true;
  }

  struct WeightRead {
    std::string slot;
    DType dtype;
  };

  const Graph& graph_;
  const Node& node_;
  const WeightArguments& weights_;
  const StableHloSizes& sizes_;
  SharedFunctions& products_;
  std::vector<StateSlot> slots_;
  std::map<NodeId, BlockArgument> inputs_;
  std::map<NodeId, bool> growing_;  // states: whether they grow
  std::map<NodeId, WeightRead> weight_of_;
  std::map<NodeId, MlirValue> values_;
  std::map<std::string, MlirValue> units_;  // by name of the unit
  std::set<std::string> names_ = {"x", "positions", "position", "starts", "token_types"};
  MlirValue position_;
  MlirBody text_;
  std::vector<std::string> declared_;
  std::vector<BlockArgument> arguments_;
};

}  // namespace

// Nodes are alike where op, attributes and types are, and their weights lie alike.
std::string BlockFunctions::KeyOf(const Node& node) const {
  std::string key = absl::StrCat(Info(node.op).name, " ", node.attrs->SerializeAsString());
  for (NodeId id : node.operands) absl::StrAppend(&key, " ", Text(graph_.node(id).type));
  std::map<std::string, size_t> units;
  for (const auto& [slot, role] : node.params) {
    const Param& param = *graph_.FindParam(role);
    const WeightArguments::Unit unit = weights_.UnitOf(role);
    const Bundle* bundle = graph_.BundleOf(role);
    absl::StrAppend(&key, " ", slot, "=", Text(param.type), static_cast<int>(param.storage.orientation), "@",
                    units.emplace(unit.name, units.size()).first->second, MlirText(unit.type));
    if (const auto kept = weights_.KeptIn(param)) absl::StrAppend(&key, AttributesText(*kept));
    if (bundle == nullptr) continue;
    const auto member = std::find(bundle->members.begin(), bundle->members.end(), role);
    absl::StrAppend(&key, "#", member - bundle->members.begin(), "/", bundle->members.size(), "/",
                    bundle->shards, "/", static_cast<int>(bundle->arrangement));
  }
  return key;
}

absl::StatusOr<const BlockFunction*> BlockFunctions::Of(const Node& node) {
  const auto [at, fresh] = blocks_.emplace(KeyOf(node), BlockFunction());
  if (!fresh) return &at->second;
  const std::string op(Info(node.op).name);
  at->second.name = absl::StrCat(op, "_", count_[op]++);
  TWIN_RETURN_IF_ERROR(BlockWriter(graph_, node, weights_, sizes_, products_).Write(ragged_, at->second));
  all_.push_back(&at->second);
  return &at->second;
}

}  // namespace twinforge
