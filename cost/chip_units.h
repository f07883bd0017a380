// The units that chip files may use, and their size in base units (bytes, seconds, per second, watts,
// dollars).
#ifndef TWINFORGE_COST_CHIP_UNITS_H_
#define TWINFORGE_COST_CHIP_UNITS_H_

#include <optional>

#include "absl/strings/string_view.h"

namespace twinforge {

inline std::optional<double> UnitScale(absl::string_view unit) {
  constexpr struct {
    absl::string_view unit;
    double scale;
  } kUnits[] = {
      {"", 1},       {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0},
      {"GB/s", 1e9}, {"MHz", 1e6},    {"TFLOP/s", 1e12},  {"TOP/s", 1e12},
      {"W", 1},      {"USD/h", 1},    {"us", 1e-6},
  };
  for (const auto& row : kUnits) {
    if (row.unit == unit) return row.scale;
  }
  return std::nullopt;
}

}  // namespace twinforge

#endif  // TWINFORGE_COST_CHIP_UNITS_H_
