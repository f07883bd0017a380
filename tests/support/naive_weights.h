// The oracle for weight programs: whole tensors, one element at a time, by definition.
//
// Nothing here shares code with weights/read*.cc or weights/simplify.cc, and nothing here
// tries to be fast. A test that disagrees with this file is right only if weight.h says so.
#ifndef TWINFORGE_TESTS_SUPPORT_NAIVE_WEIGHTS_H_
#define TWINFORGE_TESTS_SUPPORT_NAIVE_WEIGHTS_H_

#include <atomic>
#include <map>
#include <string>
#include <vector>

#include "weights/read.h"
#include "weights/weight.h"

namespace twinforge {

// A whole tensor in memory, row-major, unpacked.
struct NaiveTensor {
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<std::byte> data;

  NaiveTensor() = default;
  NaiveTensor(DType dtype, Shape shape);  // all bits zero
  const std::byte* at(int64_t i) const { return data.data() + i * ElementBytes(dtype); }
  std::byte* at(int64_t i) { return data.data() + i * ElementBytes(dtype); }
};

using NaiveTensors = std::map<std::string, NaiveTensor>;

// One function per verb.
NaiveTensor NaiveFill(double value, DType dtype, const Shape& shape);
NaiveTensor NaiveTake(const NaiveTensor& x, int64_t axis, const IndexMap& map, double fill);
NaiveTensor NaiveTranspose(const NaiveTensor& x, const std::vector<int64_t>& perm);
NaiveTensor NaiveReshape(const NaiveTensor& x, const Shape& shape);
NaiveTensor NaiveConcat(int64_t axis, const std::vector<NaiveTensor>& xs);
NaiveTensor NaiveCast(const NaiveTensor& x, DType dtype);
NaiveTensor NaiveMap(MapFn fn, const NaiveTensor& x, const NaiveTensor& y);
NaiveTensor NaiveContract(const NaiveTensor& a, const NaiveTensor& b);
NaiveTensor NaiveStat(StatKind kind, const NaiveTensor& x, const std::vector<int64_t>& axes);
NaiveTensor NaiveKeepLargest(const NaiveTensor& x, int64_t axis, int64_t size, int64_t keep);
NaiveTensor NaiveGroupScale(const NaiveTensor& x, int64_t axis, int64_t size, DType target);
NaiveTensor NaiveGroupCodes(const NaiveTensor& x, int64_t axis, int64_t size, DType target);

// The value of a program. Every source must be in `sources`.
NaiveTensor NaiveValue(const WeightPtr& w, const NaiveTensors& sources);

// The elements of a box.
NaiveTensor NaiveBox(const NaiveTensor& x, const Box& box);

// "" where both hold the same elements: the same bits, or NaN on both sides. Otherwise
// the first difference, in words.
std::string Difference(const NaiveTensor& want, const NaiveTensor& got);
// The same, NaN payloads included.
std::string BitDifference(const NaiveTensor& want, const NaiveTensor& got);

// Stored tensors in memory. Refuses reads outside a tensor or of unknown ones.
class MemoryReader : public TensorReader {
 public:
  explicit MemoryReader(const NaiveTensors& tensors) : tensors_(tensors) {}
  absl::Status ReadElements(const Weight& source, int64_t first, int64_t count,
                            std::byte* out) const override;
  int64_t calls() const { return calls_; }
  int64_t elements() const { return elements_; }

 private:
  const NaiveTensors& tensors_;
  mutable std::atomic<int64_t> calls_{0};
  mutable std::atomic<int64_t> elements_{0};
};

}  // namespace twinforge

#endif  // TWINFORGE_TESTS_SUPPORT_NAIVE_WEIGHTS_H_
