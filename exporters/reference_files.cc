#include "exporters/reference_files.h"

#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "reference/reference.h"
#include "weights/build.h"

namespace twinforge {
namespace {

// How the twin's files hold each role, read back by the layout that wrote them.
std::map<std::string, WeightPtr> ReadBack(const Graph& graph, const std::vector<TwinTensor>& tensors,
                                          const Layout& layout) {
  absl::flat_hash_map<absl::string_view, const Weight*> written;
  for (const TwinTensor& tensor : tensors) written[tensor.name] = tensor.program.get();
  StoredTensors stored;
  for (const LayoutTensor& entry : layout.tensors) {
    const std::string name = entry.NameAt(0);
    const auto found = written.find(name);
    if (found == written.end()) continue;
    const Weight& tensor = *found->second;
    stored[name] = entry.is_run() ? StackedSources(entry.name, 0, entry.count(), entry.name_end,
                                                   tensor.dtype(), tensor.shape())
                                  : Source(name, tensor.dtype(), tensor.shape());
  }
  std::map<std::string, ParamType> types;
  for (const auto& [role, param] : graph.params()) types[role] = param.type;
  return ProgramsFromFiles(layout, types, stored);
}

}  // namespace

absl::StatusOr<std::vector<SmallFile>> TwinReference(const Graph& graph,
                                                     const std::vector<TwinTensor>& tensors,
                                                     const Layout* layout) {
  const std::map<std::string, WeightPtr> programs =
      layout == nullptr ? RolesFromTwin(graph) : ReadBack(graph, tensors, *layout);
  TWIN_ASSIGN_OR_RETURN(std::vector<ReferenceFile> files, ReferenceFiles(graph, programs));
  std::vector<SmallFile> small;
  for (ReferenceFile& file : files) small.push_back({std::move(file.name), std::move(file.content)});
  return small;
}

}  // namespace twinforge
