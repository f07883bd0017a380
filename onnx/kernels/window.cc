#include "onnx/kernels/window.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "onnx/kernels/places.h"

namespace twinforge {
namespace {

constexpr int64_t kMost = 1 << 30;  // of a stride, dilation or padding: no product overflows

int64_t Reach(const SlidingWindow& w, size_t d) { return (w.kernel[d] - 1) * w.dilations[d] + 1; }

// SAME: as many stops as strides fit the image, padding as they need.
void PadSame(SlidingWindow& w, bool upper) {
  for (size_t d = 0; d < w.image.size(); ++d) {
    w.stops[d] = (w.image[d] + w.strides[d] - 1) / w.strides[d];
    const int64_t pad = std::max<int64_t>(0, (w.stops[d] - 1) * w.strides[d] + Reach(w, d) - w.image[d]);
    w.low[d] = upper ? pad / 2 : pad - pad / 2;
    w.high[d] = pad - w.low[d];
  }
}

void CountStops(OpCall& c, SlidingWindow& w, bool ceil_mode) {
  for (size_t d = 0; d < w.image.size(); ++d) {
    const int64_t room = w.image[d] + w.low[d] + w.high[d] - Reach(w, d);
    if (room < 0)
      return c.Fail(absl::StrCat("a window of ", Reach(w, d), " does not fit an axis of ", w.image[d]));
    w.stops[d] = room / w.strides[d] + 1;
    const bool more = ceil_mode && room % w.strides[d] != 0;
    // A last stop that begins in the padding behind the image is none.
    if (more && w.stops[d] * w.strides[d] < w.image[d] + w.low[d]) ++w.stops[d];
  }
}

}  // namespace

std::vector<int64_t> PerAxis(OpCall& c, const char* name, size_t count, int64_t absent, int64_t least) {
  std::vector<int64_t> values = c.IntsAttr(name, std::vector<int64_t>(count, absent));
  if (values.size() != count) c.Fail(absl::StrCat(name, " is not one number for each axis"));
  for (const int64_t v : values) {
    if (v < least || v > kMost) c.Fail(absl::StrCat(name, " has ", v));
  }
  values.resize(count, absent);
  return values;
}

void FillWindow(OpCall& c, SlidingWindow& w) {
  for (size_t d = 0; d < w.image.size(); ++d) {
    w.image_count *= w.image[d];
    w.kernel_count *= w.kernel[d];
  }
  if (!c.Affordable(w.stops) || !c.Affordable({w.kernel_count, ElementCount(w.stops)})) return;
  w.stop_count = ElementCount(w.stops);
  w.at.resize(static_cast<size_t>(w.kernel_count * w.stop_count));
  const std::vector<int64_t> strides = Strides(w.image);
  std::vector<int64_t> k(w.image.size());
  size_t out = 0;
  if (w.kernel_count == 0 || w.stop_count == 0) return;
  do {
    std::vector<int64_t> stop(w.image.size());
    do {
      int64_t at = 0;
      for (size_t d = 0; d < w.image.size(); ++d) {
        const int64_t i = stop[d] * w.strides[d] + k[d] * w.dilations[d] - w.low[d];
        if (i >= w.image[d] + w.high[d]) at = kBeyond;
        if ((i < 0 || i >= w.image[d]) && at >= 0) at = kPadding;
        if (at >= 0) at += i * strides[d];
      }
      w.at[out++] = at;
    } while (NextPlace(w.stops, stop));
  } while (NextPlace(w.kernel, k));
}

SlidingWindow WindowOf(OpCall& c, const Shape& image, const Shape& kernel) {
  SlidingWindow w;
  const size_t rank = image.size();
  w.image = image;
  w.kernel = c.IntsAttr("kernel_shape", kernel);
  if (w.kernel.size() != rank) c.Fail("kernel_shape is not one extent for each axis");
  for (const int64_t extent : w.kernel) {
    if (extent < 1 || extent > kMost) c.Fail(absl::StrCat("kernel_shape has ", extent));
  }
  w.strides = PerAxis(c, "strides", rank, 1, 1);
  w.dilations = PerAxis(c, "dilations", rank, 1, 1);
  const std::vector<int64_t> pads = PerAxis(c, "pads", 2 * rank, 0, 0);
  if (!c.ok()) return w;
  w.low.assign(pads.begin(), pads.begin() + static_cast<int64_t>(rank));
  w.high.assign(pads.begin() + static_cast<int64_t>(rank), pads.end());
  w.stops.resize(rank);
  const std::string auto_pad = c.Str("auto_pad", "NOTSET");
  if (auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER") {
    PadSame(w, auto_pad == "SAME_UPPER");
  } else {
    if (auto_pad == "VALID") w.low.assign(rank, 0), w.high.assign(rank, 0);
    CountStops(c, w, c.Int("ceil_mode", 0) != 0);
  }
  if (c.ok()) FillWindow(c, w);
  return w;
}

}  // namespace twinforge
