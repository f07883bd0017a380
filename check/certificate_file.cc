#include "check/certificate_file.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "check/certificate_scan.h"

namespace twinforge {
namespace {

// The lines in their order; docs/certificates.md has the same grammar in prose.
class CertReader {
 public:
  CertReader(absl::string_view text, absl::string_view place) : text_(text), scan_(text, place) {}

  absl::StatusOr<Certificate> Run() {
    const bool read = Head() && Workload() && Chip() && Types() && Forms() && Held() && Ops() && Spared() &&
                      Bounds() && Estimates() && Measured() && Seal();
    if (!read) return scan_.failure();
    return std::move(out_);
  }

 private:
  bool Head() {
    std::string tool;
    if (!scan_.Take("twinforge certificate 1") || !scan_.End()) return false;
    if (!scan_.Take("tool ") || !scan_.Quoted(tool) || !scan_.End()) return false;
    for (const char* of : {"model", "twin", "chip", "workload"}) {
      out_.hash_lines[of] = scan_.line();
      if (!scan_.Take(absl::StrCat(of, " sha256 ")) || !scan_.Hash(out_.hashes[of]) || !scan_.End())
        return false;
    }
    return true;
  }

  static bool IsNumberOfWorkload(const std::string& key) {
    constexpr absl::string_view kKeys[] = {"batch", "context", "past", "tp", "dp", "ep", "pp"};
    return std::find(std::begin(kKeys), std::end(kKeys), key) != std::end(kKeys);
  }
  static bool IsWordOfWorkload(const std::string& key) {
    constexpr absl::string_view kKeys[] = {"phase", "routing", "weights", "activations", "cache"};
    return std::find(std::begin(kKeys), std::end(kKeys), key) != std::end(kKeys);
  }

  bool Workload() {
    CertWorkload& w = out_.workload;
    const size_t start = scan_.at();
    while (scan_.Sees("workload ")) {
      std::string key;
      const int line = scan_.line();
      if (!scan_.Take("workload ") || !scan_.Word(key)) return false;
      if (!w.lines.emplace(key, line).second) return scan_.Fail("this is told twice");
      if (!IsNumberOfWorkload(key) && !IsWordOfWorkload(key)) return scan_.Fail("no such fact of a workload");
      if (!scan_.Take(" ")) return false;
      if (!(IsNumberOfWorkload(key) ? scan_.Count(w.numbers[key]) : scan_.Word(w.words[key])) || !scan_.End())
        return false;
    }
    w.text = std::string(text_.substr(start, scan_.at() - start));
    for (const char* key : {"phase", "batch", "context", "tp", "routing"}) {
      if (w.lines.count(key) == 0)
        return scan_.Fail(absl::StrCat("`workload ", key, "` is missing before this"));
    }
    return true;
  }

  bool Source() {
    std::string ignored;
    if (!scan_.Take(" source ") || !scan_.Quoted(ignored)) return false;
    return !scan_.Sees(" date ") || (scan_.Take(" date ") && scan_.Quoted(ignored));
  }

  bool Value(CertNumber& number) {
    number.line = scan_.line();
    return scan_.Decimal(number.value) && scan_.Take(" ") && scan_.Quoted(number.unit) && Source();
  }

  bool Chip() {
    out_.chip_line = scan_.line();
    if (!scan_.Take("chip ") || !scan_.Quoted(out_.chip)) return false;
    out_.tpu = scan_.Sees(" tpu");
    if (!scan_.Take(out_.tpu ? " tpu" : " gpu") || !scan_.End()) return false;
    while (scan_.Sees("number ") || scan_.Sees("tile ")) {
      if (scan_.Sees("tile ")) {
        if (out_.tile) return scan_.Fail("this is told twice");
        CertTile tile{.line = scan_.line()};
        if (!scan_.Take("tile m ") || !scan_.Count(tile.m) || !scan_.Take(" n ") || !scan_.Count(tile.n) ||
            !scan_.Take(" k_bits ") || !scan_.Count(tile.k_bits) || !Source() || !scan_.End())
          return false;
        out_.tile = tile;
        continue;
      }
      std::string name;
      CertNumber number;
      if (!scan_.Take("number ") || !scan_.Word(name)) return false;
      if (out_.numbers.count(name) > 0) return scan_.Fail("this is told twice");
      if (!scan_.Take(" ") || !Value(number) || !scan_.End()) return false;
      out_.numbers.emplace(std::move(name), std::move(number));
    }
    return true;
  }

  bool Peak() {
    CertPeak peak{.line = scan_.line()};
    if (!scan_.Take("peak ") || !scan_.Word(peak.dtype)) return false;
    for (const CertPeak& other : out_.peaks) {
      if (other.dtype == peak.dtype) return scan_.Fail("this is told twice");
    }
    peak.alone = scan_.Sees(" alone");
    if (!scan_.Take(peak.alone ? " alone" : " mixed")) return false;
    if (scan_.Sees(" rate ")) {
      peak.rate.emplace();
      if (!scan_.Take(" rate ") || !Value(*peak.rate)) return false;
    } else if (!scan_.Take(" unpublished") || !Source()) {
      return false;
    }
    out_.peaks.push_back(std::move(peak));
    return scan_.End();
  }

  bool Types() {
    while (scan_.Sees("peak ")) {
      if (!Peak()) return false;
    }
    while (scan_.Sees("convert ")) {
      CertConversion conversion{.line = scan_.line()};
      if (!scan_.Take("convert ") || !scan_.Word(conversion.from) || !scan_.Take(" as ") ||
          !scan_.Word(conversion.to) || !Source() || !scan_.End())
        return false;
      out_.conversions.push_back(std::move(conversion));
    }
    while (scan_.Sees("mix ")) {
      std::vector<std::string> mix;
      if (!scan_.Take("mix")) return false;
      while (!scan_.Sees(" source ")) {
        mix.emplace_back();
        if (!scan_.Take(" ") || !scan_.Word(mix.back())) return false;
      }
      if (!Source() || !scan_.End()) return false;
      out_.mixes.push_back(std::move(mix));
    }
    return true;
  }

  bool Forms() {
    while (scan_.Sees("form ")) {
      std::string name;
      CertForm form{.line = scan_.line()};
      if (!scan_.Take("form ") || !scan_.Word(name) || !scan_.Take(" ") || !scan_.Quoted(form.text) ||
          !scan_.End())
        return false;
      if (!out_.forms.emplace(name, std::move(form)).second)
        return scan_.Fail("the form before is told twice");
    }
    return true;
  }

  // "bf16 bits 16 shape 4096x14336 bytes 117440512"
  bool Array(CertArray& array) {
    return scan_.Word(array.dtype) && scan_.Take(" bits ") && scan_.Count(array.bits) &&
           scan_.Take(" shape ") && scan_.Shape(array.shape) && scan_.Take(" bytes ") &&
           scan_.Natural(array.bytes) && scan_.End();
  }

  bool HeldArrays(absl::string_view word, std::vector<CertArray>& arrays) {
    while (scan_.Sees(word)) {
      CertArray array{.line = scan_.line()};
      if (!scan_.Take(word) || !scan_.Count(array.count) || !scan_.Take(" ") || !Array(array)) return false;
      arrays.push_back(std::move(array));
    }
    return true;
  }

  bool Held() {
    CertMemory& memory = out_.memory;
    if (!HeldArrays("parameter ", out_.parameters) || !HeldArrays("kept ", out_.kept)) return false;
    memory.line = scan_.line();
    return scan_.Take("memory parameters ") && scan_.Natural(memory.parameters) && scan_.Take(" cache ") &&
           scan_.Natural(memory.cache) && scan_.Take(" usable ") && scan_.Natural(memory.usable) &&
           scan_.Take(" on_chip ") && scan_.Natural(memory.on_chip) && scan_.Take(" feasible ") &&
           scan_.YesNo(memory.feasible) && scan_.Take(" resident ") && scan_.YesNo(memory.resident) &&
           scan_.End();
  }

  bool Product(CertOp& op) {
    CertProduct p{.line = scan_.line()};
    if (!scan_.Take("  product ") || !scan_.Word(p.kind) || !scan_.Take(" m ") || !scan_.Count(p.m) ||
        !scan_.Take(" k ") || !scan_.Count(p.k) || !scan_.Take(" n ") || !scan_.Count(p.n) ||
        !scan_.Take(" count ") || !scan_.Count(p.count))
      return false;
    if (p.kind != "dense" && (!scan_.Take(" pairs ") || !scan_.Count(p.pairs))) return false;
    if (!scan_.Take(" left ") || !scan_.Word(p.left) || !scan_.Take(" right ") || !scan_.Word(p.right) ||
        !scan_.End())
      return false;
    p.as_line = scan_.line();
    if (!scan_.Take("    as ") || !scan_.Quoted(p.as) || !scan_.Take(" useful ") ||
        !scan_.Natural(p.useful) || !scan_.Take(" idle ") || !scan_.Natural(p.idle) ||
        !scan_.Take(" dtype ") || !scan_.Seconds(p.dtype_seconds) || !scan_.Take(" form ") ||
        !scan_.Word(p.form) || !scan_.Take(" tile ") || !scan_.Natural(p.tile) || !scan_.Take(" shape ") ||
        !scan_.Seconds(p.shape_seconds) || !scan_.End())
      return false;
    op.products.push_back(std::move(p));
    return true;
  }

  bool Amount(absl::string_view word, CertAmount& amount) {
    amount.line = scan_.line();
    return scan_.Take(word) && scan_.Natural(amount.value) && scan_.End();
  }

  bool Amounts(absl::string_view word, size_t most, std::vector<CertAmount>& amounts) {
    for (size_t i = 0; i < most && scan_.Sees(word); ++i) {
      amounts.emplace_back();
      if (!Amount(word, amounts.back())) return false;
    }
    return true;
  }

  bool ArraysOf(CertOp& op) {
    for (const char* word : {"  weight ", "  cache "}) {
      while (scan_.Sees(word)) {
        CertArray array{.line = scan_.line(), .cache = word[2] == 'c'};
        if (!scan_.Take(word) || !Array(array)) return false;
        op.arrays.push_back(std::move(array));
      }
    }
    return Amounts("  gathered ", 1, op.streams) && Amounts("  written ", 1, op.streams) &&
           Amounts("  operand ", 1000, op.values) && Amounts("  result ", 1, op.values);
  }

  bool Op() {
    CertOp op{.line = scan_.line()};
    if (!scan_.Take("op ") || !scan_.Count(op.nodes) || !scan_.Take(" ") || !scan_.Quoted(op.op) ||
        !scan_.Take(" ") || !scan_.Quoted(op.path) || !scan_.Take(" useful ") || !scan_.Natural(op.useful) ||
        !scan_.End())
      return false;
    std::string note;
    if (scan_.Sees("  note ") && !(scan_.Take("  note ") && scan_.Quoted(note) && scan_.End())) return false;
    while (scan_.Sees("  product ")) {
      if (!Product(op)) return false;
    }
    if (scan_.Sees("  converts ") && !Amount("  converts ", op.converts.emplace())) return false;
    if (!ArraysOf(op)) return false;
    op.bytes.line = scan_.line();
    if (!scan_.Take("  bytes ") || !scan_.Natural(op.bytes.value) || !scan_.Take(" memory ") ||
        !scan_.Seconds(op.memory_seconds) || !scan_.End())
      return false;
    op.rungs_line = scan_.line();
    if (!scan_.Take("  rungs")) return false;
    for (int rung = 0; rung < 4; ++rung) {
      op.rungs.emplace_back();
      if (!scan_.Take(" ") || !scan_.Seconds(op.rungs.back())) return false;
    }
    out_.ops.push_back(std::move(op));
    return scan_.End();
  }

  bool Ops() {
    while (scan_.Sees("op ")) {
      if (!Op()) return false;
    }
    return true;
  }

  bool Spared() {
    CertSpared& spared = out_.spared;
    spared.line = scan_.line();
    return scan_.Take("spared ") && scan_.Natural(spared.bytes) && scan_.Take(" seconds ") &&
           scan_.Seconds(spared.seconds) && scan_.End();
  }

  bool Bounds() {
    constexpr const char* kNames[] = {"peak", "dtype", "shape", "memory"};
    for (int rung = 0; rung < 4; ++rung) {
      CertBound bound{.line = scan_.line(), .name = kNames[rung]};
      if (!scan_.Take(absl::StrCat("rung R", rung, " ", bound.name, " class B seconds ")) ||
          !scan_.Seconds(bound.seconds) || !scan_.End())
        return false;
      out_.bounds.push_back(std::move(bound));
    }
    return true;
  }

  bool IntervalSeconds(CertInterval& interval) {
    for (const char* end : {" low ", " mid ", " high "}) {
      interval.ends.emplace_back();
      if (!scan_.Take(end) || !scan_.Seconds(interval.ends.back())) return false;
    }
    return scan_.End();
  }

  bool Constant() {
    CertInterval constant{.line = scan_.line()};
    std::string ignored;
    if (!scan_.Take("constant ") || !scan_.Quoted(constant.name)) return false;
    for (const char* end : {" low ", " mid ", " high "}) {
      CertDecimal decimal;
      if (!scan_.Take(end) || !scan_.Decimal(decimal)) return false;
      for (int place = decimal.places; place < 18; ++place) decimal.digits = decimal.digits * 10;
      constant.ends.push_back(decimal.digits);
    }
    out_.constants.push_back(std::move(constant));
    return scan_.Take(" unit ") && scan_.Quoted(ignored) && Source() && scan_.End();
  }

  bool Estimates() {
    if (scan_.Sees("estimates ")) {
      out_.routing_line = scan_.line();
      if (!scan_.Take("estimates routing ") || !scan_.Word(out_.routing) || !scan_.End()) return false;
    }
    while (scan_.Sees("constant ")) {
      if (!Constant()) return false;
    }
    for (int rung = 4; rung <= 8 && (scan_.Sees("adds ") || scan_.Sees("rung ")); ++rung) {
      CertEstimate estimate{.rung = rung};
      while (scan_.Sees("adds ")) {
        CertInterval part{.line = scan_.line()};
        if (!scan_.Take(absl::StrCat("adds R", rung, " ")) || !scan_.Quoted(part.name) ||
            !IntervalSeconds(part))
          return false;
        estimate.parts.push_back(std::move(part));
      }
      estimate.total.line = scan_.line();
      if (!scan_.Take(absl::StrCat("rung R", rung, " ")) || !scan_.Word(estimate.total.name) ||
          !scan_.Take(" class E") || !IntervalSeconds(estimate.total))
        return false;
      out_.estimates.push_back(std::move(estimate));
    }
    return true;
  }

  bool Measured() {
    while (scan_.Sees("measured ")) {
      CertMeasured measured{.line = scan_.line()};
      if (!scan_.Take("measured ") || !scan_.Seconds(measured.seconds) || !scan_.Take(" source ") ||
          !scan_.Quoted(measured.source) || !scan_.End())
        return false;
      out_.measured.push_back(std::move(measured));
    }
    return true;
  }

  bool Seal() {
    out_.seal_line = scan_.line();
    out_.sealed = text_.substr(0, scan_.at());
    if (!scan_.Take("seal sha256 ") || !scan_.Hash(out_.seal) || !scan_.End()) return false;
    return scan_.done() || scan_.Fail("nothing may follow the seal");
  }

  const absl::string_view text_;
  CertScan scan_;
  Certificate out_;
};

}  // namespace

absl::StatusOr<Certificate> ReadCertificate(absl::string_view text, absl::string_view place) {
  return CertReader(text, place).Run();
}

}  // namespace twinforge
