// Rungs R4 to R8 of a forecast as a certificate carries them: what each adds, and the constants behind it.
//
// Every rung has the forecast's band, so each part's low, mid and high ascend, and none is below the bound.
#ifndef TWINFORGE_COST_CERTIFICATE_ESTIMATES_H_
#define TWINFORGE_COST_CERTIFICATE_ESTIMATES_H_

#include <string>

#include "absl/status/statusor.h"
#include "cost/certificate.h"
#include "cost/forecast.h"

namespace twinforge {

// None where the forecast's ladder ends at R3. `fitted`: the constants that it was made with; those that its
// doubts name are told, each from its tenth to its ninetieth percentile.
CertificateEstimates EstimatesOf(const Forecast& forecast, const FittedConstants& fitted);

// CertificateText() with the estimates of ForecastStep(). Refuses as the two do, but not what does not fit:
// then there are bounds and no estimates.
absl::StatusOr<std::string> ForecastCertificate(const Graph& graph, const Graph* useful,
                                                const std::string& chip, const Workload& workload,
                                                const std::string& stack, const std::string& format);

}  // namespace twinforge

#endif  // TWINFORGE_COST_CERTIFICATE_ESTIMATES_H_
