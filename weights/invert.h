// Turning back: from the programs that made a twin's tensors to programs that make the
// source's tensors out of the twin's, derived and never written by hand.
//
// Each twin program is walked from its root with the path back carried along; what
// reaches a source is a piece of it. A source all of whose elements are reached gets a
// program over Source nodes that name *twin* tensors. The others say why not. The same
// walk is the ledger: which source elements the twin holds, and which rule dropped the rest.
//
// Arithmetic with another source tensor (a norm's scale folded into a kernel, a merged
// LoRA) is undone where the twin holds that tensor too. Whether a factor has zeros is not
// known from headers; proof over the real bytes finds out.
#ifndef TWINFORGE_WEIGHTS_INVERT_H_
#define TWINFORGE_WEIGHTS_INVERT_H_

#include <map>
#include <string>
#include <vector>

#include "weights/weight.h"

namespace twinforge {

struct NamedProgram {
  std::string name;   // tensor name in the output
  WeightPtr program;  // over source tensors
};

enum class Fate {
  kMoved,     // every element is in the twin, bit for bit
  kRescaled,  // every element is there, times or plus what is known: back within rounding
  kRounded,   // every element is there after a lossy cast
  kPartial,   // some elements are nowhere in the twin
  kConsumed,  // only through a contraction, statistic or group: cannot be turned back
  kUnused,    // no program reads it
};
absl::string_view FateName(Fate fate);

struct LedgerRow {
  std::string source;  // source tensor name
  Fate fate = Fate::kUnused;
  std::vector<std::string> consumers;  // twin tensors that read it, ascending
  WeightPtr inverse;                   // over twin tensors; null for kPartial, kConsumed, kUnused
  std::string reason;                  // for those three: why
};

// One row per entry of `sources` (kSource nodes), in their order.
// Linear in the size of programs plus runs of their maps.
std::vector<LedgerRow> Invert(const std::vector<NamedProgram>& twin, const std::vector<WeightPtr>& sources);
// The same rows without their inverses, which is most of the work: for whoever asks only what became of what.
std::vector<LedgerRow> Ledger(const std::vector<NamedProgram>& twin, const std::vector<WeightPtr>& sources);

}  // namespace twinforge

#endif  // TWINFORGE_WEIGHTS_INVERT_H_
