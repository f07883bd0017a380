#include "weights/strided.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/check.h"

namespace twinforge {
namespace {

// Tiles are squares of this many elements a side: two of them stay in the first cache.
constexpr int64_t kTile = 64;

// Vectors of the compiler, not of one processor: these compile everywhere.
typedef uint16_t V8x16 __attribute__((vector_size(16)));
typedef uint32_t V4x32 __attribute__((vector_size(16)));

template <typename V>
V Load(const void* at) {
  V v;
  std::memcpy(&v, at, sizeof(V));
  return v;
}

// One block of 8 x 8 two-byte elements: three rounds of pairwise interleaving.
void TransposeBlock(const uint16_t* from, int64_t from_stride, uint16_t* to, int64_t to_stride) {
  constexpr V8x16 kLow = {0, 8, 1, 9, 2, 10, 3, 11};
  constexpr V8x16 kHigh = {4, 12, 5, 13, 6, 14, 7, 15};
  V8x16 rows[8];
  for (int i = 0; i < 8; ++i) rows[i] = Load<V8x16>(from + i * from_stride);
  for (int round = 0; round < 3; ++round) {
    V8x16 next[8];
    for (int i = 0; i < 4; ++i) {
      next[2 * i] = __builtin_shuffle(rows[i], rows[i + 4], kLow);
      next[2 * i + 1] = __builtin_shuffle(rows[i], rows[i + 4], kHigh);
    }
    for (int i = 0; i < 8; ++i) rows[i] = next[i];
  }
  for (int i = 0; i < 8; ++i) std::memcpy(to + i * to_stride, &rows[i], sizeof(V8x16));
}

// One block of 4 x 4 four-byte elements.
void TransposeBlock(const uint32_t* from, int64_t from_stride, uint32_t* to, int64_t to_stride) {
  constexpr V4x32 kLow = {0, 4, 1, 5};
  constexpr V4x32 kHigh = {2, 6, 3, 7};
  V4x32 rows[4];
  for (int i = 0; i < 4; ++i) rows[i] = Load<V4x32>(from + i * from_stride);
  for (int round = 0; round < 2; ++round) {
    V4x32 next[4];
    for (int i = 0; i < 2; ++i) {
      next[2 * i] = __builtin_shuffle(rows[i], rows[i + 2], kLow);
      next[2 * i + 1] = __builtin_shuffle(rows[i], rows[i + 2], kHigh);
    }
    for (int i = 0; i < 4; ++i) rows[i] = next[i];
  }
  for (int i = 0; i < 4; ++i) std::memcpy(to + i * to_stride, &rows[i], sizeof(V4x32));
}

template <typename T>
void CopyTileScalar(const StridedAxis& slow, const StridedAxis& fast, const T* from, T* to) {
  for (int64_t i = 0; i < slow.size; ++i) {
    const T* in = from + i * slow.from;
    T* out = to + i * slow.to;
    for (int64_t j = 0; j < fast.size; ++j) out[j * fast.to] = in[j * fast.from];
  }
}

// A tile whose source is fast along `slow` and whose destination is fast along `fast`.
template <typename T>
void CopyTile(StridedAxis slow, StridedAxis fast, const T* from, T* to) {
  if constexpr (sizeof(T) == 2 || sizeof(T) == 4) {
    constexpr int64_t kSide = 16 / sizeof(T);
    if (slow.from == 1 && fast.to == 1) {
      const int64_t whole_slow = slow.size / kSide * kSide;
      const int64_t whole_fast = fast.size / kSide * kSide;
      for (int64_t i = 0; i < whole_slow; i += kSide) {
        for (int64_t j = 0; j < whole_fast; j += kSide) {
          TransposeBlock(from + i + j * fast.from, fast.from, to + i * slow.to + j, slow.to);
        }
      }
      StridedAxis rest = fast;
      rest.size = fast.size - whole_fast;
      StridedAxis covered = slow;
      covered.size = whole_slow;
      CopyTileScalar(covered, rest, from + whole_fast * fast.from, to + whole_fast);
      from += whole_slow;
      to += whole_slow * slow.to;
      slow.size -= whole_slow;
    }
  }
  CopyTileScalar(slow, fast, from, to);
}

template <typename T>
void CopyPlane(const StridedAxis& slow, const StridedAxis& fast, const T* from, T* to) {
  for (int64_t i = 0; i < slow.size; i += kTile) {
    StridedAxis slow_tile = slow;
    slow_tile.size = std::min(kTile, slow.size - i);
    for (int64_t j = 0; j < fast.size; j += kTile) {
      StridedAxis fast_tile = fast;
      fast_tile.size = std::min(kTile, fast.size - j);
      CopyTile(slow_tile, fast_tile, from + i * slow.from + j * fast.from,
               to + i * slow.to + j * fast.to);
    }
  }
}

template <typename T>
void CopyAxes(StridedAxes axes, const T* from, T* to) {
  if (axes.empty()) axes.push_back({1, 1, 1});
  const StridedAxis fast = axes.back();
  axes.pop_back();
  if (fast.from == 1 && fast.to == 1) {
    ForEachOffset(axes, [&](int64_t a, int64_t b) { std::memcpy(to + b, from + a, fast.size * sizeof(T)); });
    return;
  }
  // The axis along which the source is fastest joins the plane, if it beats `fast`.
  const auto best = std::min_element(axes.begin(), axes.end(), [](const auto& a, const auto& b) {
    return std::abs(a.from) < std::abs(b.from);
  });
  StridedAxis slow = {1, 0, 0};
  if (best != axes.end() && std::abs(best->from) < std::abs(fast.from)) {
    slow = *best;
    axes.erase(best);
  }
  ForEachOffset(axes, [&](int64_t a, int64_t b) { CopyPlane(slow, fast, from + a, to + b); });
}

template <typename T>
void FillAxes(StridedAxes axes, T value, bool one_byte, T* to) {
  if (axes.empty()) axes.push_back({1, 0, 1});
  const StridedAxis fast = axes.back();
  axes.pop_back();
  ForEachOffset(axes, [&](int64_t, int64_t b) {
    T* at = to + b;
    if (fast.to == 1 && one_byte) {
      std::memset(at, static_cast<int>(value & 0xff), fast.size * sizeof(T));
    } else if (fast.to == 1) {
      std::fill_n(at, fast.size, value);
    } else {
      for (int64_t i = 0; i < fast.size; ++i) at[i * fast.to] = value;
    }
  });
}

template <typename T>
void FillAs(const StridedAxes& axes, const std::byte* element, std::byte* to) {
  T value;
  std::memcpy(&value, element, sizeof(T));
  bool one_byte = true;
  for (size_t i = 1; i < sizeof(T); ++i) one_byte = one_byte && element[i] == element[0];
  FillAxes(axes, value, one_byte, reinterpret_cast<T*>(to));
}

void Append(const StridedAxis& axis, StridedAxes& axes) {
  if (!axes.empty()) {
    StridedAxis& outer = axes.back();
    if (outer.from == axis.from * axis.size && outer.to == axis.to * axis.size) {
      outer = {outer.size * axis.size, axis.from, axis.to};
      return;
    }
  }
  axes.push_back(axis);
}

bool IsEmpty(absl::Span<const int64_t> size) {
  return std::find(size.begin(), size.end(), 0) != size.end();
}

}  // namespace

StridedAxes Coalesce(absl::Span<const int64_t> size, absl::Span<const int64_t> from,
                     absl::Span<const int64_t> to) {
  StridedAxes axes;
  for (size_t i = 0; i < size.size(); ++i) {
    if (size[i] != 1) Append({size[i], from[i], to[i]}, axes);
  }
  return axes;
}

StridedAxes CoalesceByDestination(absl::Span<const int64_t> size, absl::Span<const int64_t> from,
                                  absl::Span<const int64_t> to) {
  StridedAxes sorted;
  for (size_t i = 0; i < size.size(); ++i) {
    if (size[i] != 1) sorted.push_back({size[i], from[i], to[i]});
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return std::abs(a.to) > std::abs(b.to);
  });
  StridedAxes axes;
  for (const StridedAxis& axis : sorted) Append(axis, axes);
  return axes;
}

Ints DenseStrides(absl::Span<const int64_t> size) {
  Ints strides(size.size());
  int64_t stride = 1;
  for (int64_t i = static_cast<int64_t>(size.size()) - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= size[i];
  }
  return strides;
}

void CopyStrided(absl::Span<const int64_t> size, const std::byte* from,
                 absl::Span<const int64_t> from_strides, std::byte* to,
                 absl::Span<const int64_t> to_strides, int64_t element_bytes) {
  if (IsEmpty(size)) return;
  const StridedAxes axes = CoalesceByDestination(size, from_strides, to_strides);
  const auto copy = [&](auto zero) {
    using T = decltype(zero);
    CopyAxes(axes, reinterpret_cast<const T*>(from), reinterpret_cast<T*>(to));
  };
  switch (element_bytes) {
    case 1: return copy(uint8_t{0});
    case 2: return copy(uint16_t{0});
    case 4: return copy(uint32_t{0});
    case 8: return copy(uint64_t{0});
  }
  TWIN_CHECK(false, "an element of no known width");
}

void FillStrided(absl::Span<const int64_t> size, const std::byte* element, std::byte* to,
                 absl::Span<const int64_t> to_strides, int64_t element_bytes) {
  if (IsEmpty(size)) return;
  const StridedAxes axes = CoalesceByDestination(size, Ints(size.size(), 0), to_strides);
  switch (element_bytes) {
    case 1: return FillAs<uint8_t>(axes, element, to);
    case 2: return FillAs<uint16_t>(axes, element, to);
    case 4: return FillAs<uint32_t>(axes, element, to);
    case 8: return FillAs<uint64_t>(axes, element, to);
  }
  TWIN_CHECK(false, "an element of no known width");
}

}  // namespace twinforge
