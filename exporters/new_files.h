// Files said as stretches (onnx/new_file.h) written below a new folder, which appears whole or not at all.
//
//   OUT.partial/   while they are written; each file synced, then the folder
//   OUT/           after one rename, which replaces nothing
//
// What is copied from a file stays in the kernel, and its holes stay holes; what a program makes is read tile
// by tile. So memory is a tile's, whatever the files' sizes, and a file costs the time of the bytes that it
// has.
#ifndef TWINFORGE_EXPORTERS_NEW_FILES_H_
#define TWINFORGE_EXPORTERS_NEW_FILES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "exporters/file_system.h"
#include "onnx/new_file.h"
#include "weights/read.h"

namespace twinforge {

struct WrittenBytes {
  int64_t text = 0;    // said in the plan
  int64_t copied = 0;  // from file to file, holes not counted
  int64_t holes = 0;   // that were left out
  int64_t made = 0;    // by programs
};

// `reader` is what programs read; it may be nullptr where there are none. TF1608 where something has the name
// or that of a run that was cut short, TF1205 where a source changed meanwhile, TF1613 where a weight
// overflows.
absl::StatusOr<WrittenBytes> WriteNewFiles(FileSystem& files, const std::vector<NewFile>& plan,
                                           const TensorReader* reader, const std::string& out);

}  // namespace twinforge

#endif  // TWINFORGE_EXPORTERS_NEW_FILES_H_
