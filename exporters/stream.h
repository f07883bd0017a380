// The driver that turns planned files into bytes on disk, in bounded memory.
//
//   worker: next group -> read or recompute -> write -> journal -> hash in order
//
// A *group* is a contiguous range of a file, about 4 MiB: some whole small tensors, or a
// tile of a large one. Workers take groups in file order, so that a group's predecessor
// is always done or being done, and hashing in order can wait without deadlock. What is
// written where was fixed before; so bytes do not depend on workers, budget or luck.
#ifndef TWINFORGE_EXPORTERS_STREAM_H_
#define TWINFORGE_EXPORTERS_STREAM_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "exporters/exporter.h"
#include "exporters/output_dir.h"
#include "weights/read.h"

namespace twinforge {

struct StreamRequest {
  const std::vector<OutputFile>& files;
  const TensorReader& reader;
  const StatCache* stats = nullptr;
  int workers = 1;
  int64_t share = 0;       // memory of one worker
  int64_t tile_bytes = 0;  // of a group, where nothing forces a larger one
};

struct StreamResult {
  std::vector<FinishedFile> files;  // as in the request
  int64_t bytes_written = 0;
  int64_t bytes_reused = 0;
  int64_t peak_scratch_bytes = 0;  // of one worker
};

// All files of the request, in `dir`, synced and noted as finished; or the first failure.
absl::StatusOr<StreamResult> StreamFiles(const StreamRequest& request, OutputDir& dir,
                                         const std::function<void(const Progress&)>& progress);

// Memory that one worker takes at worst with this share, as StreamFiles will use it; above
// `share` where some tensor can't be cut small enough, whose name is then in `*hardest`.
int64_t WorkerBytes(const std::vector<OutputFile>& files, int64_t share, int64_t tile_bytes,
                    std::string* hardest);

}  // namespace twinforge

#endif  // TWINFORGE_EXPORTERS_STREAM_H_
