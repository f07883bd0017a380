#include "onnx/checksum.h"

#include <openssl/evp.h>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/diagnostic.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "onnx/message_parts.h"
#include "onnx/onnx-ml.pb.h"
#include "onnx/tensor_data.h"

namespace twinforge {
namespace {

constexpr int64_t kPiece = int64_t{1} << 20;

absl::StatusOr<std::string> Sha1Of(const ReadableFile& file) {
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  TWIN_CHECK(context != nullptr && EVP_DigestInit_ex(context.get(), EVP_sha1(), nullptr) == 1,
             "OpenSSL has SHA-1");
  std::vector<std::byte> piece(static_cast<size_t>(std::min(kPiece, file.size())));
  for (int64_t at = 0; at < file.size(); at += kPiece) {
    const int64_t count = std::min(kPiece, file.size() - at);
    TWIN_RETURN_IF_ERROR(file.ReadAt(at, count, piece.data()));
    TWIN_CHECK(EVP_DigestUpdate(context.get(), piece.data(), static_cast<size_t>(count)) == 1,
               "OpenSSL takes bytes");
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  TWIN_CHECK(EVP_DigestFinal_ex(context.get(), digest, &size) == 1, "OpenSSL gives a digest");
  TWIN_RETURN_IF_ERROR(file.CheckUnchanged());
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest), size));
}

}  // namespace

absl::StatusOr<int64_t> CheckChecksums(const OnnxMessage& message) {
  std::map<std::string, std::string> checksums;  // by location
  absl::Status status;
  ForEachTensor(*message.proto, [&](const ::onnx::TensorProto& tensor) {
    std::string location, checksum;
    for (const auto& entry : tensor.external_data()) {
      if (entry.key() == "location") location = entry.value();
      if (entry.key() == "checksum") checksum = absl::AsciiStrToLower(entry.value());
    }
    if (checksum.empty() || tensor.data_location() != ::onnx::TensorProto::EXTERNAL || !status.ok()) return;
    const std::string place = absl::StrCat(message.path, ": tensor ", JsonQuoted(tensor.name(), 200));
    status =
        CheckTensor(tensor, *message.files, place);  // opens its file; nobody has looked at those of training
    const auto [known, is_new] = checksums.emplace(location, checksum);
    if (is_new || known->second == checksum || !status.ok()) return;
    status = Error(2004, place,
                   absl::StrCat("external data names another checksum of ", JsonQuoted(location, 200),
                                " than a tensor before it"));
  });
  TWIN_RETURN_IF_ERROR(status);
  for (const auto& [location, checksum] : checksums) {
    ExternalPlace at;
    at.location = location;
    TWIN_ASSIGN_OR_RETURN(const std::string found, Sha1Of(message.files->FileOf(at)));
    if (found == checksum) continue;
    return Error(2021, absl::StrCat(message.path, ": data file ", JsonQuoted(location, 200)),
                 absl::StrCat("has SHA-1 ", found, "; the model says ", JsonQuoted(checksum, 60)));
  }
  return static_cast<int64_t>(checksums.size());
}

}  // namespace twinforge
