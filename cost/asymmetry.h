// Asymmetric advantage: what a rewrite gains on one chip beyond what it gains on another.
//
//   A = [source / twin on v6e] / [source / twin on h100_sxm]     same step, types, mesh and engine
//
//   R2 shape    1.96 / 1.00     tile fill         R8 batch   1.21 / 1.02 = 1.19, 80 %: 1.11 to 1.27
//
// A above one: the rewrite is the first chip's. It is claimed only where the interval excludes one. The
// interval moves each constant of a chip through source and twin at once; the two chips' constants are
// independent. Against the same chip A is exactly 1, and of no change too.
#ifndef TWINFORGE_COST_ASYMMETRY_H_
#define TWINFORGE_COST_ASYMMETRY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cost/gain.h"

namespace twinforge {

struct AsymmetryRung {
  std::string rung;       // "R2"
  std::string mechanism;  // "tile fill and padding"
  char evidence = 'B';
  double on_chip = 1;  // source / twin at this rung
  double on_against = 1;
  double ratio = 1;  // of the two
  // What of the last rung's ratio is owed to this rung's step. The factors' product is that ratio, to
  // rounding.
  double factor = 1;
};

struct SensitiveConstant {
  std::string chip;
  std::string constant;
  double spread = 0;  // of its logarithm
  bool assumed = false;
  double low = 1;  // the ratio with it at the low end of its four in five, the others in the middle
  double high = 1;
};

// The least move of one constant that undoes the claim.
struct Overturn {
  bool found = false;
  std::string chip;
  std::string constant;
  double times = 1;  // its value
};

struct PublishedRate {
  std::string dtype;
  double dense = 0;   // operations per second; 0: not published
  double sparse = 0;  // with 2:4 structured zeros
};

struct Asymmetry {
  std::string chip;
  std::string against;
  std::vector<AsymmetryRung> rungs;
  double bound = 1;  // the ratio at R3: published figures alone, nothing fitted
  Interval ratio;    // at the last rung
  bool claimed = false;
  std::vector<SensitiveConstant> constants;  // ten at most, the one that moves the ratio most first
  // Within 99 % of a constant's range, where something is claimed: the interval of what remains in doubt
  // includes one; the ratio itself crosses one.
  Overturn includes_one;
  Overturn turns_sign;
  std::vector<PublishedRate> rates;  // of `against`; products here are dense and take none of the sparse ones
};

Asymmetry CompareGains(const StepGain& chip, const StepGain& against);

// Refuses as ForecastStep() does, on either chip.
absl::StatusOr<Asymmetry> AsymmetryOf(const Graph& source, const Graph& twin, const std::string& chip,
                                      const std::string& against, const Workload& workload,
                                      const std::string& stack, const std::string& format);

// "v6e weight_read at 1.8 times its value ...", or "nothing within its range".
std::string OverturnText(const Asymmetry& asymmetry);

}  // namespace twinforge

#endif  // TWINFORGE_COST_ASYMMETRY_H_
