// The verbs of the walk that compute: in f64, rounded once to the result's type.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/status_macros.h"
#include "weights/read_walk.h"

namespace twinforge {
namespace {

using Chunk = std::array<double, kChunk>;

// Operands that would be read with columns for rows are cut into fewer, larger blocks.
constexpr int64_t kTurnedBlockBytes = 16 << 20;

// Extents of the blocks of a contraction.
constexpr int64_t kContractRows = 256;
constexpr int64_t kContractColumns = 512;
constexpr int64_t kContractDepth = 256;

const std::byte* Raw(const double* values) { return reinterpret_cast<const std::byte*>(values); }
std::byte* Raw(double* values) { return reinterpret_cast<std::byte*>(values); }

void ApplyAll(MapFn fn, const double* y, int64_t count, double* x) {
  switch (fn) {
    case MapFn::kAdd:
      for (int64_t i = 0; i < count; ++i) x[i] += y[i];
      return;
    case MapFn::kSub:
      for (int64_t i = 0; i < count; ++i) x[i] -= y[i];
      return;
    case MapFn::kMul:
      for (int64_t i = 0; i < count; ++i) x[i] *= y[i];
      return;
    case MapFn::kDiv:
      for (int64_t i = 0; i < count; ++i) x[i] /= y[i];
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
      LoadDoubles(y_type, y.base + (y.offset + y_offset + i * fast.from) * y_bytes, fast.from, count,
                  b.data());
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

// Once a NaN, always a NaN, as with Greater().
double Lesser(double a, double b) { return std::isnan(a) || a <= b ? a : b; }

double StatStep(StatKind kind, double sum, double x) {
  switch (kind) {
    case StatKind::kAbsMax:
      return Greater(sum, std::abs(x));
    case StatKind::kMean:
      return sum + x;
    case StatKind::kSumSquares:
      return sum + x * x;
    case StatKind::kMin:
      return Lesser(sum, x);
    case StatKind::kMax:
      return Greater(sum, x);
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
  return ForEachBlock(
      region.size, block, BlocksOf(x), [&](const Ints& start, const Ints& size) -> absl::Status {
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

  return ForEachBlock(region.size, block, BlocksOf(w),
                      [&](const Ints& start, const Ints& size) -> absl::Status {
                        Region part = {region.start, size};
                        for (size_t i = 0; i < size.size(); ++i) part.start[i] += start[i];
                        const Target out = Shifted(to, start);
                        TWIN_RETURN_IF_ERROR(Visit(x, part, out));
                        Region other = operand(part.start, size);
                        if (!once)
                          TWIN_RETURN_IF_ERROR(Visit(y, other, DenseTarget(factor.get(), other.size)));
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
  return ForEachBlock(region.size, block, BlocksOf(w), [&](const Ints& start, const Ints& size) {
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
    TWIN_RETURN_IF_ERROR(
        ForEachBlock(wanted.size, block, BlocksOf(x), [&](const Ints& start, const Ints& size) {
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

}  // namespace twinforge
