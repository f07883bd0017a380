// What writing a twin and writing a source back have in common, beside the stream of tensors.
#ifndef TWINFORGE_EXPORTERS_PUBLISH_H_
#define TWINFORGE_EXPORTERS_PUBLISH_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "exporters/exporter.h"
#include "exporters/manifest.h"
#include "exporters/output_dir.h"
#include "weights/read.h"

namespace twinforge {

// The options' own, the sink for "/dev/null", or the system's.
FileSystem& FilesFor(const ExportOptions& options, const std::string& out);

// Refuses (TF1611) an output folder inside the folder that is read.
absl::Status CheckOutside(const std::string& root, const std::string& out);

// One line that changes when one of the files below `root` does: their sizes, times and inodes.
std::string StampOf(const std::string& root, const std::vector<std::string>& names);

// Every statistic that the files' programs use, each in one pass.
absl::StatusOr<StatCache> StatsOf(const std::vector<OutputFile>& files, const TensorReader& reader);

// The plan's small files, and its companions copied from `root`.
absl::StatusOr<std::vector<ManifestFile>> WriteSmallFiles(const ExportPlan& plan, const std::string& root,
                                                          OutputDir& dir);

}  // namespace twinforge

#endif  // TWINFORGE_EXPORTERS_PUBLISH_H_
