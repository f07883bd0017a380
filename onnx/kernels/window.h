// A window that slides over an image of any rank: which element each place of the window meets at each stop.
#ifndef TWINFORGE_ONNX_KERNELS_WINDOW_H_
#define TWINFORGE_ONNX_KERNELS_WINDOW_H_

#include <vector>

#include "onnx/op_call.h"

namespace twinforge {

struct SlidingWindow {
  Shape image, kernel, stops;
  std::vector<int64_t> strides, dilations, low, high;  // per axis; low and high: the padding
  int64_t image_count = 1, kernel_count = 1, stop_count = 1;
  // [kernel_count][stop_count]: the element of the image, kPadding, or kBeyond where ceil_mode reaches past
  // the padding.
  std::vector<int64_t> at;
};
inline constexpr int64_t kPadding = -1, kBeyond = -2;

// From the attributes kernel_shape, strides, dilations, pads, auto_pad and ceil_mode. `kernel`: where the
// attribute is absent. Failures are the call's.
SlidingWindow WindowOf(OpCall& c, const Shape& image, const Shape& kernel);

// The same with all numbers given: stops are those that the padded image holds.
void FillWindow(OpCall& c, SlidingWindow& w);

// Attributes of one number for each axis, with a default; a failure where they are of another length or <
// `least`.
std::vector<int64_t> PerAxis(OpCall& c, const char* name, size_t count, int64_t absent, int64_t least);

}  // namespace twinforge

#endif  // TWINFORGE_ONNX_KERNELS_WINDOW_H_
