#include "cost/certificate_estimates.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cost/chip_file.h"

namespace twinforge {
namespace {

constexpr double kToTheTenth = 1.2816;  // standard deviations from the middle of a normal distribution
constexpr size_t kBounds = 4;

CertificateConstant ConstantOf(Constant constant, const FittedConstants& fitted) {
  const auto at = static_cast<size_t>(constant);
  const ConstantInfo& info = Info(constant);
  const double factor = std::exp(kToTheTenth * fitted.spread[at]);
  const double mid = fitted.mid[at];
  return {.name = absl::StrCat(info.rung, " ", info.name),
          .low = mid / factor,
          .mid = mid,
          .high = mid * factor,
          .unit = std::string(info.unit.data(), info.unit.size()),
          .source = fitted.assumed[at] ? "assumed: no measured row speaks for it" : fitted.basis};
}

}  // namespace

CertificateEstimates EstimatesOf(const Forecast& forecast, const FittedConstants& fitted) {
  CertificateEstimates estimates;
  if (!forecast.feasible || forecast.score.ladder.size() <= kBounds) return estimates;
  for (const Doubt& doubt : forecast.doubts)
    estimates.constants.push_back(ConstantOf(doubt.constant, fitted));
  Interval before = {forecast.bound, forecast.bound, forecast.bound};
  for (size_t i = kBounds; i < forecast.score.ladder.size(); ++i) {
    const RungRow& rung = forecast.score.ladder[i];
    const Interval now = Band(rung.seconds, fitted.band, forecast.bound);
    CertificatePart part{.what = rung.name, .low = std::max(0.0, now.low - before.low)};
    part.mid = std::max(part.low, now.mid - before.mid);
    part.high = std::max(part.mid, now.high - before.high);
    estimates.rungs.push_back({.rung = rung.rung, .name = rung.name, .parts = {part}});
    before = now;
  }
  return estimates;
}

absl::StatusOr<std::string> ForecastCertificate(const Graph& graph, const Graph* useful,
                                                const std::string& chip, const Workload& workload,
                                                const std::string& stack, const std::string& format) {
  TWIN_ASSIGN_OR_RETURN(const Forecast forecast,
                        ForecastStep(graph, useful, chip, workload, stack, format, /*must_fit=*/false));
  TWIN_ASSIGN_OR_RETURN(const Chip* file, FindIn(ShippedChips(), chip));
  const FittedConstants fitted = ConstantsFor(ShippedCalibration(), stack, *file, format);
  return CertificateText(graph, useful, chip, workload, EstimatesOf(forecast, fitted));
}

}  // namespace twinforge
