// Which recipe to use: each one's twin on a chip, as bounds, estimates and the TPU compiler see it.
//
//   Advise(llama, {.chip = "v6e", .workload = {.batch = 8}})
//     tpu-exact-native    R3 1.000    R8 1.000    layouts 1.062    compiler: gain    recommended
//
// A recipe is recommended only where all three agree: no loss at R3, a gain at the last rung beyond its
// doubt, the compiler not against. Of layouts the estimate knows nothing but the compiler's word: a recipe
// that moves nothing else is judged with the R4 term that this word makes. Where they disagree all three are
// shown. A model that the chip refuses as it is (it does not fit, its sizes do not divide) is said with the
// recipes whose twins it takes.
#ifndef TWINFORGE_RECIPES_ADVISE_H_
#define TWINFORGE_RECIPES_ADVISE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cost/asymmetry.h"
#include "cost/compiled.h"
#include "ir/model.h"
#include "recipes/plan.h"

namespace twinforge {

struct AdviceRequest {
  std::string chip;
  std::string against;  // another chip, or ""
  Workload workload;    // the twins are made for workload.shards devices
  std::string stack;
  std::string format = "bf16";
  std::string kernel;                // as TwinTarget's
  std::vector<std::string> recipes;  // names or files beside the library's
};

enum class AdviceVerdict : uint8_t {
  kRecommended,
  kEnables,         // the chip takes the twin and refuses the source
  kNotRecommended,  // somebody sees a loss, or nobody a gain
  kNothingToDo,     // the recipe finds no place
  kRefused,         // the recipe refuses the model, or the chip the twin
};
absl::string_view Name(AdviceVerdict verdict);  // "recommended"

// What the compiler says of one rewrite alone, against the layer or head as published.
struct RewriteWord {
  std::string rewrite;  // "pad_vocab"
  std::string of;       // "layer" or "head"
  CompiledWord word;
};

struct RefusedPlaces {
  std::string step;
  std::string reason;
  int64_t places = 0;
};

struct Advice {
  std::string recipe;
  AdviceVerdict verdict = AdviceVerdict::kRefused;
  std::string reason;              // of the verdict, in words
  absl::Status refusal;            // kRefused
  std::vector<std::string> steps;  // transforms that rewrote something
  Fidelity fidelity = Fidelity::kMoved;
  double rounding = 0;  // how far one of its weights may be off, as a part of its magnitude
  std::vector<RefusedPlaces> refused;
  int64_t elements_added = 0;  // stored elements of the twin less those of the source
  // Of one device, the twin's less the source's; empty where the source's sizes do not divide.
  std::optional<int64_t> parameter_bytes;
  std::optional<int64_t> cache_bytes;
  // Times of the source over the twin's; empty where the chip refuses one of them.
  std::string attacks;  // the rung, of those that its steps are for, where it gains most: "R2"
  std::optional<double> gain_at;
  std::optional<double> gain_at_bounds;  // R3
  std::optional<Interval> gain;          // last rung
  // Of a twin that moves nothing but layouts, by the compiler's word at R4 (layout_term.h): class C.
  std::optional<Interval> layout_gain;
  std::optional<double> twin_seconds;
  std::vector<RewriteWord> words;
  // Of all words: -1 some see a gain and none a loss, +1 some a loss, 0 no change; empty: nobody knows.
  std::optional<int> compiler;
  std::vector<std::string> notes;
  std::optional<Asymmetry> asymmetry;
};

struct AdviceReport {
  absl::Status source;  // why the chip refuses the model as it is
  double source_seconds = 0;
  std::vector<Advice> advice;  // best first
};

// Refuses an unknown chip, engine or recipe, and a request that no twin changes (TF1703, TF1705, TF1706).
absl::StatusOr<AdviceReport> Advise(const Model& model, const AdviceRequest& request);

}  // namespace twinforge

#endif  // TWINFORGE_RECIPES_ADVISE_H_
