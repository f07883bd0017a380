// What cost/ certifies, check/ accepts: two programs that share no formula.
#include "cost/certificate.h"

#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/sha256.h"
#include "check/certificate_check.h"
#include "cost/certificate_numbers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cost/models.h"

namespace twinforge {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

std::string Certified(const Graph& graph, const std::string& chip, const Workload& workload,
                      const Graph* useful = nullptr, const CertificateEstimates& estimates = {}) {
  absl::StatusOr<std::string> text = CertificateText(graph, useful, chip, workload, estimates);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.ok() ? *std::move(text) : "";
}

CertificateVerdict Checked(const std::string& text, const HashesAtHand& hashes = {}) {
  absl::StatusOr<CertificateVerdict> verdict = CheckCertificate(text, "c", hashes);
  EXPECT_TRUE(verdict.ok()) << verdict.status() << "\n" << text;
  return verdict.ok() ? *std::move(verdict) : CertificateVerdict{.findings = {{}}};
}

std::string FindingsOf(const CertificateVerdict& verdict) {
  std::string text;
  for (const Diagnostic& d : verdict.findings)
    absl::StrAppend(&text, "TF", d.code, " ", d.place, ": ", d.message, "\n");
  return text;
}

// The same text with its seal made anew.
std::string Sealed(const std::string& text) {
  const std::string body = text.substr(0, text.rfind("seal sha256 "));
  return absl::StrCat(body, "seal sha256 ", Sha256Hex(body), "\n");
}

std::string Replaced(const std::string& text, const std::string& from, const std::string& to) {
  EXPECT_TRUE(absl::StrContains(text, from)) << from;
  return absl::StrReplaceAll(text, {{from, to}});
}

ModelSizes RandomSizes(std::mt19937& random) {
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  ModelSizes sizes;
  sizes.layers = pick(1, 4);
  sizes.d_model = 8 * pick(1, 600);
  sizes.kv_heads = 8 * pick(1, 2);
  sizes.heads = sizes.kv_heads.size * pick(1, 4);
  sizes.head_dim = 8 * pick(1, 32);
  sizes.d_ff = 8 * pick(1, 900);
  sizes.vocab = 8 * pick(1, 20000);
  sizes.window = pick(0, 2) == 0 ? pick(1, 3000) : 0;
  sizes.tied = pick(0, 1) == 0;
  constexpr DType kTypes[] = {DType::kBF16, DType::kF32, DType::kF8E4M3, DType::kI8};
  sizes.kernel_dtype = kTypes[pick(0, 3)];
  if (pick(0, 2) == 0) {
    sizes.experts = 8 * pick(1, 8);
    sizes.top_k = pick(1, 8);
    sizes.members = pick(0, 1) == 0 ? 1 : 2;
    sizes.shared_ff = 8 * pick(0, 40);
  }
  if (pick(0, 3) == 0) {
    sizes.kv_lora = 8 * pick(1, 64);
    sizes.q_lora = 8 * pick(1, 64);
    sizes.nope_dim = 8 * pick(1, 16);
    sizes.rope_dim = 8 * pick(1, 8);
    sizes.v_head_dim = 8 * pick(1, 16);
  }
  return sizes;
}

TEST(Law, WhatIsCertifiedIsAccepted) {
  std::mt19937 random(20261130);
  const std::vector<ChipSummary> chips = AllChips();
  int accepted = 0;
  for (int i = 0; i < 1500; ++i) {
    const Graph graph = MakeModel(RandomSizes(random));
    constexpr Routing kRoutings[] = {Routing::kSame, Routing::kSpread, Routing::kExpected};
    const int64_t groups = int64_t{1} << (random() % 3);
    const Workload workload = {.phase = i % 2 == 0 ? Phase::kDecode : Phase::kPrefill,
                               .batch = int64_t{1} << (random() % 8),
                               .context = 1 + static_cast<int64_t>(random() % 9000),
                               .shards = int64_t{1} << (random() % 4),
                               .routing = kRoutings[random() % 3],
                               .past = i % 2 == 0 ? 0 : static_cast<int64_t>(random() % 3) * 700,
                               .dp = groups,
                               .ep = random() % 2 == 0 ? 1 : groups};
    const std::string& chip = chips[random() % chips.size()].id;
    const absl::StatusOr<Score> score = ScoreGraph(graph, nullptr, chip, workload);
    const absl::StatusOr<std::string> text = CertificateText(graph, nullptr, chip, workload);
    ASSERT_EQ(text.status(), score.status());
    if (!text.ok()) continue;
    const CertificateVerdict verdict = Checked(*text);
    ASSERT_TRUE(verdict.accepted()) << chip << "\n" << FindingsOf(verdict) << *text;
    EXPECT_EQ(absl::StrContains(*text, "feasible yes"), score->feasible);
    EXPECT_THAT(*text, HasSubstr(absl::StrCat("memory parameters ", score->parameter_bytes, " cache ",
                                              score->cache_bytes, " usable ", score->memory_bytes)));
    ++accepted;
  }
  EXPECT_GT(accepted, 900) << "the others are refused by their chip";
}

// R0 is the source's useful work, also of nodes that the twin has no more.
TEST(Law, HoldsForTwins) {
  std::mt19937 random(7);
  for (int i = 0; i < 100; ++i) {
    ModelSizes sizes = RandomSizes(random);
    sizes.kernel_dtype = DType::kBF16;
    const Graph source = MakeModel(sizes);
    const auto padded = [](Sized& size, int64_t multiple) {
      size = Sized((size.size + multiple - 1) / multiple * multiple, size.size);
    };
    padded(sizes.d_ff, 128);
    padded(sizes.head_dim, 128);
    padded(sizes.vocab, 256);
    if (i % 3 == 0 && sizes.layers > 1) --sizes.layers;
    const Graph twin = MakeModel(sizes);
    const std::string text =
        Certified(twin, i % 2 == 0 ? "v5e" : "h100", {.batch = 4, .context = 99}, &source);
    const CertificateVerdict verdict = Checked(text);
    ASSERT_TRUE(verdict.accepted()) << FindingsOf(verdict) << text;
  }
}

TEST(WorkedExample, HasTheFiguresOfTheCostModel) {
  const std::string text = Certified(MakeModel(Llama8B()), "v6e", {.batch = 16, .context = 2048});
  EXPECT_THAT(text, HasSubstr("memory parameters 16060522496 cache 4297064448 usable 33554432000 on_chip "
                              "134217728 feasible yes resident no"));
  const CertificateVerdict verdict = Checked(text);
  EXPECT_THAT(verdict.rungs, Contains("R3 memory 0.011705022671550671516 s"));
  EXPECT_EQ(verdict.ops, 196);
}

TEST(WrongLines, AreNamedWithWhatFollows) {
  const std::string text = Certified(MakeModel(Llama8B()), "v6e", {.batch = 16, .context = 2048});
  const auto said = [&](const std::string& from, const std::string& to) {
    return FindingsOf(Checked(Sealed(Replaced(text, from, to))));
  };
  EXPECT_THAT(said("tile 603979776", "tile 603979777"),
              HasSubstr("tile is 603979777, and 603979776 follows"));
  EXPECT_THAT(said("R3 memory class B seconds 0.0117", "R3 memory class B seconds 0.0116"),
              HasSubstr("R3 is 0.011605022671550671516 s, and 0.011705022671550671516 s follows"));
  EXPECT_THAT(said("number hbm_bandwidth 1638 ", "number hbm_bandwidth 1639 "), HasSubstr("memory is "));
  EXPECT_THAT(said("peak int4 alone rate 3680", "peak int4 alone rate 3681"), HasSubstr("R0 is "));
  EXPECT_THAT(said("peak int4 alone", "peak int4 mixed"), HasSubstr("R0 is "));
  EXPECT_THAT(said("number hbm_bandwidth 1638 \"GB/s\"", "number hbm_bandwidth 1638 \"GiB\""),
              HasSubstr("1638 \"GiB\" is no bandwidth"));
  EXPECT_THAT(said("number matrix_units", "number matrix_unit"),
              HasSubstr("the chip's matrix_units is missing"));
  EXPECT_THAT(said("\nform folds \"rows = ceil", "\nform folds \"rows = floor"),
              HasSubstr("form folds says something else"));
  EXPECT_THAT(said("as \"bf16\"", "as \"i8\""), HasSubstr("these types meet as bf16 at best"));
  EXPECT_THAT(said("left bf16 right bf16", "left bf16 right i16"), HasSubstr("know no way to multiply"));
  EXPECT_THAT(said("workload batch 16", "workload batch 17"), HasSubstr("the workload's hash is "));
  EXPECT_THAT(said("phase decode", "phase encode"), HasSubstr("no workload has the phase encode"));
  EXPECT_THAT(said("feasible yes", "feasible no"), HasSubstr("feasible is no, and the sizes say otherwise"));
  EXPECT_THAT(said("resident no", "resident yes"), HasSubstr("resident is yes, and the sizes say otherwise"));
  EXPECT_THAT(said("useful 939655168", "useful 939655169"), HasSubstr("useful is 939655169"));
  EXPECT_THAT(said("useful 134283264 idle 0", "useful 134283265 idle 0"),
              HasSubstr("useful and idle together is 134283265, and 134283264 follows"));
  EXPECT_THAT(said("useful 134283264 idle 0", "useful 134283263 idle 1"),
              HasSubstr("idle is 1, and 0 follows"));
  EXPECT_THAT(said("spared 134217728", "spared 134217729"), HasSubstr("spared is 134217729"));
  const std::string cache = "  cache bf16 bits 16 shape 16x8x2048x128 bytes 67108864\n";
  EXPECT_THAT(said(cache, cache + cache), HasSubstr("caches are read of 8589934592 bytes"));
  const std::string head = "  weight bf16 bits 16 shape 4096x128256 bytes 1050673152\n";
  EXPECT_THAT(said(head, head + head + head), HasSubstr("parameters are read of 17111195648 bytes"));
  EXPECT_THAT(said("left bf16 right bf16", "left bf16 right i16"), HasSubstr("know no way to multiply"));
  EXPECT_THAT(said("parameter 65 bf16 bits 16", "parameter 65 bf16 bits 8"), HasSubstr("bits of bf16 is 8"));
  for (const Diagnostic& d : Checked(Sealed(Replaced(text, "tile 603979776", "tile 603979777"))).findings)
    EXPECT_EQ(d.code, 1811);
}

TEST(Seal, FindsWhatArithmeticCannot) {
  const std::string text = Certified(MakeModel({}), "v6e", {});
  const CertificateVerdict verdict =
      Checked(Replaced(text, "docs.cloud.google.com", "docs.cloud.goggle.com"));
  ASSERT_EQ(verdict.findings.size(), 1u) << FindingsOf(verdict);
  EXPECT_EQ(verdict.findings[0].code, 1812);
  EXPECT_THAT(verdict.findings[0].message, HasSubstr("the seal is broken"));
}

TEST(Hashes, OfWhatIsAtHandAreCompared) {
  const std::string text = Certified(MakeModel({}), "v6e", {});
  const absl::StatusOr<std::string> chip = ChipText("v6e");
  ASSERT_TRUE(chip.ok());
  EXPECT_TRUE(Checked(text, {{"chip", Sha256Hex(*chip)}}).accepted());
  const CertificateVerdict verdict =
      Checked(text, {{"chip", Sha256Hex(*chip + " ")}, {"twin", Sha256Hex("")}});
  ASSERT_EQ(verdict.findings.size(), 2u);
  EXPECT_EQ(verdict.findings[0].code, 1812);
  EXPECT_EQ(verdict.findings[0].place, "c:5");
  EXPECT_THAT(verdict.findings[0].message, HasSubstr("made from another chip"));
}

TEST(Experts, AreAssumedInWords) {
  const Graph graph = MakeModel({.experts = 16, .top_k = 4});
  const CertificateVerdict same = Checked(Certified(graph, "v6e", {}));
  EXPECT_THAT(same.assumed, Contains(HasSubstr("all tokens choose the same ones")));
  const CertificateVerdict spread = Checked(Certified(graph, "v6e", {.routing = Routing::kSpread}));
  EXPECT_THAT(spread.assumed, Contains(HasSubstr("routing is assumed to be spread")));
}

TEST(Measured, IsAttachedAndScalesNothing) {
  const std::string text = Certified(MakeModel(Llama8B()), "v6e", {.batch = 16, .context = 2048});
  const absl::StatusOr<std::string> with = WithMeasurement(text, "c", "0.0129", "run 7, \"warm\"");
  ASSERT_TRUE(with.ok()) << with.status();
  EXPECT_THAT(*with, HasSubstr("\nmeasured 0.012900000000000000000 source \"run 7, \\\"warm\\\"\"\nseal "));
  const CertificateVerdict verdict = Checked(*with);
  EXPECT_TRUE(verdict.accepted()) << FindingsOf(verdict);
  EXPECT_EQ(verdict.rungs, Checked(text).rungs);
}

TEST(Measured, BelowABoundIsAContradiction) {
  const std::string text = Certified(MakeModel(Llama8B()), "v6e", {.batch = 16, .context = 2048});
  const auto rung_of = [&](const std::string& seconds) {
    const absl::StatusOr<std::string> with = WithMeasurement(text, "c", seconds, "run 8");
    return with.ok() ? FindingsOf(Checked(*with)) : "";
  };
  EXPECT_THAT(rung_of("0.0116"), HasSubstr("TF1813 c:"));
  EXPECT_THAT(rung_of("0.0116"), HasSubstr("measured 0.011600000000000000000 s (run 8) is below R3 memory, "
                                           "0.011705022671550671516 s of line "));
  EXPECT_THAT(rung_of("0.00001"), HasSubstr("is below R0 peak"));
  EXPECT_EQ(rung_of("0.011705022671550671516"), "") << "as fast as the bound is no contradiction";
}

TEST(Measured, IsANumberOfSeconds) {
  const std::string text = Certified(MakeModel({}), "v6e", {});
  for (const char* wrong :
       {"", "0", "0.0", "-1", "1e-3", "01.5", ".5", "1.", "0.1234567890123456789012", "x", "1 "}) {
    const absl::StatusOr<std::string> with = WithMeasurement(text, "c", wrong, "run");
    ASSERT_FALSE(with.ok()) << wrong;
    EXPECT_EQ(DiagnosticOf(with.status())->code, 1814) << wrong;
  }
  EXPECT_TRUE(WithMeasurement(text, "c", "3", "run").ok());
}

CertificateEstimates SomeEstimates() {
  return {.constants = {{"achieved bandwidth", 0.83, 0.9, 0.97, "", "tpu-recipes"}},
          .rungs = {{"R4", "kernel", {{"bandwidth", 0.001, 0.0015, 0.003}, {"overlap", 0, 0.0001, 0.0007}}},
                    {"R5", "network", {}},
                    {"R6", "launch", {{"launches", 0.00001, 0.0002, 0.001}}}}};
}

TEST(Estimates, AreCarriedAndAddUp) {
  const std::string text =
      Certified(MakeModel(Llama8B()), "v6e", {.batch = 16, .context = 2048}, nullptr, SomeEstimates());
  const CertificateVerdict verdict = Checked(text);
  EXPECT_TRUE(verdict.accepted()) << FindingsOf(verdict) << text;
  EXPECT_THAT(text,
              HasSubstr("rung R6 launch class E low 0.012715022671550671516 mid 0.013505022671550671516 "
                        "high 0.016405022671550671516\n"));
  const auto said = [&](const std::string& from, const std::string& to) {
    return FindingsOf(Checked(Sealed(Replaced(text, from, to))));
  };
  EXPECT_THAT(said("low 0.001000000", "low 0.001100000"),
              HasSubstr("low is 0.012705022671550671516 s, and "));
  EXPECT_THAT(said("low 0.83 mid 0.9 ", "low 0.93 mid 0.9 "), HasSubstr("low, mid and high do not ascend"));
  EXPECT_THAT(said("estimates routing expected", "estimates routing spread"),
              HasSubstr("estimates of a step whose routing is same take expected"));
  EXPECT_THAT(said("estimates routing expected\n", ""), HasSubstr("take expected"));
  EXPECT_THAT(said("mid 0.9 high 0.97", "mid 0.9 high 0.8999"), HasSubstr("low, mid and high do not ascend"));
}

TEST(Refusals, HaveLineAndColumn) {
  const std::string text = Certified(MakeModel({}), "v6e", {});
  const auto place = [&](const std::string& changed) {
    const absl::StatusOr<CertificateVerdict> verdict = CheckCertificate(changed, "c", {});
    if (verdict.ok()) return std::string("read");
    const Diagnostic d = *DiagnosticOf(verdict.status());
    EXPECT_EQ(d.code, 1810);
    return d.place;
  };
  EXPECT_EQ(place(""), "c:1:1");
  EXPECT_EQ(place("twinforge certificate 2\n"), "c:1:1");
  EXPECT_EQ(place(Replaced(text, "workload batch 1\n", "workload batch 01\n")), "c:8:16");
  EXPECT_EQ(place(Replaced(text, "workload batch 1\n", "workload batch  1\n")), "c:8:16");
  EXPECT_EQ(place(Replaced(text, "workload batch 1\n", "")), "c:11:1");
  EXPECT_EQ(place(Replaced(text, "workload batch 1\n", "workload batch 9223372036854775808\n")), "c:8:35");
  EXPECT_NE(place(text + "\n"), "read");
  EXPECT_NE(place(text + text), "read");
  EXPECT_NE(place(text.substr(0, text.size() - 1)), "read");
}

TEST(Decimals, AreThoseOfTheChipFile) {
  EXPECT_EQ(ShortestDecimal(31.25), "31.25");
  EXPECT_EQ(ShortestDecimal(989.4), "989.4");
  EXPECT_EQ(ShortestDecimal(4614), "4614");
  EXPECT_TRUE(InUnits("31.25", "GiB") == Natural128{33554432000});
  EXPECT_TRUE(InUnits("0.001", "TFLOP/s") == Natural128{1000000000});
  EXPECT_EQ(SecondsText(SecondsOf(Natural128{2}, Natural128{3})), "0.666666666666666666666");
  EXPECT_EQ(SecondsText(SecondsOf(0.25)), "0.250000000000000000000");
  EXPECT_EQ(SecondsText(SecondsOf(0.001)), "0.001000000000000000000");
  EXPECT_EQ(SecondsText(SecondsOf(1e12)), "1000000000000.000000000000000000000");
  EXPECT_EQ(RoundedDecimal(1.0 / 3), "0.333333333333333");
  EXPECT_EQ(RoundedDecimal(20), "20");
}

}  // namespace
}  // namespace twinforge
