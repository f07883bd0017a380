#include "recipes/select.h"

#include <re2/re2.h>

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "transforms/transforms.pb.h"

namespace twinforge {
namespace {

// The number in "layers.3.attn.q", or -1 outside layers.
int64_t LayerOf(absl::string_view path) {
  const std::vector<std::string> parts = absl::StrSplit(path, '.');
  int64_t layer = -1;
  if (parts.size() > 1 && parts[0] == "layers" && absl::SimpleAtoi(parts[1], &layer)) return layer;
  return -1;
}

// The node at `path`, or the one that owns the parameter `path`.
const Node* OwnerOf(const Graph& graph, absl::string_view path) {
  if (const Node* node = graph.FindNode(path)) return node;
  const size_t dot = path.rfind('.');
  return dot == absl::string_view::npos ? nullptr : graph.FindNode(path.substr(0, dot));
}

// The parameters that `path` stands for: itself, or all of its node's.
std::vector<const Param*> ParamsOf(const Graph& graph, absl::string_view path) {
  const Node* node = graph.FindNode(path);
  std::vector<const Param*> params;
  if (node == nullptr) {
    if (const Param* param = graph.FindParam(path)) params.push_back(param);
    return params;
  }
  for (const auto& [slot, role] : node->params) params.push_back(graph.FindParam(role));
  return params;
}

}  // namespace

struct Selector::Patterns {
  explicit Patterns(const std::string& path) : path(path) {}
  RE2 path;
};

Selector::Selector(const Where& where)
    : where_(std::make_unique<Where>(where)), patterns_(std::make_unique<Patterns>(where.path())) {
  selects_all_ = where.path().empty() && where.op().empty() && where.axis().empty() &&
                 where.dtype().empty() && !where.has_first_layer() && !where.has_last_layer();
}

Selector::~Selector() = default;

bool Selector::Selects(const Graph& graph, absl::string_view path) const {
  return selects_all_ || Excluded(graph, path).empty();
}

std::string Selector::Excluded(const Graph& graph, absl::string_view path) const {
  if (!where_->path().empty() && !RE2::FullMatch(std::string(path), patterns_->path)) {
    return absl::StrCat("path: \"", where_->path(), "\" does not match ", path);
  }
  const Node* owner = OwnerOf(graph, path);
  if (!where_->op().empty() && (owner == nullptr || Info(owner->op).name != where_->op())) {
    return absl::StrCat("op: ", path, " is ", owner == nullptr ? "no node" : Info(owner->op).name, ", not ",
                        where_->op());
  }
  const std::vector<const Param*> params = ParamsOf(graph, path);
  if (!where_->axis().empty()) {
    bool found = false;
    for (const Param* param : params) found |= param->type.Find(where_->axis()) >= 0;
    if (!found) return absl::StrCat("axis: ", path, " has no axis ", where_->axis());
  }
  if (!where_->dtype().empty()) {
    bool found = false;
    for (const Param* param : params) found |= Name(param->type.dtype) == where_->dtype();
    if (!found) return absl::StrCat("dtype: ", path, " holds no ", where_->dtype());
  }
  const int64_t layer = LayerOf(path);
  if (where_->has_first_layer() && layer < where_->first_layer()) {
    return absl::StrCat("first_layer: ", path, " lies before layer ", where_->first_layer());
  }
  if (where_->has_last_layer() && (layer < 0 || layer > where_->last_layer())) {
    return absl::StrCat("last_layer: ", path, " lies after layer ", where_->last_layer());
  }
  return "";
}

}  // namespace twinforge
