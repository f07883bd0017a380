// XXH3, 128 bits, of tensors that pass by in pieces.
//
// Beside SHA-256, which signs each file, tensors get a hash that costs next to nothing: two passes of
// SHA-256 would make hashing, not the disk, the limit.
#ifndef TWINFORGE_EXPORTERS_TENSOR_HASH_H_
#define TWINFORGE_EXPORTERS_TENSOR_HASH_H_

#include <xxhash.h>

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace twinforge {

class TensorHash {
 public:
  TensorHash() : state_(XXH3_createState()) { XXH3_128bits_reset(state_); }
  ~TensorHash() { XXH3_freeState(state_); }
  TensorHash(const TensorHash&) = delete;
  TensorHash& operator=(const TensorHash&) = delete;

  void Add(const void* bytes, int64_t count) { XXH3_128bits_update(state_, bytes, count); }
  // 32 digits, and ready for the next tensor.
  std::string Finish() {
    XXH128_hash_t hash = XXH3_128bits_digest(state_);
    XXH3_128bits_reset(state_);
    return absl::StrCat(absl::Hex(hash.high64, absl::kZeroPad16), absl::Hex(hash.low64, absl::kZeroPad16));
  }

 private:
  XXH3_state_t* state_;
};

}  // namespace twinforge

#endif  // TWINFORGE_EXPORTERS_TENSOR_HASH_H_
