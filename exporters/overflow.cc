#include "exporters/overflow.h"

#include <cmath>
#include <cstring>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "weights/rounding.h"

namespace twinforge {
namespace {

bool Computes(const Weight& w) {
  switch (w.kind()) {
    case WeightKind::kCast:
      return !IsLossless(w.child()->dtype(), w.dtype());
    case WeightKind::kMap:
    case WeightKind::kContract:
      return true;
    default:
      return false;
  }
}

bool AnyComputes(const WeightPtr& w, absl::flat_hash_set<const Weight*>& seen) {
  if (!seen.insert(w.get()).second) return false;
  if (Computes(*w)) return true;
  for (const WeightPtr& child : w->children()) {
    if (AnyComputes(child, seen)) return true;
  }
  return false;
}

// The first element at or after `from` whose exponent has all its bits, or `count`.
template <typename Word>
int64_t FirstNotFinite(const std::byte* elements, int64_t from, int64_t count, Word exponent) {
  for (int64_t i = from; i < count; ++i) {
    Word word;
    std::memcpy(&word, elements + i * static_cast<int64_t>(sizeof(Word)), sizeof(Word));
    if ((word & exponent) == exponent) return i;
  }
  return count;
}

int64_t FirstNotFinite(DType dtype, const std::byte* elements, int64_t from, int64_t count) {
  if (dtype == DType::kF16) return FirstNotFinite<uint16_t>(elements, from, count, 0x7c00);
  if (dtype == DType::kBF16) return FirstNotFinite<uint16_t>(elements, from, count, 0x7f80);
  if (dtype == DType::kF32) return FirstNotFinite<uint32_t>(elements, from, count, 0x7f800000);
  return FirstNotFinite<uint64_t>(elements, from, count, 0x7ff0000000000000);
}

// Where element `at` of `box` is in the tensor.
Box OneElement(const Box& box, int64_t at) {
  Box one = box;
  for (size_t axis = box.size.size(); axis-- > 0;) {
    one.start[axis] += at % box.size[axis];
    one.size[axis] = 1;
    at /= box.size[axis];
  }
  return one;
}

}  // namespace

bool MayOverflow(const WeightPtr& program) {
  absl::flat_hash_set<const Weight*> seen;
  return HoldsInfinity(program->dtype()) && AnyComputes(program, seen);
}

absl::Status CheckRange(const OutputTensor& tensor, const Box& box, const std::byte* elements,
                        const TensorReader& reader, const StatCache* stats) {
  const DType dtype = tensor.program->dtype();
  const int64_t count = ElementCount(box.size);
  WeightPtr exact;
  for (int64_t i = FirstNotFinite(dtype, elements, 0, count); i < count;
       i = FirstNotFinite(dtype, elements, i + 1, count)) {
    if (exact == nullptr) exact = Unrounded(tensor.program, Selections::kAsMade);
    const Box one = OneElement(box, i);
    double value = 0;
    Scratch scratch;
    TWIN_RETURN_IF_ERROR(Read(exact, one, reader, reinterpret_cast<std::byte*>(&value), scratch, stats));
    if (!std::isfinite(value)) continue;
    return Error(1613, tensor.name,
                 absl::StrCat("element [", absl::StrJoin(one.start, ", "), "] would be ", value,
                              ", which is beyond the largest number of ", Name(dtype)),
                 "leave out the step that scales it (--skip-step), or begin the recipe with cast_weights "
                 "{ to: \"f32\" }");
  }
  return absl::OkStatus();
}

}  // namespace twinforge
