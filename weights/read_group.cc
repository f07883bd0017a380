// Groups of neighbours along an axis: kept, scaled, coded. And how values get to doubles
// and back.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/status_macros.h"
#include "weights/read_walk.h"

namespace twinforge {
namespace {

const std::byte* Raw(const double* values) { return reinterpret_cast<const std::byte*>(values); }
std::byte* Raw(double* values) { return reinterpret_cast<std::byte*>(values); }

// The float next to `value` in the direction that leaves a later rounding right: towards
// zero, with the last bit set where anything was cut off (rounding to odd).
float RoundToOdd(double value) {
  const float near = static_cast<float>(value);
  uint32_t bits = std::bit_cast<uint32_t>(near);
  bits -= std::abs(static_cast<double>(near)) > std::abs(value) ? 1 : 0;
  bits |= static_cast<double>(near) != value ? 1 : 0;
  return std::bit_cast<float>(bits);
}

// The largest finite value of a type that a group may be quantised to.
double LargestValue(DType dtype) {
  double largest = 0;
  if (ElementBytes(dtype) == 1) {
    const int64_t codes = int64_t{1} << BitWidth(dtype);
    for (int64_t code = 0; code < codes; ++code) {
      const std::byte element = static_cast<std::byte>(code);
      const double value = ToDouble(dtype, &element);
      if (std::isfinite(value)) largest = std::max(largest, value);
    }
    return largest;
  }
  // Wider types: the greatest value that a double below infinity rounds to.
  std::byte element[8];
  FromDouble(dtype,
             dtype == DType::kF16    ? 65504.0
             : dtype == DType::kBF16 ? 0x1.fep127
             : dtype == DType::kF32  ? static_cast<double>(std::numeric_limits<float>::max())
                                     : std::numeric_limits<double>::max(),
             element);
  return ToDouble(dtype, element);
}

// Whether `a` is kept before `b`, which stands after it. A NaN counts as larger than
// everything, so that damage stays visible.
bool KeptFirst(double a, double b) { return std::isnan(a) || (!std::isnan(b) && std::abs(a) >= std::abs(b)); }

// Which elements of a group stay: the `keep` of largest magnitude, the first of equals.
void KeepLargest(const std::vector<double>& values, int64_t keep, std::vector<int64_t>& order,
                 std::vector<uint8_t>& kept) {
  const int64_t size = static_cast<int64_t>(values.size());
  constexpr int64_t kFew = 16;
  if (size <= kFew) {  // count who goes first; a few comparisons and nothing to sort
    int64_t ahead[kFew] = {};
    for (int64_t i = 0; i < size; ++i) {
      for (int64_t j = i + 1; j < size; ++j) {
        const bool first = KeptFirst(values[i], values[j]);
        ahead[j] += first;
        ahead[i] += !first;
      }
    }
    for (int64_t i = 0; i < size; ++i) kept[i] = ahead[i] < keep;
    return;
  }
  for (int64_t i = 0; i < size; ++i) order[i] = i;
  std::nth_element(order.begin(), order.begin() + keep, order.end(), [&](int64_t a, int64_t b) {
    return a < b ? KeptFirst(values[a], values[b]) : b < a && !KeptFirst(values[b], values[a]);
  });
  std::fill(kept.begin(), kept.end(), 0);
  for (int64_t i = 0; i < keep; ++i) kept[order[i]] = 1;
}

// The scale of a group: its largest magnitude over the largest code, as an f32.
double GroupScaleOf(const std::vector<double>& values, double largest_code) {
  double largest = 0;
  for (double x : values) largest = Greater(largest, std::abs(x));
  return static_cast<double>(static_cast<float>(largest / largest_code));
}

// How the groups of one node are computed; made once per read, with room for one group.
class GroupRule {
 public:
  explicit GroupRule(const Weight& w)
      : w_(w),
        largest_code_(w.group_fn() == GroupFn::kKeepLargest ? 0 : LargestValue(w.group_target())),
        values_(w.group_size()),
        order_(w.group_size()),
        kept_(w.group_size()) {
    FromDouble(w.dtype(), 0, zero_);
  }

  // The group whose elements lie `stride` apart from `from` on: store(i, bytes) is called
  // for each place i of its result.
  template <typename Store>
  void Compute(DType dtype, const std::byte* from, int64_t stride, Store store) {
    const int64_t size = w_.group_size();
    for (int64_t i = 0; i < size; i += kChunk) {
      LoadDoubles(dtype, from + i * stride * ElementBytes(dtype), stride, std::min(kChunk, size - i),
                  &values_[i]);
    }
    std::byte element[8];
    switch (w_.group_fn()) {
      case GroupFn::kKeepLargest:
        KeepLargest(values_, w_.keep(), order_, kept_);
        for (int64_t i = 0; i < size; ++i)
          store(i, kept_[i] ? from + i * stride * ElementBytes(dtype) : zero_);
        return;
      case GroupFn::kScale:
        FromDouble(w_.dtype(), GroupScaleOf(values_, largest_code_), element);
        store(0, element);
        return;
      case GroupFn::kCodes: {
        const double scale = GroupScaleOf(values_, largest_code_);
        for (int64_t i = 0; i < size; ++i) {
          FromDouble(w_.dtype(), scale == 0 ? 0.0 : values_[i] / scale, element);
          store(i, element);
        }
        return;
      }
    }
  }

 private:
  const Weight& w_;
  double largest_code_;  // of kScale and kCodes
  std::byte zero_[8] = {};
  std::vector<double> values_;
  std::vector<int64_t> order_;
  std::vector<uint8_t> kept_;
};

}  // namespace

void LoadDoubles(DType dtype, const std::byte* at, int64_t stride, int64_t count, double* out) {
  if (stride == 0) {
    std::fill_n(out, count, ToDouble(dtype, at));
    return;
  }
  const int64_t bytes = ElementBytes(dtype);
  std::byte gathered[kChunk * 8];
  if (stride != 1) {
    CopyStrided({count}, at, {stride}, gathered, {1}, bytes);
    at = gathered;
  }
  if (dtype != DType::kBF16 && dtype != DType::kF16) return Convert(dtype, at, DType::kF64, Raw(out), count);
  float narrow[kChunk];  // twice as fast as straight to double
  Convert(dtype, at, DType::kF32, reinterpret_cast<std::byte*>(narrow), count);
  for (int64_t i = 0; i < count; ++i) out[i] = narrow[i];
}

void StoreDoubles(const double* values, int64_t count, DType dtype, std::byte* at, int64_t stride) {
  std::byte dense[kChunk * 8];
  const int64_t bytes = ElementBytes(dtype);
  while (count > 0) {
    const int64_t n = std::min(count, kChunk);
    std::byte* out = stride == 1 ? at : dense;
    if (dtype == DType::kBF16 || dtype == DType::kF16) {
      float narrow[kChunk];
      for (int64_t i = 0; i < n; ++i) narrow[i] = RoundToOdd(values[i]);
      Convert(DType::kF32, reinterpret_cast<const std::byte*>(narrow), dtype, out, n);
    } else {
      Convert(DType::kF64, Raw(values), dtype, out, n);
    }
    if (stride != 1) CopyStrided({n}, dense, {1}, at, {stride}, bytes);
    values += n;
    at += n * stride * bytes;
    count -= n;
  }
}

// Whole groups are read, also where the region cuts through some.
absl::Status Walk::VisitGroup(const Weight& w, const Region& region, const Target& to) {
  const Weight& x = *w.child();
  const int64_t axis = w.axis();
  const int64_t size = w.group_size();
  const int64_t x_bytes = ElementBytes(x.dtype());
  const int64_t out_bytes = ElementBytes(w.dtype());
  const int64_t out_size = w.group_fn() == GroupFn::kScale ? 1 : size;  // places of one group in the result
  // The box in groups: axis from group `first`, `count` of them.
  const int64_t first = region.start[axis] / out_size;
  const int64_t count = (region.start[axis] + region.size[axis] - 1) / out_size - first + 1;
  Ints box = region.size;
  box[axis] = count;
  const Ints block = ComputeBlock(x, box, x_bytes * size);
  const Held in(room_, Product(block) * size * x_bytes);
  GroupRule rule(w);
  return ForEachBlock(box, block, BlocksOf(x), [&](const Ints& start, const Ints& groups) -> absl::Status {
    Region part = {region.start, groups};
    for (size_t i = 0; i < groups.size(); ++i) part.start[i] += start[i];
    part.start[axis] = (first + start[axis]) * size;
    part.size[axis] = groups[axis] * size;
    TWIN_RETURN_IF_ERROR(Visit(x, part, DenseTarget(in.get(), part.size)));
    if (measuring()) return absl::OkStatus();
    const Ints dense = DenseStrides(part.size);
    StridedAxes axes;  // over groups: from the first element of each to its first place
    for (size_t i = 0; i < groups.size(); ++i) {
      const bool along = static_cast<int64_t>(i) == axis;
      axes.push_back({groups[i], dense[i] * (along ? size : 1), to.stride[i] * (along ? out_size : 1)});
    }
    Target at = Shifted(to, start);
    // `place` counts along the axis from the region's first; the first group may begin before it.
    const int64_t lead = first * out_size - region.start[axis];
    at.offset += (start[axis] * (out_size - 1) + lead) * to.stride[axis];
    const int64_t place0 = start[axis] * out_size + lead;
    int64_t index = 0;
    const int64_t inner = Product(absl::MakeSpan(groups).subspan(axis + 1));
    ForEachOffset(axes, [&](int64_t from, int64_t onto) {
      const int64_t place = place0 + index++ / inner % groups[axis] * out_size;
      rule.Compute(
          x.dtype(), in.get() + from * x_bytes, dense[axis], [&](int64_t i, const std::byte* element) {
            if (place + i < 0 || place + i >= region.size[axis]) return;
            std::memcpy(at.base + (at.offset + onto + i * to.stride[axis]) * out_bytes, element, out_bytes);
          });
    });
    return absl::OkStatus();
  });
}

}  // namespace twinforge
