// A large model made small enough to be computed, with the same divisibility troubles.
//
//   layers     one of each kind (ops, attributes, extents, in the source and in the twin), and the last
//   extents    d_model, heads, d_ff, vocab, experts, ...: the least that are congruent to the real ones
//   modulo
//              what the recipe's steps divide by, as long as the recipe does the same to the small model
//   windows    shortened, so that inputs reach past them
//
// head_dim and what rotary tables are made of stay as they are: constants of the model follow from them.
// "Does the same" is checked, not assumed: in every kept block the small twin must be stamped by the same
// steps, padded along the same axes, stored and bundled alike. What can't be shrunk so keeps its size.
#ifndef TWINFORGE_PROOF_SHRINK_H_
#define TWINFORGE_PROOF_SHRINK_H_

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/graph.h"

namespace twinforge {

// An axis at one of its extents: {"d_ff", 11008}.
using AxisExtent = std::pair<std::string, int64_t>;

struct SmallForm {
  std::set<int64_t> layers;               // kept
  std::map<AxisExtent, int64_t> extents;  // those that change
};

struct ShrunkModel {
  Graph source;  // as small as it goes
  Graph twin;    // the recipe, run on it
  SmallForm form;
  std::string text;  // "2 of 32 layers; d_ff 11008 -> 256, vocab 32000 -> 256"
};

// `source` at a smaller form. Parameters read stored tensors named by role; tied ones stay tied.
// TF1501 where the graph can't be cut like that.
absl::StatusOr<Graph> Shrunk(const Graph& source, const SmallForm& form);

// One layer of each kind, and the last.
std::set<int64_t> LayersOfEachKind(const Graph& source, const Graph& twin);

// Whether the recipe did to the small model what it did to the real one; "" or the first place where not.
std::string UnlikeTwin(const Graph& real, const Graph& small);

struct ShrinkRequest {
  const Graph& source;
  const Graph& twin;                                       // or the same for the kept layers alone
  std::set<int64_t> layers;                                // kept
  std::vector<int64_t> moduli;                             // numbers that steps divide by; 1 among them
  std::map<std::string, int64_t> held;                     // by axis: the modulus that must be kept
  std::function<absl::StatusOr<Graph>(const Graph&)> run;  // the recipe, on another source
};
// TF1501 where not even the real extents, layers cut, make the recipe do the same.
absl::StatusOr<ShrunkModel> ShrinkModel(const ShrinkRequest& request);

}  // namespace twinforge

#endif  // TWINFORGE_PROOF_SHRINK_H_
