#include "reference/onnx/write_onnx.h"

#include <algorithm>
#include <map>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "reference/onnx/scope_writer.h"
#include "reference/onnx/spelling.h"
#include "reference/stablehlo/block.h"
#include "reference/stablehlo/computed_in.h"
#include "reference/stablehlo/weight_argument.h"

namespace twinforge {
namespace {

// Of an operator set, the first version of the format that may import it.
int64_t FormatVersion(int opset) {
  if (opset <= 18) return 8;
  if (opset <= 20) return 9;
  if (opset <= 22) return 10;
  if (opset <= 24) return opset - 12;
  return 13;
}

// "past + seq" as exporters write it.
std::string SizeName(const Dim& dim) {
  std::vector<std::string> terms;
  for (absl::string_view term : absl::StrSplit(dim.Text(), " + ")) {
    terms.push_back(term == "seq"    ? "sequence_length"
                    : term == "past" ? "past_sequence_length"
                                     : std::string(term));
  }
  return absl::StrJoin(terms, " + ");
}

Axis Named(const char* name) { return {name, Dim::Symbol(name)}; }

// The operator set that knows a type of tensors; 0: none does.
int FirstOpsetOf(DType dtype) {
  switch (dtype) {
    case DType::kF6E2M3:
    case DType::kF6E3M2:
    case DType::kC64:
      return 0;
    case DType::kF8E4M3:
    case DType::kF8E5M2:
    case DType::kF8E4M3Fnuz:
    case DType::kF8E5M2Fnuz:
      return 19;
    case DType::kF4:
      return 23;
    case DType::kF8E8M0:
      return 24;
    default:
      return kOldestOnnxOpset;
  }
}

class OnnxModelWriter {
 public:
  // `graph` is what is computed, `weights` those of the graph as stored. All outlive it.
  OnnxModelWriter(const Graph& graph, const Graph& stored, const OnnxWriteOptions& options)
      : graph_(graph),
        stored_(stored),
        options_(options),
        weights_(stored),
        body_(nodes_, options.opset, [this](const std::string& symbol) { return Extent(symbol); }) {
    const std::vector<Node>& all = graph.nodes();
    written_out_ = IsWrittenOut(graph);
    remembers_ = std::any_of(all.begin(), all.end(), [&](const Node& n) { return Remembers(graph, n); });
  }

  absl::StatusOr<WrittenOnnx> Write() {
    WrittenOnnx written;
    TWIN_RETURN_IF_ERROR(PlaceWeights(written));
    TWIN_RETURN_IF_ERROR(CheckNames());
    TWIN_RETURN_IF_ERROR(CheckBlocks());
    DeclareInputs();
    OnnxScopeWriter writer(
        body_, [this](const std::string& role) { return TensorOf(role); }, Mask());
    OnnxScope scope{.graph = graph_};
    for (NodeId id : graph_.inputs()) {
      scope.values[id] = LaidInOrder(InputName(graph_.node(id).path), graph_.node(id).type);
    }
    for (const Node& node : graph_.nodes()) {
      if (node.op == OpKind::kInput) continue;
      const bool block = Info(node.op).composite != nullptr;
      TWIN_RETURN_IF_ERROR(block ? AppendBlock(writer, scope, node) : writer.Append(scope, node));
    }
    for (const auto& [name, id] : graph_.outputs()) {
      LaidValue value = writer.ValueOf(scope, id);
      outputs_.insert(outputs_.begin() + static_cast<int64_t>(logits_++),
                      {body_.Full(value), name, value.type});
    }
    written.model = Finished(written);
    return written;
  }

 private:
  struct Declared {
    std::string name;
    Type type;
  };
  struct Result {
    std::string value;
    std::string name;
    Type type;  // as the tensor lies
  };

  // ---- weights

  absl::Status PlaceWeights(WrittenOnnx& written) {
    for (const TwinTensor& tensor : weights_.tensors()) {
      const DType dtype = tensor.program->dtype();
      const int first = FirstOpsetOf(dtype);
      if (first == 0 || first > options_.opset) {
        return Error(1622, tensor.name,
                     absl::StrCat(Name(dtype), " is no type of operator set ", options_.opset),
                     first == 0 ? "" : absl::StrCat("--opset ", first, " knows it"));
      }
    }
    for (const TwinTensor& tensor : weights_.tensors()) nodes_.Reserve(tensor.name);
    written.weights = PlacedInOnnx(stored_);
    return absl::OkStatus();
  }

  WeightTensor TensorOf(const std::string& role) {
    const WeightArguments::Unit unit = weights_.UnitOf(role);
    WeightTensor weight{
        &graph_,         graph_.FindParam(role), graph_.BundleOf(role), weights_.tensors()[unit.tensor].name,
        unit.type.dtype, unit.type.shape};
    if (unit.layer < 0) return weight;
    weight.name =
        nodes_.Op("Gather", {weight.name, nodes_.Number(DType::kI64, static_cast<double>(unit.layer))},
                  {OnnxAttribute("axis", int64_t{0})});
    return weight;
  }

  // ---- what comes in

  absl::Status CheckNames() const {
    for (NodeId id : graph_.inputs()) {
      const std::string& name = graph_.node(id).path;
      if (written_out_ || (name != "attention_mask" && name != "position_ids" && name != "token_type_ids"))
        continue;
      return Error(1622, name, "an input of this name is one that a written model has of its own");
    }
    return absl::OkStatus();
  }

  absl::Status CheckBlocks() const {
    for (const Node& node : graph_.nodes()) {
      if (node.type.dtype == DType::kC64) return Error(1622, node.path, "complex numbers are not written");
      if (Info(node.op).composite == nullptr || TakesPadding(graph_, node)) continue;
      return Error(1622, node.path,
                   absl::StrCat(Info(node.op).name,
                                node.op == OpKind::kAttention
                                    ? " in chunks, which begin elsewhere in each row of a padded batch"
                                    : " carries a state over every place, padding among them"));
    }
    return absl::OkStatus();
  }

  static std::string InputName(const std::string& path) { return path == "tokens" ? "input_ids" : path; }

  void DeclareInputs() {
    const Type places{DType::kI32, {Named("batch"), Named("seq")}};
    for (NodeId id : graph_.inputs()) {
      const Node& node = graph_.node(id);
      inputs_.push_back({InputName(node.path), node.type});
    }
    if (!inputs_.empty()) first_ = inputs_[0].name;
    if (written_out_) return;
    Type mask{DType::kI32, {Named("batch"), {"keys", Dim::Symbol("seq")}}};
    if (remembers_) mask.axes[1].size = Dim::Symbol("past") + Dim::Symbol("seq");
    inputs_.push_back({"attention_mask", mask});
    inputs_.push_back({"position_ids", places});
    inputs_.push_back({"token_type_ids", places});
  }

  std::optional<LaidValue> Mask() {
    if (written_out_) return std::nullopt;
    const auto mask = std::find_if(inputs_.begin(), inputs_.end(),
                                   [](const Declared& input) { return input.name == "attention_mask"; });
    nodes_.At("attention_mask");
    return LaidInOrder(body_.Cast("attention_mask", DType::kBool), {DType::kBool, mask->type.axes});
  }

  // The size of a symbol, from the input that has it.
  std::string Extent(const std::string& symbol) {
    const bool past = symbol == "past";
    const int64_t axis = past ? past_axis_ : symbol == "seq" ? 1 : 0;
    return nodes_.Op("Shape", {past ? past_ : first_},
                     {OnnxAttribute("start", axis), OnnxAttribute("end", axis + 1)});
  }

  // A state as a tensor: keys and values by head, as everybody keeps them.
  static std::vector<int> OrderOf(const StateSlot& slot) {
    return slot.type.axes.size() == 4 ? std::vector<int>{0, 2, 1, 3} : std::vector<int>{0, 1, 2};
  }

  static Type InThatOrder(const Type& type, const std::vector<int>& order) {
    Type turned{type.dtype, {}};
    for (int axis : order) turned.axes.push_back(type.axes[axis]);
    return turned;
  }

  static std::string StateName(const std::string& slot) {
    return slot == "k" ? "key" : slot == "v" ? "value" : slot;
  }

  LaidValue Past(const StateSlot& slot) {
    const std::vector<int> order = OrderOf(slot);
    const std::string name = absl::StrCat("past_key_values.", cached_, ".", StateName(slot.name));
    inputs_.push_back({name, InThatOrder(slot.type, order)});
    LaidValue value{name, slot.type, std::vector<int>(order.size())};
    for (size_t i = 0; i < order.size(); ++i) value.place[order[i]] = static_cast<int>(i);
    if (past_.empty()) {
      past_ = name;
      past_axis_ = value.place[1];
    }
    return value;
  }

  // ---- nodes

  // Of a block's decomposition, and what they are.
  DecompositionInputs InputsOf(OnnxScopeWriter& writer, OnnxScope& scope, const Node& node,
                               const std::vector<StateSlot>& slots, Builder& builder,
                               std::map<NodeId, LaidValue>& values) {
    DecompositionInputs inputs;
    const auto add = [&](const std::string& name, const LaidValue& value) {
      const NodeId id = builder.Input(name, value.type);
      values[id] = value;
      return id;
    };
    for (size_t i = 0; i < node.operands.size(); ++i)
      inputs.operands.push_back(add(absl::StrCat("operand_", i), writer.ValueOf(scope, node.operands[i])));
    for (const StateSlot& slot : slots)
      inputs.state.push_back(add(absl::StrCat("past_", slot.name), Past(slot)));
    if (!slots.empty()) ++cached_;
    if (written_out_ || node.operands.empty()) return inputs;
    const std::vector<Axis>& axes = graph_.node(node.operands[0]).type.axes;
    if (axes.size() < 2) return inputs;
    const Type places{DType::kI32, {axes[0], axes[1]}};
    inputs.starts = builder.Input("starts", {DType::kI32, {axes[0]}});
    inputs.token_types = add("token_types", LaidInOrder("token_type_ids", places));
    if (remembers_) inputs.positions = add("positions", LaidInOrder("position_ids", places));
    return inputs;
  }

  absl::Status AppendBlock(OnnxScopeWriter& writer, OnnxScope& scope, const Node& node) {
    nodes_.At(node.path);
    TWIN_ASSIGN_OR_RETURN(const std::optional<LaidValue> whole, writer.Whole(scope, node));
    if (whole) {
      scope.values[node.id] = *whole;
      return absl::OkStatus();
    }
    const std::vector<StateSlot> slots =
        Remembers(graph_, node) ? StateOf(graph_, node) : std::vector<StateSlot>();
    Builder builder(node.path);
    std::map<NodeId, LaidValue> values;
    const DecompositionInputs inputs = InputsOf(writer, scope, node, slots, builder, values);
    TWIN_ASSIGN_OR_RETURN(const Decomposition done,
                          EmitDecomposition(graph_, node, inputs, DecompositionDepth::kOnce, builder));
    builder.Output("result", done.result);
    for (size_t i = 0; i < slots.size(); ++i) builder.Output(absl::StrCat("new_", i), done.state[i]);
    TWIN_ASSIGN_OR_RETURN(const Graph body, builder.Finish());
    OnnxScope inner{.graph = body, .values = std::move(values), .starts = inputs.starts};
    TWIN_RETURN_IF_ERROR(writer.AppendAll(inner));
    scope.values[node.id] = writer.ValueOf(inner, done.result);
    scope.values[node.id].type = node.type;
    for (size_t i = 0; i < slots.size(); ++i) {
      const LaidValue now = writer.ValueOf(inner, done.state[i]);
      const std::vector<int> order = OrderOf(slots[i]);
      outputs_.push_back({body_.Full(now, order),
                          absl::StrCat("present.", cached_ - 1, ".", StateName(slots[i].name)),
                          InThatOrder(now.type, order)});
    }
    return absl::OkStatus();
  }

  // ---- the whole

  static void Declare(const std::string& name, const Type& type, ::onnx::ValueInfoProto& info) {
    info.set_name(name);
    ::onnx::TypeProto::Tensor& tensor = *info.mutable_type()->mutable_tensor_type();
    tensor.set_elem_type(OnnxTypeOfValue(type.dtype));
    tensor.mutable_shape();
    for (const Axis& axis : type.axes) {
      ::onnx::TensorShapeProto::Dimension& dim = *tensor.mutable_shape()->add_dim();
      if (axis.size.value()) {
        dim.set_dim_value(*axis.size.value());
      } else {
        dim.set_dim_param(SizeName(axis.size));
      }
    }
  }

  void AddWeight(const OnnxStoredWeight& weight, ::onnx::GraphProto& graph) const {
    ::onnx::TensorProto& tensor = *graph.add_initializer();
    tensor.set_name(weight.tensor.name);
    tensor.set_data_type(OnnxTypeOfTensor(weight.tensor.program->dtype()));
    for (int64_t extent : weight.tensor.program->shape()) tensor.add_dims(extent);
    tensor.set_data_location(::onnx::TensorProto::EXTERNAL);
    const std::pair<const char*, std::string> rows[] = {{"location", kOnnxDataName},
                                                        {"offset", absl::StrCat(weight.offset)},
                                                        {"length", absl::StrCat(weight.bytes)}};
    for (const auto& [key, value] : rows) {
      ::onnx::StringStringEntryProto& entry = *tensor.add_external_data();
      entry.set_key(key);
      entry.set_value(value);
    }
  }

  std::string Finished(const WrittenOnnx& written) const {
    ::onnx::ModelProto model;
    model.set_ir_version(FormatVersion(options_.opset));
    model.set_producer_name("twinforge");
    model.set_producer_version(kVersion);
    ::onnx::OperatorSetIdProto& set = *model.add_opset_import();
    set.set_domain("");
    set.set_version(options_.opset);
    ::onnx::GraphProto& graph = *model.mutable_graph();
    graph.set_name(graph_.name());
    std::vector<std::pair<std::string, std::string>> results;
    for (const Result& result : outputs_) results.push_back({result.value, result.name});
    const absl::flat_hash_set<std::string> needed = nodes_.WriteInto(results, graph);
    for (const OnnxStoredWeight& weight : written.weights) AddWeight(weight, graph);
    for (const Declared& input : inputs_) {
      if (needed.contains(input.name)) Declare(input.name, input.type, *graph.add_input());
    }
    for (const Result& result : outputs_) Declare(result.name, result.type, *graph.add_output());
    for (const auto& [key, value] : options_.metadata) {
      ::onnx::StringStringEntryProto& entry = *model.add_metadata_props();
      entry.set_key(key);
      entry.set_value(value);
    }
    return model.SerializeAsString();
  }

  const Graph& graph_;
  const Graph& stored_;
  const OnnxWriteOptions& options_;
  const WeightArguments weights_;
  OnnxNodes nodes_;
  OnnxBody body_;
  bool written_out_ = false, remembers_ = false;
  std::vector<Declared> inputs_;
  std::vector<Result> outputs_;  // the graph's, then states
  size_t logits_ = 0;            // how many are the graph's
  int64_t cached_ = 0;           // blocks that remember, so far
  std::string first_, past_;     // the inputs that sizes are read from
  int64_t past_axis_ = 0;
};

// What values are computed in where nobody says.
std::optional<DType> UsualType(const Graph& graph) {
  if (IsWrittenOut(graph)) return std::nullopt;
  for (const auto& [role, param] : graph.params()) {
    if (param.type.dtype == DType::kBF16) return DType::kF32;
  }
  return std::nullopt;
}

bool IsIn(const Graph& graph, DType dtype) {
  return std::all_of(graph.outputs().begin(), graph.outputs().end(),
                     [&](const auto& output) { return graph.node(output.second).type.dtype == dtype; });
}

}  // namespace

std::vector<OnnxStoredWeight> PlacedInOnnx(const Graph& graph) {
  std::vector<OnnxStoredWeight> placed;
  int64_t at = 0;
  for (TwinTensor& tensor : TwinTensors(graph)) {
    const int64_t bytes = FileBytes(tensor.program->dtype(), tensor.program->element_count()).value_or(0);
    placed.push_back({std::move(tensor), at, bytes});
    at += (bytes + kOnnxAlignment - 1) / kOnnxAlignment * kOnnxAlignment;
  }
  return placed;
}

absl::StatusOr<WrittenOnnx> WriteOnnx(const Graph& graph, const OnnxWriteOptions& options) {
  std::optional<DType> dtype = options.dtype ? options.dtype : UsualType(graph);
  if (dtype && IsWrittenOut(graph) && IsIn(graph, *dtype)) dtype.reset();
  Graph computed = graph;
  if (dtype) {
    absl::StatusOr<Graph> converted = ComputedIn(graph, *dtype);
    if (!converted.ok()) return converted.status();
    computed = *std::move(converted);
  }
  OnnxModelWriter writer(computed, graph, options);
  TWIN_ASSIGN_OR_RETURN(WrittenOnnx written, writer.Write());
  for (const auto& [name, id] : graph.outputs())
    written.computed_in = std::string(Name(computed.node(id).type.dtype));
  return written;
}

}  // namespace twinforge
