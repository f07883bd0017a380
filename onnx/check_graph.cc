#include "onnx/check_graph.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "onnx/onnx-ml.pb.h"
#include "onnx/operators.h"
#include "onnx/read.h"
#include "onnx/tensor_data.h"

namespace twinforge {
namespace {

using ::onnx::AttributeProto;
using ::onnx::FunctionProto;
using ::onnx::GraphProto;
using ::onnx::NodeProto;

using Opsets = std::map<std::string, int64_t>;
using FunctionKey = std::pair<std::string, std::pair<std::string, std::string>>;

// The names of one graph while it is being checked, inside those of the graphs around it.
struct Scope {
  OnnxGraph* graph;
  const Scope* around;
  absl::flat_hash_map<absl::string_view, int32_t> slots;

  int32_t Add(absl::string_view name) {
    const int32_t slot = static_cast<int32_t>(graph->names.size());
    graph->names.push_back(name);
    slots.emplace(name, slot);
    return slot;
  }
};

// Names times the graphs that hand them on: what a small file could make large.
constexpr int64_t kMostCaptures = 4000000;

std::string NameText(absl::string_view name) { return JsonQuoted(name, 200); }

template <typename Imports>
absl::StatusOr<Opsets> OpsetsOf(const Imports& imports, const std::string& place) {
  Opsets opsets;
  for (const auto& import : imports) {
    const std::string domain = NormalDomain(import.domain());
    const auto [known, is_new] = opsets.emplace(domain, import.version());
    if (!is_new && known->second != import.version()) {
      return Error(2002, place, absl::StrCat("imports two versions of operator set ", NameText(domain)));
    }
    if (import.version() < 1) {
      return Error(2002, place,
                   absl::StrCat("imports version ", import.version(), " of operator set ", NameText(domain)));
    }
    if (domain.empty() && import.version() > kNewestOperatorSet) {
      return Error(2006, place,
                   absl::StrCat("imports operator set ", import.version(), "; ", kNewestOperatorSet,
                                " is the newest that is known here"));
    }
  }
  return opsets;
}

class Checker {
 public:
  explicit Checker(OnnxModel& model) : model_(model), proto_(*model.proto) {}

  absl::Status Run() {
    TWIN_RETURN_IF_ERROR(CheckVersions());
    TWIN_RETURN_IF_ERROR(DeclareFunctions());
    for (const auto& function : model_.functions) TWIN_RETURN_IF_ERROR(CheckFunction(*function));
    TWIN_RETURN_IF_ERROR(CheckCalls());
    if (!proto_.has_graph()) return Error(2002, model_.path, "has no graph");
    return CheckGraph(proto_.graph(), model_.graph, nullptr, model_.opsets, 1);
  }

 private:
  std::string Place(absl::string_view what) const { return absl::StrCat(model_.path, ": ", what); }

  absl::Status CheckVersions() {
    if (proto_.ir_version() < 1)
      return Error(2002, model_.path, "says no IR version", "the file may be no ONNX model");
    if (proto_.ir_version() > kNewestIrVersion) {
      return Error(2006, model_.path,
                   absl::StrCat("has IR version ", proto_.ir_version(), "; ", kNewestIrVersion,
                                " is the newest that is known here"));
    }
    TWIN_ASSIGN_OR_RETURN(model_.opsets, OpsetsOf(proto_.opset_import(), model_.path));
    if (!model_.opsets.empty()) return absl::OkStatus();
    if (proto_.ir_version() >= 3) {
      return Error(2002, model_.path, "imports no operator set", "since IR version 3 a model names them");
    }
    model_.opsets[""] = 1;
    return absl::OkStatus();
  }

  absl::Status DeclareFunctions() {
    for (const FunctionProto& function : proto_.functions()) {
      const FunctionKey key(NormalDomain(function.domain()), {function.name(), function.overload()});
      if (function.name().empty()) return Error(2002, model_.path, "has a function without a name");
      model_.functions.push_back(std::make_unique<OnnxFunction>());
      model_.functions.back()->proto = &function;
      if (!functions_.emplace(key, model_.functions.back().get()).second) {
        return Error(2002, Place(absl::StrCat("function ", NameText(function.name()))), "is defined twice");
      }
      if (key.first.empty() && FindOperator("", function.name()) != nullptr) {
        model_.warnings.push_back(absl::StrCat("function ", NameText(function.name()),
                                               " stands for the standard's operator of that name"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckFunction(OnnxFunction& function) {
    const FunctionProto& proto = *function.proto;
    const std::string place = Place(absl::StrCat("function ", NameText(proto.name())));
    TWIN_ASSIGN_OR_RETURN(Opsets opsets, OpsetsOf(proto.opset_import(), place));
    if (opsets.empty()) opsets = model_.opsets;
    function.body = std::make_unique<OnnxGraph>();
    Scope scope{function.body.get(), nullptr, {}};
    for (const std::string& input : proto.input()) {
      if (scope.slots.count(input) != 0)
        return Error(2002, place, absl::StrCat("has two inputs ", NameText(input)));
      function.body->inputs.push_back(scope.Add(input));
    }
    calls_ = &called_by_[&function];
    TWIN_RETURN_IF_ERROR(CheckNodes(proto.node(), scope, opsets, 1, place));
    calls_ = nullptr;
    for (const std::string& output : proto.output()) {
      const auto found = scope.slots.find(output);
      if (found == scope.slots.end())
        return Error(2002, place, absl::StrCat("output ", NameText(output), " is made by nothing"));
      function.body->outputs.push_back(found->second);
    }
    return SortNodes(*function.body, place);
  }

  // No function reaches itself, and no chain of calls is deeper than nesting may be. Depth first, without
  // recursion.
  absl::Status CheckCalls() {
    std::map<const OnnxFunction*, int> height;  // 0: being visited
    for (const auto& root : model_.functions) {
      std::vector<std::pair<const OnnxFunction*, size_t>> stack;
      if (height.count(root.get()) == 0) stack.emplace_back(root.get(), 0);
      while (!stack.empty()) {
        auto& [function, next] = stack.back();
        height.emplace(function, 0);
        const std::vector<const OnnxFunction*>& calls = called_by_[function];
        const std::string place = Place(absl::StrCat("function ", NameText(function->proto->name())));
        if (next == calls.size()) {
          int most = 0;
          for (const OnnxFunction* call : calls) most = std::max(most, height[call]);
          if (most >= kDeepestNesting)
            return Error(2005, place, absl::StrCat("calls more than ", kDeepestNesting, " functions deep"));
          height[function] = most + 1;
          stack.pop_back();
          continue;
        }
        const OnnxFunction* call = calls[next++];
        const auto seen = height.find(call);
        if (seen == height.end()) {
          stack.emplace_back(call, 0);
        } else if (seen->second == 0) {
          return Error(2005, place,
                       absl::StrCat("calls itself, through function ", NameText(call->proto->name())));
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status Declare(Scope& scope, absl::string_view name, const std::string& place) {
    if (scope.slots.count(name) != 0) {
      return Error(2002, place, absl::StrCat("value ", NameText(name), " is made twice"));
    }
    // The format forbids a name of a graph around; files that have one mean their own.
    for (const Scope* s = scope.around; s != nullptr && !hidden_name_; s = s->around) {
      if (s->slots.count(name) == 0) continue;
      Note(hidden_name_, absl::StrCat(place, ": value ", NameText(name), " hides one of a graph around it"));
    }
    scope.Add(name);
    return absl::OkStatus();
  }

  absl::Status AddInitializers(const GraphProto& proto, Scope& scope, const std::string& place) {
    const auto add = [&](const std::string& name, OnnxInitializer initializer) -> absl::Status {
      const auto known = scope.slots.find(name);
      if (name.empty()) return Error(2002, place, "has an initializer without a name");
      if (known != scope.slots.end()) {  // an input's default
        initializer.slot = known->second;
      } else {
        TWIN_RETURN_IF_ERROR(Declare(scope, name, place));
        initializer.slot = static_cast<int32_t>(scope.graph->names.size()) - 1;
      }
      scope.graph->initializers.push_back(initializer);
      return absl::OkStatus();
    };
    for (const auto& tensor : proto.initializer()) {
      TWIN_RETURN_IF_ERROR(add(tensor.name(), {-1, &tensor, nullptr}));
      TWIN_RETURN_IF_ERROR(
          CheckTensor(tensor, *model_.files, absl::StrCat(place, ": initializer ", NameText(tensor.name()))));
    }
    for (const auto& tensor : proto.sparse_initializer()) {
      TWIN_RETURN_IF_ERROR(add(tensor.values().name(), {-1, nullptr, &tensor}));
      TWIN_RETURN_IF_ERROR(CheckSparseTensor(
          tensor, *model_.files, absl::StrCat(place, ": initializer ", NameText(tensor.values().name()))));
    }
    std::vector<int32_t> slots;
    for (const OnnxInitializer& initializer : scope.graph->initializers) slots.push_back(initializer.slot);
    std::sort(slots.begin(), slots.end());
    const auto twice = std::adjacent_find(slots.begin(), slots.end());
    if (twice == slots.end()) return absl::OkStatus();
    return Error(2002, place,
                 absl::StrCat("value ", NameText(scope.graph->names[*twice]), " has two initializers"));
  }

  absl::Status CheckGraph(const GraphProto& proto, OnnxGraph& graph, const Scope* around,
                          const Opsets& opsets, int depth) {
    const std::string place = Place(absl::StrCat("graph ", NameText(proto.name())));
    if (depth > kDeepestNesting)
      return Error(2005, place, absl::StrCat("lies more than ", kDeepestNesting, " graphs deep"));
    graph.proto = &proto;
    Scope scope{&graph, around, {}};
    for (const auto& input : proto.input()) {
      if (input.name().empty()) return Error(2002, place, "has an input without a name");
      TWIN_RETURN_IF_ERROR(Declare(scope, input.name(), place));
      graph.inputs.push_back(static_cast<int32_t>(graph.names.size()) - 1);
    }
    TWIN_RETURN_IF_ERROR(AddInitializers(proto, scope, place));
    TWIN_RETURN_IF_ERROR(CheckNodes(proto.node(), scope, opsets, depth, place));
    for (const auto& output : proto.output()) {
      const int32_t slot = Resolve(scope, output.name());
      if (slot < 0)
        return Error(2002, place, absl::StrCat("output ", NameText(output.name()), " is made by nothing"));
      graph.outputs.push_back(slot);
    }
    if (captures_ > kMostCaptures) return Error(2005, place, "hands too many names through too many graphs");
    return SortNodes(graph, place);
  }

  // The slot of a name that is visible in `scope`; one that lies in a graph around becomes a capture. -1:
  // unknown.
  int32_t Resolve(Scope& scope, absl::string_view name) {
    const auto own = scope.slots.find(name);
    if (own != scope.slots.end()) return own->second;
    if (scope.around == nullptr) return -1;
    const int32_t outer = Resolve(const_cast<Scope&>(*scope.around), name);
    if (outer < 0) return -1;
    if (++captures_ > kMostCaptures) return -1;
    const int32_t slot = scope.Add(name);
    scope.graph->captures.emplace_back(outer, slot);
    return slot;
  }

  void Note(bool& said, const std::string& note) {
    if (!said) model_.warnings.push_back(note);
    said = true;
  }

  static bool IsConstant(const NodeProto& node) {
    return node.op_type() == "Constant" && node.output_size() == 1;
  }

  template <typename Nodes>
  absl::Status CheckNodes(const Nodes& nodes, Scope& scope, const Opsets& opsets, int depth,
                          const std::string& place) {
    std::vector<OnnxNode>& out = scope.graph->nodes;
    out.resize(static_cast<size_t>(nodes.size()));
    absl::flat_hash_map<absl::string_view, int> constants;
    for (int i = 0; i < nodes.size(); ++i) {  // all names first: files are not always in order
      const NodeProto& proto = nodes.Get(i);
      for (const std::string& name : proto.output()) {
        const auto known = constants.find(name);
        if (known != constants.end() && IsConstant(proto)) {
          // Exporters have written two constants under one name; the later one counts, as in onnxruntime.
          OnnxNode& earlier = out[known->second];
          out[i].outputs = earlier.outputs;
          earlier.outputs = {-1};
          known->second = i;
          Note(constant_twice_,
               absl::StrCat(place, ": constant ", NameText(name), " is made twice; the later one counts"));
          continue;
        }
        if (!name.empty()) TWIN_RETURN_IF_ERROR(Declare(scope, name, place));
        out[i].outputs.push_back(name.empty() ? -1 : static_cast<int32_t>(scope.graph->names.size()) - 1);
        if (IsConstant(proto) && !name.empty()) constants.emplace(name, i);
      }
    }
    for (int i = 0; i < nodes.size(); ++i) {
      TWIN_RETURN_IF_ERROR(CheckNode(nodes.Get(i), out[i], scope, opsets, depth, place));
    }
    return absl::OkStatus();
  }

  absl::Status CheckNode(const NodeProto& proto, OnnxNode& node, Scope& scope, const Opsets& opsets,
                         int depth, const std::string& graph_place) {
    node.proto = &proto;
    node.domain = NormalDomain(proto.domain());
    const auto place = [&] { return absl::StrCat(graph_place, ": ", NodeText(proto)); };
    if (proto.op_type().empty()) return Error(2002, place(), "names no operator");
    const auto opset = opsets.find(node.domain);
    node.opset = opset == opsets.end() ? 0 : opset->second;
    const auto function = functions_.find(FunctionKey(node.domain, {proto.op_type(), proto.overload()}));
    if (function != functions_.end()) {
      node.function = function->second;
      if (calls_ != nullptr) calls_->push_back(node.function);
    }
    for (const std::string& name : proto.input()) {
      const int32_t slot = name.empty() ? -1 : Resolve(scope, name);
      if (slot < 0 && !name.empty())
        return Error(2002, place(), absl::StrCat("takes ", NameText(name), ", which nothing makes"));
      node.inputs.push_back(slot);
    }
    absl::flat_hash_map<absl::string_view, int> seen;
    for (const AttributeProto& attribute : proto.attribute()) {
      if (!seen.emplace(attribute.name(), 0).second) {
        return Error(2002, place(), absl::StrCat("has two attributes ", NameText(attribute.name())));
      }
      TWIN_RETURN_IF_ERROR(CheckAttribute(attribute, node, scope, opsets, depth, place));
    }
    return absl::OkStatus();
  }

  template <typename Where>
  absl::Status CheckAttribute(const AttributeProto& attribute, OnnxNode& node, Scope& scope,
                              const Opsets& opsets, int depth, const Where& place) {
    const auto here = [&] { return absl::StrCat(place(), ": attribute ", NameText(attribute.name())); };
    if (attribute.has_t()) TWIN_RETURN_IF_ERROR(CheckTensor(attribute.t(), *model_.files, here()));
    for (const auto& tensor : attribute.tensors())
      TWIN_RETURN_IF_ERROR(CheckTensor(tensor, *model_.files, here()));
    if (attribute.has_sparse_tensor()) {
      TWIN_RETURN_IF_ERROR(CheckSparseTensor(attribute.sparse_tensor(), *model_.files, here()));
    }
    for (const auto& tensor : attribute.sparse_tensors())
      TWIN_RETURN_IF_ERROR(CheckSparseTensor(tensor, *model_.files, here()));
    const auto check = [&](const GraphProto& graph) -> absl::Status {
      auto subgraph = std::make_unique<OnnxGraph>();
      OnnxGraph* made = subgraph.get();
      model_.subgraphs.push_back(std::move(subgraph));
      TWIN_RETURN_IF_ERROR(CheckGraph(graph, *made, &scope, opsets, depth + 1));
      node.subgraphs.emplace_back(attribute.name(), made);
      return absl::OkStatus();
    };
    if (attribute.has_g()) TWIN_RETURN_IF_ERROR(check(attribute.g()));
    for (const GraphProto& graph : attribute.graphs()) TWIN_RETURN_IF_ERROR(check(graph));
    return absl::OkStatus();
  }

  OnnxModel& model_;
  const ::onnx::ModelProto& proto_;
  std::map<FunctionKey, const OnnxFunction*> functions_;
  std::map<const OnnxFunction*, std::vector<const OnnxFunction*>> called_by_;
  bool hidden_name_ = false, constant_twice_ = false;  // noted once
  int64_t captures_ = 0;
  std::vector<const OnnxFunction*>* calls_ = nullptr;  // of the function that is being checked
};

}  // namespace

absl::Status CheckModel(OnnxModel& model) { return Checker(model).Run(); }

}  // namespace twinforge
