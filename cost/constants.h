// What steps cost beyond their bounds, by name: each constant has a meaning, a unit and the rung that it
// makes.
//
//   kernels' time     = bound x (1 + matmul x the chip's own measured excess)      R4
//   an exchange       = bytes' time x (1 + link) + messages x message               R5
//   a step            = its nodes + launches x launch + step                        R6
//
// Values come from cost/calibration.textproto alone (calibration.h); no code holds a number that was fitted.
#ifndef TWINFORGE_COST_CONSTANTS_H_
#define TWINFORGE_COST_CONSTANTS_H_

#include <array>
#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace twinforge {

enum class Constant : uint8_t {
  kMatmul,        // of products with parameters, in units of the chip's measured excess over its peak
  kExpertMatmul,  // of experts' products
  kAttention,     // of products between activations
  kWeightRead,    // of reading parameters, in units of the measured excess over the memory's bandwidth
  kExpertRead,    // of reading experts
  kCacheRead,     // of reading and writing caches
  kVector,        // activations' trips to memory, in units of one
  kExposed,       // share of the shorter of compute and memory that does not overlap the longer
  kLink,          // of an exchange's bytes, over the published bandwidth
  kMessage,       // seconds of each hop
  kLaunch,        // seconds of each node with products
  kExpertLaunch,  // seconds of each node of experts: routing, sorting, grouping
  kStep,          // seconds of each step: scheduling, sampling, host
  kRequest,       // seconds of each sequence in a step
  kPrompt,        // seconds of each prompt's prefill
  kShare,         // share of a prompt's prefill that running sequences wait for
  kQueue,  // share of the other prompts that a prompt waits for, as far as it keeps sequences from running
  kFirstQueue,   // the same, as clients see it in the time to the first token
  kFirstPrompt,  // seconds until the first token beyond prefill and queue
};
inline constexpr int kConstants = 19;

struct ConstantInfo {
  absl::string_view name;
  absl::string_view unit;  // "x", "s", "share"
  absl::string_view rung;  // "R4"
  bool of_host;            // the engine's, whatever the chip
};
absl::Span<const ConstantInfo> AllConstants();  // in the enumeration's order
const ConstantInfo& Info(Constant constant);
std::optional<Constant> ConstantFromName(absl::string_view name);

using Constants = std::array<double, kConstants>;
inline double Of(const Constants& constants, Constant constant) {
  return constants[static_cast<size_t>(constant)];
}

}  // namespace twinforge

#endif  // TWINFORGE_COST_CONSTANTS_H_
