// One function of StableHLO while it is written: each call appends an operation and returns its value.
//
//   MlirValue y = body.Elementwise("add", {x, z});      //   %3 = stablehlo.add %1, %2 : tensor<2x3xf32>
//
// Shapes are numbers. What is written twice stands once: every operation here is pure. What changes nothing
// (a reshape to the same shape, a transpose that moves no axis) is not written at all.
// Spellings are those of the StableHLO specification, in the form that MLIR prints.
#ifndef TWINFORGE_REFERENCE_STABLEHLO_MLIR_BODY_H_
#define TWINFORGE_REFERENCE_STABLEHLO_MLIR_BODY_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "weights/dtype.h"
#include "weights/shape.h"

namespace twinforge {

struct MlirType {
  DType dtype = DType::kF32;
  Shape shape;
  bool operator==(const MlirType&) const = default;
};

struct MlirValue {
  std::string name;  // "%3", "%3#1", "%q"
  MlirType type;
};

// "f32", "f8E4M3FN"; "tensor<2x3xf32>"; "(tensor<2xf32>, tensor<i1>)".
absl::string_view MlirName(DType dtype);
std::string MlirText(const MlirType& type);
std::string MlirTypes(const std::vector<MlirValue>& values);
// "%a, %b"
std::string MlirNames(const std::vector<MlirValue>& values);
// "[0, 2]"
std::string MlirList(const std::vector<int64_t>& numbers);
// A number as MLIR reads it back to the same value of `dtype`, with the fewest digits: "0.25", "0xFF800000".
std::string MlirLiteral(DType dtype, double value);
// `text` as an MLIR identifier: letters, digits, '_' and '.' stay. Names with '$' are those of inner regions.
std::string MlirIdentifier(absl::string_view text);

class MlirBody {
 public:
  // `prefix` sets the names of a nested region apart: "%s0". `indent` stands before each line.
  explicit MlirBody(std::string prefix = "", int indent = 4)
      : prefix_(std::move(prefix)), indent_(indent, ' ') {}

  const std::string& text() const { return text_; }

  // `written` as it stands after "%n = ", which may hold regions over several lines.
  MlirValue Op(const std::string& written, MlirType result);
  // The same with several results: "%n:2 = ".
  std::vector<MlirValue> Ops(const std::string& written, const std::vector<MlirType>& results);
  // A line that has no result: a region's return.
  void Line(absl::string_view text);

  MlirValue Elementwise(absl::string_view op, const std::vector<MlirValue>& operands);
  MlirValue Compare(absl::string_view direction, const MlirValue& x, const MlirValue& y);
  MlirValue Select(const MlirValue& p, const MlirValue& x, const MlirValue& y);
  MlirValue Convert(const MlirValue& x, DType dtype);
  MlirValue Constant(double value, const MlirType& type);
  // One value for all, or one each, row-major.
  MlirValue Constants(const std::vector<double>& values, const MlirType& type);
  MlirValue Iota(const MlirType& type, int64_t axis);
  // Axis i of x becomes axis places[i] of the result.
  MlirValue Broadcast(const MlirValue& x, const Shape& shape, const std::vector<int64_t>& places);
  MlirValue Reshape(const MlirValue& x, const Shape& shape);
  MlirValue Transpose(const MlirValue& x, const std::vector<int64_t>& permutation);
  MlirValue Slice(const MlirValue& x, int64_t axis, int64_t start, int64_t size);
  MlirValue Concat(const std::vector<MlirValue>& xs, int64_t axis);
  struct Padding {
    int64_t axis = 0, low = 0, high = 0, interior = 0;
    double value = 0;
  };
  MlirValue Pad(const MlirValue& x, const Padding& padding);
  MlirValue Reverse(const MlirValue& x, int64_t axis);
  // `op`: "add", "maximum", "minimum"; from `initial`.
  MlirValue Reduce(absl::string_view op, const MlirValue& x, const std::vector<int64_t>& axes, double initial);
  struct Product {
    std::vector<int64_t> x_batch, y_batch, x_contract, y_contract;
  };
  // Of x's dtype. Products of f32 and f64 are asked for in full, those of narrower types as the chip has
  // them: a TPU multiplies bf16 and adds in f32.
  MlirValue Dot(const MlirValue& x, const MlirValue& y, const Product& product);
  // x[i.., j, k..] at j = index[i.., n..], axes before `axis` shared: [i.., n.., k..].
  MlirValue Gather(const MlirValue& x, const MlirValue& index, int64_t axis);
  // x with `update` at the given places, one scalar for each axis.
  MlirValue UpdateSlice(const MlirValue& x, const MlirValue& update, const std::vector<MlirValue>& at);
  MlirValue DynamicSlice(const MlirValue& x, const std::vector<MlirValue>& at, const Shape& sizes);

 private:
  std::string NextName();

  std::string prefix_, indent_;
  std::string text_;
  int64_t count_ = 0;
  absl::flat_hash_map<std::string, MlirValue> known_;
};

}  // namespace twinforge

#endif  // TWINFORGE_REFERENCE_STABLEHLO_MLIR_BODY_H_
