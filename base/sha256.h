// SHA-256, in hexadecimal, of bytes that arrive in pieces.
#ifndef TWINFORGE_BASE_SHA256_H_
#define TWINFORGE_BASE_SHA256_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace twinforge {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void Add(const void* bytes, int64_t count);
  std::string Finish();  // 64 lower-case digits; the object begins anew

 private:
  void* context_;  // OpenSSL's EVP_MD_CTX
};

std::string Sha256Hex(absl::string_view bytes);

}  // namespace twinforge

#endif  // TWINFORGE_BASE_SHA256_H_
