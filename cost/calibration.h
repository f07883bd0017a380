// The constants of an engine on a chip in a number format, with what they rest on.
//
//   ConstantsFor(FindCalibration(), "vllm", h200_sxm, "fp8")    mid values, spreads, the band of the estimate
#ifndef TWINFORGE_COST_CALIBRATION_H_
#define TWINFORGE_COST_CALIBRATION_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cost/calibration.pb.h"
#include "cost/chip.pb.h"
#include "cost/constants.h"

namespace twinforge {

struct FittedConstants {
  Constants mid{};
  Constants spread{};                      // of the logarithm
  std::array<bool, kConstants> assumed{};  // no row speaks for it
  double matmul_excess = 0;                // of the chip: time over peak, less one
  double memory_excess = 0;
  bool assumed_excess = false;  // no source measures this chip's; its family's stands in
  double band = 0;              // four in five estimates are off by less, as a logarithm
  double first_token_band = 0;
  bool seen = false;  // this engine on this generation in this format was measured
  std::string basis;  // "fitted on 180 rows of trtllm on sm_90 in fp8"
};

// The build's own. Lives as long as the process.
const Calibration& ShippedCalibration();

// TF1710 where a file has a constant below what it may be, an unknown name or no base for one.
absl::Status CheckCalibration(const Calibration& calibration);

std::string FamilyOf(const Chip& chip);      // "gpu" or "tpu"
std::string GenerationOf(const Chip& chip);  // "sm_90"

// TF1711 for an engine that no measurement is of; its hint names those known.
absl::StatusOr<const Calibration::Stack*> FindStack(const Calibration& calibration, absl::string_view stack);

// Base values times the factors of all scopes that match; constants without a base are 0. No chip's excesses.
FittedConstants ComposedConstants(const Calibration& calibration, absl::string_view family,
                                  absl::string_view stack, absl::string_view generation,
                                  absl::string_view format);

// REQUIRES: the calibration passes its check, and `stack` is one of it or empty (the mean of all engines).
FittedConstants ConstantsFor(const Calibration& calibration, absl::string_view stack, const Chip& chip,
                             absl::string_view format);

}  // namespace twinforge

#endif  // TWINFORGE_COST_CALIBRATION_H_
