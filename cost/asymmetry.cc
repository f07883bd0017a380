#include "cost/asymmetry.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "cost/chip_file.h"

namespace twinforge {
namespace {

constexpr size_t kBoundRung = 3;
constexpr size_t kShown = 10;
constexpr int kTrials = 64;  // moves tried within a constant's range, before the first that does is narrowed
constexpr absl::string_view kMechanisms[] = {"useful work",  "types",   "tile fill and padding",
                                             "memory bytes", "kernels", "collectives",
                                             "launches",     "power",   "host"};

// One knob of one of the chips, and the logarithm of A with it moved.
struct Moved {
  const StepGain* gain;
  double sign;  // +1: in the numerator
  size_t knob;
  KnobSwing swing;
  double Shift(double log) const { return sign * gain->LogShift(knob, log); }
};

std::vector<Moved> AllKnobs(const StepGain& chip, const StepGain& against) {
  std::vector<Moved> moved;
  for (const auto& [gain, sign] : {std::pair(&chip, 1.0), std::pair(&against, -1.0)}) {
    for (size_t i = 0; i < gain->knobs().size(); ++i) {
      Moved one{.gain = gain, .sign = sign, .knob = i};
      const double reach = kFourInFive * gain->knobs()[i].spread;
      one.swing = {one.Shift(-reach), one.Shift(reach)};
      moved.push_back(one);
    }
  }
  return moved;
}

double Extent(const KnobSwing& swing) { return std::max(std::abs(swing.low), std::abs(swing.high)); }

// How far the others' doubt reaches towards one, with this one set aside.
double Reach(const std::vector<Moved>& all, size_t aside, double towards) {
  double squares = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (i == aside) continue;
    const double furthest = std::max({0.0, towards * all[i].swing.low, towards * all[i].swing.high});
    squares += furthest * furthest;
  }
  return std::sqrt(squares);
}

// The least |log| within 99 % of the range, to one side, at which `undone` holds; 0: none.
double LeastMove(const std::function<bool(double)>& undone, double limit) {
  double before = 0;
  for (int i = 1; i <= kTrials; ++i) {
    double at = limit * i / kTrials;
    if (!undone(at)) {
      before = at;
      continue;
    }
    for (int halving = 0; halving < 40; ++halving) {
      const double middle = (before + at) / 2;
      (undone(middle) ? at : before) = middle;
    }
    return at;
  }
  return 0;
}

// `with_doubt`: it is enough that the interval includes one.
Overturn LeastOverturn(const std::vector<Moved>& all, double log_ratio, bool with_doubt) {
  const double towards = log_ratio > 0 ? -1 : 1;
  Overturn least;
  double fewest = 0;  // standard deviations
  for (size_t i = 0; i < all.size(); ++i) {
    const GainKnob& knob = all[i].gain->knobs()[all[i].knob];
    if (knob.spread <= 0 || Extent(all[i].swing) == 0) continue;
    const double reach = with_doubt ? Reach(all, i, towards) : 0;
    for (const double side : {-1.0, 1.0}) {
      const double move =
          LeastMove([&](double log) { return towards * (log_ratio + all[i].Shift(side * log)) + reach >= 0; },
                    kNinetyNine * knob.spread);
      if (move == 0 || (least.found && move / knob.spread >= fewest)) continue;
      fewest = move / knob.spread;
      least = {true, all[i].gain->chip(), knob.name, std::exp(side * move)};
    }
  }
  return least;
}

std::vector<SensitiveConstant> MostSensitive(std::vector<Moved> all, double ratio) {
  std::stable_sort(all.begin(), all.end(),
                   [](const Moved& a, const Moved& b) { return Extent(a.swing) > Extent(b.swing); });
  std::vector<SensitiveConstant> constants;
  for (const Moved& moved : all) {
    if (constants.size() == kShown || Extent(moved.swing) == 0) break;
    const GainKnob& knob = moved.gain->knobs()[moved.knob];
    constants.push_back({moved.gain->chip(), knob.name, knob.spread, knob.assumed,
                         ratio * std::exp(moved.swing.low), ratio * std::exp(moved.swing.high)});
  }
  return constants;
}

std::vector<PublishedRate> RatesOf(const std::string& chip) {
  const absl::StatusOr<const Chip*> file = FindIn(ShippedChips(), chip);
  TWIN_CHECK(file.ok(), chip);
  std::vector<PublishedRate> rates;
  for (const Chip::Peak& peak : (*file)->peak()) {
    const auto at = std::find_if(rates.begin(), rates.end(),
                                 [&](const PublishedRate& rate) { return rate.dtype == peak.dtype(); });
    PublishedRate& rate = at == rates.end() ? rates.emplace_back(PublishedRate{peak.dtype()}) : *at;
    (peak.sparse24() ? rate.sparse : rate.dense) = InBaseUnits(peak.rate());
  }
  return rates;
}

std::string MoveText(const Overturn& overturn) {
  return absl::StrFormat("%s %s at %.3g times its value", overturn.chip, overturn.constant, overturn.times);
}

}  // namespace

Asymmetry CompareGains(const StepGain& chip, const StepGain& against) {
  Asymmetry a{.chip = chip.chip(), .against = against.chip()};
  const std::vector<double> parts = chip.LogParts();
  const std::vector<double> other = against.LogParts();
  for (size_t i = 0; i < parts.size(); ++i) {
    const RungRow& rung = chip.source().score.ladder[i];
    a.rungs.push_back({.rung = rung.rung,
                       .mechanism = std::string(kMechanisms[i].data(), kMechanisms[i].size()),
                       .evidence = rung.evidence,
                       .on_chip = chip.AtRung(i),
                       .on_against = against.AtRung(i),
                       .ratio = chip.AtRung(i) / against.AtRung(i),
                       .factor = std::exp(parts[i] - other[i])});
  }
  a.bound = a.rungs[kBoundRung].ratio;
  a.rates = RatesOf(a.against);
  const double ratio = a.rungs.back().ratio;
  if (a.chip == a.against) {  // its constants are the same on both sides
    a.ratio = {ratio, ratio, ratio};
    return a;
  }
  const std::vector<Moved> all = AllKnobs(chip, against);
  std::vector<KnobSwing> swings;
  for (const Moved& moved : all) swings.push_back(moved.swing);
  a.ratio = JoinSwings(ratio, swings);
  a.claimed = a.ratio.low > 1 || a.ratio.high < 1;
  a.constants = MostSensitive(all, ratio);
  if (!a.claimed) return a;
  a.includes_one = LeastOverturn(all, std::log(ratio), true);
  a.turns_sign = LeastOverturn(all, std::log(ratio), false);
  return a;
}

absl::StatusOr<Asymmetry> AsymmetryOf(const Graph& source, const Graph& twin, const std::string& chip,
                                      const std::string& against, const Workload& workload,
                                      const std::string& stack, const std::string& format) {
  TWIN_ASSIGN_OR_RETURN(const StepGain on_chip, StepGain::Of(source, twin, chip, workload, stack, format));
  TWIN_ASSIGN_OR_RETURN(const StepGain on_against,
                        StepGain::Of(source, twin, against, workload, stack, format));
  return CompareGains(on_chip, on_against);
}

std::string OverturnText(const Asymmetry& a) {
  if (a.ratio.mid == 1 && a.ratio.low == 1 && a.ratio.high == 1)
    return "nothing is claimed: the rewrite changes no time that differs between the two";
  if (!a.claimed) return "nothing is claimed: the interval includes one";
  if (!a.includes_one.found) return "nothing within its range";
  return absl::StrCat(MoveText(a.includes_one), " and the interval includes one; ",
                      a.turns_sign.found ? absl::StrCat(MoveText(a.turns_sign), " and the sign turns")
                                         : "nothing within its range turns the sign");
}

}  // namespace twinforge
