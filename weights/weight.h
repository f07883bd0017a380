// A weight is a value that says how one tensor is made from stored tensors.
//
//   transpose([1, 0], take(source("model.embed.weight"), 0, [0:300 fill:20]))
//
// It is immutable, small (no element is held except a constant), and hash-consed: two
// equal programs are one object, so equality is pointer equality and tied embeddings
// are simply two parameters with one program. Twelve kinds, closed on purpose; every
// operation over them (shape, read, scratch size, simplify, invert, print, parse, hash)
// is one exhaustive switch without `default`, which the compiler checks.
//
//   kind       result                        children
//   kSource    a stored tensor               -
//   kStack     stored tensors, numbered      -     experts.0.w, experts.1.w, ...: [count, ...], read
//                                                  as one, so that a layer of 256 is one object
//   kFill      a constant everywhere         -
//   kTake      axis re-indexed by a map      1     fill places hold `fill`
//   kTranspose axes permuted                 1     result axis i is operand axis perm[i]
//   kReshape   same elements, other extents  1
//   kConcat    joined along an axis          >= 1
//   kCast      another dtype                 1     rounds to nearest even
//   kMap       x (op) y, elementwise         2     y broadcasts (numpy rules) to x's shape
//   kContract  a[..., m, k] x b[..., k, n]   2     equal leading extents, accumulated in f64
//   kStat      reduced over axes             1     axes kept with extent 1
//   kGroup     a function of each group      1     groups of `size` adjacent along `axis`
//
// Arithmetic verbs compute in f64 and round once to the result's dtype. Moving verbs
// never look at a value: bits arrive as they were, NaN payloads included.
//
// Build programs with build.h, which checks shapes and simplifies as it goes; this
// header is what consumers of programs read.
#ifndef TWINFORGE_WEIGHTS_WEIGHT_H_
#define TWINFORGE_WEIGHTS_WEIGHT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "weights/dtype.h"
#include "weights/index_map.h"
#include "weights/shape.h"

namespace twinforge {

class Weight;
using WeightPtr = std::shared_ptr<const Weight>;

enum class WeightKind : uint8_t {
  kSource,
  kFill,
  kTake,
  kTranspose,
  kReshape,
  kConcat,
  kCast,
  kMap,
  kContract,
  kStat,
  kGroup,
  kStack,
};

enum class MapFn : uint8_t { kAdd, kSub, kMul, kDiv };
enum class StatKind : uint8_t { kAbsMax, kMean, kSumSquares, kMin, kMax };
enum class GroupFn : uint8_t {
  kKeepLargest,  // keep the `keep` elements of largest magnitude of each group, others 0; ties: lowest index
                 // wins
  kScale,        // absmax of the group / largest code of `target`; axis shrinks by `size`; result f32
  kCodes,        // round(x / scale of the group) in `target`; same shape
};

class Weight {
 public:
  WeightKind kind() const { return kind_; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t rank() const { return static_cast<int64_t>(shape_.size()); }
  int64_t element_count() const { return element_count_; }
  const std::vector<WeightPtr>& children() const { return children_; }
  const WeightPtr& child(int i = 0) const { return children_[i]; }

  // Fields of single kinds; each names who may ask.
  const std::string& source_name() const { return name_; }           // kSource: tensor name
  const std::string& stack_name() const { return name_; }            // kStack: names without the number
  int64_t stack_at() const { return keep_; }                         // kStack: where the number stands in it
  int64_t stack_first() const { return axis_; }                      // kStack: number of the first member
  double fill() const { return fill_; }                              // kFill, kTake
  int64_t axis() const { return axis_; }                             // kTake, kConcat, kGroup
  const IndexMap& map() const { return map_; }                       // kTake
  const std::vector<int64_t>& perm() const { return list_; }         // kTranspose
  const std::vector<int64_t>& axes() const { return list_; }         // kStat
  MapFn map_fn() const { return static_cast<MapFn>(fn_); }           // kMap
  StatKind stat_kind() const { return static_cast<StatKind>(fn_); }  // kStat
  GroupFn group_fn() const { return static_cast<GroupFn>(fn_); }     // kGroup
  int64_t group_size() const { return size_; }                       // kGroup
  int64_t keep() const { return keep_; }                             // kGroup, kKeepLargest
  DType group_target() const { return target_; }                     // kGroup, kScale and kCodes

  // Equal for structurally equal programs, stable between runs and machines.
  uint64_t hash() const { return hash_; }

  ~Weight();

 private:
  friend class WeightPool;
  Weight() = default;
  Weight(Weight&&) = default;

  bool pooled_ = false;  // known to the pool, which forgets it at its end

  WeightKind kind_ = WeightKind::kFill;
  DType dtype_ = DType::kF32;
  DType target_ = DType::kF32;
  uint8_t fn_ = 0;
  int64_t axis_ = 0;
  int64_t size_ = 0;
  int64_t keep_ = 0;
  int64_t element_count_ = 1;
  double fill_ = 0;
  uint64_t hash_ = 0;
  Shape shape_;
  std::vector<int64_t> list_;
  IndexMap map_;
  std::string name_;
  std::vector<WeightPtr> children_;
};

// Whether `w` only moves stored elements and constants: Source, Stack, Fill, Take, Transpose,
// Reshape, Concat all the way down.
bool OnlyMoves(const WeightPtr& w);

// The name of a kStack's member `i` of shape()[0], counted from 0; the member itself, a kSource.
std::string StackMemberName(const Weight& stack, int64_t i);
WeightPtr StackMember(const Weight& stack, int64_t i);

// The names of all stored tensors that `w` reads, each once, in ascending order.
std::vector<std::string> SourcesOf(const WeightPtr& w);

// How many Weight objects are reachable from `w`, shared ones once.
int64_t ProgramSize(const WeightPtr& w);

}  // namespace twinforge

#endif  // TWINFORGE_WEIGHTS_WEIGHT_H_
