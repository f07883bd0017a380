// Images: windows that slide, sizes that change, boxes.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "onnx/infer/rule.h"
#include "onnx/onnx-ml.pb.h"

namespace twinforge {
namespace {

// An attribute of one number for each axis.
std::vector<int64_t> EachAxis(InferCall& c, absl::string_view name, size_t count, int64_t absent) {
  std::vector<int64_t> values = c.Ints(name).value_or(std::vector<int64_t>(count, absent));
  if (values.size() != count) c.Fail(absl::StrCat(name, " is not one number for each axis"));
  values.resize(count, absent);
  return values;
}

// How far a kernel of `extent` reaches.
KnownDim Reach(const KnownDim& extent, int64_t dilation) {
  return DimSum(DimProduct(DimDifference(extent, Dim(1)), Dim(dilation)), Dim(1));
}

// Where a window stops along one axis. `room`: image and padding without the kernel's reach.
KnownDim StopsIn(const KnownDim& room, int64_t stride, bool ceil_mode, const KnownDim& image, int64_t low) {
  KnownDim stops = DimSum(DimFloor(room, stride), Dim(1));
  if (!ceil_mode || !stops || stride == 1) return stops;
  const std::optional<int64_t> rest = room->value(), size = image->value(), count = stops->value();
  if (!rest || !size || !count) return std::nullopt;
  // A last stop that begins in the padding behind the image is none.
  const KnownDim begin = DimProduct(stops, Dim(stride)), end = DimSum(image, Dim(low));
  if (!begin || !end) return std::nullopt;
  const bool more = *rest % stride != 0 && *begin->value() < *end->value();
  return more ? DimSum(stops, Dim(1)) : stops;
}

// The spatial extents after a window of `kernel` has gone over `image`.
KnownDims WindowStops(InferCall& c, const KnownDims& image, const KnownDims& from_weight) {
  const size_t rank = image.size();
  KnownDims kernel = from_weight, stops(rank);
  if (const std::optional<std::vector<int64_t>> given = c.Ints("kernel_shape")) {
    if (given->size() != rank) {
      c.Fail("kernel_shape is not one extent for each axis");
      return stops;
    }
    for (size_t d = 0; d < rank; ++d) kernel[d] = Dim((*given)[d]);
  }
  const std::vector<int64_t> strides = EachAxis(c, "strides", rank, 1),
                             dilations = EachAxis(c, "dilations", rank, 1),
                             pads = EachAxis(c, "pads", 2 * rank, 0);
  const absl::string_view auto_pad = c.Str("auto_pad", "NOTSET");
  const bool ceil_mode = c.Int("ceil_mode", 0) != 0, valid = auto_pad == "VALID";
  for (size_t d = 0; d < rank && c.ok(); ++d) {
    if (auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER") {
      stops[d] = DimCeil(image[d], strides[d]);
      continue;
    }
    const KnownDim padded = valid ? image[d] : DimSum(image[d], DimSum(Dim(pads[d]), Dim(pads[d + rank])));
    const KnownDim room = DimDifference(padded, Reach(kernel[d], dilations[d]));
    if (room && room->value().value_or(0) < 0) {
      c.Fail(absl::StrCat("a window does not fit an axis of ", image[d]->Text()));
    } else {
      stops[d] = StopsIn(room, strides[d], ceil_mode, image[d], valid ? 0 : pads[d]);
    }
  }
  return stops;
}

KnownDims Spatial(const KnownDims& shape) {
  return shape.size() < 2 ? KnownDims() : KnownDims(shape.begin() + 2, shape.end());
}

// [batch, channels, ...] of which the rest is `spatial`.
KnownDims ImageDims(const KnownDim& batch, const KnownDim& channels, const KnownDims& spatial) {
  KnownDims shape = {batch, channels};
  shape.insert(shape.end(), spatial.begin(), spatial.end());
  return shape;
}

void ConvolveInto(InferCall& c, int image_at, int kernel_at) {
  const OnnxFact &x = c.In(image_at), &k = c.In(kernel_at);
  if (!x.shape || !k.shape) {
    if (x.shape || k.shape) c.Out(0).shape = KnownDims((x.shape ? x : k).shape->size());
    return;
  }
  KnownDim in = DimProduct(k.Extent(1), Dim(c.Int("group", 1)));
  if (x.shape->size() < 3 || k.shape->size() != x.shape->size() || DimsDiffer(in, x.Extent(1)))
    return c.Fail(absl::StrCat("image ", ShapeOfFact(x), " and kernel ", ShapeOfFact(k), " do not convolve"));
  c.Out(0).shape = ImageDims(x.Extent(0), k.Extent(0), WindowStops(c, Spatial(*x.shape), Spatial(*k.shape)));
}

void ConvRule(InferCall& c) {
  c.Out(0).type = c.In(0).type;
  ConvolveInto(c, 0, 1);
}
void ConvIntegerRule(InferCall& c) {
  c.Out(0).type = ElementType::kInt32;
  ConvolveInto(c, 0, 1);
}
void QLinearConvRule(InferCall& c) {
  c.Out(0).type = c.In(7).type;
  ConvolveInto(c, 0, 3);
}

void ConvTransposeRule(InferCall& c) {
  c.Out(0).type = c.In(0).type;
  const OnnxFact &x = c.In(0), &k = c.In(1);
  if (!x.shape || !k.shape) return;
  if (x.shape->size() < 3 || k.shape->size() != x.shape->size() || DimsDiffer(x.Extent(1), k.Extent(0)))
    return c.Fail(absl::StrCat("image ", ShapeOfFact(x), " and kernel ", ShapeOfFact(k), " do not fit"));
  const size_t rank = x.shape->size() - 2;
  const KnownDims stops = Spatial(*x.shape), kernel = Spatial(*k.shape);
  const std::vector<int64_t> strides = EachAxis(c, "strides", rank, 1),
                             dilations = EachAxis(c, "dilations", rank, 1),
                             extra = EachAxis(c, "output_padding", rank, 0),
                             pads = EachAxis(c, "pads", 2 * rank, 0);
  std::optional<std::vector<int64_t>> given = c.Ints("output_shape");
  if (given && given->size() == rank + 2) given->erase(given->begin(), given->begin() + 2);
  if (given && given->size() != rank) return c.Fail("output_shape is not one extent for each axis");
  const absl::string_view auto_pad = c.Str("auto_pad", "NOTSET");
  KnownDims image(rank);
  for (size_t d = 0; d < rank; ++d) {
    const KnownDim steps = DimProduct(DimDifference(stops[d], Dim(1)), Dim(strides[d]));
    const KnownDim full = DimSum(DimSum(steps, Reach(kernel[d], dilations[d])), Dim(extra[d]));
    if (given) {
      image[d] = Dim((*given)[d]);
    } else if (auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER") {
      image[d] = DimMin(full, DimProduct(stops[d], Dim(strides[d])));
    } else {
      image[d] = auto_pad == "VALID" ? full : DimDifference(full, DimSum(Dim(pads[d]), Dim(pads[d + rank])));
    }
  }
  c.Out(0).shape = ImageDims(x.Extent(0), DimProduct(k.Extent(1), Dim(c.Int("group", 1))), image);
}

void Col2ImRule(InferCall& c) {
  c.Out(0).type = c.In(0).type;
  const std::optional<KnownDims> image = c.ElementsOf(1), block = c.ElementsOf(2);
  if (!image) return;
  const KnownDim channels = block ? DimQuotient(c.In(0).Extent(1), DimProduct(*block)) : std::nullopt;
  c.Out(0).shape = ImageDims(c.In(0).Extent(0), channels, *image);
}

void PoolRule(InferCall& c) {
  c.Out(0).type = c.In(0).type;
  c.Out(1).type = ElementType::kInt64;
  if (!c.In(0).shape) return;
  const KnownDims& x = *c.In(0).shape;
  if (x.size() < 3) return c.Fail(absl::StrCat("takes [batch, channels, ...], not ", ShapeOfFact(c.In(0))));
  c.Out(0).shape = ImageDims(x[0], x[1], WindowStops(c, Spatial(x), KnownDims(x.size() - 2)));
  c.Out(1).shape = c.Out(0).shape;
}

void GlobalPoolRule(InferCall& c) {
  c.Like(0, 0);
  if (c.In(0).shape && c.In(0).shape->size() > 2)
    std::fill(c.Out(0).shape->begin() + 2, c.Out(0).shape->end(), KnownDim(Dim(1)));
}

void MaxUnpoolRule(InferCall& c) {
  c.Out(0).type = c.In(0).type;
  if (c.Has(2)) {
    c.Out(0).shape = c.ElementsOf(2);
    return;
  }
  if (!c.In(0).shape || c.In(0).shape->size() < 3) return;
  const size_t rank = c.In(0).shape->size() - 2;
  const std::vector<int64_t> kernel = EachAxis(c, "kernel_shape", rank, 1),
                             strides = EachAxis(c, "strides", rank, 1),
                             pads = EachAxis(c, "pads", 2 * rank, 0);
  c.Out(0).shape = c.In(0).shape;
  for (size_t d = 0; d < rank; ++d) {
    KnownDim& extent = (*c.Out(0).shape)[d + 2];
    const KnownDim steps = DimProduct(DimDifference(extent, Dim(1)), Dim(strides[d]));
    extent = DimDifference(DimSum(steps, Dim(kernel[d])), DimSum(Dim(pads[d]), Dim(pads[d + rank])));
  }
}

// ---- Resize

// floor(extent * scale), where floats and doubles agree on it.
KnownDim ScaledBy(const KnownDim& extent, double scale) {
  if (!extent || !(scale > 0) || scale > 1e6) return std::nullopt;
  const double inverse = 1 / scale;
  if (scale == std::floor(scale)) return DimProduct(extent, Dim(static_cast<int64_t>(scale)));
  const std::optional<int64_t> number = extent->value();
  if (!number) {
    const bool exact = inverse == std::floor(inverse) && std::exp2(std::ilogb(inverse)) == inverse;
    return exact ? DimFloor(extent, static_cast<int64_t>(inverse)) : std::nullopt;
  }
  const double precise = std::floor(static_cast<double>(*number) * scale);
  const float coarse = std::floor(static_cast<float>(*number) * static_cast<float>(scale));
  if (precise != static_cast<double>(coarse) || precise > 1e15) return std::nullopt;
  return Dim(static_cast<int64_t>(precise));
}

// All named axes by one scale, the largest or smallest of those asked for.
void KeepAspect(KnownDims& shape, const KnownDims& sizes, const std::vector<int64_t>& axes, bool not_larger) {
  double scale = 0;
  bool known = true;
  for (size_t k = 0; k < axes.size(); ++k) {
    const KnownDim &from = shape[axes[k]], &to = sizes[k];
    known = known && from && from->value().value_or(0) > 0 && to && to->value();
    if (!known) break;
    const double own = static_cast<double>(*to->value()) / static_cast<double>(*from->value());
    scale = k == 0 ? own : not_larger ? std::min(scale, own) : std::max(scale, own);
  }
  for (const int64_t axis : axes) {
    if (!known) {
      shape[axis].reset();
    } else {
      shape[axis] =
          Dim(static_cast<int64_t>(std::floor(scale * static_cast<double>(*shape[axis]->value()) + 0.5)));
    }
  }
}

void ResizeRule(InferCall& c) {
  OnnxFact& out = c.Out(0);
  out.type = c.In(0).type;
  const std::optional<int64_t> rank = c.In(0).Rank();
  if (!rank) return;
  const int scales_at = c.opset() < 11 ? 1 : 2, sizes_at = 3;
  std::vector<int64_t> all;
  for (int64_t d = 0; d < *rank; ++d) all.push_back(d);
  const std::optional<std::vector<int64_t>> axes = c.Axes(c.Ints("axes").value_or(all), *rank);
  if (!axes) return;
  out.shape = c.In(0).shape;
  const bool sized = c.opset() >= 11 && c.Has(sizes_at) && !IsNumber(c.In(sizes_at).Extent(0), 0);
  const std::optional<KnownDims> sizes = sized ? c.ElementsOf(sizes_at) : std::nullopt;
  const std::optional<std::vector<double>> scales = sized ? std::nullopt : c.Doubles(scales_at);
  if ((sizes && sizes->size() != axes->size()) || (scales && scales->size() != axes->size()))
    return c.Fail("scales or sizes are not one for each axis");
  const absl::string_view policy = c.Str("keep_aspect_ratio_policy", "stretch");
  if (sizes && policy != "stretch") return KeepAspect(*out.shape, *sizes, *axes, policy == "not_larger");
  for (size_t k = 0; k < axes->size(); ++k) {
    KnownDim& extent = (*out.shape)[(*axes)[k]];
    extent = sizes ? (*sizes)[k] : scales ? ScaledBy(extent, (*scales)[k]) : std::nullopt;
  }
}

void UpsampleRule(InferCall& c) {
  OnnxFact& out = c.Out(0);
  out.type = c.In(0).type;
  out.shape = c.In(0).shape;
  if (!out.shape) return;
  std::optional<std::vector<double>> scales = c.Doubles(1);
  const ::onnx::AttributeProto* given = c.Attr("scales");
  if (!c.Has(1) && given != nullptr) scales.emplace(given->floats().begin(), given->floats().end());
  if (scales && scales->size() != out.shape->size()) return c.Fail("scales are not one for each axis");
  for (size_t d = 0; d < out.shape->size(); ++d) {
    KnownDim& extent = (*out.shape)[d];
    extent = scales ? ScaledBy(extent, (*scales)[d]) : std::nullopt;
  }
}

// ---- sampling and boxes

void GridSampleRule(InferCall& c) {
  c.Out(0).type = c.In(0).type;
  if (!c.In(1).shape || c.In(1).shape->size() < 3) return;
  const KnownDims& grid = *c.In(1).shape;
  c.Out(0).shape = ImageDims(DimMeet(c.In(0).Extent(0), grid[0]), c.In(0).Extent(1),
                             KnownDims(grid.begin() + 1, grid.end() - 1));
}

void AffineGridRule(InferCall& c) {
  c.Out(0).type = c.In(0).type;
  const std::optional<KnownDims> size = c.ElementsOf(1);
  if (!size || size->size() < 4) return;
  KnownDims shape = {(*size)[0]};
  shape.insert(shape.end(), size->begin() + 2, size->end());
  shape.push_back(Dim(static_cast<int64_t>(size->size()) - 2));
  c.Out(0).shape = std::move(shape);
}

void RoiAlignRule(InferCall& c) {
  c.Out(0).type = c.In(0).type;
  c.Out(0).shape = KnownDims{c.In(1).Extent(0), c.In(0).Extent(1), Dim(c.Int("output_height", 1)),
                             Dim(c.Int("output_width", 1))};
}

void NonMaxSuppressionRule(InferCall& c) {
  c.Out(0).type = ElementType::kInt64;
  c.Out(0).shape = KnownDims{KnownDim(), Dim(3)};
}

void ImageDecoderRule(InferCall& c) {
  c.Out(0).type = ElementType::kUint8;
  c.Out(0).shape = KnownDims(3);
}

constexpr InferRow kRows[] = {
    {"Conv", ConvRule},
    {"ConvInteger", ConvIntegerRule},
    {"QLinearConv", QLinearConvRule},
    {"DeformConv", ConvRule},
    {"ConvTranspose", ConvTransposeRule},
    {"Col2Im", Col2ImRule},
    {"MaxPool", PoolRule},
    {"AveragePool", PoolRule},
    {"LpPool", PoolRule},
    {"GlobalMaxPool", GlobalPoolRule},
    {"GlobalAveragePool", GlobalPoolRule},
    {"GlobalLpPool", GlobalPoolRule},
    {"MaxUnpool", MaxUnpoolRule},
    {"Resize", ResizeRule},
    {"Upsample", UpsampleRule},
    {"GridSample", GridSampleRule},
    {"AffineGrid", AffineGridRule},
    {"RoiAlign", RoiAlignRule},
    {"NonMaxSuppression", NonMaxSuppressionRule},
    {"ImageDecoder", ImageDecoderRule},
};

}  // namespace

absl::Span<const InferRow> ImageRules() { return kRows; }

}  // namespace twinforge
