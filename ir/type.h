// What a value or a parameter is: dtype and named axes.
//
//   f32[batch, seq, vocab=320~300]             an activation; 20 of 320 places are padding
//   bf16[d_model=64 -> heads=4, head_dim=16]   a kernel: in axes, then out axes
//   bf16[expert=8; d_model=64 -> d_ff=24]      a stack of kernels: lead axes before ';'
//   bf16[d_model=64]                           a vector
//   bf16[d_model=64 -> d_ff=96~90/4]           split over 4 devices along d_ff, 24 places each
//
// An axis has a name, a size and, where it was padded, a smaller *logical* size, so that
// waste is visible to cost, masking and exporters alike. Kernels have one orientation in
// the house: lead axes, in axes, out axes, split where meaning splits. How a kernel lies
// in a file is its Storage (storage.h), not its type.
#ifndef TWINFORGE_IR_TYPE_H_
#define TWINFORGE_IR_TYPE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "ir/dim.h"
#include "weights/dtype.h"
#include "weights/shape.h"

namespace twinforge {

struct Axis {
  std::string name;
  Dim size;
  int64_t logical = 0;  // 0: not padded
  bool operator==(const Axis&) const = default;
};

struct Type {
  DType dtype = DType::kF32;
  std::vector<Axis> axes;
  bool operator==(const Type&) const = default;
};

struct ParamAxis {
  std::string name;
  int64_t size = 0;
  int64_t logical = 0;  // == size where not padded
  int64_t shards = 1;   // equal parts that devices hold one of each; divides size
  bool padded() const { return logical != size; }
  bool operator==(const ParamAxis&) const = default;
};

struct ParamType {
  DType dtype = DType::kBF16;
  std::vector<ParamAxis> axes;  // lead, in, out
  int lead = 0;                 // axes before ';'
  int in = 0;                   // axes between ';' and '->'; 0 for vectors
  bool operator==(const ParamType&) const = default;

  Shape shape() const;
  // Index of the axis called `name`, or -1.
  int Find(absl::string_view name) const;
  // REQUIRES: the axis exists.
  const ParamAxis& Get(absl::string_view name) const;
  bool is_kernel() const { return in > 0; }
};

std::string Text(const Type& type);
std::string Text(const ParamType& type);

}  // namespace twinforge

#endif  // TWINFORGE_IR_TYPE_H_
