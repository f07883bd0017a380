// Mistakes that a transform, or whoever edits a twin, could make: each a function that damages a graph.
//
// They are made on purpose, one at a time, right after a step of a recipe on a small model of a family; the
// recipe then goes on. What `prove` finds of them is published in docs/verification.md.
#ifndef TWINFORGE_TESTS_PROOF_SEEDED_BUGS_H_
#define TWINFORGE_TESTS_PROOF_SEEDED_BUGS_H_

#include <functional>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/rewriter.h"

namespace twinforge {

struct SeededBug {
  std::string name;    // as published
  std::string model;   // of SmallConfigs()
  std::string recipe;  // its steps
  size_t after;        // the step, from 1, that the bug is in
  std::string place;   // block or layer where it is to be found; "" for the whole model
  std::function<void(Rewriter&)> strike;
};

// Bugs of attention, of feed-forward blocks, of everything else.
std::vector<SeededBug> AttentionBugs();
std::vector<SeededBug> FeedForwardBugs();
std::vector<SeededBug> ModelBugs();

// ---- ways to damage

// Attributes of the node at `path`.
std::function<void(Rewriter&)> Attrs(std::string path, std::function<void(OpAttrs&)> change);
// The program of `role`; the result has the old extents.
using ProgramChange = std::function<WeightPtr(const Graph&, const Param&)>;
std::function<void(Rewriter&)> Program(std::string role, ProgramChange change);
// One after the other.
std::function<void(Rewriter&)> Both(std::function<void(Rewriter&)> first,
                                    std::function<void(Rewriter&)> second);
// An axis of `role` read in another order: place i holds what stood at order[i].
std::function<void(Rewriter&)> Reordered(std::string role, std::string axis,
                                         std::function<std::vector<int64_t>(int64_t size)> order);
// Two parameters of equal extents change places.
std::function<void(Rewriter&)> Swapped(std::string a, std::string b);
std::function<void(Rewriter&)> Scaled(std::string role, double factor);
// The parameter in `slot` is forgotten.
std::function<void(Rewriter&)> Dropped(std::string path, std::string slot);
// The padded places of an axis are taken for real ones.
std::function<void(Rewriter&)> Unpadded(std::string role, std::string axis);

}  // namespace twinforge

#endif  // TWINFORGE_TESTS_PROOF_SEEDED_BUGS_H_
