// A safetensors checkpoint, opened by its headers and checked whole before any use.
//
//   folder/                                   or one file
//     config.json
//     model.safetensors                       or model-0000k-of-0000n.safetensors
//                                             + model.safetensors.index.json
//
// Promise: no tensor byte is read by Open(); every rule of the format is checked (sizes,
// order, overlaps, holes, duplicate keys, names, dtypes), index and shards are compared
// both ways, and nothing outside the checkpoint's root is followed. Symlinks are allowed where the
// Hub's cache puts them (snapshots/<rev>/x -> ../../blobs/<sha>); others that leave the
// root are refused. Errors name file, tensor and both numbers.
#ifndef TWINFORGE_IMPORTERS_CHECKPOINT_H_
#define TWINFORGE_IMPORTERS_CHECKPOINT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/file.h"
#include "importers/file_pool.h"
#include "weights/read.h"

namespace twinforge {

struct StoredTensor {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  int32_t file = 0;    // index into Checkpoint::files()
  int64_t offset = 0;  // of the first byte, from the start of the file
  int64_t bytes = 0;
};

struct StoredFile {
  std::string name;           // relative to the root: "model-00001-of-00002.safetensors"
  std::string path;           // to open
  int64_t header_bytes = 0;   // 8 + N: where data begins
  std::string header_sha256;  // hex, of the first header_bytes bytes
  FileIdentity identity;
  std::map<std::string, std::string> metadata;
};

// One safetensors header, parsed strictly. `file_size` is the whole file's. `place` names the file.
struct ParsedHeader {
  std::vector<StoredTensor> tensors;  // ascending by offset; file is 0
  std::map<std::string, std::string> metadata;
  int64_t header_bytes = 0;
};
// `header` is N bytes of JSON (after the 8-byte length).
absl::StatusOr<ParsedHeader> ParseSafetensorsHeader(absl::string_view header, int64_t file_size,
                                                    absl::string_view place);

class Checkpoint : public TensorReader {
 public:
  // A folder, a single .safetensors file, or an index file. config.json is not read here.
  static absl::StatusOr<std::shared_ptr<const Checkpoint>> Open(const std::string& path);

  const std::string& root() const { return root_; }  // folder that holds the files
  const std::vector<StoredFile>& files() const { return files_; }
  const std::vector<StoredTensor>& tensors() const { return tensors_; }  // ascending by name
  const StoredTensor* Find(absl::string_view name) const;
  int64_t total_bytes() const;  // of tensor data
  // What was odd but is allowed (total_size of an index absent or wrong by the wild's habits): shown once by
  // the CLI.
  const std::vector<std::string>& warnings() const { return warnings_; }

  absl::Status ReadElements(const Weight& source, int64_t first, int64_t count,
                            std::byte* out) const override;
  // Fails if any file changed since Open().
  absl::Status CheckUnchanged() const override;
  std::vector<std::string> Files() const override;

 private:
  Checkpoint() = default;
  std::string root_;
  std::vector<StoredFile> files_;
  FilePool pool_;  // numbered as files_
  std::vector<StoredTensor> tensors_;
  absl::flat_hash_map<std::string, int64_t> by_name_;
  std::vector<std::string> warnings_;
};

// What a scan of the values found in one tensor; for `inspect --integrity`.
struct IntegrityRow {
  std::string tensor;
  std::string file;
  std::string finding;  // "all zero", "constant 0.5", "12 NaN", "3 Inf"
};
// Reads every tensor once, in blocks of at most `block_bytes`, on `threads` threads.
absl::StatusOr<std::vector<IntegrityRow>> ScanIntegrity(const Checkpoint& checkpoint, int threads,
                                                        int64_t block_bytes = 8 << 20);

}  // namespace twinforge

#endif  // TWINFORGE_IMPORTERS_CHECKPOINT_H_
