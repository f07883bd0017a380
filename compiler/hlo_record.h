// The optimised program as the TPU compiler gave it, read: cycles, layouts, copies, collectives.
//
// Any bytes may come: each number is checked, and what does not hold together is TF2106, never a crash.
//
//   cycles       the sum of window_config.estimated_cycles over the entry computation, as JAX's text shows it
//   copies       instructions of the entry that do nothing but change a layout: copy, or a fusion of copies,
//                transposes and bitcasts
//   moves        copies between memories (VMEM and back)
//   collectives  in all computations that the entry reaches
//   uncounted    ops at work in the entry that carry no estimate
#ifndef TWINFORGE_COMPILER_HLO_RECORD_H_
#define TWINFORGE_COMPILER_HLO_RECORD_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compiler/answer.pb.h"
#include "compiler/record.pb.h"

namespace twinforge {

// Names of a program's arguments in order; where there are fewer, "argument 3" stands in. `padded` predicts
// the bytes of an array that the compiler may lay as it likes; null, or what it gives below 1: not predicted.
struct ArgumentNotes {
  std::vector<std::string> names;
  std::function<int64_t(int64_t bits, absl::Span<const int64_t> dims)> padded;
};

// Everything of a CompiledModule that the program tells; hashes and counts are the caller's.
absl::StatusOr<CompiledModule> ReadOptimizedProgram(absl::string_view bytes, const ArgumentNotes& notes);

// The same with the memory that the answer tells; of a refusal, its words.
absl::StatusOr<CompiledModule> ReadAnswer(const CompilerAnswer& answer, const ArgumentNotes& notes);

}  // namespace twinforge

#endif  // TWINFORGE_COMPILER_HLO_RECORD_H_
