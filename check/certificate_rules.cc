#include "check/certificate_rules.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace twinforge {
namespace {

constexpr int64_t kTera = 1000000000000;

struct NamedForm {
  absl::string_view name;
  absl::string_view text;
};
constexpr NamedForm kFormTexts[] = {
    {"folds",
     "rows = ceil(k/R) min(ceil(n/R) up(m,S), ceil(m/R) up(n,S)) count; tile = ceil(rows/(S U)) S U R R"},
    {"folds_scores", "rows = ceil(k/R) ceil(pairs/R) count; tile = ceil(rows/(S U)) S U R R"},
    {"folds_mix",
     "rows = min(ceil(n/R) ceil(pairs/R), up(n,S) ceil(pairs/(R R))) count; tile = ceil(rows/(S U)) S U R R"},
    {"tiles", "tile = min(up(m,a) up(n,b), up(n,a) up(m,b)) up(k,c) count; c = k_bits / wider bits"},
    {"tiles_scores", "tile = ceil(pairs/(a b)) a b up(k,c) count; c = k_bits / wider bits"},
    {"tiles_mix", "tile = min(up(pairs,a c) up(n,b), up(pairs,b c) up(n,a)) count; c = k_bits / wider bits"},
    {"padded",
     "bytes = min over dims i, j of up(i,L) up(j,t(j)) others bits / 8; one dim n: up(n, L t(n/L)) bits / 8; "
     "t(x) = least power of two from a word's elements on that is min(x,8) or more"},
    {"linear", "bytes = ceil(elements bits / 8)"},
};

struct NamedBits {
  absl::string_view dtype;
  int64_t bits;
};
constexpr NamedBits kBits[] = {
    {"bool", 8},    {"f4", 4},      {"f6_e2m3", 6}, {"f6_e3m2", 6}, {"u8", 8},          {"i8", 8},
    {"f8_e5m2", 8}, {"f8_e4m3", 8}, {"f8_e8m0", 8}, {"i16", 16},    {"f8_e4m3fnuz", 8}, {"f8_e5m2fnuz", 8},
    {"u16", 16},    {"f16", 16},    {"bf16", 16},   {"i32", 32},    {"u32", 32},        {"f32", 32},
    {"c64", 64},    {"f64", 64},    {"i64", 64},    {"u64", 64}};

// Units by what they measure.
struct NamedUnit {
  absl::string_view unit;
  absl::string_view dimension;
  int64_t scale;
};
constexpr NamedUnit kUnitScales[] = {
    {"", "count", 1},
    {"KiB", "bytes", int64_t{1} << 10},
    {"MiB", "bytes", int64_t{1} << 20},
    {"GiB", "bytes", int64_t{1} << 30},
    {"GB/s", "bandwidth", 1000000000},
    {"TFLOP/s", "rate", kTera},
    {"TOP/s", "rate", kTera},
};

Wide PowerOfTen(int exponent) {
  Wide power = 1;
  for (int i = 0; i < exponent; ++i) power = power * 10;
  return power;
}

// The tile's rows in a TPU's memory: as many as a 32-bit word packs at least, else the least power of two
// that holds the array's rows, else 8.
Wide MemoryTileRows(int64_t bits, Wide rows) {
  int64_t tile = 1;
  while (tile * 2 * bits <= 32) tile *= 2;
  while (tile < 8 && Below(tile, rows)) tile *= 2;
  return tile;
}

}  // namespace

void CertFindings::Expect(int line, absl::string_view what, Wide found, Wide expected) {
  if (found == expected) return;
  Add(line, absl::StrCat(what, " is ", PlainNumber(found), ", and ", PlainNumber(expected), " follows"));
}

void CertFindings::ExpectSeconds(int line, absl::string_view what, Wide found, Wide expected) {
  if (found == expected) return;
  Add(line,
      absl::StrCat(what, " is ", PlainSeconds(found), " s, and ", PlainSeconds(expected), " s follows"));
}

absl::string_view CertRules::FormText(absl::string_view name) {
  for (const NamedForm& form : kFormTexts) {
    if (form.name == name) return form.text;
  }
  return "";
}

int64_t CertRules::BitsOf(absl::string_view dtype) {
  for (const NamedBits& row : kBits) {
    if (row.dtype == dtype) return row.bits;
  }
  return 0;
}

CertRules::CertRules(const Certificate& certificate, CertFindings& findings)
    : certificate_(certificate), findings_(findings) {
  if (certificate.tpu) lanes_ = Take("lanes", "count");
  systolic_ = !certificate.tile.has_value();
  if (systolic_) {
    sublanes_ = Take("sublanes", "count");
    edge_ = Take("matrix_edge", "count");
    units_ = Take("matrix_units", "count");
  }
  TakeMemory();
  TakePeaks();
  for (const auto& [name, number] : certificate.numbers) {
    if (taken_.count(name) == 0) findings.Add(number.line, absl::StrCat("no bound uses a number ", name));
  }
}

Wide CertRules::InBase(const CertNumber& number, absl::string_view dimension) {
  for (const NamedUnit& row : kUnitScales) {
    if (row.unit != number.unit || row.dimension != dimension) continue;
    const Wide scaled = number.value.digits * row.scale;
    const Wide divisor = PowerOfTen(number.value.places);
    const Wide whole = Floor(scaled, divisor);
    if (whole.zero()) break;
    // Part of a byte is no byte; a rate that is rounded down would be no bound.
    if (dimension == "bytes" || whole * divisor == scaled) return whole;
    break;
  }
  findings_.Add(number.line, absl::StrCat(number.value.text, " \"", number.unit, "\" is no ", dimension));
  return Wide::None();
}

Wide CertRules::Take(const std::string& name, absl::string_view dimension) {
  const auto at = certificate_.numbers.find(name);
  if (at == certificate_.numbers.end()) {
    findings_.Add(certificate_.chip_line, absl::StrCat("the chip's ", name, " is missing"));
    return Wide::None();
  }
  taken_[name] = true;
  return InBase(at->second, dimension);
}

Wide CertRules::TakeOr(const std::string& name, absl::string_view dimension, Wide absent) {
  return Has(name) ? Take(name, dimension) : absent;
}

void CertRules::TakeMemory() {
  if (certificate_.tpu) {
    on_chip_ = Take("vmem_size", "bytes") + TakeOr("cmem_size", "bytes", 0);
  } else {
    on_chip_ = Take("l2_size", "bytes") + TakeOr("last_level_size", "bytes", 0);
    on_chip_ =
        on_chip_ + (Has("shared_size") ? Take("shared_size", "bytes")
                                       : Take("shared_size_per_core", "bytes") * Take("cores", "count"));
  }
  usable_ = Has("hbm_usable") ? Take("hbm_usable", "bytes") : Take("hbm_size", "bytes");
  bandwidth_ = Take("hbm_bandwidth", "bandwidth");
  if (Has("vector_rate")) vector_rate_ = Take("vector_rate", "rate");
}

void CertRules::TakePeaks() {
  for (const CertPeak& peak : certificate_.peaks) {
    const Wide rate = peak.rate ? InBase(*peak.rate, "rate") : Wide(0);
    rates_[peak.dtype] = rate;
    alone_[peak.dtype] = peak.alone;
    if (peak.alone) best_ = Most(best_, rate);
  }
}

bool CertRules::Meet(const std::string& left, const std::string& right) const {
  if (rates_.count(left) == 0 || rates_.count(right) == 0) return false;
  if (left == right) return alone_.at(left);
  const auto has = [](const std::vector<std::string>& mix, const std::string& dtype) {
    return std::find(mix.begin(), mix.end(), dtype) != mix.end();
  };
  return std::any_of(certificate_.mixes.begin(), certificate_.mixes.end(),
                     [&](const auto& mix) { return has(mix, left) && has(mix, right); });
}

std::vector<std::string> CertRules::FormsOf(const std::string& dtype) const {
  std::vector<std::string> forms;
  if (rates_.count(dtype) > 0) forms.push_back(dtype);
  for (const CertConversion& conversion : certificate_.conversions) {
    if (conversion.from == dtype) forms.push_back(conversion.to);
  }
  return forms;
}

// The fastest of all pairs of forms that meet, the first among equals.
std::optional<CertMode> CertRules::ModeOf(const std::string& left, const std::string& right) const {
  std::optional<CertMode> best;
  for (const std::string& l : FormsOf(left)) {
    for (const std::string& r : FormsOf(right)) {
      if (!Meet(l, r)) continue;
      const Wide a = rates_.at(l);
      const Wide b = rates_.at(r);
      const Wide rate = a.zero() ? b : (b.zero() ? a : Least(a, b));
      if (rate.zero() && l == left && r == right) return std::nullopt;
      if (rate.zero() || (best && !Below(best->rate, rate))) continue;
      best = CertMode{l == r ? l : absl::StrCat(l, " x ", r), rate, l != left, r != right};
    }
  }
  return best;
}

std::string CertRules::FormOf(const std::string& kind) const {
  if (kind != "dense" && kind != "scores" && kind != "mix") return "";
  return absl::StrCat(systolic_ ? "folds" : "tiles", kind == "dense" ? "" : "_", kind == "dense" ? "" : kind);
}

Wide CertRules::Folds(const CertProduct& p) const {
  const Wide square = edge_ * edge_;
  Wide rows;
  if (p.kind == "dense") {
    rows = Ceil(p.k, edge_) *
           Least(Ceil(p.n, edge_) * Up(p.m, sublanes_), Ceil(p.m, edge_) * Up(p.n, sublanes_));
  } else if (p.kind == "scores") {
    rows = Ceil(p.k, edge_) * Ceil(p.pairs, edge_);
  } else {
    rows = Least(Ceil(p.n, edge_) * Ceil(p.pairs, edge_), Up(p.n, sublanes_) * Ceil(p.pairs, square));
  }
  return Up(rows * p.count, sublanes_ * units_) * square;
}

Wide CertRules::Tiles(const CertProduct& p) const {
  const CertTile& tile = *certificate_.tile;
  const int64_t wider = std::max(BitsOf(p.left), BitsOf(p.right));
  // A tile holds whole elements.
  if (wider == 0 || (tile.k_bits > wider && tile.k_bits % wider != 0)) return Wide::None();
  const Wide a = tile.m;
  const Wide b = tile.n;
  const Wide c = std::max<int64_t>(1, tile.k_bits / wider);
  if (p.kind == "dense")
    return Least(Up(p.m, a) * Up(p.n, b), Up(p.n, a) * Up(p.m, b)) * Up(p.k, c) * p.count;
  if (p.kind == "scores") return Up(p.pairs, a * b) * Up(p.k, c) * p.count;
  return Least(Up(p.pairs, a * c) * Up(p.n, b), Up(p.pairs, b * c) * Up(p.n, a)) * p.count;
}

Wide CertRules::MacsOf(const CertProduct& p) {
  if (p.kind == "scores") return Wide(p.pairs) * p.k * p.count;
  if (p.kind == "mix") return Wide(p.pairs) * p.n * p.count;
  return Wide(p.m) * p.k * p.n * p.count;
}

Wide CertRules::TileOf(const CertProduct& p) const { return systolic_ ? Folds(p) : Tiles(p); }

Wide CertRules::BytesOf(const CertArray& array) const {
  if (array.bits <= 0 || array.bits > 64) return Wide::None();
  Wide elements = 1;
  for (const int64_t extent : array.shape) elements = elements * extent;
  if (!certificate_.tpu) return Ceil(elements * array.bits, 8);
  const size_t dims = array.shape.size();
  // A vector's tile has as many rows of lanes as its elements fill.
  if (dims < 2) {
    const Wide rows = dims == 0 ? Wide(1) : Ceil(array.shape[0], lanes_);
    const Wide tile = lanes_ * MemoryTileRows(array.bits, rows);
    return Floor(Up(elements, tile) * array.bits, 8);
  }
  Wide least;
  bool any = false;
  for (size_t minor = 0; minor < dims; ++minor) {
    for (size_t second = 0; second < dims; ++second) {
      if (minor == second) continue;
      Wide tiled = array.bits;
      for (size_t i = 0; i < dims; ++i) {
        const Wide extent = array.shape[i];
        if (i == minor) {
          tiled = tiled * Up(extent, lanes_);
        } else if (i == second) {
          tiled = tiled * Up(extent, MemoryTileRows(array.bits, array.shape[i]));
        } else {
          tiled = tiled * extent;
        }
      }
      least = any ? Least(least, Floor(tiled, 8)) : Floor(tiled, 8);
      any = true;
    }
  }
  return least;
}

}  // namespace twinforge
