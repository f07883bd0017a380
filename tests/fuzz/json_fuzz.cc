// Any bytes: ParseJson ends, and what it accepts it writes and accepts again, unchanged.
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/diagnostic.h"
#include "base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const auto value = twinforge::ParseJson(text, "fuzz.json");
  if (!value.ok()) {
    TWIN_CHECK(twinforge::DiagnosticOf(value.status()).has_value(), "a refusal without a diagnostic");
    return 0;
  }
  const std::string once = value->Text();
  const auto again = twinforge::ParseJson(once, "fuzz.json");
  TWIN_CHECK(again.ok(), "what was written is not accepted");
  TWIN_CHECK(again->Text() == once, "written twice, and not the same");
  return 0;
}

extern const char* const kSeeds[];
extern const size_t kSeedCount;
const char* const kSeeds[] = {
    "{\"a\": [1, -2.5e-3, true, false, null, \"x\\u00e9\\ud83d\\ude00\\n\"], \"b\": {\"c\": {}, \"d\": []}}",
    "[NaN, -Infinity, 0.1, 123456789012345678901234567890]",
    "{\"architectures\": [\"LlamaForCausalLM\"], \"rope_scaling\": {\"factor\": 8.0}, \"vocab_size\": 32000}",
};
const size_t kSeedCount = sizeof(kSeeds) / sizeof(kSeeds[0]);
