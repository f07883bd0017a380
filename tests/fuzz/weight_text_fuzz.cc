// Any bytes: ParseWeight ends; what it accepts is printed and read back as the same object,
// and simplified twice is what it is simplified once.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "base/diagnostic.h"
#include "weights/simplify.h"
#include "weights/text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<twinforge::WeightPtr> w = twinforge::ParseWeight(text);
  if (!w.ok()) {
    TWIN_CHECK(twinforge::DiagnosticOf(w.status()).has_value(), "a refusal without a diagnostic");
    return 0;
  }
  const absl::StatusOr<twinforge::WeightPtr> again = twinforge::ParseWeight(twinforge::Text(*w));
  TWIN_CHECK(again.ok(), "what was printed is not accepted");
  TWIN_CHECK(*again == *w, "printed and read back, and not the same");
  const twinforge::WeightPtr simple = twinforge::Simplify(*w);
  TWIN_CHECK(simple->shape() == (*w)->shape() && simple->dtype() == (*w)->dtype(),
             "simplified to another type");
  TWIN_CHECK(twinforge::Simplify(simple) == simple, "simplified twice, and not the same");
  return 0;
}

extern const char* const kSeeds[];
extern const size_t kSeedCount;
const char* const kSeeds[] = {
    "take(source(\"q\": bf16[8, 6]), 0, [0:4 fill:4] x 2, -inf)",
    "reshape(transpose(take(transpose(reshape(source(\"q\": bf16[8, 6]), [2, 4, 6]), [2, 0, 1]), 2, [0:4 "
    "fill:4]), "
    "[1, 2, 0]), [16, 6])",
    "concat(0, source(\"x\": f32[2, 4]), fill(1: f32[3, 4]), take(source(\"x\": f32[2, 4]), 0, [1 0]))",
    "mul(cast(source(\"x\\u00e9\": f8_e4m3[4, 6]), f32), stat(absmax, contract(source(\"a\": f32[4, 2]), "
    "source(\"b\": f32[2, 6])), [0, 1]))",
    "add(keep(source(\"x\": f32[4, 6]), 1, 2 of 3), codes(scale(source(\"y\": f32[4, 12]), 1, 2, i8), 0, 2, "
    "f4))",
    "take(concat(1, take(source(\"x\": i64[4]), 0, [(0 2) x 2 by 1 5*3]), fill(nan: i64[7])), 0, [6:-1:-2])",
};
const size_t kSeedCount = sizeof(kSeeds) / sizeof(kSeeds[0]);
