#include "cost/chip.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/diagnostic.h"
#include "base/embedded.h"
#include "base/status_macros.h"
#include "cost/chip.pb.h"
#include "cost/chip_units.h"
#include "google/protobuf/text_format.h"

namespace twinforge {

absl::Span<const EmbeddedFile> Embedded_chips();

namespace {

// A number in base units; 0 where it is missing. Lint reports unknown units.
double Base(const Chip::Number& number) { return number.value() * UnitScale(number.unit()).value_or(0); }

int64_t Whole(const Chip::Number& number) { return static_cast<int64_t>(Base(number)); }

// Dense rates by the chip file's dtype names, which reach beyond weights/dtype.h (int4, tf32).
using Rates = std::map<std::string, FlopsPerSecond>;

Rates DenseRates(const Chip& chip) {
  Rates rates;
  for (const Chip::Peak& peak : chip.peak()) {
    if (!peak.sparse24()) rates[peak.dtype()] = FlopsPerSecond(Base(peak.rate()));
  }
  return rates;
}

bool CanMeet(const Chip& chip, const std::string& left, const std::string& right) {
  if (left == right) return true;
  const auto has = [](const Chip::Mix& mix, const std::string& dtype) {
    return std::find(mix.dtype().begin(), mix.dtype().end(), dtype) != mix.dtype().end();
  };
  return std::any_of(chip.mix().begin(), chip.mix().end(),
                     [&](const Chip::Mix& mix) { return has(mix, left) && has(mix, right); });
}

// `dtype` itself where the unit multiplies it, and everything that it may be converted to.
std::vector<std::string> Forms(const Chip& chip, const Rates& rates, const std::string& dtype) {
  std::vector<std::string> forms;
  if (rates.count(dtype) > 0) forms.push_back(dtype);
  for (const Chip::Conversion& conversion : chip.conversion()) {
    if (conversion.dtype() == dtype) forms.push_back(conversion.as());
  }
  return forms;
}

// The fastest way; among equals, the one with fewer conversions (forms begin with the type itself).
MatmulMode BestMode(const Chip& chip, const Rates& rates, DType left,
                    const std::vector<std::string>& left_forms, DType right,
                    const std::vector<std::string>& right_forms) {
  MatmulMode best;
  for (const std::string& l : left_forms) {
    for (const std::string& r : right_forms) {
      if (!CanMeet(chip, l, r)) continue;
      const FlopsPerSecond rate = std::min(rates.at(l), rates.at(r));
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
  const Rates rates = DenseRates(chip);
  for (const auto& [dtype, rate] : rates) {
    if (!(facts.best_rate < rate)) continue;
    facts.best_rate = rate;
    facts.best_dtype = dtype;
  }
  std::array<std::vector<std::string>, kDTypeCount> forms;
  for (const DType dtype : AllDTypes()) {
    const absl::string_view name = Name(dtype);
    forms[static_cast<int>(dtype)] = Forms(chip, rates, std::string(name.data(), name.size()));
  }
  for (const DType left : AllDTypes()) {
    for (const DType right : AllDTypes()) {
      const int l = static_cast<int>(left);
      const int r = static_cast<int>(right);
      facts.modes[l][r] = BestMode(chip, rates, left, forms[l], right, forms[r]);
    }
  }
}

ChipFigures Facts(const Chip& chip, absl::string_view text) {
  ChipFigures facts;
  facts.summary = {.id = chip.id(),
                   .name = chip.name(),
                   .aliases = {chip.alias().begin(), chip.alias().end()},
                   .lanes = Whole(chip.lanes()),
                   .mxu = Whole(chip.matrix_edge())};
  facts.text = text;
  facts.shape = {.edge = Whole(chip.matrix_edge()),
                 .units = Whole(chip.matrix_units()),
                 .sublanes = Whole(chip.sublanes()),
                 .tile_m = chip.tensor_tile().m(),
                 .tile_n = chip.tensor_tile().n(),
                 .tile_k_bits = chip.tensor_tile().k_bits()};
  facts.vector_rate = FlopsPerSecond(Base(chip.vector_rate()));
  facts.memory_bytes = Whole(chip.hbm_size());
  facts.memory_bandwidth = BytesPerSecond(Base(chip.hbm_bandwidth()));
  facts.on_chip_bytes = chip.kind() == Chip::TPU ? Whole(chip.vmem_size())
                                                 : Whole(chip.l2_size()) + Whole(chip.other_sram_size());
  FillModes(chip, facts);
  return facts;
}

struct Loaded {
  std::vector<Chip> files;
  std::vector<ChipFigures> facts;
};

// Embedded files are sorted by name, and a file is named after its chip.
const Loaded& LoadedChips() {
  static const Loaded* const loaded = [] {
    auto* all = new Loaded;
    for (const EmbeddedFile& file : Embedded_chips()) {
      Chip chip;
      const std::string text(file.text.data(), file.text.size());
      TWIN_CHECK(google::protobuf::TextFormat::ParseFromString(text, &chip), file.name);
      TWIN_CHECK(absl::StrCat(chip.id(), ".textproto") == file.name, file.name);
      all->facts.push_back(Facts(chip, file.text));
      all->files.push_back(std::move(chip));
    }
    return all;
  }();
  return *loaded;
}

}  // namespace

absl::Span<const ChipFigures> AllChipFacts() { return LoadedChips().facts; }

absl::StatusOr<const ChipFigures*> FindChipFacts(absl::string_view id) {
  std::vector<std::string> known;
  for (const ChipFigures& facts : AllChipFacts()) {
    if (facts.summary.id == id) return &facts;
    known.push_back(facts.summary.id);
    for (const std::string& alias : facts.summary.aliases) {
      if (alias == id) return &facts;
      known.push_back(alias);
    }
  }
  const std::string nearest = Nearest(id, known);
  return Error(1701, id, "no such chip",
               nearest.empty() ? "`twinforge chip list` names those that are known"
                               : absl::StrCat("did you mean ", nearest, "?"));
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
  for (const Chip& chip : LoadedChips().files) {
    for (std::string& finding : LintChip(chip)) findings.push_back(std::move(finding));
  }
  return findings;
}

absl::Status CheckFigures(const ChipFigures& chip) {
  const auto need = [&](bool known, absl::string_view what) -> absl::Status {
    return known ? absl::OkStatus()
                 : Error(1706, chip.summary.id, absl::StrCat("no source gives its ", what));
  };
  const ShapeRule& shape = chip.shape;
  const bool systolic = shape.edge > 0 && shape.units > 0 && shape.sublanes > 0;
  const bool tensor_core = shape.tile_m > 0 && shape.tile_n > 0 && shape.tile_k_bits > 0;
  TWIN_RETURN_IF_ERROR(need(chip.best_rate.known(), "peak"));
  TWIN_RETURN_IF_ERROR(need(chip.memory_bandwidth.known(), "memory bandwidth"));
  TWIN_RETURN_IF_ERROR(need(chip.memory_bytes > 0, "memory size"));
  return need(systolic || tensor_core, "matrix unit's shape");
}

}  // namespace twinforge
