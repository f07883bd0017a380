#include "cost/chip.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "cost/chip.pb.h"
#include "cost/chip_file.h"
#include "cost/own_chip.h"

namespace twinforge {

namespace {

// 0 where the number is absent, negative or beyond all sense (a file of the user's may hold anything).
int64_t Whole(const Chip::Number& number) {
  const double value = InBaseUnits(number);
  return value > 0 && value < 0x1p53 ? static_cast<int64_t>(value) : 0;
}

// How the unit takes a type of the chip file; names reach beyond weights/dtype.h (int4, tf32).
struct Native {
  FlopsPerSecond rate;  // dense; unknown where nobody published it
  bool alone = true;    // also with itself
};
using Natives = std::map<std::string, Native>;

Natives NativesOf(const Chip& chip) {
  Natives natives;
  for (const Chip::Peak& peak : chip.peak()) {
    if (peak.sparse24() || peak.use() == Chip::Peak::PUBLISHED) continue;
    natives[peak.dtype()] = {FlopsPerSecond(InBaseUnits(peak.rate())), peak.use() == Chip::Peak::ALONE};
  }
  return natives;
}

bool CanMeet(const Chip& chip, const Natives& natives, const std::string& left, const std::string& right) {
  if (natives.count(left) == 0 || natives.count(right) == 0) return false;
  if (left == right) return natives.at(left).alone;
  const auto has = [](const Chip::Mix& mix, const std::string& dtype) {
    return std::find(mix.dtype().begin(), mix.dtype().end(), dtype) != mix.dtype().end();
  };
  return std::any_of(chip.mix().begin(), chip.mix().end(),
                     [&](const Chip::Mix& mix) { return has(mix, left) && has(mix, right); });
}

// Two types that meet run at the slower one's rate, so never faster than the one that is known.
FlopsPerSecond SlowerKnown(FlopsPerSecond a, FlopsPerSecond b) {
  if (!a.known()) return b;
  return b.known() ? std::min(a, b) : a;
}

// `dtype` itself where the unit multiplies it, and everything that it may be converted to.
std::vector<std::string> Forms(const Chip& chip, const Natives& natives, const std::string& dtype) {
  std::vector<std::string> forms;
  if (natives.count(dtype) > 0) forms.push_back(dtype);
  for (const Chip::Conversion& conversion : chip.conversion()) {
    if (conversion.dtype() == dtype) forms.push_back(conversion.as());
  }
  return forms;
}

// The fastest way; among equals, the one with fewer conversions (forms begin with the type itself). None
// where the unit takes both types as they are at a rate that nobody published: what they convert to may be
// slower.
MatmulMode BestMode(const Chip& chip, const Natives& natives, DType left,
                    const std::vector<std::string>& left_forms, DType right,
                    const std::vector<std::string>& right_forms) {
  MatmulMode best;
  for (const std::string& l : left_forms) {
    for (const std::string& r : right_forms) {
      if (!CanMeet(chip, natives, l, r)) continue;
      const FlopsPerSecond rate = SlowerKnown(natives.at(l).rate, natives.at(r).rate);
      const bool as_they_are = Name(left) == l && Name(right) == r;
      if (!rate.known() && as_they_are) return {};
      if (!(best.rate < rate)) continue;
      best = {.rate = rate,
              .dtype = l == r ? l : absl::StrCat(l, " x ", r),
              .converts_left = Name(left) != l,
              .converts_right = Name(right) != r};
    }
  }
  return best;
}

void FillModes(const Chip& chip, ChipFigures& facts) {
  const Natives natives = NativesOf(chip);
  for (const auto& [dtype, native] : natives) {
    if (!native.alone || !(facts.best_rate < native.rate)) continue;
    facts.best_rate = native.rate;
    facts.best_dtype = dtype;
  }
  std::array<std::vector<std::string>, kDTypeCount> forms;
  for (const DType dtype : AllDTypes()) {
    const absl::string_view name = Name(dtype);
    forms[static_cast<int>(dtype)] = Forms(chip, natives, std::string(name.data(), name.size()));
  }
  for (const DType left : AllDTypes()) {
    for (const DType right : AllDTypes()) {
      const int l = static_cast<int>(left);
      const int r = static_cast<int>(right);
      facts.modes[l][r] = BestMode(chip, natives, left, forms[l], right, forms[r]);
    }
  }
}

// Size of one part times how many there are.
int64_t Parts(const Chip::Number& part, const Chip::Number& count) {
  const double all = InBaseUnits(part) * count.value();
  return all > 0 && all < 0x1p53 ? static_cast<int64_t>(all) : 0;
}

// All memory on the chip that can hold operands; 0 where a part of it is unknown.
int64_t OnChipBytes(const Chip& chip) {
  if (chip.kind() == Chip::TPU) {
    return chip.has_vmem_size() ? Whole(chip.vmem_size()) + Whole(chip.cmem_size()) : 0;
  }
  const int64_t shared =
      chip.has_shared_size() ? Whole(chip.shared_size()) : Parts(chip.shared_size_per_core(), chip.cores());
  if (!chip.has_l2_size() || shared == 0) return 0;
  return Whole(chip.l2_size()) + shared + Whole(chip.last_level_size());
}

}  // namespace

ChipFigures FiguresOf(const Chip& chip) {
  ChipFigures facts;
  facts.summary = {.id = chip.id(),
                   .name = chip.name(),
                   .aliases = {chip.alias().begin(), chip.alias().end()},
                   .lanes = Whole(chip.lanes()),
                   .mxu = Whole(chip.matrix_edge())};
  facts.unverified = chip.unverified();
  facts.shape = {.edge = Whole(chip.matrix_edge()),
                 .units = Whole(chip.matrix_units()),
                 .sublanes = Whole(chip.sublanes()),
                 .tile_m = chip.tensor_tile().m(),
                 .tile_n = chip.tensor_tile().n(),
                 .tile_k_bits = chip.tensor_tile().k_bits()};
  facts.vector_rate = FlopsPerSecond(InBaseUnits(chip.vector_rate()));
  facts.memory_bytes = Whole(chip.has_hbm_usable() ? chip.hbm_usable() : chip.hbm_size());
  facts.memory_bandwidth = BytesPerSecond(InBaseUnits(chip.hbm_bandwidth()));
  facts.on_chip_bytes = OnChipBytes(chip);
  FillModes(chip, facts);
  return facts;
}

absl::Span<const ChipFigures> AllChipFacts() {
  static const std::vector<ChipFigures>* const facts = [] {
    auto* all = new std::vector<ChipFigures>;
    for (size_t i = 0; i < ShippedChips().size(); ++i) {
      all->push_back(FiguresOf(ShippedChips()[i]));
      all->back().text = ChipTexts()[i];
    }
    return all;
  }();
  return *facts;
}

absl::StatusOr<const ChipFigures*> FindChipFacts(absl::string_view id) {
  TWIN_ASSIGN_OR_RETURN(const Chip* chip, FindIn(ShippedChips(), id));
  return &AllChipFacts()[chip - ShippedChips().data()];
}

absl::StatusOr<const MatmulMode*> FindMode(const ChipFigures& chip, DType left, DType right) {
  const MatmulMode& mode = chip.modes[static_cast<int>(left)][static_cast<int>(right)];
  if (mode.rate.known()) return &mode;
  return Error(1704, chip.summary.id,
               absl::StrCat("no known way to multiply ", Name(left), " by ", Name(right)),
               "cast the weights to bf16, or choose another chip");
}

std::vector<ChipSummary> AllChips() {
  std::vector<ChipSummary> all;
  for (const ChipFigures& facts : AllChipFacts()) all.push_back(facts.summary);
  return all;
}

absl::StatusOr<ChipSummary> FindChip(const std::string& id) {
  TWIN_ASSIGN_OR_RETURN(const ChipFigures* facts, FindChipFacts(id));
  return facts->summary;
}

absl::StatusOr<std::string> ChipText(const std::string& id) {
  TWIN_ASSIGN_OR_RETURN(const ChipFigures* facts, FindChipFacts(id));
  return std::string(facts->text.data(), facts->text.size());
}

std::vector<std::string> LintChips() {
  std::vector<std::string> findings;
  for (const Chip& chip : ShippedChips()) {
    for (std::string& finding : LintChip(chip)) findings.push_back(std::move(finding));
  }
  for (std::string& finding : LintNames(ShippedChips())) findings.push_back(std::move(finding));
  return findings;
}

absl::Status CheckFigures(const ChipFigures& chip) {
  const auto need = [&](bool known, absl::string_view what) -> absl::Status {
    return known ? absl::OkStatus()
                 : Error(1706, chip.summary.id, absl::StrCat("no source gives its ", what));
  };
  if (!chip.unverified.empty()) {
    return Error(1709, chip.summary.id, absl::StrCat("no score rests on its figures: ", chip.unverified),
                 "`twinforge chip show` has them as they were announced");
  }
  const ShapeRule& shape = chip.shape;
  const bool systolic = shape.edge > 0 && shape.units > 0 && shape.sublanes > 0;
  const bool tensor_core = shape.tile_m > 0 && shape.tile_n > 0 && shape.tile_k_bits > 0;
  TWIN_RETURN_IF_ERROR(need(chip.best_rate.known(), "peak"));
  TWIN_RETURN_IF_ERROR(need(chip.memory_bandwidth.known(), "memory bandwidth"));
  TWIN_RETURN_IF_ERROR(need(chip.memory_bytes > 0, "memory size"));
  TWIN_RETURN_IF_ERROR(need(chip.on_chip_bytes > 0, "on-chip memory"));
  return need(systolic || tensor_core, "matrix unit's shape");
}

}  // namespace twinforge
