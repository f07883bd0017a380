#include "cost/views.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "cost/chip_file.h"
#include "cost/terms.h"

namespace twinforge {
namespace {

constexpr size_t kBounds = 4;  // R0 to R3
constexpr size_t kLast = kBounds + kEstimateRungs - 1;

double Bound(const NodeTerms& node, double peak) {
  return std::max({peak, node.dtype, node.shape, node.memory});
}

class Viewer {
 public:
  Viewer(const Forecast& forecast, FittedConstants fitted)
      : forecast_(forecast), score_(forecast.score), terms_(forecast.terms), fitted_(std::move(fitted)) {}

  LadderViews All() const {
    LadderViews views;
    for (size_t rung = kBounds; rung <= kLast; ++rung) views.rungs.push_back(RungAt(rung));
    for (size_t rung = 1; rung <= kLast; ++rung)
      views.removals.push_back({score_.ladder[rung].rung, score_.ladder[rung].name, Without(rung)});
    views.gaps = Gaps();
    return views;
  }

 private:
  // Of the whole step at an estimate's rung, under other constants.
  double SecondsAt(size_t rung, const Constants& constants) const {
    const size_t at = rung - kBounds;
    double seconds = EstimateRest(terms_, fitted_, constants)[at];
    for (size_t i = 0; i < terms_.kinds.size(); ++i)
      seconds += static_cast<double>(terms_.uses[i]) * EstimateNode(terms_.kinds[i], fitted_, constants)[at];
    return seconds;
  }

  RungView RungAt(size_t rung) const;
  NodeTerms Relieved(const NodeTerms& node, double peak, size_t rung) const;
  Constants ConstantsWithout(size_t rung) const;
  double Without(size_t rung) const;
  std::vector<MappingGap> Gaps() const;

  const Forecast& forecast_;
  const Score& score_;
  const StepTerms& terms_;
  FittedConstants fitted_;
};

RungView Viewer::RungAt(size_t rung) const {
  RungView view{.rung = score_.ladder[rung].rung};
  const double own = score_.ladder[rung].seconds;
  const auto seconds_of = [&](const Constants& constants) { return SecondsAt(rung, constants); };
  view.seconds = Band(own, fitted_.band, forecast_.bound);
  view.envelope = EnvelopeOf(fitted_, seconds_of, own, forecast_.bound);
  view.doubts = DoubtsOf(fitted_, seconds_of);
  view.certifiable = IsCertifiable(fitted_, view.doubts);
  return view;
}

// The node where one constraint of its bound does not hold: operations at the chip's best rate (R1), no idle
// places (R2), no bytes (R3), no exchange (R5), nothing that the engine pads (R8).
NodeTerms Viewer::Relieved(const NodeTerms& node, double peak, size_t rung) const {
  NodeTerms out = node;
  if (rung == kLast) out.padded = nullptr;
  if (out.padded != nullptr) out.padded = std::make_shared<NodeTerms>(Relieved(*out.padded, peak, rung));
  const auto compute = [&](double factor) {
    for (double* seconds : {&out.shape, &out.kernels, &out.attention}) *seconds *= factor;
  };
  switch (rung) {
    case 1:
      if (node.dtype > peak) compute(peak / node.dtype);
      out.dtype = std::min(peak, node.dtype);
      break;
    case 2:
      if (node.shape > node.dtype) compute(node.dtype / node.shape);
      break;
    case 3:
      out.memory = out.weight_read = out.cache_read = out.vector = 0;
      break;
    case 5:
      out.exchange = out.messages = 0;
      break;
    default:
      break;
  }
  return out;
}

// A rung of constants is dropped with them. R4's share does not overlap, so that its node is the bound
// itself.
Constants Viewer::ConstantsWithout(size_t rung) const {
  Constants constants = fitted_.mid;
  for (int i = 0; i < kConstants; ++i) {
    if (AllConstants()[i].rung == score_.ladder[rung].rung) constants[i] = 0;
  }
  return constants;
}

double Viewer::Without(size_t rung) const {
  const Constants constants = ConstantsWithout(rung);
  // Bubbles come with the last rung, and with no constant.
  double seconds = EstimateRest(terms_, fitted_, constants)[kEstimateRungs - (rung == kLast ? 2 : 1)];
  for (size_t i = 0; i + 1 < score_.ops.size(); ++i) {  // the last is the step's own
    const std::vector<double>& rungs = score_.attribution[i];
    const double bound = std::accumulate(rungs.begin(), rungs.begin() + kBounds, 0.0);
    if (i >= terms_.step.nodes.size()) {  // only in the source
      seconds += bound;
      continue;
    }
    const NodeUse& use = terms_.step.nodes[i];
    const double passes = static_cast<double>(terms_.stages[use.stage].passes);
    if (passes == 0) continue;
    const double peak = rungs[0] / passes;
    const NodeTerms& kept = terms_.kinds[use.kind];
    const NodeTerms node = Relieved(kept, peak, rung);
    const EstimateTimes times = EstimateNode(node, fitted_, constants);
    // Without R4 a node takes its bound and what comes after the rung.
    const double dropped = rung == kBounds
                               ? bound + passes * (times.back() - times[0])
                               : std::max(std::min(bound, passes * Bound(node, peak)), passes * times.back());
    const double whole = std::max(bound, passes * EstimateNode(kept, fitted_, fitted_.mid).back());
    seconds += std::min(dropped, whole);
  }
  return std::min(seconds, score_.ladder.back().seconds);
}

std::vector<MappingGap> Viewer::Gaps() const {
  std::vector<MappingGap> gaps;
  MappingGap all{.op = "step"};
  for (size_t i = 0; i < score_.ops.size(); ++i) {
    const std::vector<double>& steps = score_.attribution[i];
    double at = 0;
    MappingGap row{.op = score_.ops[i].op};
    for (size_t rung = 0; rung <= 5; ++rung) {
      at += steps[rung];
      if (rung == 0) row.r0 = at;
      if (rung == 1) row.r1 = at;
    }
    row.r5 = at;
    const auto same =
        std::find_if(gaps.begin(), gaps.end(), [&](const MappingGap& gap) { return gap.op == row.op; });
    MappingGap& into = same == gaps.end() ? gaps.emplace_back(MappingGap{.op = row.op}) : *same;
    for (MappingGap* gap : {&into, &all}) {
      gap->r0 += row.r0;
      gap->r1 += row.r1;
      gap->r5 += row.r5;
    }
  }
  gaps.erase(std::remove_if(gaps.begin(), gaps.end(), [](const MappingGap& gap) { return gap.r5 == 0; }),
             gaps.end());
  std::stable_sort(gaps.begin(), gaps.end(),
                   [](const MappingGap& a, const MappingGap& b) { return a.r5 > b.r5; });
  gaps.push_back(all);
  return gaps;
}

}  // namespace

absl::StatusOr<LadderViews> ViewsOf(const Forecast& forecast, const std::string& chip,
                                    const std::string& stack, const std::string& format) {
  TWIN_CHECK(forecast.feasible, "a step that does not fit has no estimate");
  TWIN_ASSIGN_OR_RETURN(const Chip* file, FindIn(ShippedChips(), chip));
  return Viewer(forecast, ConstantsFor(ShippedCalibration(), stack, *file, format)).All();
}

}  // namespace twinforge
