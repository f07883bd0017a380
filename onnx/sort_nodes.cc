#include <algorithm>
#include <functional>
#include <queue>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "onnx/check_graph.h"
#include "onnx/onnx-ml.pb.h"

namespace twinforge {
namespace {

// Calls `visit` with every slot that the node takes, itself or through its subgraphs.
template <typename Visit>
void ForEachTaken(const OnnxNode& node, Visit&& visit) {
  for (const int32_t slot : node.inputs) {
    if (slot >= 0) visit(slot);
  }
  for (const auto& [attribute, subgraph] : node.subgraphs) {
    for (const auto& [outer, inner] : subgraph->captures) visit(outer);
  }
}

// The nodes of a circle among those that `left` still waits for.
std::string CircleText(const OnnxGraph& graph, const std::vector<int32_t>& maker,
                       const std::vector<int32_t>& left) {
  int32_t at = 0;
  while (left[at] == 0) ++at;
  std::vector<int32_t> path;
  std::vector<bool> seen(graph.nodes.size());
  while (!seen[at]) {
    seen[at] = true;
    path.push_back(at);
    int32_t next = at;
    ForEachTaken(graph.nodes[at], [&](int32_t slot) {
      if (maker[slot] >= 0 && left[maker[slot]] > 0) next = maker[slot];
    });
    at = next;
  }
  std::string text;
  const auto begin = std::find(path.begin(), path.end(), at);
  for (auto it = begin; it != path.end() && it - begin < 5; ++it) {
    absl::StrAppend(&text, it == begin ? "" : ", ", NodeText(*graph.nodes[*it].proto));
  }
  return path.end() - begin > 5 ? absl::StrCat(text, ", ...") : text;
}

absl::Status Order(OnnxGraph& graph, const std::string& place) {
  const size_t count = graph.nodes.size();
  std::vector<int32_t> maker(graph.names.size(), -1);
  for (size_t i = 0; i < count; ++i) {
    for (const int32_t slot : graph.nodes[i].outputs) {
      if (slot >= 0) maker[slot] = static_cast<int32_t>(i);
    }
  }
  std::vector<int32_t> waits(count, 0), begin(count + 1, 0);
  bool ordered = true;
  for (size_t i = 0; i < count; ++i) {
    ForEachTaken(graph.nodes[i], [&](int32_t slot) {
      if (maker[slot] < 0) return;
      ++waits[i];
      ++begin[maker[slot] + 1];
      ordered = ordered && maker[slot] < static_cast<int32_t>(i);
    });
  }
  if (ordered) return absl::OkStatus();
  for (size_t i = 0; i < count; ++i) begin[i + 1] += begin[i];
  std::vector<int32_t> users(static_cast<size_t>(begin[count])), fill(begin.begin(), begin.end() - 1);
  for (size_t i = 0; i < count; ++i) {
    ForEachTaken(graph.nodes[i], [&](int32_t slot) {
      if (maker[slot] >= 0) users[fill[maker[slot]]++] = static_cast<int32_t>(i);
    });
  }
  std::priority_queue<int32_t, std::vector<int32_t>, std::greater<>> ready;
  for (size_t i = 0; i < count; ++i) {
    if (waits[i] == 0) ready.push(static_cast<int32_t>(i));
  }
  std::vector<int32_t> order;
  while (!ready.empty()) {
    const int32_t i = ready.top();
    ready.pop();
    order.push_back(i);
    for (int32_t k = begin[i]; k < begin[i + 1]; ++k) {
      if (--waits[users[k]] == 0) ready.push(users[k]);
    }
  }
  if (order.size() != count) {
    return Error(2002, place, absl::StrCat("nodes in a circle: ", CircleText(graph, maker, waits)));
  }
  std::vector<OnnxNode> sorted;
  sorted.reserve(count);
  for (const int32_t i : order) sorted.push_back(std::move(graph.nodes[i]));
  graph.nodes = std::move(sorted);
  return absl::OkStatus();
}

}  // namespace

absl::Status SortNodes(OnnxGraph& graph, const std::string& place) {
  const absl::Status ordered = Order(graph, place);
  if (!ordered.ok()) return ordered;
  graph.last_use.assign(graph.names.size(), -1);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    ForEachTaken(graph.nodes[i], [&](int32_t slot) { graph.last_use[slot] = static_cast<int32_t>(i); });
    for (const int32_t slot : graph.nodes[i].outputs) {
      if (slot >= 0) graph.last_use[slot] = std::max(graph.last_use[slot], static_cast<int32_t>(i));
    }
  }
  for (const int32_t slot : graph.outputs) graph.last_use[slot] = -1;
  return absl::OkStatus();
}

}  // namespace twinforge
