// The parts of an export plan that others need too: tensors with their roles, memory, digest, index.
#ifndef TWINFORGE_EXPORTERS_PLAN_PARTS_H_
#define TWINFORGE_EXPORTERS_PLAN_PARTS_H_

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "exporters/exporter.h"
#include "ir/layout.h"

namespace twinforge {

// What the process needs beside its workers, with so many tensors known by name.
int64_t FixedBytes(int64_t tensors);

// Divides the budget: as many workers as asked for, fewer where a tensor needs more room than a share. Fills
// workers, share, peak_bytes and what is worth a warning. TF1604 names the least budget that works.
absl::Status PlanMemory(int64_t source_tensors, const ExportOptions& options, ExportPlan& plan);

// Over all that will be written and what it is read from; not over budget or threads.
std::string DigestOf(const ExportPlan& plan, const std::vector<SourceFile>& sources);

// The stored tensors of `graph` in `layout`, each with the roles that it holds. Fails as FilesFromGraph does.
absl::StatusOr<std::vector<TwinTensor>> TensorsOfLayout(const Layout& layout, const Graph& graph);

// Of the source's `companions` those that a twin carries, which has files of its own by the names in
// `written`.
std::vector<Companion> CarriedAlong(const std::vector<std::string>& companions,
                                    std::set<std::string> written);

// model.safetensors.index.json.
std::string IndexText(const std::vector<OutputFile>& files);

}  // namespace twinforge

#endif  // TWINFORGE_EXPORTERS_PLAN_PARTS_H_
