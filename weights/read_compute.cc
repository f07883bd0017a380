// The verbs of the walk that compute: in f64, rounded once to the result's type.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/check.h"
#include "base/status_macros.h"
#include "weights/read_walk.h"

namespace twinforge {
namespace {

// Values pass through buffers of this many doubles on the stack, which count as no scratch.
constexpr int64_t kChunk = 512;
using Chunk = std::array<double, kChunk>;

// Operands that would be read with columns for rows are cut into fewer, larger blocks.
constexpr int64_t kTurnedBlockBytes = 16 << 20;

// Extents of the blocks of a contraction.
constexpr int64_t kContractRows = 256;
constexpr int64_t kContractColumns = 512;
constexpr int64_t kContractDepth = 256;

const std::byte* Raw(const double* values) { return reinterpret_cast<const std::byte*>(values); }
std::byte* Raw(double* values) { return reinterpret_cast<std::byte*>(values); }

// `count` elements that lie `stride` apart, as doubles. A stride of 0 repeats one.
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

// The float next to `value` in the direction that leaves a later rounding right: towards
// zero, with the last bit set where anything was cut off (rounding to odd).
float RoundToOdd(double value) {
  const float near = static_cast<float>(value);
  uint32_t bits = std::bit_cast<uint32_t>(near);
  bits -= std::abs(static_cast<double>(near)) > std::abs(value) ? 1 : 0;
  bits |= static_cast<double>(near) != value ? 1 : 0;
  return std::bit_cast<float>(bits);
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

double Apply(MapFn fn, double x, double y) {
  switch (fn) {
    case MapFn::kAdd: return x + y;
    case MapFn::kSub: return x - y;
    case MapFn::kMul: return x * y;
    case MapFn::kDiv: return x / y;
  }
  return x;
}

void ApplyAll(MapFn fn, const double* y, int64_t count, double* x) {
  switch (fn) {
    case MapFn::kAdd:
      for (int64_t i = 0; i < count; ++i) x[i] = Apply(MapFn::kAdd, x[i], y[i]);
      return;
    case MapFn::kSub:
      for (int64_t i = 0; i < count; ++i) x[i] = Apply(MapFn::kSub, x[i], y[i]);
      return;
    case MapFn::kMul:
      for (int64_t i = 0; i < count; ++i) x[i] = Apply(MapFn::kMul, x[i], y[i]);
      return;
    case MapFn::kDiv:
      for (int64_t i = 0; i < count; ++i) x[i] = Apply(MapFn::kDiv, x[i], y[i]);
      return;
  }
}

// x (op)= y for all of `size`; y's strides are 0 along the axes that it is repeated on.
void MapInPlace(MapFn fn, DType x_type, const Target& x, DType y_type, const Target& y,
                absl::Span<const int64_t> size) {
  StridedAxes axes = CoalesceByDestination(size, y.stride, x.stride);
  if (axes.empty()) axes.push_back({1, 1, 1});
  const StridedAxis fast = axes.back();
  axes.pop_back();
  const int64_t x_bytes = ElementBytes(x_type);
  const int64_t y_bytes = ElementBytes(y_type);
  Chunk a, b;
  ForEachOffset(axes, [&](int64_t y_offset, int64_t x_offset) {
    for (int64_t i = 0; i < fast.size; i += kChunk) {
      const int64_t count = std::min(kChunk, fast.size - i);
      std::byte* at = x.base + (x.offset + x_offset + i * fast.to) * x_bytes;
      LoadDoubles(x_type, at, fast.to, count, a.data());
      LoadDoubles(y_type, y.base + (y.offset + y_offset + i * fast.from) * y_bytes, fast.from, count, b.data());
      ApplyAll(fn, b.data(), count, a.data());
      StoreDoubles(a.data(), count, x_type, at, fast.to);
    }
  });
}

double StatStart(StatKind kind) {
  switch (kind) {
    case StatKind::kAbsMax:
    case StatKind::kMean:
    case StatKind::kSumSquares:
      return 0;
    case StatKind::kMin:
      return std::numeric_limits<double>::infinity();
    case StatKind::kMax:
      return -std::numeric_limits<double>::infinity();
  }
  return 0;
}

// The greater of two; once a NaN, always a NaN.
double Greater(double a, double b) { return std::isnan(a) || a >= b ? a : b; }
double Lesser(double a, double b) { return std::isnan(a) || a <= b ? a : b; }

double StatStep(StatKind kind, double sum, double x) {
  switch (kind) {
    case StatKind::kAbsMax: return Greater(sum, std::abs(x));
    case StatKind::kMean: return sum + x;
    case StatKind::kSumSquares: return sum + x * x;
    case StatKind::kMin: return Lesser(sum, x);
    case StatKind::kMax: return Greater(sum, x);
  }
  return sum;
}

void Accumulate(StatKind kind, DType dtype, const std::byte* at, const StridedAxes& all, double* sums) {
  StridedAxes axes = all;
  if (axes.empty()) axes.push_back({1, 1, 0});
  const StridedAxis fast = axes.back();
  axes.pop_back();
  const int64_t bytes = ElementBytes(dtype);
  Chunk x;
  ForEachOffset(axes, [&](int64_t from, int64_t to) {
    for (int64_t i = 0; i < fast.size; i += kChunk) {
      const int64_t count = std::min(kChunk, fast.size - i);
      LoadDoubles(dtype, at + (from + i * fast.from) * bytes, fast.from, count, x.data());
      double* sum = sums + to + i * fast.to;
      for (int64_t k = 0; k < count; ++k, sum += fast.to) *sum = StatStep(kind, *sum, x[k]);
    }
  });
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
  FromDouble(dtype, dtype == DType::kF16 ? 65504.0 : dtype == DType::kBF16 ? 0x1.fep127
             : dtype == DType::kF32 ? static_cast<double>(std::numeric_limits<float>::max())
                                    : std::numeric_limits<double>::max(), element);
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
      LoadDoubles(dtype, from + i * stride * ElementBytes(dtype), stride, std::min(kChunk, size - i), &values_[i]);
    }
    std::byte element[8];
    switch (w_.group_fn()) {
      case GroupFn::kKeepLargest:
        KeepLargest(values_, w_.keep(), order_, kept_);
        for (int64_t i = 0; i < size; ++i) store(i, kept_[i] ? from + i * stride * ElementBytes(dtype) : zero_);
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

Ints Walk::ComputeBlock(const Weight& operand, absl::Span<const int64_t> size, int64_t element_bytes) const {
  const int64_t limit = StreamsByRows(operand) ? kBlockBytes : kTurnedBlockBytes;
  return RowBlock(size, std::max<int64_t>(1, limit / element_bytes));
}

absl::Status Walk::VisitCast(const Weight& w, const Region& region, const Target& to) {
  const Weight& x = *w.child();
  if (x.dtype() == w.dtype()) return Visit(x, region, to);
  const int64_t in_bytes = ElementBytes(x.dtype());
  const int64_t out_bytes = ElementBytes(w.dtype());
  const Ints block = ComputeBlock(x, region.size, in_bytes);
  const bool rows = [&] {
    const StridedAxes axes = Coalesce(block, DenseStrides(block), to.stride);
    return axes.empty() || axes.back().to == 1;
  }();
  const Held in(room_, Product(block) * in_bytes);
  const Held turned(room_, rows ? 0 : Product(block) * out_bytes);
  return ForEachBlock(region.size, block, [&](const Ints& start, const Ints& size) -> absl::Status {
    Region part = {region.start, size};
    for (size_t i = 0; i < size.size(); ++i) part.start[i] += start[i];
    TWIN_RETURN_IF_ERROR(Visit(x, part, DenseTarget(in.get(), size)));
    if (measuring()) return absl::OkStatus();
    std::byte* out = At(Shifted(to, start), out_bytes);
    const Ints dense = DenseStrides(size);
    if (!rows) {
      Convert(x.dtype(), in.get(), w.dtype(), turned.get(), Product(size));
      CopyStrided(size, turned.get(), dense, out, to.stride, out_bytes);
      return absl::OkStatus();
    }
    StridedAxes axes = Coalesce(size, dense, to.stride);
    int64_t length = 1;
    if (!axes.empty() && axes.back().to == 1) {
      length = axes.back().size;
      axes.pop_back();
    }
    ForEachOffset(axes, [&](int64_t from, int64_t onto) {
      Convert(x.dtype(), in.get() + from * in_bytes, w.dtype(), out + onto * out_bytes, length);
    });
    return absl::OkStatus();
  });
}

// x goes straight to the destination and is changed there; only y needs room, and is
// read once where it is small (it mostly is: a scale per row, a constant).
absl::Status Walk::VisitMap(const Weight& w, const Region& region, const Target& to) {
  const Weight& x = *w.child(0);
  const Weight& y = *w.child(1);
  const int64_t lead = w.rank() - y.rank();
  const auto operand = [&](const Ints& start, const Ints& size) {
    Region part;
    for (int64_t i = 0; i < y.rank(); ++i) {
      const bool repeated = y.shape()[i] == 1;
      part.start.push_back(repeated ? 0 : start[lead + i]);
      part.size.push_back(repeated ? 1 : size[lead + i]);
    }
    return part;
  };
  const int64_t y_bytes = ElementBytes(y.dtype());
  const Ints block = ComputeBlock(w, region.size, ElementBytes(w.dtype()));
  const Region all = operand(region.start, region.size);
  const bool once = Product(all.size) * y_bytes <= kBlockBytes;
  const int64_t held = once ? Product(all.size) : Product(operand(Ints(w.rank(), 0), block).size);
  const Held factor(room_, held * y_bytes);
  if (once) TWIN_RETURN_IF_ERROR(Visit(y, all, DenseTarget(factor.get(), all.size)));

  return ForEachBlock(region.size, block, [&](const Ints& start, const Ints& size) -> absl::Status {
    Region part = {region.start, size};
    for (size_t i = 0; i < size.size(); ++i) part.start[i] += start[i];
    const Target out = Shifted(to, start);
    TWIN_RETURN_IF_ERROR(Visit(x, part, out));
    Region other = operand(part.start, size);
    if (!once) TWIN_RETURN_IF_ERROR(Visit(y, other, DenseTarget(factor.get(), other.size)));
    if (measuring()) return absl::OkStatus();
    const Ints dense = DenseStrides(once ? all.size : other.size);
    Target from = {factor.get(), 0, Ints(w.rank(), 0)};
    for (int64_t i = 0; i < y.rank(); ++i) {
      if (y.shape()[i] == 1) continue;
      from.stride[lead + i] = dense[i];
      if (once) from.offset += (other.start[i] - all.start[i]) * dense[i];
    }
    MapInPlace(w.map_fn(), w.dtype(), out, y.dtype(), from, size);
    return absl::OkStatus();
  });
}

absl::Status Walk::VisitContract(const Weight& w, const Region& region, const Target& to) {
  Ints block(w.rank(), 1);
  const int64_t m = w.rank() - 2;
  block[m] = std::min(region.size[m], kContractRows);
  block[m + 1] = std::min(region.size[m + 1], kContractColumns);
  const Held sums(room_, block[m] * block[m + 1] * static_cast<int64_t>(sizeof(double)));
  return ForEachBlock(region.size, block, [&](const Ints& start, const Ints& size) {
    Region part = {region.start, size};
    for (size_t i = 0; i < size.size(); ++i) part.start[i] += start[i];
    return ContractBlock(w, part, Shifted(to, start), reinterpret_cast<double*>(sums.get()));
  });
}

// One block of the product. Depth is walked in ascending order, so that every element is
// the same sum whatever the block it lies in.
absl::Status Walk::ContractBlock(const Weight& w, const Region& region, const Target& to, double* sums) {
  const Weight& a = *w.child(0);
  const Weight& b = *w.child(1);
  const int64_t m = w.rank() - 2;
  const int64_t rows = region.size[m];
  const int64_t columns = region.size[m + 1];
  const int64_t depth = a.shape()[m + 1];
  const int64_t step = std::min(depth, kContractDepth);
  const Held a_held(room_, rows * step * ElementBytes(a.dtype()));
  const Held b_held(room_, step * columns * ElementBytes(b.dtype()));
  if (!measuring()) std::fill_n(sums, rows * columns, 0.0);
  Region a_part = region;
  Region b_part = region;
  for (int64_t k = 0; k < depth; k += step) {
    const int64_t count = std::min(step, depth - k);
    a_part.start[m + 1] = b_part.start[m] = k;
    a_part.size[m + 1] = b_part.size[m] = count;
    TWIN_RETURN_IF_ERROR(Visit(a, a_part, DenseTarget(a_held.get(), a_part.size)));
    TWIN_RETURN_IF_ERROR(Visit(b, b_part, DenseTarget(b_held.get(), b_part.size)));
    if (measuring()) continue;
    std::array<double, kContractColumns> row;
    for (int64_t q = 0; q < count; ++q) {
      LoadDoubles(b.dtype(), b_held.get() + q * columns * ElementBytes(b.dtype()), 1, columns, row.data());
      for (int64_t i = 0; i < rows; ++i) {
        const double factor = ToDouble(a.dtype(), a_held.get() + (i * count + q) * ElementBytes(a.dtype()));
        double* sum = sums + i * columns;
        for (int64_t j = 0; j < columns; ++j) sum[j] += factor * row[j];
      }
    }
  }
  if (measuring()) return absl::OkStatus();
  const int64_t bytes = ElementBytes(w.dtype());
  for (int64_t i = 0; i < rows; ++i) {
    std::byte* out = to.base + (to.offset + i * to.stride[m]) * bytes;
    StoreDoubles(sums + i * columns, columns, w.dtype(), out, to.stride[m + 1]);
  }
  return absl::OkStatus();
}

// Sums stay in f64 and in row-major order of the operand: the blocks are runs of rows.
absl::Status Walk::VisitStat(const Weight& w, const Region& region, const Target& to) {
  const Weight& x = *w.child();
  const double* known = stats_ == nullptr ? nullptr : stats_->Find(w);
  if (known != nullptr) {
    if (measuring()) return absl::OkStatus();
    const Target from = Shifted({nullptr, 0, DenseStrides(w.shape())}, region.start);
    CopyStrided(region.size, Raw(known + from.offset), from.stride, At(to, sizeof(double)), to.stride,
                sizeof(double));
    return absl::OkStatus();
  }
  Region wanted = region;
  Ints sum_strides = DenseStrides(region.size);
  int64_t merged = 1;  // elements that one result stands for
  for (int64_t axis : w.axes()) {
    wanted.start[axis] = 0;
    wanted.size[axis] = x.shape()[axis];
    sum_strides[axis] = 0;
    merged *= x.shape()[axis];
  }
  const int64_t results = Product(region.size);
  const Held held(room_, results * static_cast<int64_t>(sizeof(double)));
  double* sums = reinterpret_cast<double*>(held.get());
  if (!measuring()) std::fill_n(sums, results, StatStart(w.stat_kind()));
  if (merged > 0) {
    const Ints block = ComputeBlock(x, wanted.size, ElementBytes(x.dtype()));
    const Held in(room_, Product(block) * ElementBytes(x.dtype()));
    TWIN_RETURN_IF_ERROR(ForEachBlock(wanted.size, block, [&](const Ints& start, const Ints& size) {
      Region part = {wanted.start, size};
      for (size_t i = 0; i < size.size(); ++i) part.start[i] += start[i];
      absl::Status status = Visit(x, part, DenseTarget(in.get(), size));
      if (!status.ok() || measuring()) return status;
      const Target at = Shifted({nullptr, 0, sum_strides}, start);
      Accumulate(w.stat_kind(), x.dtype(), in.get(), Coalesce(size, DenseStrides(size), sum_strides),
                 sums + at.offset);
      return status;
    }));
  }
  if (measuring()) return absl::OkStatus();
  if (w.stat_kind() == StatKind::kMean) {
    for (int64_t i = 0; i < results; ++i) sums[i] /= static_cast<double>(merged);
  }
  CopyStrided(region.size, Raw(sums), DenseStrides(region.size), At(to, sizeof(double)), to.stride,
              sizeof(double));
  return absl::OkStatus();
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
  return ForEachBlock(box, block, [&](const Ints& start, const Ints& groups) -> absl::Status {
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
      rule.Compute(x.dtype(), in.get() + from * x_bytes, dense[axis], [&](int64_t i, const std::byte* element) {
        if (place + i < 0 || place + i >= region.size[axis]) return;
        std::memcpy(at.base + (at.offset + onto + i * to.stride[axis]) * out_bytes, element, out_bytes);
      });
    });
    return absl::OkStatus();
  });
}

}  // namespace twinforge
