// What can be wrong with a chip file that parses.

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cost/chip_file.h"
#include "cost/chip_units.h"
#include "weights/dtype.h"

namespace twinforge {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

constexpr double kTolerance = 0.03;  // between two figures that should be one
constexpr double kRivalFactor = 4;   // sources further apart than this speak of different things

// What a field may hold. The range is in the first unit.
struct FieldRange {
  absl::string_view field;
  absl::string_view units;  // space between them; "" is a plain number
  double low;
  double high;
  bool whole = false;
};

constexpr FieldRange kRanges[] = {
    {"rate", "TFLOP/s TOP/s", 1, 1e6},
    {"cores", "", 1, 4096, true},
    {"matrix_units", "", 1, 65536, true},
    {"matrix_edge", "", 4, 4096, true},
    {"clock", "MHz", 100, 6000},
    {"vector_rate", "TFLOP/s", 0.1, 1000},
    {"fp32_rate", "TFLOP/s", 0.1, 1000},
    {"lanes", "", 8, 1024, true},
    {"sublanes", "", 1, 64, true},
    {"hbm_size", "GiB", 1, 4096},
    {"hbm_usable", "GiB", 1, 4096},
    {"hbm_bandwidth", "GB/s", 50, 1e5},
    {"vmem_size", "MiB", 1, 4096},
    {"vmem_bandwidth", "GB/s", 100, 1e6},
    {"vmem_limit_per_core", "MiB", 1, 4096},
    {"cmem_size", "MiB", 1, 4096},
    {"smem_size_per_core", "KiB MiB", 1, 65536},
    {"l2_size", "MiB", 1, 4096},
    {"l2_bandwidth", "GB/s", 100, 1e6},
    {"shared_size_per_core", "KiB", 8, 4096},
    {"shared_size", "MiB", 1, 1024},
    {"last_level_size", "MiB", 1, 4096},
    {"links", "", 1, 64, true},
    {"link_bandwidth_one_way", "GB/s", 5, 5000},
    {"network_bandwidth_both_ways", "GB/s", 0, 50000},
    {"wrap_multiple", "", 1, 1024, true},
    {"pod_chips", "", 1, 1e6, true},
    {"hop_latency", "us", 0.01, 100},
    {"message_latency", "us", 0.1, 1000},
    {"all_reduce_latency", "us", 0.1, 1000},
    {"achieved_link_bandwidth", "GB/s", 1, 5000},
    {"chips_per_host", "", 1, 128, true},
    {"host_bandwidth", "GB/s", 1, 2000},
    {"datacentre_bandwidth_per_host", "GB/s", 5, 10000},
    {"datacentre_nics_per_host", "", 1, 64, true},
    {"design_power", "W", 10, 5000},
    {"measured_power", "W", 10, 5000},
    {"measured_system_power", "W", 10, 10000},
    {"all_in_power", "W", 10, 10000},
    {"price", "USD/h", 0.01, 1000},
    {"achieved_matmul", "", 0.01, 1},
    {"achieved_bandwidth", "", 0.01, 1},
};

const FieldRange* RangeOf(absl::string_view field) {
  for (const FieldRange& range : kRanges) {
    if (range.field == field) return &range;
  }
  return nullptr;
}

bool Near(double a, double b) { return std::abs(a - b) <= kTolerance * std::abs(b); }

bool IsDate(absl::string_view text) {
  if (text.size() != 4 && text.size() != 7 && text.size() != 10) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (i == 4 || i == 7 ? text[i] != '-' : !absl::ascii_isdigit(text[i])) return false;
  }
  return true;
}

// The value that is used and those of other sources.
std::vector<double> Values(const Chip::Number& number) {
  std::vector<double> values = {number.value()};
  for (const Chip::Rival& rival : number.rival()) values.push_back(rival.value());
  return values;
}

double Largest(const Chip::Number& number) {
  const std::vector<double> values = Values(number);
  return *std::max_element(values.begin(), values.end()) * UnitScale(number.unit()).value_or(0);
}

// Collects findings of one chip.
class Linter {
 public:
  explicit Linter(const Chip& chip) : chip_(chip) {}

  std::vector<std::string> Run() {
    Identity();
    for (const ChipNumber& number : NumbersOf(chip_)) Number(number.path, number.field, *number.number);
    Peaks();
    Conversions();
    Tiles();
    PeakAgainstClock();
    PeakRatios();
    VectorRate();
    Memory();
    Network();
    Power();
    Missing();
    return Accepted();
  }

 private:
  template <typename... Words>
  void Find(const Words&... words) {
    findings_.push_back(absl::StrCat(words...));
  }

  void Identity();
  void Number(const std::string& where, const std::string& field, const Chip::Number& number);
  void Span(const std::string& where, const Chip::Number& number);
  void Peaks();
  void Conversions();
  void Tiles();
  void PeakAgainstClock();
  void PeakRatios();
  void VectorRate();
  void Memory();
  void Network();
  void Power();
  void Missing();
  void NotAbove(const char* small, const Chip::Number& a, const char* large, const Chip::Number& b);
  std::vector<std::string> Accepted();

  // The dense rate of a type, or 0.
  double Rate(absl::string_view dtype) const {
    for (const Chip::Peak& peak : chip_.peak()) {
      if (peak.dtype() == dtype && !peak.sparse24()) return InBaseUnits(peak.rate());
    }
    return 0;
  }

  const Chip& chip_;
  std::vector<std::string> findings_;  // without the chip's id
};

bool IsName(absl::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '_';
  });
}

void Linter::Identity() {
  if (!IsName(chip_.id())) Find("id: letters, digits and _ only, in lower case");
  for (const std::string& alias : chip_.alias()) {
    if (!IsName(alias)) Find("alias ", alias, ": letters, digits and _ only, in lower case");
  }
  if (chip_.vendor().empty()) Find("vendor: not said");
  if (chip_.generation().empty()) Find("generation: not said");
  if (chip_.year() < 2000 || chip_.year() > 2100) Find("year: ", chip_.year(), " is none of this century");
  if (chip_.kind() != Chip::TPU && chip_.kind() != Chip::GPU) Find("kind: neither TPU nor GPU");
  if (!Chip::Fabric_IsValid(chip_.fabric())) Find("fabric: unknown value");
}

void Linter::Number(const std::string& where, const std::string& field, const Chip::Number& number) {
  const double value = number.value();
  const std::optional<double> scale = UnitScale(number.unit());
  if (const FieldRange* range = RangeOf(field)) {
    const std::vector<std::string> units = absl::StrSplit(std::string(range->units), ' ');
    const bool fits = std::find(units.begin(), units.end(), number.unit()) != units.end();
    if (!scale) {
      Find(where, ": unknown unit ", number.unit());
    } else if (!fits) {
      Find(where, ": in \"", number.unit(), "\", where \"", absl::StrJoin(units, "\" or \""), "\" belongs");
    } else {
      const double in_first = value * *scale / *UnitScale(units.front());
      if (!(value > 0) && !(range->low == 0 && value == 0)) {
        Find(where, ": not a positive number");
      } else if (!(in_first >= range->low && in_first <= range->high)) {
        Find(absl::StrFormat("%s: %g is out of range, %g to %g %s", where, value, range->low, range->high,
                             units.front()));
      }
    }
    if (range->whole && value != std::floor(value)) Find(where, ": not a whole number");
  }
  if (number.source().empty()) Find(where, ": no source");
  if (number.confidence() == Chip::CONFIDENCE_UNSET || !Chip::Confidence_IsValid(number.confidence()))
    Find(where, ": no confidence");
  if (!number.date().empty() && !IsDate(number.date()))
    Find(where, ": date ", number.date(), " is no YYYY-MM-DD");
  Span(where, number);
}

// A number's own range, and what other sources say.
void Linter::Span(const std::string& where, const Chip::Number& number) {
  const double value = number.value();
  if ((number.low() != 0 || number.high() != 0) && !(number.low() <= value && value <= number.high()))
    Find(where, ": outside its own range");
  for (const Chip::Rival& rival : number.rival()) {
    if (rival.source().empty()) Find(where, ": a rival without source");
    if (rival.value() == value) Find(where, ": a rival that agrees");
    if (!(rival.value() * kRivalFactor >= value && rival.value() <= kRivalFactor * value))
      Find(absl::StrFormat("%s: %g and its rival %g can't mean the same", where, value, rival.value()));
  }
}

bool IsElementType(const std::string& dtype) {
  return dtype == "int4" || dtype == "tf32" || DTypeFromName(dtype).has_value();
}

void Linter::Peaks() {
  std::set<std::pair<std::string, bool>> seen;
  for (const Chip::Peak& peak : chip_.peak()) {
    const std::string& dtype = peak.dtype();
    if (!IsElementType(dtype)) Find("peak ", dtype, ": no type of that name");
    if (!seen.emplace(dtype, peak.sparse24()).second) Find("peak ", dtype, ": said twice");
    if (peak.source().empty()) Find("peak ", dtype, ": no source says that the unit multiplies it");
    if (!Chip::Peak::Use_IsValid(peak.use())) Find("peak ", dtype, ": unknown use");
    const bool mixed = std::any_of(chip_.mix().begin(), chip_.mix().end(), [&](const Chip::Mix& mix) {
      return std::find(mix.dtype().begin(), mix.dtype().end(), dtype) != mix.dtype().end();
    });
    if (peak.use() == Chip::Peak::MIXED && !mixed) Find("peak ", dtype, ": used in a mix, and in none");
  }
}

void Linter::Conversions() {
  const auto is_native = [&](const std::string& dtype) {
    return std::any_of(chip_.peak().begin(), chip_.peak().end(), [&](const Chip::Peak& peak) {
      return peak.dtype() == dtype && peak.use() != Chip::Peak::PUBLISHED;
    });
  };
  for (const Chip::Conversion& conversion : chip_.conversion()) {
    if (conversion.source().empty()) Find("conversion of ", conversion.dtype(), ": no source");
    if (!IsElementType(conversion.dtype()))
      Find("conversion of ", conversion.dtype(), ": no type of that name");
    if (!is_native(conversion.as()))
      Find("conversion of ", conversion.dtype(), " to ", conversion.as(), ", which has no peak");
  }
  for (const Chip::Mix& mix : chip_.mix()) {
    if (mix.source().empty()) Find("mix of ", absl::StrJoin(mix.dtype(), " "), ": no source");
    for (const std::string& dtype : mix.dtype()) {
      if (!is_native(dtype)) Find("mix of ", dtype, ", which has no peak");
    }
  }
}

void Linter::Tiles() {
  const bool tile = chip_.has_tensor_tile();
  if (!chip_.has_matrix_edge() && !tile) Find("neither a matrix edge nor a tensor tile");
  if (tile) {
    const Chip::TensorTile& t = chip_.tensor_tile();
    if (t.m() <= 0 || t.n() <= 0 || t.k_bits() <= 0) Find("tensor_tile: not positive");
    if (t.source().empty()) Find("tensor_tile: no source");
  }
  if (chip_.kind() == Chip::TPU && (!chip_.has_lanes() || !chip_.has_sublanes()))
    Find("lanes and sublanes: not said, and every TPU has them");
  for (const Chip::SublaneTile& t : chip_.sublane_tile()) {
    if (t.bits() <= 0 || t.rows() <= 0) Find("sublane_tile: not positive");
    if (t.source().empty()) Find("sublane_tile: no source");
  }
}

// peak = units x edge^2 x 2 x clock, where all of them are published. A tensor core has no edge; it does a
// power of two of multiply-adds a cycle.
void Linter::PeakAgainstClock() {
  const double published = Rate("bf16");
  const double cycles = chip_.matrix_units().value() * InBaseUnits(chip_.clock());
  if (published == 0 || cycles == 0) return;
  if (chip_.has_matrix_edge()) {
    const double made = cycles * chip_.matrix_edge().value() * chip_.matrix_edge().value() * 2;
    if (!Near(made, published)) {
      Find(absl::StrFormat("peak bf16: published %g, units and clock make %g TFLOP/s", published / 1e12,
                           made / 1e12));
    }
    return;
  }
  const double macs = published / (2 * cycles);
  if (!Near(macs, std::exp2(std::round(std::log2(macs))))) {
    Find(absl::StrFormat("peak bf16: units and clock leave %.4g multiply-adds a cycle, no power of two",
                         macs));
  }
}

// Rates of one unit are simple multiples of one another.
void Linter::PeakRatios() {
  const double bf16 = Rate("bf16");
  for (const Chip::Peak& peak : chip_.peak()) {
    if (!peak.has_rate()) continue;
    const double rate = InBaseUnits(peak.rate());
    const std::string& dtype = peak.dtype();
    if (peak.sparse24()) {
      const double dense = Rate(dtype);
      if (dense == 0 || !Near(rate, 2 * dense)) Find("peak ", dtype, " 2:4: not twice the dense rate");
      continue;
    }
    std::vector<double> usual = {1, 2};
    if (dtype == "bf16" || dtype == "f16") usual = {1};
    if (dtype == "tf32") usual = {0.5};
    if (dtype == "int4" || dtype == "f4") usual = {1, 2, 4};
    const bool fits =
        std::any_of(usual.begin(), usual.end(), [&](double times) { return Near(rate, times * bf16); });
    if (bf16 > 0 && !fits) Find(absl::StrFormat("peak %s: %.3g times bf16's", dtype, rate / bf16));
  }
}

// Each lane does a whole number of operations a cycle.
void Linter::VectorRate() {
  const double lanes = chip_.cores().value() * chip_.lanes().value() * chip_.sublanes().value();
  const double cycles = lanes * InBaseUnits(chip_.clock());
  const double rate = InBaseUnits(chip_.vector_rate());
  if (rate == 0 || cycles == 0) return;
  const double per_lane = rate / cycles;
  if (!Near(per_lane, std::max(1.0, std::round(per_lane))))
    Find(absl::StrFormat("vector_rate: %.3g operations a lane and cycle, no whole number", per_lane));
}

void Linter::NotAbove(const char* small, const Chip::Number& a, const char* large, const Chip::Number& b) {
  if (InBaseUnits(a) == 0 || InBaseUnits(b) == 0 || InBaseUnits(a) <= Largest(b)) return;
  Find(small, ": above ", large, " (",
       absl::StrFormat("%g %s, %g %s", a.value(), a.unit(), b.value(), b.unit()), ")");
}

void Linter::Memory() {
  NotAbove("hbm_usable", chip_.hbm_usable(), "hbm_size", chip_.hbm_size());
  NotAbove("vmem_limit_per_core", chip_.vmem_limit_per_core(), "vmem_size", chip_.vmem_size());
  NotAbove("hbm_bandwidth", chip_.hbm_bandwidth(), "vmem_bandwidth", chip_.vmem_bandwidth());
  NotAbove("hbm_bandwidth", chip_.hbm_bandwidth(), "l2_bandwidth", chip_.l2_bandwidth());
  const double sum = InBaseUnits(chip_.shared_size_per_core()) * chip_.cores().value();
  if (chip_.has_shared_size() && sum > 0 && !Near(sum, InBaseUnits(chip_.shared_size())))
    Find("shared_size: not shared_size_per_core times cores");
}

// links x bandwidth x 2 directions = both ways, for one of each number's sources.
void Linter::Network() {
  const bool torus = chip_.fabric() == Chip::TORUS;
  if (torus != (chip_.torus_axes() > 0)) Find("torus_axes: said of a torus, and only of one");
  if (chip_.torus_extent_size() > 0 && chip_.torus_extent_size() != chip_.torus_axes())
    Find("torus_extent: not one for each axis");
  if (chip_.has_wrap_multiple() && !torus) Find("wrap_multiple: said of a torus only");
  if (torus && chip_.has_links() && chip_.links().value() != static_cast<double>(2 * chip_.torus_axes()))
    Find("links: a torus has two for each axis");
  if (chip_.fabric() == Chip::HOST_BUS && chip_.network_bandwidth_both_ways().value() != 0)
    Find("network_bandwidth_both_ways: the fabric is the host's bus");
  if (!chip_.has_links() || !chip_.has_link_bandwidth_one_way() || !chip_.has_network_bandwidth_both_ways())
    return;
  const std::vector<double> links = Values(chip_.link_bandwidth_one_way());
  const std::vector<double> sums = Values(chip_.network_bandwidth_both_ways());
  const bool agree = std::any_of(links.begin(), links.end(), [&](double link) {
    return std::any_of(sums.begin(), sums.end(),
                       [&](double sum) { return Near(2 * chip_.links().value() * link, sum); });
  });
  if (!agree) Find("network_bandwidth_both_ways: no source's links add up to it");
}

void Linter::Power() {
  NotAbove("design_power", chip_.design_power(), "all_in_power", chip_.all_in_power());
  NotAbove("measured_power", chip_.measured_power(), "design_power", chip_.design_power());
  NotAbove("measured_power", chip_.measured_power(), "all_in_power", chip_.all_in_power());
}

// A cell of chips.csv is a number or a word.
void Linter::Missing() {
  for (const Chip::Missing& missing : chip_.missing()) {
    for (const ChipNumber& number : NumbersOf(chip_)) {
      if (number.number->column() == missing.column())
        Find(number.path, ": its column is missing as ", missing.word(), ", and yet there is a number");
    }
  }
}

std::vector<std::string> Linter::Accepted() {
  for (const Chip::Accepted& accepted : chip_.accepted()) {
    const auto at = std::find(findings_.begin(), findings_.end(), accepted.finding());
    if (accepted.reason().empty()) {
      Find("accepted ", accepted.finding(), ": no reason");
    } else if (at == findings_.end()) {
      Find("accepted ", accepted.finding(), ": no such finding");
    } else {
      findings_.erase(at);
    }
  }
  for (std::string& finding : findings_) finding = absl::StrCat(chip_.id(), ": ", finding);
  return std::move(findings_);
}

}  // namespace

std::vector<std::string> LintChip(const Chip& chip) { return Linter(chip).Run(); }

std::vector<std::string> LintNames(absl::Span<const Chip> chips) {
  std::vector<std::string> findings;
  std::map<std::string, std::string> owner;  // folded word -> id
  for (const Chip& chip : chips) {
    std::set<std::string> own = {FoldedChipName(chip.name())};  // a name may fold into the id or an alias
    std::vector<std::string> words = {FoldedChipName(chip.id())};
    for (const std::string& alias : chip.alias()) words.push_back(FoldedChipName(alias));
    for (size_t i = 0; i < words.size(); ++i) {
      if (std::find(words.begin(), words.begin() + i, words[i]) != words.begin() + i)
        findings.push_back(absl::StrCat(chip.id(), ": alias ", words[i], ": said twice"));
    }
    own.insert(words.begin(), words.end());
    own.erase("");
    for (const std::string& word : own) {
      const auto [at, fresh] = owner.emplace(word, chip.id());
      if (!fresh) findings.push_back(absl::StrCat(chip.id(), ": ", word, ": also a name of ", at->second));
    }
  }
  return findings;
}

std::vector<std::string> FieldsWithoutRange() {
  std::vector<std::string> fields;
  const Descriptor* chip = Chip::descriptor();
  for (int i = 0; i < chip->field_count(); ++i) {
    const FieldDescriptor* field = chip->field(i);
    const Descriptor* type = field->message_type();
    if (type == Chip::Number::descriptor()) {
      if (field->is_repeated() || RangeOf(field->name()) == nullptr) fields.push_back(field->name());
    } else if (type != nullptr && type != Chip::Peak::descriptor()) {
      for (int k = 0; k < type->field_count(); ++k) {
        if (type->field(k)->message_type() != nullptr) fields.push_back(type->field(k)->full_name());
      }
    }
  }
  return fields;
}

}  // namespace twinforge
