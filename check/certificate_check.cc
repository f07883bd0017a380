#include "check/certificate_check.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/json_reader.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "check/certificate_file.h"
#include "check/certificate_rules.h"
#include "check/wide.h"

namespace twinforge {
namespace {

class CertChecker {
 public:
  CertChecker(const Certificate& certificate, CertFindings& findings)
      : c_(certificate),
        out_(findings),
        rules_(certificate, findings),
        twin_(certificate.hashes.at("model") != certificate.hashes.at("twin")) {}

  void Run() {
    Workload();
    Forms();
    Memory();
    for (const CertOp& op : c_.ops) Op(op);
    Reads();
    Bounds();
    Estimates();
  }

 private:
  int64_t Size(const std::string& key) const {
    const auto at = c_.workload.numbers.find(key);
    return at == c_.workload.numbers.end() ? 1 : at->second;
  }

  void Word(const std::string& key, std::initializer_list<absl::string_view> known) {
    const std::string& word = c_.workload.words.at(key);
    if (std::find(known.begin(), known.end(), word) == known.end())
      out_.Add(c_.workload.lines.at(key), absl::StrCat("no workload has the ", key, " ", word));
  }

  void Workload() {
    Word("phase", {"decode", "prefill"});
    Word("routing", {"same", "spread", "expected"});
    for (const char* key : {"batch", "tp", "dp", "ep", "pp"}) {
      const bool told = c_.workload.lines.count(key) > 0;
      if (told && Size(key) == 0) out_.Add(c_.workload.lines.at(key), absl::StrCat(key, " is 0"));
    }
    devices_ = Wide(Size("tp")) * Size("dp");
    const std::string hash = Sha256Hex(c_.workload.text);
    if (hash != c_.hashes.at("workload"))
      out_.Add(c_.hash_lines.at("workload"), absl::StrCat("the workload's hash is ", hash));
  }

  // Each form that is used is told, in its own words, and no other.
  void Forms() {
    const std::string layout = c_.tpu ? "padded" : "linear";
    std::map<std::string, bool> used = {{layout, true}};
    if (c_.forms.count(layout) == 0) out_.Add(c_.memory.line, absl::StrCat("form ", layout, " is not told"));
    for (const CertOp& op : c_.ops) {
      for (const CertProduct& product : op.products) used[product.form] = true;
    }
    for (const auto& [name, form] : c_.forms) {
      if (CertRules::FormText(name) != form.text) {
        out_.Add(form.line, absl::StrCat("form ", name, " says something else"));
      } else if (used.count(name) == 0) {
        out_.Add(form.line, absl::StrCat("nothing uses form ", name));
      }
    }
  }

  Wide Array(const CertArray& array) {
    out_.Expect(array.line, absl::StrCat("bits of ", array.dtype), array.bits,
                CertRules::BitsOf(array.dtype));
    out_.Expect(array.line, "bytes", array.bytes, rules_.BytesOf(array));
    return array.bytes * array.count;
  }

  void Memory() {
    const CertMemory& m = c_.memory;
    Wide parameters;
    Wide cache;
    for (const CertArray& array : c_.parameters) parameters = parameters + Array(array);
    for (const CertArray& array : c_.kept) cache = cache + Array(array);
    out_.Expect(m.line, "parameters", m.parameters, parameters);
    out_.Expect(m.line, "cache", m.cache, cache);
    out_.Expect(m.line, "usable", m.usable, rules_.usable());
    out_.Expect(m.line, "on_chip", m.on_chip, rules_.on_chip());
    const Wide all = m.parameters + m.cache;
    const auto verdict = [&](absl::string_view what, bool found, bool expected) {
      if (found != expected)
        out_.Add(m.line, absl::StrCat(what, " is ", found ? "yes" : "no", ", and the sizes say otherwise"));
    };
    verdict("feasible", m.feasible, all.ok() && !Below(m.usable, all));
    verdict("resident", m.resident, all.ok() && !Below(m.on_chip, all));
  }

  // All devices together compute what is useful and what is idle, and nothing is idle where nothing pads,
  // replicates or groups.
  void Useful(const CertProduct& p, bool experts) {
    out_.Expect(p.as_line, "useful and idle together", p.useful + p.idle, CertRules::MacsOf(p) * devices_);
    if (!twin_ && !experts && devices_ == Wide(1)) out_.Expect(p.as_line, "idle", p.idle, 0);
  }

  void Product(const CertProduct& p, std::vector<Wide>& sums, Wide& converts) {
    const std::string form = rules_.FormOf(p.kind);
    if (form.empty() || form != p.form) {
      out_.Add(p.as_line, absl::StrCat("no form ", p.form, " is for a ", p.kind, " product of this chip"));
      return;
    }
    if (c_.forms.count(form) == 0) out_.Add(p.as_line, absl::StrCat("form ", form, " is not told"));
    const std::optional<CertMode> mode = rules_.ModeOf(p.left, p.right);
    if (!mode) {
      out_.Add(p.line, absl::StrCat("the chip's lines know no way to multiply ", p.left, " by ", p.right));
      return;
    }
    if (mode->as != p.as) out_.Add(p.as_line, absl::StrCat("these types meet as ", mode->as, " at best"));
    const Wide area = Wide(p.m) * (p.kind == "mix" ? p.k : p.n);
    if (p.kind != "dense" && Below(area, p.pairs)) out_.Add(p.line, "more pairs than places");
    if (mode->converts_left) converts = converts + Wide(p.m) * p.k * p.count;
    if (mode->converts_right) converts = converts + Wide(p.k) * p.n * p.count;
    out_.Expect(p.as_line, "tile", p.tile, rules_.TileOf(p));
    out_.ExpectSeconds(p.as_line, "dtype", p.dtype_seconds, Quotient21(p.useful * 2, mode->rate * devices_));
    out_.ExpectSeconds(p.as_line, "shape", p.shape_seconds, Quotient21(p.tile * 2, mode->rate));
    sums[1] = sums[1] + p.dtype_seconds;
    sums[2] = sums[2] + p.shape_seconds;
  }

  // A mixture takes the scores before it: as many rows, places and pairs.
  void Pairs(const std::vector<CertProduct>& products) {
    for (size_t i = 0; i < products.size(); ++i) {
      const CertProduct& p = products[i];
      const bool scored = i > 0 && products[i - 1].kind == "scores";
      if (scored != (p.kind == "mix")) out_.Add(p.line, "scores and their mix stand together");
      if (!scored || p.kind != "mix") continue;
      out_.Expect(p.line, "m", p.m, products[i - 1].m);
      out_.Expect(p.line, "k", p.k, products[i - 1].n);
      out_.Expect(p.line, "pairs", p.pairs, products[i - 1].pairs);
    }
    if (!products.empty() && products.back().kind == "scores")
      out_.Add(products.back().line, "scores and their mix stand together");
  }

  Wide Traffic(const CertOp& op) {
    Wide crossing;
    for (const CertArray& array : op.arrays) crossing = crossing + Array(array);
    for (const CertAmount& stream : op.streams) crossing = crossing + stream.value;
    return (c_.memory.resident ? Wide(0) : crossing) + Spilled(op);
  }

  Wide Spilled(const CertOp& op) const {
    Wide spilled;
    for (const CertAmount& value : op.values) spilled = spilled + Beyond(value.value, c_.memory.on_chip);
    return spilled;
  }

  void Op(const CertOp& op) {
    std::vector<Wide> rungs(4);
    Wide converts;
    rungs[0] = Quotient21(op.useful * 2, rules_.best() * devices_);
    Pairs(op.products);
    for (const CertProduct& product : op.products) {
      Useful(product, op.op == "moe");
      Product(product, rungs, converts);
    }
    if (!twin_) {
      Wide useful;
      for (const CertProduct& product : op.products) useful = useful + product.useful;
      out_.Expect(op.line, "useful", op.useful, useful);
    }
    const int line = op.converts ? op.converts->line : op.line;
    out_.Expect(line, "converts", op.converts ? op.converts->value : Wide(0), converts);
    if (op.converts && rules_.vector_rate())
      rungs[1] = Most(rungs[1], Quotient21(op.converts->value, *rules_.vector_rate()));
    out_.Expect(op.bytes.line, "bytes", op.bytes.value, Traffic(op));
    rungs[3] = Quotient21(op.bytes.value, rules_.bandwidth());
    const Wide least = Quotient21(Spilled(op), rules_.bandwidth());
    out_.ExpectSeconds(op.bytes.line, "memory", op.memory_seconds, rungs[3]);
    for (int rung = 0; rung < 4; ++rung) {
      if (rung > 0) rungs[rung] = Most(rungs[rung], rungs[rung - 1]);
      out_.ExpectSeconds(op.rungs_line, absl::StrCat("R", rung), op.rungs[rung], rungs[rung]);
    }
    least_ = least_ + Most(least, op.rungs[2]) * op.nodes;
  }

  // A step reads each parameter once and each cached place at most once, so no more than is held.
  void Reads() {
    Wide weights;
    Wide cache;
    for (const CertOp& op : c_.ops) {
      for (const CertArray& array : op.arrays) {
        Wide& sum = array.cache ? cache : weights;
        sum = sum + array.bytes * op.nodes;
      }
    }
    if (!weights.ok() || Below(c_.memory.parameters, weights))
      out_.Add(c_.memory.line,
               absl::StrCat("parameters are read of ", PlainNumber(weights), " bytes, more than are held"));
    if (!cache.ok() || Below(c_.memory.cache, cache))
      out_.Add(c_.memory.line,
               absl::StrCat("caches are read of ", PlainNumber(cache), " bytes, more than are kept"));
  }

  void Bounds() {
    out_.Expect(c_.spared.line, "spared", c_.spared.bytes, rules_.on_chip());
    out_.ExpectSeconds(c_.spared.line, "spared", c_.spared.seconds,
                       Quotient21(rules_.on_chip(), rules_.bandwidth()) + 1);
    for (int rung = 0; rung < 4; ++rung) {
      Wide sum;
      for (const CertOp& op : c_.ops) sum = sum + op.rungs[rung] * op.nodes;
      if (rung == 3) sum = Most(least_, Beyond(sum, c_.spared.seconds));
      out_.ExpectSeconds(c_.bounds[rung].line, absl::StrCat("R", rung), c_.bounds[rung].seconds, sum);
    }
  }

  void Range(const CertInterval& interval) {
    if (Below(interval.ends[1], interval.ends[0]) || Below(interval.ends[2], interval.ends[1]))
      out_.Add(interval.line, "low, mid and high do not ascend");
  }

  // Estimates are carried: their ranges ascend, and each rung is the one before with its parts. That none is
  // below the bounds follows.
  void Estimates() {
    for (const CertInterval& constant : c_.constants) Range(constant);
    const std::string& declared = c_.workload.words.at("routing");
    const std::string expected = c_.estimates.empty() ? "" : declared == "same" ? "expected" : declared;
    if (c_.routing != expected)
      out_.Add(c_.routing_line > 0 ? c_.routing_line : c_.bounds.back().line,
               absl::StrCat("estimates of a step whose routing is ", declared, " take ",
                            expected.empty() ? "none, and there are none" : expected));
    std::vector<Wide> sums(3, c_.bounds.back().seconds);
    for (const CertEstimate& estimate : c_.estimates) {
      for (const CertInterval& part : estimate.parts) {
        Range(part);
        for (int i = 0; i < 3; ++i) sums[i] = sums[i] + part.ends[i];
      }
      constexpr const char* kEnds[] = {"low", "mid", "high"};
      for (int i = 0; i < 3; ++i)
        out_.ExpectSeconds(estimate.total.line, kEnds[i], estimate.total.ends[i], sums[i]);
    }
  }

  const Certificate& c_;
  CertFindings& out_;
  CertRules rules_;
  const bool twin_;  // useful work is the source's, not the products'
  Wide devices_;
  Wide least_;  // of the step at R3, were all that it reads on chip
};

void CheckHashes(const Certificate& certificate, const HashesAtHand& hashes, absl::string_view place,
                 std::vector<Diagnostic>& findings) {
  for (const auto& [what, hash] : hashes) {
    const auto at = certificate.hashes.find(what);
    if (at == certificate.hashes.end() || at->second == hash) continue;
    findings.push_back({1812, absl::StrCat(place, ":", certificate.hash_lines.at(what)),
                        absl::StrCat("made from another ", what, ": the one at hand has sha256 ", hash), ""});
  }
  if (Sha256Hex(certificate.sealed) != certificate.seal) {
    findings.push_back({1812, absl::StrCat(place, ":", certificate.seal_line),
                        "the seal is broken: something above it was changed",
                        "let `twinforge score --certificate` write it again"});
  }
}

// Both sides of each contradiction.
void CheckMeasured(const Certificate& certificate, absl::string_view place,
                   std::vector<Diagnostic>& findings) {
  for (const CertMeasured& measured : certificate.measured) {
    for (size_t rung = 0; rung < certificate.bounds.size(); ++rung) {
      const CertBound& bound = certificate.bounds[rung];
      if (!Below(measured.seconds, bound.seconds)) continue;
      findings.push_back(
          {1813, absl::StrCat(place, ":", measured.line),
           absl::StrCat("measured ", PlainSeconds(measured.seconds), " s (", measured.source, ") is below R",
                        rung, " ", bound.name, ", ", PlainSeconds(bound.seconds), " s of line ", bound.line),
           "one of the two is wrong: what was measured did not do this step, or a number of the chip or a "
           "constraint of the rung does not hold"});
      break;
    }
  }
}

std::vector<std::string> Assumed(const Certificate& certificate) {
  const std::string& routing = certificate.workload.words.at("routing");
  std::vector<std::string> assumed;
  const auto is_experts = [](const CertOp& op) { return op.op == "moe"; };
  if (std::any_of(certificate.ops.begin(), certificate.ops.end(), is_experts)) {
    assumed.push_back(
        routing == "same"
            ? "experts: all tokens choose the same ones, the least that any routing can read"
            : absl::StrCat("experts: routing is assumed to be ", routing, "; another one may take less"));
  }
  for (const char* name : {"matrix_edge", "matrix_units"}) {
    const auto at = certificate.numbers.find(name);
    if (at != certificate.numbers.end())
      assumed.push_back(absl::StrCat("the published ", name, " ", at->second.value.text, " is the real one"));
  }
  return assumed;
}

}  // namespace

absl::StatusOr<CertificateVerdict> CheckCertificate(absl::string_view text, absl::string_view place,
                                                    const HashesAtHand& hashes) {
  TWIN_ASSIGN_OR_RETURN(const Certificate certificate, ReadCertificate(text, place));
  CertFindings findings;
  CertChecker(certificate, findings).Run();
  CertificateVerdict verdict;
  for (const CertFindings::Finding& finding : findings.all()) {
    verdict.findings.push_back({1811, absl::StrCat(place, ":", finding.line), finding.message, ""});
  }
  CheckHashes(certificate, hashes, place, verdict.findings);
  CheckMeasured(certificate, place, verdict.findings);
  verdict.chip = certificate.chip;
  for (const CertOp& op : certificate.ops) {
    verdict.ops += op.nodes;
    verdict.products += static_cast<int64_t>(op.products.size());
  }
  for (size_t rung = 0; rung < certificate.bounds.size(); ++rung) {
    const CertBound& bound = certificate.bounds[rung];
    verdict.rungs.push_back(absl::StrCat("R", rung, " ", bound.name, " ", PlainSeconds(bound.seconds), " s"));
  }
  verdict.assumed = Assumed(certificate);
  return verdict;
}

absl::StatusOr<std::string> WithMeasurement(absl::string_view text, absl::string_view place,
                                            absl::string_view seconds, absl::string_view source) {
  TWIN_ASSIGN_OR_RETURN(const Certificate certificate, ReadCertificate(text, place));
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(seconds, absl::MaxSplits('.', 1));
  const auto digits = [](absl::string_view s) { return s.find_first_not_of("0123456789") == s.npos; };
  const auto [whole, fraction] = parts;
  const bool number = digits(whole) && digits(fraction) && !whole.empty() && whole.size() <= 15 &&
                      fraction.size() <= 21 && seconds.back() != '.' && (whole == "0" || whole[0] != '0') &&
                      seconds.find_first_of("123456789") != seconds.npos;
  if (!number) {
    return Error(1814, JsonQuoted(seconds, 60), "is no number of seconds",
                 "write a decimal such as 0.0129, with at most 21 decimals");
  }
  std::string line = absl::StrCat("measured ", whole, ".", fraction, std::string(21 - fraction.size(), '0'),
                                  " source ", JsonQuoted(source), "\n");
  const std::string body = absl::StrCat(certificate.sealed, line);
  return absl::StrCat(body, "seal sha256 ", Sha256Hex(body), "\n");
}

}  // namespace twinforge
