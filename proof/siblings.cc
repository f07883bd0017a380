#include "proof/siblings.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "proof/algebra.h"
#include "proof/cut_out.h"
#include "proof/layers.h"
#include "weights/text.h"

namespace twinforge {
namespace {

// ".3." -> ".*.": roles and stored names alike.
std::string Anonymous(const std::string& text, int64_t layer) {
  return absl::StrReplaceAll(text, {{absl::StrCat(".", layer, "."), ".*."}});
}

std::string FormOf(const Graph& graph, const std::string& role, int64_t layer) {
  const Param* param = graph.FindParam(role);
  if (param == nullptr) return "";
  return absl::StrCat(Text(param->type), " ", Anonymous(Text(param->program), layer));
}

// A block of the same kind in another layer: the same op and attributes in the source, computed alike.
bool IsSoundSibling(const Graph& source, const Graph& twin, const Node& faulty, const Node& other,
                    uint64_t seed) {
  if (other.path == faulty.path || WithoutLayer(other.path) != WithoutLayer(faulty.path)) return false;
  if (other.attrs->SerializeAsString() != faulty.attrs->SerializeAsString()) return false;
  if (twin.FindNode(other.path) == nullptr) return false;
  const absl::StatusOr<Graph> a = CutOutNode(source, other.path), b = CutOutNode(twin, other.path);
  if (!a.ok() || !b.ok()) return false;
  const absl::StatusOr<FunctionDifference> found = CompareFunctions(*a, *b, seed);
  return found.ok() && !found->differs;
}

}  // namespace

std::vector<std::string> OddOnes(const Graph& source, const Graph& twin, const std::string& path,
                                 std::vector<std::string> roles, uint64_t seed) {
  const Node* faulty = source.FindNode(path);
  const Node* changed = twin.FindNode(path);
  const int64_t layer = LayerIndex(path);
  if (faulty == nullptr || changed == nullptr || layer < 0 || roles.size() < 2) return roles;
  for (const Node& other : source.nodes()) {
    if (!IsSoundSibling(source, twin, *faulty, other, seed)) continue;
    const int64_t its_layer = LayerIndex(other.path);
    std::vector<std::string> odd;
    for (const std::string& role : roles) {
      if (role == path) {
        if (changed->attrs->SerializeAsString() != twin.FindNode(other.path)->attrs->SerializeAsString())
          odd.push_back(role);
        continue;
      }
      const std::string its = absl::StrReplaceAll(role, {{LayerName(path), LayerName(other.path)}});
      if (FormOf(twin, role, layer) != FormOf(twin, its, its_layer)) odd.push_back(role);
    }
    return odd.empty() ? roles : odd;
  }
  return roles;
}

}  // namespace twinforge
