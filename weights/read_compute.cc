// The verbs of the walk that compute: in f64, rounded once to the result's type.
#include <algorithm>
#include <array>
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
  if (stride == 1) return Convert(dtype, at, DType::kF64, Raw(out), count);
  if (stride == 0) {
    std::fill_n(out, count, ToDouble(dtype, at));
    return;
  }
  const int64_t bytes = ElementBytes(dtype);
  for (int64_t i = 0; i < count; ++i) out[i] = ToDouble(dtype, at + i * stride * bytes);
}

void StoreDoubles(const double* values, int64_t count, DType dtype, std::byte* at, int64_t stride) {
  if (stride == 1) return Convert(DType::kF64, Raw(values), dtype, at, count);
  const int64_t bytes = ElementBytes(dtype);
  for (int64_t i = 0; i < count; ++i) FromDouble(dtype, values[i], at + i * stride * bytes);
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

// One group's elements as doubles, and where they lie.
struct Group {
  std::vector<double> values;
  const std::byte* from = nullptr;  // first element
  int64_t from_stride = 0;
  std::byte* to = nullptr;          // null where it is not wanted
};

// Which elements of a group stay: the `keep` of largest magnitude, the first of equals.
// A NaN counts as larger than everything, so that damage stays visible.
std::vector<bool> Largest(const std::vector<double>& values, int64_t keep) {
  std::vector<int64_t> order(values.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  const auto magnitude = [&](int64_t i) {
    return std::isnan(values[i]) ? std::numeric_limits<double>::infinity() : std::abs(values[i]);
  };
  const auto rank = [&](int64_t i) { return std::isnan(values[i]) ? 1 : 0; };
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return rank(a) != rank(b) ? rank(a) > rank(b) : magnitude(a) > magnitude(b);
  });
  std::vector<bool> kept(values.size(), false);
  for (int64_t i = 0; i < keep; ++i) kept[order[i]] = true;
  return kept;
}

// The scale of a group: its largest magnitude over the largest code, as an f32.
double GroupScaleOf(const std::vector<double>& values, double largest_code) {
  double largest = 0;
  for (double x : values) largest = Greater(largest, std::abs(x));
  return static_cast<double>(static_cast<float>(largest / largest_code));
}

// How groups of one node are computed; made once per read.
struct GroupRule {
  const Weight& w;
  double largest_code;  // of kScale and kCodes

  // Element `i` of the result of one group, counted from the group's first.
  template <typename Store>
  void Compute(const std::vector<double>& values, Store store) const {
    const int64_t size = static_cast<int64_t>(values.size());
    switch (w.group_fn()) {
      case GroupFn::kKeepLargest: {
        const std::vector<bool> kept = Largest(values, w.keep());
        for (int64_t i = 0; i < size; ++i) store(i, kept[i], 0.0);
        return;
      }
      case GroupFn::kScale:
        store(0, false, GroupScaleOf(values, largest_code));
        return;
      case GroupFn::kCodes: {
        const double scale = GroupScaleOf(values, largest_code);
        for (int64_t i = 0; i < size; ++i) store(i, false, scale == 0 ? 0.0 : values[i] / scale);
        return;
      }
    }
  }
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
  const GroupRule rule = {w, w.group_fn() == GroupFn::kKeepLargest ? 0 : LargestValue(w.group_target())};
  std::byte zero[8] = {};
  FromDouble(w.dtype(), 0, zero);
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
    std::vector<double> values(size);
    int64_t index = 0;
    const int64_t inner = Product(absl::MakeSpan(groups).subspan(axis + 1));
    ForEachOffset(axes, [&](int64_t from, int64_t onto) {
      const std::byte* source = in.get() + from * x_bytes;
      LoadDoubles(x.dtype(), source, dense[axis], size, values.data());
      const int64_t place = place0 + index++ / inner % groups[axis] * out_size;
      rule.Compute(values, [&](int64_t i, bool keep, double value) {
        if (place + i < 0 || place + i >= region.size[axis]) return;
        std::byte* out = at.base + (at.offset + onto + i * to.stride[axis]) * out_bytes;
        if (keep) {
          std::memcpy(out, source + i * dense[axis] * x_bytes, x_bytes);
        } else if (value == 0 && w.group_fn() == GroupFn::kKeepLargest) {
          std::memcpy(out, zero, out_bytes);
        } else {
          FromDouble(w.dtype(), value, out);
        }
      });
    });
    return absl::OkStatus();
  });
}

}  // namespace twinforge
