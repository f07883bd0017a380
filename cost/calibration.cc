#include "cost/calibration.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/diagnostic.h"
#include "base/embedded.h"
#include "base/status_macros.h"
#include "cost/chip_file.h"

namespace twinforge {

absl::Span<const EmbeddedFile> Embedded_calibration();

namespace {

// Overlap, queues and shares are parts of a whole.
bool InRange(const ConstantInfo& info, double value) {
  return std::isfinite(value) && value >= 0 && (info.unit != "share" || value <= 1);
}

absl::Status CheckName(absl::string_view name) {
  if (ConstantFromName(name)) return absl::OkStatus();
  return Error(1710, name, "no constant has this name");
}

bool Matches(const Calibration::Scope& scope, absl::string_view family, absl::string_view stack,
             absl::string_view generation, absl::string_view format) {
  const auto fits = [](absl::string_view wanted, absl::string_view actual) {
    return wanted.empty() || wanted == actual;
  };
  return fits(scope.family(), family) && fits(scope.stack(), stack) && fits(scope.generation(), generation) &&
         fits(scope.format(), format);
}

bool IsExact(const Calibration::Scope& scope) {
  return !scope.stack().empty() && !scope.generation().empty() && !scope.format().empty();
}

// The chip's measured fraction of a published rate, as what it takes longer.
double MeasuredExcess(const Chip::Number& fraction, double of_family, bool& assumed) {
  const double value = InBaseUnits(fraction);
  if (value > 0 && value < 1) return 1 / value - 1;
  assumed = true;
  return of_family;
}

}  // namespace

const Calibration& ShippedCalibration() {
  static const Calibration* const loaded = [] {
    auto* calibration = new Calibration;
    for (const EmbeddedFile& file : Embedded_calibration()) {
      TWIN_CHECK(google::protobuf::TextFormat::MergeFromString(
                     std::string(file.text.data(), file.text.size()), calibration),
                 file.name);
    }
    const absl::Status checked = CheckCalibration(*calibration);
    TWIN_CHECK(checked.ok(), checked.ToString());
    return calibration;
  }();
  return *loaded;
}

absl::Status CheckCalibration(const Calibration& calibration) {
  for (const Calibration::Base& base : calibration.base()) {
    TWIN_RETURN_IF_ERROR(CheckName(base.constant()));
    const ConstantInfo& info = Info(*ConstantFromName(base.constant()));
    if (!InRange(info, base.value()) || !(base.spread() >= 0))
      return Error(1710, base.constant(),
                   absl::StrCat(base.value(), " would make an estimate less than its bound"));
    if (info.of_host != base.family().empty())
      return Error(1710, base.constant(),
                   "an engine's constant is given for all chips, any other for a family");
  }
  for (const ConstantInfo& info : AllConstants()) {
    for (const absl::string_view family : {"gpu", "tpu"}) {
      const bool given =
          std::any_of(calibration.base().begin(), calibration.base().end(), [&](const auto& base) {
            return base.constant() == info.name && (info.of_host || base.family() == family);
          });
      if (!given) return Error(1710, info.name, absl::StrCat("the file has no base value for ", family));
    }
  }
  for (const Calibration::Scope& scope : calibration.scope()) {
    for (const Calibration::Factor& factor : scope.factor()) {
      TWIN_RETURN_IF_ERROR(CheckName(factor.constant()));
      if (!(factor.value() > 0) || !std::isfinite(factor.value()))
        return Error(1710, factor.constant(), "a factor is positive");
    }
  }
  if (!(calibration.unseen() > 0) || !(calibration.unseen_first_token() > 0))
    return Error(1710, "unseen", "the file does not say how far estimates may be off");
  return absl::OkStatus();
}

std::string FamilyOf(const Chip& chip) { return chip.kind() == Chip::TPU ? "tpu" : "gpu"; }
std::string GenerationOf(const Chip& chip) { return chip.generation(); }

absl::StatusOr<const Calibration::Stack*> FindStack(const Calibration& calibration, absl::string_view stack) {
  std::vector<std::string> known;
  for (const Calibration::Stack& row : calibration.stack()) {
    if (row.name() == stack) return &row;
    known.push_back(row.name());
  }
  return Error(1711, stack, "no measurement of this engine is known",
               absl::StrCat("known: ", absl::StrJoin(known, ", ")));
}

FittedConstants ComposedConstants(const Calibration& calibration, absl::string_view family,
                                  absl::string_view stack, absl::string_view generation,
                                  absl::string_view format) {
  FittedConstants fitted;
  Constants variance{};
  for (const Calibration::Base& base : calibration.base()) {
    if (!base.family().empty() && base.family() != family) continue;
    const auto at = static_cast<size_t>(*ConstantFromName(base.constant()));
    fitted.mid[at] = base.value();
    fitted.assumed[at] = base.provenance() == Calibration::ASSUMED;
    variance[at] = base.spread() * base.spread();
  }
  for (const Calibration::Scope& scope : calibration.scope()) {
    if (!Matches(scope, family, stack, generation, format)) continue;
    for (const Calibration::Factor& factor : scope.factor()) {
      const auto at = static_cast<size_t>(*ConstantFromName(factor.constant()));
      fitted.mid[at] *= factor.value();
      variance[at] += factor.spread() * factor.spread();
    }
    if (!IsExact(scope) || scope.band() <= 0) continue;
    fitted.seen = true;
    fitted.band = scope.band();
    fitted.first_token_band = scope.first_token_band();
    fitted.basis =
        absl::StrCat("fitted on ", scope.rows(), " rows of ", stack, " on ", generation, " in ", format);
  }
  for (int i = 0; i < kConstants; ++i) {
    if (AllConstants()[i].unit == "share") fitted.mid[i] = std::min(fitted.mid[i], 1.0);
    fitted.spread[i] = std::sqrt(variance[i]);
  }
  return fitted;
}

FittedConstants ConstantsFor(const Calibration& calibration, absl::string_view stack, const Chip& chip,
                             absl::string_view format) {
  const std::string family = FamilyOf(chip);
  const std::string generation = GenerationOf(chip);
  FittedConstants fitted = ComposedConstants(calibration, family, stack, generation, format);
  for (const Calibration::Excess& excess : calibration.excess()) {
    if (excess.family() != family) continue;
    fitted.matmul_excess = MeasuredExcess(chip.achieved_matmul(), excess.matmul(), fitted.assumed_excess);
    fitted.memory_excess = MeasuredExcess(chip.achieved_bandwidth(), excess.memory(), fitted.assumed_excess);
  }
  if (fitted.seen) return fitted;
  fitted.band = calibration.unseen();
  fitted.first_token_band = calibration.unseen_first_token();
  fitted.basis = absl::StrCat("no row of ", stack.empty() ? "any engine" : stack, " on ", generation, " in ",
                              format, ": composed of what others measured");
  return fitted;
}

}  // namespace twinforge
