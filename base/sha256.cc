#include "base/sha256.h"

#include <openssl/evp.h>

#include "absl/strings/escaping.h"
#include "base/check.h"

namespace twinforge {
namespace {

EVP_MD_CTX* Context(void* context) { return static_cast<EVP_MD_CTX*>(context); }

void Begin(void* context) {
  TWIN_CHECK(EVP_DigestInit_ex(Context(context), EVP_sha256(), nullptr) == 1, "OpenSSL has no SHA-256");
}

}  // namespace

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  TWIN_CHECK(context_ != nullptr, "OpenSSL gave no context");
  Begin(context_);
}

Sha256::~Sha256() { EVP_MD_CTX_free(Context(context_)); }

void Sha256::Add(const void* bytes, int64_t count) {
  TWIN_CHECK(EVP_DigestUpdate(Context(context_), bytes, count) == 1, "OpenSSL refused bytes");
}

std::string Sha256::Finish() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  TWIN_CHECK(EVP_DigestFinal_ex(Context(context_), digest, &size) == 1, "OpenSSL gave no digest");
  Begin(context_);
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest), size));
}

std::string Sha256Hex(absl::string_view bytes) {
  Sha256 sha;
  sha.Add(bytes.data(), static_cast<int64_t>(bytes.size()));
  return sha.Finish();
}

}  // namespace twinforge
