#include "proof/shrink.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "proof/layers.h"

namespace twinforge {
namespace {

// Axes whose extent no constant of a model follows from.
bool MayShrink(const std::string& axis) {
  static const std::set<std::string> kAxes = {"d_model",   "heads",     "kv_heads",  "d_ff",
                                              "shared_ff", "vocab",     "expert",    "q_lora",
                                              "kv_lora",   "positions", "key_heads", "types"};
  return kAxes.count(axis) > 0;
}

// The text of a node that does not know its layer.
std::string KindOf(const Graph& graph, const Node& node) {
  std::string text = absl::StrCat(WithoutLayer(node.path), " ", Info(node.op).name, " ",
                                  node.attrs->SerializeAsString(), " by ", node.step);
  for (const auto& [slot, role] : node.params) {
    const Param& param = *graph.FindParam(role);
    absl::StrAppend(&text, " ", slot, "=", Text(param.type), " ", static_cast<int>(param.storage.orientation),
                    param.storage.per_expert);
    if (const Bundle* bundle = graph.BundleOf(role); bundle != nullptr)
      absl::StrAppend(&text, " in ", static_cast<int>(bundle->arrangement), " of ", bundle->shards);
  }
  return text;
}

std::map<int64_t, std::string> KindsOfLayers(const Graph& graph) {
  std::map<int64_t, std::string> kinds;
  for (const Node& node : graph.nodes()) {
    const int64_t layer = LayerIndex(node.path);
    if (layer >= 0) absl::StrAppend(&kinds[layer], KindOf(graph, node), "\n");
  }
  return kinds;
}

// How one parameter was rewritten, extents aside: "in_out; d_model -> heads padded, head_dim".
std::string ShapeOfRewrite(const Graph& graph, const Param& param) {
  std::string text = absl::StrCat(static_cast<int>(param.storage.orientation), param.storage.per_expert,
                                  param.type.lead, ";", param.type.in, "->");
  for (const ParamAxis& axis : param.type.axes)
    absl::StrAppend(&text, " ", axis.name, axis.padded() ? "+" : "", "@", axis.shards);
  if (const Bundle* bundle = graph.BundleOf(param.role); bundle != nullptr)
    absl::StrAppend(&text, " in ", bundle->role, static_cast<int>(bundle->arrangement), " of ",
                    bundle->shards);
  return text;
}

// The least extent that leaves `size`'s remainder by `modulus` and is not below `least`.
int64_t Congruent(int64_t size, int64_t modulus, int64_t least) {
  int64_t small = size % modulus;
  if (small < least) small += (least - small + modulus - 1) / modulus * modulus;
  return small;
}

std::set<int64_t> TopKs(const Graph& graph) {
  std::set<int64_t> all = {1};
  for (const Node& node : graph.nodes()) {
    if (node.attrs->has_moe()) all.insert(node.attrs->moe().top_k());
  }
  return all;
}

// Every (axis, extent) of the source that may shrink, the most elements first.
std::vector<AxisExtent> ExtentsOf(const Graph& source, const std::set<int64_t>& layers) {
  std::map<AxisExtent, int64_t> elements;
  for (const Node& node : source.nodes()) {
    const int64_t layer = LayerIndex(node.path);
    if (layer >= 0 && layers.count(layer) == 0) continue;
    for (const auto& [slot, role] : node.params) {
      const ParamType& type = source.FindParam(role)->type;
      for (const ParamAxis& axis : type.axes) {
        if (MayShrink(axis.name)) elements[{axis.name, axis.size}] += ElementCount(type.shape());
      }
    }
  }
  std::vector<AxisExtent> extents;
  for (const auto& [extent, count] : elements) extents.push_back(extent);
  std::stable_sort(extents.begin(), extents.end(),
                   [&](const AxisExtent& a, const AxisExtent& b) { return elements[a] > elements[b]; });
  return extents;
}

class Shrinker {
 public:
  explicit Shrinker(const ShrinkRequest& request) : request_(request) {}

  absl::StatusOr<ShrunkModel> Run() {
    form_.layers = request_.layers;
    TWIN_ASSIGN_OR_RETURN(best_.source, Shrunk(request_.source, form_));
    TWIN_ASSIGN_OR_RETURN(best_.twin, request_.run(best_.source));
    const std::string unlike = UnlikeTwin(request_.twin, best_.twin);
    if (!unlike.empty())
      return Error(1501, unlike, "the recipe does something else here when layers are left out");
    for (const AxisExtent& extent : ExtentsOf(request_.source, form_.layers)) {
      // Query heads shrink with the key/value heads that they share.
      if (extent.first == "heads" && HasGroups(extent.second)) continue;
      ShrinkAxis(extent);
    }
    best_.form = form_;
    best_.text = Describe();
    return std::move(best_);
  }

 private:
  // Whether some attention has `heads` query heads over key/value heads.
  bool HasGroups(int64_t heads) const { return !KvHeadsOf(heads).empty(); }
  std::set<int64_t> KvHeadsOf(int64_t heads) const { return Partners("heads", heads, "kv_heads"); }

  // Extents of axis `other` in blocks where axis `name` has extent `size`.
  std::set<int64_t> Partners(const std::string& name, int64_t size, const std::string& other) const {
    std::set<int64_t> found;
    for (const Node& node : request_.source.nodes()) {
      bool has = false;
      std::set<int64_t> others;
      for (const auto& [slot, role] : node.params) {
        for (const ParamAxis& axis : request_.source.FindParam(role)->type.axes) {
          has = has || (axis.name == name && axis.size == size);
          if (axis.name == other) others.insert(axis.size);
        }
      }
      if (has) found.insert(others.begin(), others.end());
    }
    return found;
  }

  void ShrinkAxis(const AxisExtent& extent) {
    for (int64_t size : Candidates(extent)) {
      SmallForm form = form_;
      form.extents[extent] = size;
      if (extent.first == "kv_heads" && !FollowGroups(extent.second, size, form)) continue;
      if (TryForm(form)) return;
    }
  }

  // heads = groups x kv_heads keeps the size of a group.
  bool FollowGroups(int64_t kv_heads, int64_t small, SmallForm& form) const {
    for (int64_t heads : Partners("kv_heads", kv_heads, "heads")) {
      if (KvHeadsOf(heads).size() != 1 || heads % kv_heads != 0) return false;
      form.extents[{"heads", heads}] = heads / kv_heads * small;
    }
    return true;
  }

  // Smaller extents, least first.
  std::vector<int64_t> Candidates(const AxisExtent& extent) const {
    const auto& [name, size] = extent;
    int64_t least = name == "kv_heads" || name == "heads" ? std::min<int64_t>(2, size) : 2;
    if (name == "expert") least = *TopKs(request_.source).rbegin() + 1;
    if (name == "vocab") least = 16;
    if (name == "positions") least = 32;
    if (name == "d_model") least = 8;
    std::set<int64_t> sizes;
    const auto held = request_.held.find(name);
    for (int64_t modulus : request_.moduli) {
      if (held != request_.held.end()) modulus = std::lcm(modulus, held->second);
      const int64_t small = Congruent(size, modulus, least);
      if (small < size) sizes.insert(small);
      if (small + modulus < size) sizes.insert(small + modulus);
    }
    return {sizes.begin(), sizes.end()};
  }

  bool TryForm(const SmallForm& form) {
    absl::StatusOr<Graph> source = Shrunk(request_.source, form);
    if (!source.ok()) return false;
    absl::StatusOr<Graph> twin = request_.run(*source);
    if (!twin.ok() || !UnlikeTwin(request_.twin, *twin).empty()) return false;
    best_.source = *std::move(source);
    best_.twin = *std::move(twin);
    form_ = form;
    return true;
  }

  std::string Describe() const {
    std::vector<std::string> axes;
    for (const auto& [extent, small] : form_.extents) {
      axes.push_back(absl::StrCat(extent.first, " ", extent.second, " -> ", small));
    }
    const size_t all = KindsOfLayers(request_.source).size();
    return absl::StrCat(form_.layers.size(), " of ", all, " layers", axes.empty() ? "" : "; ",
                        absl::StrJoin(axes, ", "));
  }

  const ShrinkRequest& request_;
  SmallForm form_;
  ShrunkModel best_;
};

}  // namespace

std::set<int64_t> LayersOfEachKind(const Graph& source, const Graph& twin) {
  std::map<int64_t, std::string> kinds = KindsOfLayers(source);
  for (const auto& [layer, kind] : KindsOfLayers(twin)) absl::StrAppend(&kinds[layer], kind);
  std::set<std::string> seen;
  std::set<int64_t> kept;
  for (const auto& [layer, kind] : kinds) {
    if (seen.insert(kind).second) kept.insert(layer);
  }
  if (!kinds.empty()) kept.insert(kinds.rbegin()->first);
  return kept;
}

std::string UnlikeTwin(const Graph& real, const Graph& small) {
  for (const Node& node : small.nodes()) {
    const Node* twin = real.FindNode(node.path);
    if (twin == nullptr || twin->op != node.op || twin->step != node.step || twin->params != node.params)
      return node.path;
    for (const auto& [slot, role] : node.params) {
      if (ShapeOfRewrite(real, *real.FindParam(role)) != ShapeOfRewrite(small, *small.FindParam(role)))
        return role;
    }
  }
  return "";
}

absl::StatusOr<ShrunkModel> ShrinkModel(const ShrinkRequest& request) { return Shrinker(request).Run(); }

}  // namespace twinforge
