#include "weights/strided.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "base/check.h"

namespace twinforge {
namespace {

// Tiles are squares of this many elements a side: two of them stay in the first cache.
constexpr int64_t kTile = 64;
// Planes of at least this many bytes may bypass the caches on their way out.
constexpr int64_t kStreamBytes = 256 << 10;

// Sixteen bytes of T in one register. A vector of the compiler, not of one processor.
template <typename T>
struct Lanes {
  typedef T Vector __attribute__((vector_size(16)));
  static constexpr int kCount = 16 / sizeof(T);
};

// Lanes of two registers, interleaved: the lower halves, or the upper ones.
template <typename T>
constexpr typename Lanes<T>::Vector Interleave(int half) {
  typename Lanes<T>::Vector order = {};
  for (int i = 0; i < Lanes<T>::kCount; ++i) {
    order[i] = static_cast<T>(half * Lanes<T>::kCount / 2 + i / 2 + i % 2 * Lanes<T>::kCount);
  }
  return order;
}

// A square of 16-byte rows: interleaving rows i and i + n/2 turns it, log2(n) times.
template <typename T>
void TransposeBlock(const T* from, int64_t from_stride, T* to, int64_t to_stride) {
  using V = typename Lanes<T>::Vector;
  constexpr int n = Lanes<T>::kCount;
  const V low = Interleave<T>(0);
  const V high = Interleave<T>(1);
  V rows[n];
  for (int i = 0; i < n; ++i) std::memcpy(&rows[i], from + i * from_stride, sizeof(V));
  for (int round = 1; round < n; round *= 2) {
    V next[n];
    for (int i = 0; i < n / 2; ++i) {
      next[2 * i] = __builtin_shuffle(rows[i], rows[i + n / 2], low);
      next[2 * i + 1] = __builtin_shuffle(rows[i], rows[i + n / 2], high);
    }
    for (int i = 0; i < n; ++i) rows[i] = next[i];
  }
  for (int i = 0; i < n; ++i) std::memcpy(to + i * to_stride, &rows[i], sizeof(V));
}

// An element at a time.
template <typename T>
void CopyScalar(const StridedAxis& slow, const StridedAxis& fast, const T* from, T* to) {
  for (int64_t i = 0; i < slow.size; ++i) {
    const T* in = from + i * slow.from;
    T* out = to + i * slow.to;
    for (int64_t j = 0; j < fast.size; ++j) out[j * fast.to] = in[j * fast.from];
  }
}

// A tile whose source is dense along `slow` and whose destination is dense along `fast`.
// It passes through a buffer of its own: rows that lie a power of two apart would evict
// one another from a cache before their neighbours are used.
template <typename T>
void TransposeTile(StridedAxis slow, StridedAxis fast, const T* from, T* to) {
  constexpr int64_t kSide = Lanes<T>::kCount;
  constexpr int64_t kPitch = kTile + kSide;
  alignas(64) T buffer[kTile * kPitch];
  for (int64_t j = 0; j < fast.size; ++j) {
    std::memcpy(buffer + j * kPitch, from + j * fast.from, slow.size * sizeof(T));
  }
  const int64_t whole_slow = slow.size / kSide * kSide;
  const int64_t whole_fast = fast.size / kSide * kSide;
  for (int64_t i = 0; i < whole_slow; i += kSide) {
    for (int64_t j = 0; j < whole_fast; j += kSide) {
      TransposeBlock(buffer + i + j * kPitch, kPitch, to + i * slow.to + j, slow.to);
    }
  }
  const StridedAxis fast_rest = {fast.size - whole_fast, kPitch, 1};
  const StridedAxis slow_rest = {slow.size - whole_slow, 1, slow.to};
  CopyScalar({whole_slow, 1, slow.to}, fast_rest, buffer + whole_fast * kPitch, to + whole_fast);
  CopyScalar(slow_rest, {fast.size, kPitch, 1}, buffer + whole_slow, to + whole_slow * slow.to);
}

// Copies a row past the caches: whole lines that nobody reads again soon are written
// without being fetched first. Measured: a transpose into 32 MiB gains a factor of three.
void StreamRow(const std::byte* from, int64_t bytes, std::byte* to) {
#ifdef __SSE2__
  constexpr int64_t kLine = 64;
  const int64_t head = std::min<int64_t>(bytes, -reinterpret_cast<uintptr_t>(to) % kLine);
  std::memcpy(to, from, head);
  int64_t at = head;
  for (; at + kLine <= bytes; at += kLine) {
    for (int64_t i = at; i < at + kLine; i += 16) {
      __m128i part;
      std::memcpy(&part, from + i, sizeof(part));
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), part);
    }
  }
  std::memcpy(to + at, from + at, bytes - at);
#else
  std::memcpy(to, from, bytes);
#endif
}

// Streamed stores become visible to other threads in order again.
void StreamDone() {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

// A plane of which the destination is large: tiles are turned side by side in a buffer,
// whose rows then leave in one piece each.
template <typename T>
void StreamPlane(const StridedAxis& slow, const StridedAxis& fast, const T* from, T* to) {
  constexpr int64_t kWidth = 512 / sizeof(T);
  alignas(64) T turned[kTile * kWidth];
  for (int64_t i = 0; i < slow.size; i += kTile) {
    const StridedAxis rows = {std::min(kTile, slow.size - i), 1, kWidth};
    for (int64_t j = 0; j < fast.size; j += kWidth) {
      const int64_t width = std::min(kWidth, fast.size - j);
      const T* in = from + i + j * fast.from;
      for (int64_t k = 0; k < width; k += kTile) {
        TransposeTile<T>(rows, {std::min(kTile, width - k), fast.from, 1}, in + k * fast.from, turned + k);
      }
      for (int64_t r = 0; r < rows.size; ++r) {
        StreamRow(reinterpret_cast<const std::byte*>(turned + r * kWidth), width * sizeof(T),
                  reinterpret_cast<std::byte*>(to + (i + r) * slow.to + j));
      }
    }
  }
  StreamDone();
}

// The whole plane of two axes, tile by tile; tiles follow one another along the
// destination's rows.
template <typename T>
void CopyPlane(const StridedAxis& slow, const StridedAxis& fast, const T* from, T* to) {
  const bool dense = slow.from == 1 && fast.to == 1;
  // Where rows have room between them, the destination is more than this plane.
  const bool large =
      slow.size * fast.size >= kStreamBytes / static_cast<int64_t>(sizeof(T)) && slow.to > fast.size;
  if (dense && large) return StreamPlane(slow, fast, from, to);
  for (int64_t i = 0; i < slow.size; i += kTile) {
    StridedAxis slow_tile = slow;
    slow_tile.size = std::min(kTile, slow.size - i);
    for (int64_t j = 0; j < fast.size; j += kTile) {
      StridedAxis fast_tile = fast;
      fast_tile.size = std::min(kTile, fast.size - j);
      const T* in = from + i * slow.from + j * fast.from;
      T* out = to + i * slow.to + j * fast.to;
      dense ? TransposeTile(slow_tile, fast_tile, in, out) : CopyScalar(slow_tile, fast_tile, in, out);
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

bool IsEmpty(absl::Span<const int64_t> size) { return std::find(size.begin(), size.end(), 0) != size.end(); }

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
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return std::abs(a.to) > std::abs(b.to); });
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
                 absl::Span<const int64_t> from_strides, std::byte* to, absl::Span<const int64_t> to_strides,
                 int64_t element_bytes) {
  if (IsEmpty(size)) return;
  const StridedAxes axes = CoalesceByDestination(size, from_strides, to_strides);
  const auto copy = [&](auto zero) {
    using T = decltype(zero);
    CopyAxes(axes, reinterpret_cast<const T*>(from), reinterpret_cast<T*>(to));
  };
  switch (element_bytes) {
    case 1:
      return copy(uint8_t{0});
    case 2:
      return copy(uint16_t{0});
    case 4:
      return copy(uint32_t{0});
    case 8:
      return copy(uint64_t{0});
  }
  TWIN_CHECK(false, "an element of no known width");
}

void FillStrided(absl::Span<const int64_t> size, const std::byte* element, std::byte* to,
                 absl::Span<const int64_t> to_strides, int64_t element_bytes) {
  if (IsEmpty(size)) return;
  const StridedAxes axes = CoalesceByDestination(size, Ints(size.size(), 0), to_strides);
  switch (element_bytes) {
    case 1:
      return FillAs<uint8_t>(axes, element, to);
    case 2:
      return FillAs<uint16_t>(axes, element, to);
    case 4:
      return FillAs<uint32_t>(axes, element, to);
    case 8:
      return FillAs<uint64_t>(axes, element, to);
  }
  TWIN_CHECK(false, "an element of no known width");
}

}  // namespace twinforge
