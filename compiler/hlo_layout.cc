#include "compiler/hlo_layout.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"

namespace twinforge {
namespace {

constexpr int64_t kMost = int64_t{1} << 56;  // elements; times 64 bits it still fits
constexpr int kMostDims = 64;

absl::Status BadShape(absl::string_view why) {
  return Error(2106, "the compiler's answer", absl::StrCat("a shape in it ", why),
               "this version of the compiler may write another form; libtpu 0.0.42.1 was read");
}

// a * b, or -1 beyond kMost. REQUIRES: a, b >= 0.
int64_t Times(int64_t a, int64_t b) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product) || product > kMost) return -1;
  return product;
}

absl::StatusOr<int64_t> ElementsOf(const std::vector<int64_t>& dims) {
  int64_t elements = 1;
  for (const int64_t dim : dims) {
    elements = dim < 0 ? -1 : Times(elements, dim);
    if (elements < 0) return BadShape("has more elements than can be");
  }
  return elements;
}

int64_t CeilDiv(int64_t a, int64_t b) { return a / b + (a % b == 0 ? 0 : 1); }

// The dims from major to minor, as the layout orders them.
absl::StatusOr<std::vector<int64_t>> PhysicalDims(const xla::Shape& shape) {
  const int rank = shape.dimensions_size();
  if (rank > kMostDims) return BadShape("has too many dims");
  if (shape.layout().minor_to_major_size() != rank) return BadShape("has a layout of other dims");
  std::vector<int64_t> dims(static_cast<size_t>(rank));
  std::vector<bool> seen(static_cast<size_t>(rank));
  for (int i = 0; i < rank; ++i) {
    const int64_t dim = shape.layout().minor_to_major(i);
    if (dim < 0 || dim >= rank || seen[static_cast<size_t>(dim)])
      return BadShape("has a layout of other dims");
    seen[static_cast<size_t>(dim)] = true;
    dims[static_cast<size_t>(rank - 1 - i)] = shape.dimensions(static_cast<int>(dim));
  }
  return dims;
}

// What is left of `dims` once the minor ones are cut into tiles: counts of tiles, then the tile's own dims.
absl::StatusOr<std::vector<int64_t>> Tiled(std::vector<int64_t> dims, const xla::Tile& tile) {
  const size_t width = static_cast<size_t>(tile.dimensions_size());
  if (width == 0 || width > static_cast<size_t>(kMostDims)) return BadShape("has a tile without dims");
  if (dims.size() < width) dims.insert(dims.begin(), width - dims.size(), 1);
  if (dims.size() > 4 * static_cast<size_t>(kMostDims)) return BadShape("has too many tiles");
  const size_t first = dims.size() - width;
  std::vector<int64_t> inner;
  for (size_t i = 0; i < width; ++i) {
    const int64_t extent = tile.dimensions(static_cast<int>(i));
    if (extent < 1 || extent > kMost) return BadShape("has a tile that is no number of elements");
    dims[first + i] = CeilDiv(dims[first + i], extent);
    inner.push_back(extent);
  }
  dims.insert(dims.end(), inner.begin(), inner.end());
  return dims;
}

std::string LayoutText(const xla::Layout& layout, int64_t bits, int64_t type_bits) {
  std::string tiles;
  for (const xla::Tile& tile : layout.tiles())
    absl::StrAppend(&tiles, "(", absl::StrJoin(tile.dimensions(), ","), ")");
  std::string text = absl::StrCat("{", absl::StrJoin(layout.minor_to_major(), ","));
  std::string after;
  if (!tiles.empty()) absl::StrAppend(&after, "T", tiles);
  if (bits != type_bits) absl::StrAppend(&after, "E(", bits, ")");
  if (layout.memory_space() != 0) absl::StrAppend(&after, "S(", layout.memory_space(), ")");
  if (!after.empty()) absl::StrAppend(&text, ":", after);
  return absl::StrCat(text, "}");
}

absl::StatusOr<int64_t> BytesOf(int64_t elements, int64_t bits) {
  const int64_t all = Times(elements, bits);
  if (all < 0) return BadShape("has more bytes than can be");
  return CeilDiv(all, 8);
}

}  // namespace

HloType HloTypeOf(int32_t primitive_type) {
  switch (primitive_type) {  // PrimitiveType of xla_data.proto
    case 1:
      return {"pred", 8};
    case 2:
      return {"s8", 8};
    case 3:
      return {"s16", 16};
    case 4:
      return {"s32", 32};
    case 5:
      return {"s64", 64};
    case 6:
      return {"u8", 8};
    case 7:
      return {"u16", 16};
    case 8:
      return {"u32", 32};
    case 9:
      return {"u64", 64};
    case 10:
      return {"f16", 16};
    case 11:
      return {"f32", 32};
    case 12:
      return {"f64", 64};
    case 15:
      return {"c64", 64};
    case 16:
      return {"bf16", 16};
    case 19:
      return {"f8e5m2", 8};
    case 20:
      return {"f8e4m3fn", 8};
    case 21:
      return {"s4", 4};
    case 22:
      return {"u4", 4};
    case 28:
      return {"f8e4m3", 8};
    case 32:
      return {"f4e2m1fn", 4};
    case 33:
      return {"f8e8m0fnu", 8};
    default:
      return {"", 0};
  }
}

absl::StatusOr<int64_t> PaddedElements(const xla::Shape& shape) {
  TWIN_ASSIGN_OR_RETURN(std::vector<int64_t> dims, PhysicalDims(shape));
  for (const xla::Tile& tile : shape.layout().tiles()) {
    TWIN_ASSIGN_OR_RETURN(dims, Tiled(std::move(dims), tile));
  }
  return ElementsOf(dims);
}

absl::StatusOr<HloArray> ReadHloArray(const xla::Shape& shape) {
  const HloType type = HloTypeOf(shape.element_type());
  if (type.bits == 0)
    return BadShape(absl::StrCat("has the type ", shape.element_type(), ", which has no bytes"));
  const int64_t said_bits = shape.layout().element_size_in_bits();
  const int64_t bits = said_bits == 0 ? type.bits : said_bits;
  if (bits < 1 || bits > 128) return BadShape("has elements of no size");
  HloArray array = {.dims = {shape.dimensions().begin(), shape.dimensions().end()}, .bits = bits};
  array.shape = absl::StrCat(type.name, "[", absl::StrJoin(shape.dimensions(), ","), "]");
  TWIN_ASSIGN_OR_RETURN(const int64_t elements, ElementsOf(array.dims));
  TWIN_ASSIGN_OR_RETURN(array.bytes, BytesOf(elements, bits));
  array.padded_bytes = array.bytes;
  if (!shape.has_layout()) return array;
  array.layout = LayoutText(shape.layout(), bits, type.bits);
  array.memory = shape.layout().memory_space();
  TWIN_ASSIGN_OR_RETURN(const int64_t padded, PaddedElements(shape));
  TWIN_ASSIGN_OR_RETURN(array.padded_bytes, BytesOf(padded, bits));
  return array;
}

}  // namespace twinforge
