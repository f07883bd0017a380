// A certificate of which one byte was changed is not accepted, wherever it is.
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "check/certificate_check.h"
#include "cost/certificate.h"
#include "gtest/gtest.h"
#include "tests/cost/models.h"

namespace twinforge {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

std::vector<std::string> Certificates() {
  CertificateEstimates estimates = {.constants = {{"achieved bandwidth", 0.83, 0.9, 0.97, "", "a recipe"}},
                                    .rungs = {{"R4", "kernel", {{"bandwidth", 0.001, 0.002, 0.003}}}}};
  std::vector<std::string> texts;
  const auto add = [&](const ModelSizes& sizes, const char* chip, const Workload& workload) {
    absl::StatusOr<std::string> text = CertificateText(MakeModel(sizes), nullptr, chip, workload, estimates);
    EXPECT_TRUE(text.ok()) << text.status();
    if (text.ok()) texts.push_back(*WithMeasurement(*text, "c", "5.25", "somebody"));
  };
  add(Llama8B(), "v6e", {.batch = 16, .context = 2048});
  add({.d_model = 800, .kernel_dtype = DType::kF8E4M3, .experts = 16, .top_k = 3}, "h100",
      {.phase = Phase::kPrefill, .batch = 3, .context = 700, .shards = 2});
  add({.vocab = 1 << 21, .kernel_dtype = DType::kF8E4M3, .kv_lora = 48}, "v5e", {.batch = 5, .context = 77});
  return texts;
}

bool Accepted(const std::string& text) {
  const absl::StatusOr<CertificateVerdict> verdict = CheckCertificate(text, "c", {});
  return verdict.ok() && verdict->accepted();
}

std::string LineAt(const std::string& text, size_t at) {
  const size_t start = text.rfind('\n', at == 0 ? 0 : at - 1);
  const size_t first = start == std::string::npos || at == 0 ? 0 : start + 1;
  return text.substr(first, text.find('\n', at) - first);
}

TEST(Mutation, OfAnyDigitIsRejected) {
  for (const std::string& text : Certificates()) {
    ASSERT_TRUE(Accepted(text));
    std::string changed = text;
    for (size_t i = 0; i < text.size(); ++i) {
      if (!IsDigit(text[i])) continue;
      changed[i] = text[i] == '9' ? '0' : static_cast<char>(text[i] + 1);
      ASSERT_FALSE(Accepted(changed)) << LineAt(changed, i);
      changed[i] = text[i] == '0' ? '9' : static_cast<char>(text[i] - 1);
      ASSERT_FALSE(Accepted(changed)) << LineAt(changed, i);
      changed[i] = text[i];
    }
  }
}

TEST(Mutation, OfAnyByteIsRejected) {
  for (const std::string& text : Certificates()) {
    std::string changed = text;
    for (size_t i = 0; i < text.size(); ++i) {
      changed[i] = text[i] == 'e' ? 'a' : 'e';
      ASSERT_FALSE(Accepted(changed)) << LineAt(changed, i);
      changed[i] = text[i];
    }
    for (size_t i = 0; i < text.size(); i += 7) {
      ASSERT_FALSE(Accepted(text.substr(0, i) + text.substr(i + 1))) << LineAt(text, i);
      ASSERT_FALSE(Accepted(text.substr(0, i))) << i;
    }
  }
}

// Whether the digit at `at` of a line enters a bound or what is said of it. Left free are texts and hashes,
// extents of arrays (padding may swallow what they grow by), activations that stay on chip, how many ops cost
// nothing, rates of types and units that no product uses, and constants of estimates, which are carried.
bool EntersABound(const std::string& line, size_t at) {
  for (const char* begins : {"constant ", "peak ", "number vector_rate", "  operand ", "  result ", "tool ",
                             "model ", "twin ", "chip ", "measured ", "convert ", "mix ", "  note "}) {
    if (absl::StartsWith(line, begins)) return false;
  }
  bool quoted = false;
  for (size_t i = 0; i < at; ++i) quoted ^= line[i] == '"' && line[i - 1] != '\\';
  if (quoted) return absl::StartsWith(line, "form ") || absl::StartsWith(line, "    as ");
  // Of ops that cost nothing there may be any number.
  if (absl::StartsWith(line, "op ") && absl::EndsWith(line, " useful 0") && at < line.find('"')) return false;
  const size_t shape = line.find(" shape ");
  const bool array = absl::StrContains(line, " bits ");
  return !array || at < shape || at > line.find(" bytes ");
}

// Somebody changes one of those and seals it anew.
TEST(Mutation, OfADigitThatEntersABoundIsRejectedUnderANewSeal) {
  int tried = 0;
  for (const std::string& text : Certificates()) {
    const size_t seal = text.rfind("seal sha256 ");
    const std::string body = text.substr(0, seal);
    const bool resident = absl::StrContains(text, " resident yes\n");
    for (size_t i = 0; i < body.size(); ++i) {
      if (!IsDigit(text[i])) continue;
      const std::string line = LineAt(text, i);
      const size_t start = text.rfind('\n', i) + 1;
      const bool streams = absl::StartsWith(line, "  gathered ") || absl::StartsWith(line, "  written ");
      if (!EntersABound(line, i - start) || (streams && resident)) continue;
      std::string changed = body;
      changed[i] = text[i] == '9' ? '0' : static_cast<char>(text[i] + 1);
      ASSERT_FALSE(Accepted(absl::StrCat(changed, "seal sha256 ", Sha256Hex(changed), "\n")))
          << LineAt(changed, i);
      ++tried;
    }
  }
  EXPECT_GT(tried, 5000);
}

}  // namespace
}  // namespace twinforge
