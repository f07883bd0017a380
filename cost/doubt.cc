#include "cost/doubt.h"

#include <algorithm>
#include <cmath>

namespace twinforge {

std::vector<Doubt> DoubtsOf(const FittedConstants& fitted, const SecondsUnder& seconds_of) {
  const double mid = seconds_of(fitted.mid);
  std::vector<Doubt> doubts;
  double sum = 0;
  for (int i = 0; i < kConstants; ++i) {
    Constants moved = fitted.mid;
    moved[i] *= std::exp(fitted.spread[i]);
    const double change = std::log(seconds_of(moved) / mid);
    if (change == 0) continue;
    doubts.push_back({static_cast<Constant>(i), change * change});
    sum += change * change;
  }
  for (Doubt& doubt : doubts) doubt.share /= sum;
  std::stable_sort(doubts.begin(), doubts.end(),
                   [](const Doubt& a, const Doubt& b) { return a.share > b.share; });
  return doubts;
}

Interval EnvelopeOf(const FittedConstants& fitted, const SecondsUnder& seconds_of, double mid, double bound) {
  Constants low = fitted.mid, high = fitted.mid;
  for (int i = 0; i < kConstants; ++i) {
    low[i] *= std::exp(-kFourInFive * fitted.spread[i]);
    high[i] *= std::exp(kFourInFive * fitted.spread[i]);
    if (AllConstants()[i].unit == "share") high[i] = std::min(high[i], 1.0);
  }
  return {std::clamp(seconds_of(low), bound, mid), mid, std::max(mid, seconds_of(high))};
}

bool IsCertifiable(const FittedConstants& fitted, const std::vector<Doubt>& doubts) {
  double assumed = 0;
  for (const Doubt& doubt : doubts) {
    if (fitted.assumed[static_cast<size_t>(doubt.constant)]) assumed += doubt.share;
  }
  return assumed <= 0.5;
}

}  // namespace twinforge
