// The twin's reference/: code that reads the twin's own files and computes what it computes.
#ifndef TWINFORGE_EXPORTERS_REFERENCE_FILES_H_
#define TWINFORGE_EXPORTERS_REFERENCE_FILES_H_

#include <vector>

#include "absl/status/statusor.h"
#include "exporters/exporter.h"
#include "ir/layout.h"

namespace twinforge {

inline constexpr char kReferenceFolder[] = "reference/";

// `tensors` are the twin's, written in `layout`, or in the twin's own where that is null. A graph that no
// code is written for is absl::StatusCode::kUnimplemented with the reason in a sentence: a twin does without.
absl::StatusOr<std::vector<SmallFile>> TwinReference(const Graph& graph,
                                                     const std::vector<TwinTensor>& tensors,
                                                     const Layout* layout);

}  // namespace twinforge

#endif  // TWINFORGE_EXPORTERS_REFERENCE_FILES_H_
