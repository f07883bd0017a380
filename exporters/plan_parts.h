// The parts of an export plan that do not depend on what is written: memory, digest, index.
#ifndef TWINFORGE_EXPORTERS_PLAN_PARTS_H_
#define TWINFORGE_EXPORTERS_PLAN_PARTS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "exporters/exporter.h"

namespace twinforge {

// What the process needs beside its workers, with so many tensors known by name.
int64_t FixedBytes(int64_t tensors);

// Divides the budget: as many workers as asked for, fewer where a tensor needs more room than a share. Fills
// workers, share, peak_bytes and what is worth a warning. TF1604 names the least budget that works.
absl::Status PlanMemory(int64_t source_tensors, const ExportOptions& options, ExportPlan& plan);

// Over all that will be written and what it is read from; not over budget or threads.
std::string DigestOf(const ExportPlan& plan, const std::vector<SourceFile>& sources);

// model.safetensors.index.json.
std::string IndexText(const std::vector<OutputFile>& files);

}  // namespace twinforge

#endif  // TWINFORGE_EXPORTERS_PLAN_PARTS_H_
