#include "ir/text.h"

#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/json.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/text_format.h"
#include "ir/attrs_text.h"
#include "weights/text.h"

namespace twinforge {

namespace {

const google::protobuf::FieldDescriptor* FieldOf(AttrsKind kind) {
  const auto* field = OpAttrs::descriptor()->FindFieldByNumber(static_cast<int>(kind));
  TWIN_CHECK(field != nullptr, "AttrsKind and OpAttrs have the same numbers");
  return field;
}

}  // namespace

google::protobuf::Message* MutableAttrs(AttrsKind kind, OpAttrs& attrs) {
  if (kind == AttrsKind::kNone) return nullptr;
  return OpAttrs::GetReflection()->MutableMessage(&attrs, FieldOf(kind));
}

const google::protobuf::Message* AttrsOf(AttrsKind kind, const OpAttrs& attrs) {
  if (kind == AttrsKind::kNone) return nullptr;
  return &OpAttrs::GetReflection()->GetMessage(attrs, FieldOf(kind));
}

namespace {

class GraphPrinter {
 public:
  explicit GraphPrinter(const Graph& graph) : graph_(graph) { attrs_.SetSingleLineMode(true); }

  std::string Print() {
    Heading();
    for (const Node& node : graph_.nodes()) {
      if (node.op != OpKind::kInput) PrintNode(node);
    }
    absl::StrAppend(&text_, "}\n");
    PrintParams();
    PrintBundles();
    PrintStacks();
    return std::move(text_);
  }

 private:
  void Heading() {
    absl::StrAppend(&text_, "graph ", graph_.name(), "(");
    absl::string_view separator = "";
    for (NodeId id : graph_.inputs()) {
      const Node& node = graph_.node(id);
      absl::StrAppend(&text_, separator, node.path, ": ", Text(node.type));
      separator = ", ";
    }
    absl::StrAppend(&text_, ") -> (");
    separator = "";
    for (const auto& [name, value] : graph_.outputs()) {
      absl::StrAppend(&text_, separator, name, ": ", graph_.node(value).path);
      separator = ", ";
    }
    absl::StrAppend(&text_, ") {\n");
  }

  void PrintNode(const Node& node) {
    const OpInfo& info = Info(node.op);
    absl::StrAppend(&text_, "  ", node.path, " = ", info.name, "(");
    absl::string_view separator = "";
    for (NodeId operand : node.operands) {
      absl::StrAppend(&text_, separator, graph_.node(operand).path);
      separator = ", ";
    }
    absl::StrAppend(&text_, ")");
    for (const auto& [slot, role] : node.params) {
      absl::StrAppend(&text_, " ");
      if (role != node.path) absl::StrAppend(&text_, slot, "=");
      absl::StrAppend(&text_, "@", role);
    }
    PrintAttrs(info.attrs, *node.attrs);
    if (node.attrs->has_origin()) {
      const Origin& origin = node.attrs->origin();
      absl::StrAppend(&text_, " of ", origin.op());
      if (const std::optional<OpKind> op = OpKindFromName(origin.op()))
        PrintAttrs(Info(*op).attrs, origin.attrs());
    }
    if (!node.step.empty()) absl::StrAppend(&text_, " by ", JsonValue::String(node.step).Text(0));
    absl::StrAppend(&text_, "\n");
  }

  void PrintAttrs(AttrsKind kind, const OpAttrs& attrs) {
    const google::protobuf::Message* own = AttrsOf(kind, attrs);
    if (own == nullptr) return;
    attrs_.PrintToString(*own, &attrs_text_);
    while (!attrs_text_.empty() && attrs_text_.back() == ' ') attrs_text_.pop_back();
    absl::StrAppend(&text_, " {", attrs_text_, "}");
  }

  void PrintParams() {
    if (graph_.params().empty()) return;
    absl::StrAppend(&text_, "params {\n");
    for (const auto& [role, param] : graph_.params()) {
      absl::StrAppend(&text_, "  @", role, ": ", Text(param.type));
      if (param.type.is_kernel()) {
        absl::StrAppend(&text_, param.storage.orientation == Orientation::kOutIn ? " out_in" : " in_out");
      }
      if (param.storage.per_expert) absl::StrAppend(&text_, " per_expert");
      absl::StrAppend(&text_, " = ", Text(param.program), "\n");
    }
    absl::StrAppend(&text_, "}\n");
  }

  void PrintBundles() {
    if (graph_.bundles().empty()) return;
    absl::StrAppend(&text_, "bundles {\n");
    for (const Bundle& bundle : graph_.bundles()) {
      const bool concat = bundle.arrangement == Bundle::Arrangement::kConcat;
      absl::StrAppend(&text_, "  @", bundle.role, " = ", concat ? "concat" : "interleave", "(@",
                      absl::StrJoin(bundle.members, ", @"), ")");
      if (bundle.shards != 1) absl::StrAppend(&text_, " shards ", bundle.shards);
      absl::StrAppend(&text_, "\n");
    }
    absl::StrAppend(&text_, "}\n");
  }

  void PrintStacks() {
    if (graph_.stacks().empty()) return;
    absl::StrAppend(&text_, "stacks {\n");
    for (const LayerStack& stack : graph_.stacks()) {
      absl::StrAppend(&text_, "  @", stack.role, " = stack(@", absl::StrJoin(stack.members, ", @"), ")\n");
    }
    absl::StrAppend(&text_, "}\n");
  }

  const Graph& graph_;
  google::protobuf::TextFormat::Printer attrs_;
  std::string text_, attrs_text_;
};

}  // namespace

std::string Text(const Graph& graph) { return GraphPrinter(graph).Print(); }

}  // namespace twinforge
