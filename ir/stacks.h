// Experts that a layout stores one by one, handled as one stack from file to graph and back: a layer of 256
// is one object and one rewrite, not 256. Private to layout.cc.
#ifndef TWINFORGE_IR_STACKS_H_
#define TWINFORGE_IR_STACKS_H_

#include "ir/layout.h"
#include "ir/layout_parts.h"

namespace twinforge {

// The stored tensors of a run, as one program [expert, factored extents...]. Null where they are no plain
// stack: one that is missing or looks otherwise, several parts in a tensor.
WeightPtr StackOf(const LayoutTensor& run, const StoredTensors& stored);

// `program` at `expert` of `axis`. A program that carries the experts of a kStack untouched gives that of one
// member, as if the others were not there.
WeightPtr ExpertOf(const WeightPtr& program, int64_t axis, int64_t expert);

}  // namespace twinforge

#endif  // TWINFORGE_IR_STACKS_H_
