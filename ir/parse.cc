// Reads the printed form of a graph. The text is hostile: every step is bounded by its
// length, and what the grammar lets through is judged by Builder and Verify.
#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/first_mistake.h"
#include "base/json.h"
#include "base/status_macros.h"
#include "google/protobuf/text_format.h"
#include "ir/attrs_text.h"
#include "ir/builder.h"
#include "ir/text.h"
#include "weights/text.h"

namespace twinforge {
namespace {

bool IsNameChar(char c) { return absl::ascii_isalnum(c) || c == '_' || c == '.' || c == '-'; }
bool IsAxisChar(char c) { return absl::ascii_isalnum(c) || c == '_'; }
bool IsDimChar(char c) { return IsAxisChar(c) || c == '+' || c == '*' || c == ' ' || c == '-'; }

}  // namespace

class GraphParser {
 public:
  explicit GraphParser(absl::string_view text) : text_(text) {}

  absl::StatusOr<Graph> Parse();
  absl::StatusOr<Type> ParseTypeAlone();

 private:
  struct NodeText {
    size_t at = 0;
    std::string path;
    OpKind op = OpKind::kInput;
    std::vector<std::string> operands;
    std::vector<std::pair<std::string, std::string>> params;
    OpAttrs attrs;
    std::string step;
  };
  struct ParamText {
    size_t at = 0;
    Param param;
    bool used = false;
  };

  absl::Status Fail(size_t at, absl::string_view message) const;
  void Skip();
  bool Peek(absl::string_view token);
  bool Accept(absl::string_view token);
  absl::Status Expect(absl::string_view token);
  template <typename Accepts>
  absl::string_view Word(Accepts accepts);
  absl::StatusOr<std::string> Name();
  absl::StatusOr<std::string> Role();
  absl::StatusOr<int64_t> Number();
  absl::StatusOr<std::string> Quoted();
  absl::StatusOr<absl::string_view> Balanced(char open, char close);
  absl::StatusOr<DType> ReadDType();
  absl::StatusOr<Type> ReadType();
  absl::StatusOr<ParamType> ReadParamType();
  absl::Status ReadHeading();
  absl::Status ReadNode();
  absl::Status ReadNodeParams(NodeText& node);
  absl::Status ReadAttrs(OpKind op, OpAttrs& into);
  absl::Status ReadOrigin(NodeText& node);
  absl::Status ReadParam();
  absl::Status ReadBundle();
  absl::Status ReadStack();
  absl::StatusOr<Graph> Build();

  absl::string_view text_;
  size_t at_ = 0;
  std::string name_;
  std::vector<std::pair<std::string, Type>> inputs_;
  std::vector<std::pair<std::string, std::string>> outputs_;
  std::vector<NodeText> nodes_;
  absl::flat_hash_map<std::string, ParamText> params_;
  std::vector<Bundle> bundles_;
  std::vector<LayerStack> stacks_;
};

// ---- tokens

absl::Status GraphParser::Fail(size_t at, absl::string_view message) const {
  const absl::string_view before = text_.substr(0, at);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t last = before.rfind('\n');
  const size_t column = last == absl::string_view::npos ? at + 1 : at - last;
  return Error(1502, absl::StrCat(line, ":", column), message);
}

void GraphParser::Skip() {
  while (at_ < text_.size() && absl::ascii_isspace(text_[at_])) ++at_;
}

bool GraphParser::Peek(absl::string_view token) {
  Skip();
  return text_.substr(at_, token.size()) == token;
}

bool GraphParser::Accept(absl::string_view token) {
  if (!Peek(token)) return false;
  at_ += token.size();
  return true;
}

absl::Status GraphParser::Expect(absl::string_view token) {
  if (Accept(token)) return absl::OkStatus();
  return Fail(at_, absl::StrCat("expected ", token));
}

template <typename Accepts>
absl::string_view GraphParser::Word(Accepts accepts) {
  Skip();
  const size_t begin = at_;
  while (at_ < text_.size() && accepts(text_[at_])) ++at_;
  return text_.substr(begin, at_ - begin);
}

absl::StatusOr<std::string> GraphParser::Name() {
  const absl::string_view name = Word(IsNameChar);
  if (name.empty()) return Fail(at_, "expected a name");
  return std::string(name);
}

absl::StatusOr<std::string> GraphParser::Role() {
  TWIN_RETURN_IF_ERROR(Expect("@"));
  return Name();
}

absl::StatusOr<int64_t> GraphParser::Number() {
  const absl::string_view digits = Word(absl::ascii_isdigit);
  int64_t number = 0;
  if (absl::SimpleAtoi(digits, &number)) return number;
  return Fail(at_ - digits.size(), "expected a whole number");
}

absl::StatusOr<std::string> GraphParser::Quoted() {
  Skip();
  const size_t begin = at_;
  TWIN_RETURN_IF_ERROR(Expect("\""));
  while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
  if (at_ >= text_.size()) return Fail(begin, "a string without end");
  ++at_;
  absl::StatusOr<JsonValue> value = ParseJson(text_.substr(begin, at_ - begin), "string");
  if (!value.ok()) return Fail(begin, "malformed string");
  return value->as_string();
}

// The text from `open`, which stands next or after a word, to its partner, both included.
absl::StatusOr<absl::string_view> GraphParser::Balanced(char open, char close) {
  Skip();
  const size_t begin = at_;
  int64_t depth = 0;
  for (; at_ < text_.size(); ++at_) {
    const char c = text_[at_];
    if (c == '"') {
      for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) at_ += text_[at_] == '\\';
    } else if (c == open) {
      ++depth;
    } else if (c == close && --depth <= 0) {
      ++at_;
      return text_.substr(begin, at_ - begin);
    } else if (depth == 0 && !IsNameChar(c)) {
      break;
    }
  }
  return Fail(begin, absl::StrCat("no ", absl::string_view(&close, 1), " closes what begins here"));
}

// ---- types

absl::StatusOr<DType> GraphParser::ReadDType() {
  const absl::string_view name = Word(IsAxisChar);
  if (std::optional<DType> dtype = DTypeFromName(name)) return *dtype;
  return Fail(at_ - name.size(), absl::StrCat("\"", name, "\" is no dtype"));
}

absl::StatusOr<Type> GraphParser::ReadType() {
  Type type;
  TWIN_ASSIGN_OR_RETURN(type.dtype, ReadDType());
  TWIN_RETURN_IF_ERROR(Expect("["));
  if (Accept("]")) return type;
  do {
    Axis axis;
    axis.name = std::string(Word(IsAxisChar));
    if (axis.name.empty()) return Fail(at_, "expected an axis");
    const bool sized = Accept("=");
    const size_t begin = at_;
    absl::StatusOr<Dim> size = Dim::Parse(sized ? Word(IsDimChar) : absl::string_view(axis.name));
    if (!size.ok()) return Fail(begin, DiagnosticOf(size.status())->message);
    axis.size = *std::move(size);
    if (Accept("~")) {
      TWIN_ASSIGN_OR_RETURN(axis.logical, Number());
    }
    type.axes.push_back(std::move(axis));
  } while (Accept(","));
  TWIN_RETURN_IF_ERROR(Expect("]"));
  return type;
}

absl::StatusOr<ParamType> GraphParser::ReadParamType() {
  ParamType type;
  TWIN_ASSIGN_OR_RETURN(type.dtype, ReadDType());
  TWIN_RETURN_IF_ERROR(Expect("["));
  if (Accept("]")) return type;
  while (true) {
    ParamAxis axis;
    axis.name = std::string(Word(IsAxisChar));
    if (axis.name.empty()) return Fail(at_, "expected an axis");
    TWIN_RETURN_IF_ERROR(Expect("="));
    TWIN_ASSIGN_OR_RETURN(axis.size, Number());
    axis.logical = axis.size;
    if (Accept("~")) {
      TWIN_ASSIGN_OR_RETURN(axis.logical, Number());
    }
    if (Accept("/")) {
      TWIN_ASSIGN_OR_RETURN(axis.shards, Number());
    }
    type.axes.push_back(std::move(axis));
    const int rank = static_cast<int>(type.axes.size());
    if (Accept("]")) return type;
    if (Accept(",")) continue;
    if (Peek(";") && type.lead == 0 && type.in == 0) {
      Accept(";");
      type.lead = rank;
    } else if (Peek("->") && type.in == 0) {
      Accept("->");
      type.in = rank - type.lead;
    } else {
      return Fail(at_, "expected , or ] or, once and in this order, ; and ->");
    }
  }
}

// ---- sections

absl::Status GraphParser::ReadHeading() {
  TWIN_RETURN_IF_ERROR(Expect("graph "));
  TWIN_ASSIGN_OR_RETURN(name_, Name());
  TWIN_RETURN_IF_ERROR(Expect("("));
  while (!Accept(")")) {
    if (!inputs_.empty()) TWIN_RETURN_IF_ERROR(Expect(","));
    TWIN_ASSIGN_OR_RETURN(std::string name, Name());
    TWIN_RETURN_IF_ERROR(Expect(":"));
    TWIN_ASSIGN_OR_RETURN(Type type, ReadType());
    inputs_.emplace_back(std::move(name), std::move(type));
  }
  TWIN_RETURN_IF_ERROR(Expect("->"));
  TWIN_RETURN_IF_ERROR(Expect("("));
  while (!Accept(")")) {
    if (!outputs_.empty()) TWIN_RETURN_IF_ERROR(Expect(","));
    TWIN_ASSIGN_OR_RETURN(std::string name, Name());
    TWIN_RETURN_IF_ERROR(Expect(":"));
    TWIN_ASSIGN_OR_RETURN(std::string value, Name());
    outputs_.emplace_back(std::move(name), std::move(value));
  }
  return Expect("{");
}

absl::Status GraphParser::ReadNodeParams(NodeText& node) {
  while (true) {
    const size_t begin = at_;
    std::string slot;
    if (!Peek("@")) {
      const absl::string_view word = Word(IsNameChar);
      // What has no @ after its = is the next node.
      if (word.empty() || !Accept("=") || !Peek("@")) {
        at_ = begin;
        return absl::OkStatus();
      }
      slot = std::string(word);
    }
    Skip();
    const size_t at = at_;
    TWIN_ASSIGN_OR_RETURN(const std::string role, Role());
    for (const SlotInfo& info : Info(node.op).slots) {
      if (slot.empty() && info.main) slot = std::string(info.name);
    }
    if (slot.empty() || FindSlot(node.op, slot) == nullptr) {
      return Fail(at, absl::StrCat(Info(node.op).name, " has no slot ",
                                   slot.empty() ? "for an unnamed parameter" : slot));
    }
    if (role != RoleOf(node.op, node.path, slot)) {
      return Fail(at, absl::StrCat("the role is @", RoleOf(node.op, node.path, slot)));
    }
    node.params.emplace_back(std::move(slot), role);
  }
}

absl::Status GraphParser::ReadAttrs(OpKind op, OpAttrs& into) {
  google::protobuf::Message* attrs = MutableAttrs(Info(op).attrs, into);
  if (!Peek("{")) return absl::OkStatus();
  const size_t begin = at_;
  if (attrs == nullptr) return Fail(begin, absl::StrCat(Info(op).name, " has no attributes"));
  TWIN_ASSIGN_OR_RETURN(absl::string_view body, Balanced('{', '}'));
  body = body.substr(1, body.size() - 2);
  FirstMistake error;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  parser.SetRecursionLimit(16);
  if (parser.ParseFromString(std::string(body), attrs)) return absl::OkStatus();
  return Fail(begin + 1 + error.OffsetIn(body), error.message());
}

// A node whose path is `of` is followed by `=`, an origin by its op.
absl::Status GraphParser::ReadOrigin(NodeText& node) {
  const size_t begin = at_;
  if (Word(IsNameChar) != "of" || Peek("=")) {
    at_ = begin;
    return absl::OkStatus();
  }
  const absl::string_view op = Word(IsNameChar);
  const std::optional<OpKind> kind = OpKindFromName(op);
  if (!kind || Info(*kind).composite == nullptr)
    return Fail(at_ - op.size(), absl::StrCat("\"", op, "\" is no composite"));
  node.attrs.mutable_origin()->set_op(std::string(op));
  return ReadAttrs(*kind, *node.attrs.mutable_origin()->mutable_attrs());
}

absl::Status GraphParser::ReadNode() {
  NodeText node;
  Skip();
  node.at = at_;
  TWIN_ASSIGN_OR_RETURN(node.path, Name());
  TWIN_RETURN_IF_ERROR(Expect("="));
  Skip();
  const size_t at = at_;
  const absl::string_view op = Word(IsNameChar);
  const std::optional<OpKind> kind = OpKindFromName(op);
  if (!kind || *kind == OpKind::kInput) return Fail(at, absl::StrCat("\"", op, "\" is no op"));
  node.op = *kind;
  TWIN_RETURN_IF_ERROR(Expect("("));
  while (!Accept(")")) {
    if (!node.operands.empty()) TWIN_RETURN_IF_ERROR(Expect(","));
    TWIN_ASSIGN_OR_RETURN(std::string operand, Name());
    node.operands.push_back(std::move(operand));
  }
  TWIN_RETURN_IF_ERROR(ReadNodeParams(node));
  TWIN_RETURN_IF_ERROR(ReadAttrs(node.op, node.attrs));
  TWIN_RETURN_IF_ERROR(ReadOrigin(node));
  // A node whose path is `by` is followed by `=`, a step by its string.
  const size_t begin = at_;
  if (Accept("by")) {
    if (Peek("\"")) {
      TWIN_ASSIGN_OR_RETURN(node.step, Quoted());
    } else {
      at_ = begin;
    }
  }
  nodes_.push_back(std::move(node));
  return absl::OkStatus();
}

absl::Status GraphParser::ReadParam() {
  ParamText entry;
  Skip();
  entry.at = at_;
  TWIN_ASSIGN_OR_RETURN(std::string role, Role());
  TWIN_RETURN_IF_ERROR(Expect(":"));
  TWIN_ASSIGN_OR_RETURN(entry.param.type, ReadParamType());
  Storage& storage = entry.param.storage;
  if (entry.param.type.is_kernel()) {
    if (Accept("in_out")) {
      storage.orientation = Orientation::kInOut;
    } else {
      TWIN_RETURN_IF_ERROR(Expect("out_in"));
    }
  }
  storage.per_expert = Accept("per_expert");
  TWIN_RETURN_IF_ERROR(Expect("="));
  Skip();
  const size_t begin = at_;
  TWIN_ASSIGN_OR_RETURN(const absl::string_view program, Balanced('(', ')'));
  absl::StatusOr<WeightPtr> weight = ParseWeight(program);
  if (!weight.ok()) {
    const std::optional<Diagnostic> inner = DiagnosticOf(weight.status());
    return Fail(begin, inner ? absl::StrCat(inner->place, ": ", inner->message)
                             : std::string(weight.status().message()));
  }
  entry.param.program = *std::move(weight);
  if (params_.emplace(role, std::move(entry)).second) return absl::OkStatus();
  return Fail(begin, absl::StrCat("two parameters @", role));
}

absl::Status GraphParser::ReadBundle() {
  Bundle bundle;
  TWIN_ASSIGN_OR_RETURN(bundle.role, Role());
  TWIN_RETURN_IF_ERROR(Expect("="));
  if (Accept("interleave")) {
    bundle.arrangement = Bundle::Arrangement::kInterleave;
  } else {
    TWIN_RETURN_IF_ERROR(Expect("concat"));
  }
  TWIN_RETURN_IF_ERROR(Expect("("));
  while (!Accept(")")) {
    if (!bundle.members.empty()) TWIN_RETURN_IF_ERROR(Expect(","));
    TWIN_ASSIGN_OR_RETURN(std::string member, Role());
    bundle.members.push_back(std::move(member));
  }
  if (Accept("shards")) {
    TWIN_ASSIGN_OR_RETURN(bundle.shards, Number());
  }
  bundles_.push_back(std::move(bundle));
  return absl::OkStatus();
}

absl::Status GraphParser::ReadStack() {
  LayerStack stack;
  TWIN_ASSIGN_OR_RETURN(stack.role, Role());
  TWIN_RETURN_IF_ERROR(Expect("="));
  TWIN_RETURN_IF_ERROR(Expect("stack"));
  TWIN_RETURN_IF_ERROR(Expect("("));
  while (!Accept(")")) {
    if (!stack.members.empty()) TWIN_RETURN_IF_ERROR(Expect(","));
    TWIN_ASSIGN_OR_RETURN(std::string member, Role());
    stack.members.push_back(std::move(member));
  }
  stacks_.push_back(std::move(stack));
  return absl::OkStatus();
}

// ---- the graph

absl::StatusOr<Graph> GraphParser::Build() {
  Builder builder(name_);
  absl::flat_hash_map<std::string, NodeId> ids;
  for (auto& [name, type] : inputs_) ids[name] = builder.Input(name, std::move(type));
  for (NodeText& node : nodes_) {
    std::vector<NodeId> operands;
    for (const std::string& operand : node.operands) {
      auto id = ids.find(operand);
      if (id == ids.end()) return Fail(node.at, absl::StrCat("no value ", operand, " before this line"));
      operands.push_back(id->second);
    }
    std::vector<std::pair<std::string, Param>> params;
    for (const auto& [slot, role] : node.params) {
      auto param = params_.find(role);
      if (param == params_.end())
        return Fail(node.at, absl::StrCat("@", role, " stands nowhere under params"));
      if (param->second.used) return Fail(node.at, absl::StrCat("@", role, " is used twice"));
      param->second.used = true;
      params.emplace_back(slot, std::move(param->second.param));
    }
    const NodeId id =
        builder.Op(node.op, node.path, std::move(operands), std::move(node.attrs), std::move(params));
    if (!node.step.empty()) builder.SetStep(id, std::move(node.step));
    ids[node.path] = id;
  }
  for (const auto& [role, entry] : params_) {
    if (!entry.used) return Fail(entry.at, absl::StrCat("no node uses @", role));
  }
  for (const auto& [name, value] : outputs_) {
    auto id = ids.find(value);
    if (id == ids.end()) return Fail(0, absl::StrCat("output ", name, ": no value ", value));
    builder.Output(name, id->second);
  }
  for (Bundle& bundle : bundles_) builder.AddBundle(std::move(bundle));
  for (LayerStack& stack : stacks_) builder.AddStack(std::move(stack));
  return builder.Finish();
}

absl::StatusOr<Graph> GraphParser::Parse() {
  TWIN_RETURN_IF_ERROR(ReadHeading());
  while (!Accept("}")) TWIN_RETURN_IF_ERROR(ReadNode());
  if (Accept("params")) {
    TWIN_RETURN_IF_ERROR(Expect("{"));
    while (!Accept("}")) TWIN_RETURN_IF_ERROR(ReadParam());
  }
  if (Accept("bundles")) {
    TWIN_RETURN_IF_ERROR(Expect("{"));
    while (!Accept("}")) TWIN_RETURN_IF_ERROR(ReadBundle());
  }
  if (Accept("stacks")) {
    TWIN_RETURN_IF_ERROR(Expect("{"));
    while (!Accept("}")) TWIN_RETURN_IF_ERROR(ReadStack());
  }
  Skip();
  if (at_ != text_.size()) return Fail(at_, "text after the graph");
  return Build();
}

absl::StatusOr<Type> GraphParser::ParseTypeAlone() {
  TWIN_ASSIGN_OR_RETURN(Type type, ReadType());
  Skip();
  if (at_ != text_.size()) return Fail(at_, "text after the type");
  return type;
}

absl::StatusOr<Graph> ParseGraph(absl::string_view text) { return GraphParser(text).Parse(); }
absl::StatusOr<Type> ParseType(absl::string_view text) { return GraphParser(text).ParseTypeAlone(); }

}  // namespace twinforge
