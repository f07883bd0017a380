// Any bytes as a header: refused with a diagnostic, or the tensors tile the data exactly.
// The first two bytes choose the length of the data, so that sound headers can meet it.
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/diagnostic.h"
#include "importers/checkpoint.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const absl::string_view header(reinterpret_cast<const char*>(data) + 2, size - 2);
  const int64_t data_bytes = (data[0] - '0') * 10 + (data[1] - '0');
  const int64_t file_size = 8 + static_cast<int64_t>(header.size()) + (data_bytes < 0 ? 0 : data_bytes);
  const auto parsed = twinforge::ParseSafetensorsHeader(header, file_size, "fuzz.safetensors");
  if (!parsed.ok()) {
    TWIN_CHECK(twinforge::DiagnosticOf(parsed.status()).has_value(), "a refusal without a diagnostic");
    return 0;
  }
  int64_t end = parsed->header_bytes;
  for (const twinforge::StoredTensor& tensor : parsed->tensors) {
    TWIN_CHECK(tensor.offset == end, "a tensor that does not begin where the one before it ends");
    TWIN_CHECK(tensor.bytes == *twinforge::FileBytes(tensor.dtype, twinforge::ElementCount(tensor.shape)),
               "a tensor whose bytes are not its shape's");
    end += tensor.bytes;
  }
  TWIN_CHECK(end == file_size, "bytes without an owner");
  return 0;
}

extern const char* const kSeeds[];
extern const size_t kSeedCount;
const char* const kSeeds[] = {
    "00{}",
    "12{\"a\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]},"
    "\"b\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[8,12]}}  ",
    "03{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"F4\",\"shape\":[3,2],\"data_offsets\":[0,3]}"
    "}",
    "04{\"z\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},"
    "\"\\u0061\":{\"data_offsets\":[0,4],\"shape\":[],\"dtype\":\"I32\"}}",
};
const size_t kSeedCount = sizeof(kSeeds) / sizeof(kSeeds[0]);
