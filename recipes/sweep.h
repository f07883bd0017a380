// Every combination of a recipe's swept keys and of the steps that are asked about, scored; those that
// nothing beats.
//
//   pad_ffn.multiple 128, 256   x   batch 8, 16   x   mesh tp=4, tp=8       8 variants
//     variant 3   pad_ffn.multiple 128, batch 16, mesh tp=8   R8 5.1 ms, 0.64 GB a device, MOVED, 0 elements
//
// One variant beats another where it is no worse in all of: seconds of a step at the last rung, chip-seconds
// of a token, bytes of one device, fidelity and its bound, elements added, bits of weights, activations and
// caches, and, against another chip, what it gains here beyond there.
//
// Variants that begin alike share the twin's beginning: steps are undone no further than to the first that
// differs. The report does not depend on the number of threads.
#ifndef TWINFORGE_RECIPES_SWEEP_H_
#define TWINFORGE_RECIPES_SWEEP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cost/asymmetry.h"
#include "cost/forecast.h"
#include "ir/model.h"
#include "recipes/run.h"
#include "recipes/sweep_axes.h"

namespace twinforge {

inline constexpr int64_t kMostVariants = 100000;

// A step that variants are scored on.
struct SweptStep {
  std::vector<std::string> values;  // one for each of the step's axes
  absl::Status refused;             // why there is no such step: mesh and chips disagree
  Workload workload;
  std::string format;
};

struct SweepQuestion {
  TwinTarget target;    // its shards are those of each step
  std::string against;  // another chip, or ""
  std::string stack;
  std::vector<SweepAxis> step_axes;
  std::vector<SweptStep> steps;  // every combination of their values, the first axis slowest
  int threads = 1;
};

struct Variant {
  int64_t number = 0;    // in the order of the axes, those of the recipe first, the first slowest
  absl::Status refused;  // by the recipe's steps or by the chip
  Interval seconds;
  double bound = 0;                   // R3
  double chip_seconds_per_token = 0;  // of all devices
  int64_t parameter_bytes = 0;        // of one device
  int64_t cache_bytes = 0;
  Fidelity fidelity = Fidelity::kMoved;
  double rounding = 0;
  int64_t elements_added = 0;
  int64_t rewritten = 0;  // places
  int64_t places_refused = 0;
  std::optional<double> gain;       // the source's time over this, where the chip takes the source
  std::optional<double> advantage;  // at the last rung, where both chips take source and twin
};

struct BestVariant {
  Variant variant;
  int64_t alike = 0;  // variants that are as good in all respects
  std::optional<Asymmetry> asymmetry;
};

struct RefusedVariant {
  int64_t number = 0;
  absl::Status why;
};

struct SweepReport {
  std::vector<SweepAxis> axes;  // in the order that numbers count
  int64_t variants = 0;
  int64_t scored = 0;
  std::vector<BestVariant> best;        // the Pareto set, by seconds
  std::vector<RefusedVariant> refused;  // ascending
};

// The values of variant `number`, one for each axis.
std::vector<std::string> ValuesOf(const std::vector<SweepAxis>& axes, int64_t number);

// The product of the axes' values; TF1113 for more than kMostVariants.
absl::StatusOr<int64_t> CountVariants(const std::vector<SweepAxis>& axes);

// TF1113 for too many variants, or keys that name nothing. A recipe without steps scores the model as it is.
// Adapters are opened once.
absl::StatusOr<SweepReport> SweepVariants(Model model, LoadedRecipe recipe, const SweepQuestion& question);

}  // namespace twinforge

#endif  // TWINFORGE_RECIPES_SWEEP_H_
