#include "proof/departure.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/json_reader.h"
#include "weights/text.h"

namespace twinforge {
namespace {

constexpr size_t kBefore = 30, kAfter = 80;  // bytes that are shown on both sides of a difference

std::string AttrsText(const Node& node) {
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  std::string text;
  printer.PrintToString(*node.attrs, &text);
  return text;
}

std::vector<std::string> OperandPaths(const Graph& graph, const Node& node) {
  std::vector<std::string> paths;
  for (const NodeId operand : node.operands) paths.push_back(graph.node(operand).path);
  return paths;
}

std::string StorageText(const Storage& storage) {
  return absl::StrCat("orientation ", static_cast<int>(storage.orientation), ", per expert ",
                      storage.per_expert ? "yes" : "no");
}

std::string ParamDifference(const Param& said, const Param& is) {
  if (!(said.type == is.type)) return PartedLines(Text(said.type), Text(is.type));
  if (said.program != is.program) return PartedLines(Text(said.program), Text(is.program));
  return PartedLines(StorageText(said.storage), StorageText(is.storage));
}

// How the block itself differs; nothing where it does not.
std::optional<std::string> NodeDifference(const Graph& said_graph, const Node& said, const Graph& is_graph,
                                          const Node& is) {
  if (said.op != is.op) return PartedLines(Info(said.op).name, Info(is.op).name);
  const std::vector<std::string> a = OperandPaths(said_graph, said), b = OperandPaths(is_graph, is);
  if (a != b) return PartedLines(absl::StrJoin(a, ", "), absl::StrJoin(b, ", "));
  if (said.attrs->SerializeAsString() != is.attrs->SerializeAsString())
    return PartedLines(AttrsText(said), AttrsText(is));
  if (said.step != is.step) return PartedLines(absl::StrCat("by ", said.step), absl::StrCat("by ", is.step));
  if (said.params != is.params) {
    const auto slots = absl::PairFormatter("=");
    return PartedLines(absl::StrJoin(said.params, " ", slots), absl::StrJoin(is.params, " ", slots));
  }
  return std::nullopt;
}

std::string Around(absl::string_view line, size_t at) {
  const size_t from = at > kBefore ? at - kBefore : 0;
  const absl::string_view shown = line.substr(std::min(from, line.size()), kBefore + kAfter);
  return absl::StrCat(from > 0 ? "..." : "", JsonQuoted(shown),
                      from + shown.size() < line.size() ? "..." : "");
}

}  // namespace

std::string PartedLines(absl::string_view said, absl::string_view is) {
  if (said == is) return "";
  size_t at = 0;
  while (at < said.size() && at < is.size() && said[at] == is[at]) ++at;
  return absl::StrCat("the manifest says ", Around(said, at), ", it is ", Around(is, at));
}

std::optional<GraphDeparture> FirstDeparture(const Graph& said, const Graph& is) {
  for (const Node& node : said.nodes()) {
    const Node* other = is.FindNode(node.path);
    if (other == nullptr) return GraphDeparture{node, node.path, "there is no such block"};
    std::optional<std::string> difference = NodeDifference(said, node, is, *other);
    if (difference) return GraphDeparture{node, node.path, *std::move(difference)};
    for (const auto& [slot, role] : node.params) {
      const Param &a = *said.FindParam(role), &b = *is.FindParam(role);
      if (a.program == b.program && a.type == b.type && a.storage == b.storage) continue;
      return GraphDeparture{node, role, ParamDifference(a, b)};
    }
  }
  for (const Node& node : is.nodes()) {
    if (said.FindNode(node.path) == nullptr)
      return GraphDeparture{node, node.path, "the manifest lacks this block"};
  }
  return std::nullopt;
}

}  // namespace twinforge
