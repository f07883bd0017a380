#include "proof/values.h"

#include <algorithm>
#include <cmath>

#include "base/status_macros.h"

namespace twinforge {
namespace {

// Uniform in (-1, 1) has a variance of 1/3, and three times the size with one in eight made eight times as
// large: a sum of n such products with values of size 1 is sqrt(3 n) large.
int ShrinkPower(int64_t summed) {
  return static_cast<int>(std::lround(std::log2(std::sqrt(static_cast<double>(summed) * 3))));
}

// Powers of two in no order that a stride of a model has: of a row -1, 0 or 1; of one element in eight 3.
uint64_t Scattered(int64_t index) { return static_cast<uint64_t>(index + 1) * 0x9e3779b97f4a7c15u; }
int RowPower(int64_t row) { return (static_cast<int>(Scattered(row) >> 62) + 1) / 2 - 1; }
int ElementPower(int64_t at) { return Scattered(at ^ 0x5bd1) >> 61 == 5 ? 3 : 0; }

}  // namespace

absl::Status MadeTensors::ReadElements(const Weight& source, int64_t first, int64_t count,
                                       std::byte* out) const {
  TWIN_RETURN_IF_ERROR(raw_.ReadElements(source, first, count, out));
  if (!IsFloat(source.dtype()) || (source.rank() < 2 && !loud_)) return absl::OkStatus();
  const int64_t last = source.shape().empty() ? 1 : source.shape().back();
  const int matrix_power = (loud_ ? 4 : 0) - std::max(ShrinkPower(last), 0);
  const int64_t width = ElementBytes(source.dtype());
  for (int64_t i = 0; i < count; ++i) {
    std::byte* at = out + i * width;
    const int64_t index = first + i;
    const int power = source.rank() < 2 ? -2 : matrix_power + RowPower(index / last) + ElementPower(index);
    // By a power of two: nothing is rounded a second time.
    FromDouble(source.dtype(), std::ldexp(ToDouble(source.dtype(), at), power), at);
  }
  return absl::OkStatus();
}

}  // namespace twinforge
