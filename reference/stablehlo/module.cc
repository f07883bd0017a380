#include "reference/stablehlo/module.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "reference/stablehlo/composite_attributes.h"
#include "reference/stablehlo/spelling.h"
#include "weights/build.h"

namespace twinforge {
namespace {

// What a runtime may have a kernel for.
bool IsHook(OpKind op) {
  return op == OpKind::kAttention || op == OpKind::kLatentAttention || op == OpKind::kMoe;
}

absl::Status CannotSay(const Node& node) {
  const Spelling& row = Spellings()[static_cast<size_t>(node.op)];
  return Error(1620, node.path, absl::StrCat(Info(node.op).name, ": ", row.note));
}

}  // namespace

ModuleWriter::ModuleWriter(const Graph& graph, const WeightArguments& weights, const StableHloSizes& sizes)
    : graph_(graph),
      weights_(weights),
      sizes_(sizes),
      ragged_(std::all_of(graph.nodes().begin(), graph.nodes().end(),
                          [&](const Node& node) { return TakesPadding(graph, node); }) &&
              !IsWrittenOut(graph)),
      blocks_(graph, weights, sizes, ragged_) {}

MlirValue ModuleWriter::Declare(StableHloArgument argument) {
  const std::string key = absl::StrCat(static_cast<int>(argument.kind), argument.name);
  const auto [at, fresh] = by_name_.emplace(key, declared_.size());
  if (!fresh) return declared_[at->second].value;
  std::string name = MlirIdentifier(argument.name);
  while (!taken_.insert(name).second) absl::StrAppend(&name, "_");
  const MlirValue value{absl::StrCat("%", name), {argument.dtype, argument.shape}};
  declared_.push_back({std::move(argument), value});
  return value;
}

MlirValue ModuleWriter::DeclareInput(const std::string& name, const MlirType& type) {
  return Declare({name, StableHloArgument::Kind::kInput, type.dtype, type.shape, {}, nullptr, {}, -1});
}

// ---- what comes in

absl::StatusOr<MlirValue> ModuleWriter::Input(const std::string& name, const Type& type) {
  TWIN_ASSIGN_OR_RETURN(const MlirType bound, sizes_.Bind(name, type));
  return DeclareInput(name, bound);
}

MlirValue ModuleWriter::Position() {
  const MlirType type{DType::kI32, {}};
  return sizes_.decode ? DeclareInput("position", type) : text_.Constant(0, type);
}

MlirValue ModuleWriter::Starts() { return DeclareInput("starts", {DType::kI32, {sizes_.batch}}); }

MlirValue ModuleWriter::Positions() {
  const MlirType type{DType::kI32, {sizes_.batch, sizes_.sequence}};
  MlirValue places = text_.Iota(type, 1);
  if (sizes_.decode) {
    places = text_.Elementwise("add", {places, text_.Broadcast(Position(), type.shape, {})});
  }
  if (!ragged_) return places;
  const MlirValue own = text_.Elementwise("subtract", {places, text_.Broadcast(Starts(), type.shape, {0})});
  return text_.Elementwise("maximum", {own, text_.Constant(0, type)});
}

absl::StatusOr<MlirValue> ModuleWriter::Cache(const Node& node, const StateSlot& slot) {
  const std::string name = absl::StrCat(node.path, ".", slot.name);
  TWIN_ASSIGN_OR_RETURN(MlirType type, sizes_.Bind(name, slot.type));
  if (Grows(slot)) type.shape[1] = sizes_.context;
  return Declare({name, StableHloArgument::Kind::kCache, type.dtype, type.shape,
                  SplitOfState(mesh_, graph_, node, slot), nullptr, {}, -1});
}

MlirValue ModuleWriter::Weight(const Param& param) {
  const WeightArguments::Unit unit = weights_.UnitOf(param.role);
  MlirValue& value = units_[unit.name];
  if (!value.name.empty()) return value;
  const TwinTensor& tensor = weights_.tensors()[unit.tensor];
  const bool from_stack = unit.layer >= 0 && range_.whole;
  StableHloArgument argument{tensor.name, StableHloArgument::Kind::kWeight, unit.type.dtype, unit.type.shape,
                             SplitOfStored(mesh_, graph_, param), tensor.program, tensor.roles, -1};
  if (from_stack) {
    argument.shape = tensor.program->shape();
    argument.split.insert(argument.split.begin(), "");
  } else if (unit.layer >= 0) {
    const Bundle* bundle = graph_.BundleOf(param.role);
    argument.name = unit.name;
    argument.program = Index(tensor.program, 0, unit.layer);
    argument.roles = bundle == nullptr ? std::vector<std::string>{param.role} : bundle->members;
  }
  value = Declare(std::move(argument));
  if (from_stack) value = text_.Reshape(text_.Slice(value, 0, unit.layer, 1), unit.type.shape);
  return value;
}

absl::StatusOr<MlirValue> ModuleWriter::ValueOf(NodeId id) {
  const auto known = values_.find(id);
  if (known != values_.end()) return known->second;
  const Node& node = graph_.node(id);
  TWIN_CHECK(node.op == OpKind::kInput || !Within(id), "a value comes before its users");
  const std::string name = node.op == OpKind::kInput ? node.path
                           : hidden_++ == 0          ? "hidden"
                                                     : absl::StrCat("hidden_", hidden_);
  TWIN_ASSIGN_OR_RETURN(values_[id], Input(name, node.type));
  return values_[id];
}

absl::StatusOr<MlirValue> ModuleWriter::ArgumentOf(const Node& node, const BlockArgument& argument) {
  switch (argument.input) {
    case BlockInput::kOperand:
      return ValueOf(node.operands[argument.index]);
    case BlockInput::kState:
      return Cache(node, StateOf(graph_, node)[argument.index]);
    case BlockInput::kPositions:
      return Positions();
    case BlockInput::kPosition:
      return Position();
    case BlockInput::kStarts:
      return Starts();
    case BlockInput::kTokenTypes:
      return Input("token_types", {DType::kI32, {{"batch", Dim::Symbol("batch")}, {"seq", Dim::Symbol("seq")}}});
    case BlockInput::kWeight:
      return Weight(graph_.param(node, argument.slot));
  }
  TWIN_CHECK(false, "an input of a block is one of these");
}

// ---- nodes

absl::Status ModuleWriter::Append(const Node& node) {
  if (node.op == OpKind::kInput) return absl::OkStatus();
  if (Info(node.op).composite != nullptr) return AppendComposite(node);
  if (node.op == OpKind::kParam) {
    const Param& param = graph_.param(node, "value");
    values_[node.id] =
        WholeWeight(text_, {&graph_, &param, graph_.BundleOf(param.role), Weight(param)}, node.type.dtype);
    return absl::OkStatus();
  }
  if (Spellings()[static_cast<size_t>(node.op)].write == nullptr) return CannotSay(node);
  TWIN_ASSIGN_OR_RETURN(const MlirType type, sizes_.Bind(node.path, node.type));
  std::vector<MlirValue> operands;
  for (NodeId id : node.operands) {
    TWIN_ASSIGN_OR_RETURN(MlirValue operand, ValueOf(id));
    operands.push_back(std::move(operand));
  }
  values_[node.id] = Spell({text_, graph_, node, operands, type});
  return absl::OkStatus();
}

absl::Status ModuleWriter::AppendComposite(const Node& node) {
  TWIN_ASSIGN_OR_RETURN(const Block* block, blocks_.Of(node));
  std::vector<MlirValue> operands;
  for (const BlockArgument& argument : block->arguments) {
    TWIN_ASSIGN_OR_RETURN(MlirValue operand, ArgumentOf(node, argument));
    operands.push_back(std::move(operand));
  }
  std::vector<std::string> types;
  for (const MlirType& type : block->results) types.push_back(MlirText(type));
  const std::string arrow = absl::StrCat(
      " : ", MlirTypes(operands), " -> ",
      types.size() == 1 ? types[0] : absl::StrCat("(", absl::StrJoin(types, ", "), ")"));
  const std::string written =
      IsHook(node.op)
          ? absl::StrCat("stablehlo.composite \"twinforge.", Info(node.op).name, "\" ", MlirNames(operands),
                         " {composite_attributes = ", CompositeAttributes(node), ", decomposition = @", block->name,
                         ", version = 1 : i32}", arrow)
          : absl::StrCat("call @", block->name, "(", MlirNames(operands), ")", arrow);
  const std::vector<MlirValue> results = text_.Ops(written, block->results);
  values_[node.id] = results[0];
  if (results.size() == 1) return absl::OkStatus();
  const std::vector<StateSlot> slots = StateOf(graph_, node);
  for (size_t i = 0; i < slots.size(); ++i) {
    MlirValue value = results[1 + i];
    // A prefill leaves its places at the beginning of the cache.
    if (Grows(slots[i]) && !sizes_.decode) {
      value = text_.Pad(value, {1, 0, sizes_.context - sizes_.sequence, 0, 0});
    }
    remembered_.push_back({absl::StrCat(node.path, ".", slots[i].name), value,
                           SplitOfState(mesh_, graph_, node, slots[i])});
  }
  return absl::OkStatus();
}

// ---- the whole

void ModuleWriter::AppendResults() {
  const auto add = [&](const std::string& name, const MlirValue& value, const std::vector<std::string>& split) {
    results_.push_back({name, value.type.dtype, value.type.shape});
    returned_.push_back(split.empty() || mesh_.axes.empty()
                            ? MlirText(value.type)
                            : absl::StrCat(MlirText(value.type), " {", ShardingText(split), "}"));
  };
  std::vector<MlirValue> all;
  for (const auto& [name, id] : graph_.outputs()) {
    if (!Within(id)) continue;
    all.push_back(values_.at(id));
    add(name, all.back(), {});
  }
  for (NodeId id = range_.first; id < range_.end && !range_.whole; ++id) {
    const std::vector<NodeId>& users = graph_.UsersOf(id);
    if (std::all_of(users.begin(), users.end(), [&](NodeId user) { return Within(user); })) continue;
    if (graph_.node(id).op == OpKind::kInput) continue;
    all.push_back(values_.at(id));
    add(graph_.node(id).path, all.back(), {});
  }
  for (const Remembered& state : remembered_) {
    const auto cache =
        by_name_.find(absl::StrCat(static_cast<int>(StableHloArgument::Kind::kCache), state.name));
    if (cache != by_name_.end()) {
      declared_[cache->second].argument.result = static_cast<int64_t>(results_.size());
    }
    all.push_back(state.value);
    add(state.name, state.value, state.split);
  }
  const std::string types = MlirTypes(all);
  text_.Line(absl::StrCat("return ", MlirNames(all), " : ", types.substr(1, types.size() - 2)));
}

std::string ModuleWriter::Finished(const StableHloModule& module) const {
  std::vector<std::string> declared;
  for (const auto& [argument, value] : declared_) {
    std::vector<std::string> notes;
    if (argument.result >= 0) notes.push_back(absl::StrCat("tf.aliasing_output = ", argument.result, " : i32"));
    if (!mesh_.axes.empty() && !argument.split.empty()) notes.push_back(ShardingText(argument.split));
    declared.push_back(absl::StrCat(value.name, ": ", MlirText(value.type),
                                    notes.empty() ? "" : absl::StrCat(" {", absl::StrJoin(notes, ", "), "}")));
  }
  int64_t devices = 1;
  std::vector<std::string> axes;
  for (const auto& [name, size] : mesh_.axes) {
    devices *= size;
    axes.push_back(absl::StrCat("\"", name, "\"=", size));
  }
  std::string text = absl::StrCat("module @", MlirIdentifier(module.name),
                                  " attributes {mhlo.num_partitions = ", devices,
                                  " : i32, mhlo.num_replicas = 1 : i32} {\n");
  if (!axes.empty()) absl::StrAppend(&text, "  sdy.mesh @mesh = <[", absl::StrJoin(axes, ", "), "]>\n");
  absl::StrAppend(&text, "  func.func public @main(", absl::StrJoin(declared, ",\n                         "),
                  ") -> (", absl::StrJoin(returned_, ", "), ") {\n", text_.text(), "  }\n");
  for (const Block* block : blocks_.all()) absl::StrAppend(&text, block->text);
  absl::StrAppend(&text, "}\n");
  return text;
}

absl::StatusOr<StableHloModule> ModuleWriter::Write(const NodeRange& range, const std::string& name) {
  range_ = range;
  TWIN_ASSIGN_OR_RETURN(mesh_, MeshOf(graph_));
  for (NodeId id : graph_.inputs()) {
    const Node& node = graph_.node(id);
    const std::vector<NodeId>& users = graph_.UsersOf(id);
    if (!std::any_of(users.begin(), users.end(), [&](NodeId user) { return Within(user); })) continue;
    TWIN_ASSIGN_OR_RETURN(values_[id], Input(node.path, node.type));
  }
  for (NodeId id = range.first; id < range.end; ++id) TWIN_RETURN_IF_ERROR(Append(graph_.node(id)));
  AppendResults();
  // Inputs, caches, weights, each in the order they were first asked for.
  std::stable_sort(declared_.begin(), declared_.end(), [](const Declared& a, const Declared& b) {
    return a.argument.kind < b.argument.kind;
  });
  StableHloModule module;
  module.name = name;
  for (const Declared& declared : declared_) module.arguments.push_back(declared.argument);
  module.results = results_;
  module.mesh = mesh_.axes;
  module.text = Finished(module);
  return module;
}

}  // namespace twinforge
