#include "cost/certificate_chip.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/json_reader.h"

namespace twinforge {
namespace {

std::string SourceText(const std::string& source, const std::string& date) {
  return absl::StrCat(" source ", JsonQuoted(source), date.empty() ? "" : " date ",
                      date.empty() ? "" : JsonQuoted(date));
}

class ChipWriter {
 public:
  ChipWriter(const Chip& chip, CertificateChip& out, std::string& text)
      : chip_(chip), out_(out), text_(text) {}

  void Run(const std::set<DType>& operands) {
    const bool tpu = chip_.lanes().value() > 0;
    out_.tpu = tpu;
    absl::StrAppend(&text_, "chip ", JsonQuoted(chip_.id()), tpu ? " tpu\n" : " gpu\n");
    Unit();
    OnChip();
    out_.usable = chip_.has_hbm_usable() ? Number("hbm_usable", chip_.hbm_usable())
                                         : Number("hbm_size", chip_.hbm_size());
    out_.bandwidth = Number("hbm_bandwidth", chip_.hbm_bandwidth());
    if (chip_.has_vector_rate()) out_.vector_rate = Number("vector_rate", chip_.vector_rate());
    Types(operands);
  }

 private:
  Natural128 Number(const char* name, const Chip::Number& number) {
    const std::string value = ShortestDecimal(number.value());
    absl::StrAppend(&text_, "number ", name, " ", value, " ", JsonQuoted(number.unit()),
                    SourceText(number.source(), number.date()), "\n");
    return InUnits(value, number.unit());
  }

  void Unit() {
    if (chip_.has_lanes()) Number("lanes", chip_.lanes());
    if (chip_.has_matrix_edge()) {
      Number("sublanes", chip_.sublanes());
      Number("matrix_edge", chip_.matrix_edge());
      Number("matrix_units", chip_.matrix_units());
      return;
    }
    const Chip::TensorTile& tile = chip_.tensor_tile();
    absl::StrAppend(&text_, "tile m ", tile.m(), " n ", tile.n(), " k_bits ", tile.k_bits(),
                    SourceText(tile.source(), ""), "\n");
  }

  void OnChip() {
    if (chip_.kind() == Chip::TPU) {
      out_.on_chip = Number("vmem_size", chip_.vmem_size());
      if (chip_.has_cmem_size()) out_.on_chip += Number("cmem_size", chip_.cmem_size());
      return;
    }
    out_.on_chip = Number("l2_size", chip_.l2_size());
    if (chip_.has_shared_size()) {
      out_.on_chip += Number("shared_size", chip_.shared_size());
    } else {
      const Natural128 each = Number("shared_size_per_core", chip_.shared_size_per_core());
      out_.on_chip += each * Number("cores", chip_.cores());
    }
    if (chip_.has_last_level_size()) out_.on_chip += Number("last_level_size", chip_.last_level_size());
  }

  void Types(const std::set<DType>& operands) {
    std::map<std::string, const Chip::Peak*> peaks;
    for (const Chip::Peak& peak : chip_.peak()) {
      if (!peak.sparse24() && peak.use() != Chip::Peak::PUBLISHED) peaks[peak.dtype()] = &peak;
    }
    for (const auto& [dtype, peak] : peaks) Peak(*peak);
    for (const Chip::Conversion& conversion : chip_.conversion()) {
      const auto is = [&](DType dtype) { return Name(dtype) == conversion.dtype(); };
      if (std::none_of(operands.begin(), operands.end(), is)) continue;
      absl::StrAppend(&text_, "convert ", conversion.dtype(), " as ", conversion.as(),
                      SourceText(conversion.source(), ""), "\n");
    }
    for (const Chip::Mix& mix : chip_.mix()) {
      absl::StrAppend(&text_, "mix");
      for (const std::string& dtype : mix.dtype()) absl::StrAppend(&text_, " ", dtype);
      absl::StrAppend(&text_, SourceText(mix.source(), ""), "\n");
    }
  }

  void Peak(const Chip::Peak& peak) {
    const bool alone = peak.use() == Chip::Peak::ALONE;
    const std::string value = ShortestDecimal(peak.rate().value());
    Natural128& rate = out_.peaks[peak.dtype()];
    rate = peak.has_rate() ? InUnits(value, peak.rate().unit()) : 0;
    if (alone) out_.best = std::max(out_.best, rate);
    absl::StrAppend(&text_, "peak ", peak.dtype(), alone ? " alone" : " mixed",
                    rate > 0 ? absl::StrCat(" rate ", value, " ", JsonQuoted(peak.rate().unit()),
                                            SourceText(peak.rate().source(), peak.rate().date()))
                             : absl::StrCat(" unpublished", SourceText(peak.source(), "")),
                    "\n");
  }

  const Chip& chip_;
  CertificateChip& out_;
  std::string& text_;
};

}  // namespace

Natural128 CertificateChip::RateOf(const std::string& mode) const {
  Natural128 slowest = 0;
  for (const absl::string_view dtype : absl::StrSplit(mode, " x ")) {
    const Natural128 rate = peaks.at(std::string(dtype.data(), dtype.size()));
    if (rate > 0 && (slowest == 0 || rate < slowest)) slowest = rate;
  }
  return slowest;
}

CertificateChip WriteChip(const Chip& chip, const std::set<DType>& operands, std::string& text) {
  CertificateChip out;
  ChipWriter(chip, out, text).Run(operands);
  return out;
}

}  // namespace twinforge
