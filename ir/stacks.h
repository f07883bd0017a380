// Experts that a layout stores one by one, handled as one stack from file to graph and back: a layer of 256
// is one object and one rewrite, not 256. Private to layout.cc.
#ifndef TWINFORGE_IR_STACKS_H_
#define TWINFORGE_IR_STACKS_H_

#include "absl/types/span.h"
#include "ir/layout.h"
#include "ir/layout_parts.h"

namespace twinforge {

// Whether `tensor` differs from `last` only in which expert of one stack it holds: what was worked out for
// one holds for the other.
bool IsNextExpert(const LayoutTensor& last, const LayoutTensor& tensor);

// The stored experts that begin at tensors[0], as one program [expert, factored extents...], and how many
// they are. Null where they are no plain stack: names that do not count from 0, one that is missing or looks
// otherwise, several parts in a tensor.
struct StoredStack {
  WeightPtr program;
  int64_t count = 0;
};
StoredStack StackAt(absl::Span<const LayoutTensor> tensors, int64_t experts, const StoredTensors& stored);

// `program` at `expert` of `axis`. A program that carries the experts of a kStack untouched gives that of one
// member, as if the others were not there.
WeightPtr ExpertOf(const WeightPtr& program, int64_t axis, int64_t expert);

}  // namespace twinforge

#endif  // TWINFORGE_IR_STACKS_H_
