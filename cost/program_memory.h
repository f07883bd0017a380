// What a device holds of the program that is compiled: each stored tensor as the program takes it, each cache
// whole.
//
//   qkv of 48 channels      one array [48, 96], not three that tiles pad each by themselves
//   a layer with a window   a cache of as many places as the program was written for
//
// CountStep() counts what any execution must keep: parameters one by one, of a window what later places may
// see. A program joins what a bundle joins, and has a cache of one length.
#ifndef TWINFORGE_COST_PROGRAM_MEMORY_H_
#define TWINFORGE_COST_PROGRAM_MEMORY_H_

#include "cost/counts.h"
#include "cost/exact.h"
#include "ir/graph.h"

namespace twinforge {

// Bytes of one device, with the padding of tiles.
struct ProgramMemory {
  Exact weights;
  Exact cache;
};

// `count`: of CountStep() on `graph`, one stage. `places`: of each cache.
ProgramMemory MemoryOfProgram(const Graph& graph, const StepCount& count, int64_t places);

}  // namespace twinforge

#endif  // TWINFORGE_COST_PROGRAM_MEMORY_H_
