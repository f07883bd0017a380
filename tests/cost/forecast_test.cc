#include "cost/forecast.h"

#include <cmath>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/diagnostic.h"
#include "cost/chip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cost/models.h"

namespace twinforge {
namespace {

using ::testing::HasSubstr;

// What a rung may lose when its ops are rounded down to multiples of one power of two (ladder.h), R3 and
// below twice: alone, and in the longer ladder.
double Lost(const Score& score) {
  return 2 * 0x1p-50 * static_cast<double>(score.ops.size()) * score.ladder.back().seconds;
}

struct Asked {
  ModelSizes sizes;
  std::string chip, stack, format;
  Workload workload;

  std::string Text() const {
    return absl::StrFormat(
        "%s %s %s: batch %d context %d past %d chunk %d %s mesh %s in %d, mixer %d, %d layers, d_model %d "
        "heads %d/%d x %d d_ff %d "
        "window %d experts %d/%d kv_lora %d",
        chip, stack, format, workload.batch, workload.context, workload.past, workload.chunk,
        PhaseWord(workload), MeshText(workload.mesh()), workload.microbatches, static_cast<int>(sizes.mixer),
        sizes.layers, sizes.d_model.size, sizes.heads.size, sizes.kv_heads.size, sizes.head_dim.size,
        sizes.d_ff.size, sizes.window, sizes.experts, sizes.top_k, sizes.kv_lora);
  }
};

std::vector<std::string> Scorable() {
  std::vector<std::string> ids;
  for (const ChipFigures& chip : AllChipFacts()) {
    if (CheckFigures(chip).ok()) ids.push_back(chip.summary.id);
  }
  return ids;
}

template <typename T>
T Pick(std::mt19937_64& random, const std::vector<T>& from) {
  return from[random() % from.size()];
}

void SetFormat(const std::string& name, Workload& workload) {
  const absl::StatusOr<WeightFormat> format = ParseWeightFormat(name);
  ASSERT_TRUE(format.ok()) << format.status();
  workload.precision.weights = *format;
  workload.precision.activations = format->multiplied;
}

Asked Draw(std::mt19937_64& random, const std::vector<std::string>& chips) {
  Asked asked{.chip = Pick(random, chips)};
  ModelSizes& s = asked.sizes;
  s.layers = 1 + static_cast<int64_t>(random() % 3);
  s.d_model = Pick<int64_t>(random, {64, 192, 1024, 4096});
  s.heads = Pick<int64_t>(random, {4, 8, 32});
  s.kv_heads = Pick<int64_t>(random, {1, 2, 4});
  s.head_dim = Pick<int64_t>(random, {16, 80, 128});
  s.d_ff = Pick<int64_t>(random, {96, 1536, 14336});
  s.vocab = Pick<int64_t>(random, {320, 32000});
  s.window = Pick<int64_t>(random, {0, 0, 128});
  s.tied = random() % 2 == 0;
  if (random() % 3 == 0) {
    s.experts = Pick<int64_t>(random, {8, 16, 64});
    s.top_k = Pick<int64_t>(random, {1, 2, 4});
    s.shared_ff = Pick<int64_t>(random, {0, 192});
  }
  if (random() % 3 == 0) s.mixer = static_cast<ModelSizes::Mixer>(random() % 4);
  if (random() % 8 == 0) s.chunk = Pick<int64_t>(random, {16, 1000});
  if (random() % 4 == 0) s.kv_lora = Pick<int64_t>(random, {32, 512});
  asked.stack = Pick<std::string>(random, {"", "vllm", "trtllm", "sglang", "jax"});
  asked.format = Pick<std::string>(
      random, {"bf16", "bf16", "f16", "fp8", "fp8_block", "int8", "int4", "nvfp4", "mxfp4"});
  Workload& w = asked.workload;
  SetFormat(asked.format, w);
  w.phase = random() % 3 == 0 ? Phase::kPrefill : Phase::kDecode;
  w.batch = Pick<int64_t>(random, {1, 2, 7, 16, 64, 300});
  w.context = Pick<int64_t>(random, {1, 17, 512, 2048, 20000, 400000});
  if (w.phase == Phase::kPrefill) w.past = Pick<int64_t>(random, {0, 0, 100});
  w.shards = Pick<int64_t>(random, {1, 1, 2, 4, 8, 3});
  w.dp = Pick<int64_t>(random, {1, 1, 2, 4});
  w.sp = Pick<int64_t>(random, {1, 1, 1, 2, 4});
  w.pp = Pick<int64_t>(random, {1, 1, 1, 2, 3});
  if (w.pp > 1) w.microbatches = Pick<int64_t>(random, {1, 2, 4});
  if (w.microbatches > 1) w.batch *= w.dp * w.microbatches;
  if (w.phase == Phase::kDecode && w.microbatches == 1 && random() % 3 == 0) {
    w.chunk = Pick<int64_t>(random, {1, 100, 512});
    w.past = Pick<int64_t>(random, {0, 300});
  }
  w.dcn = {
      .tp = random() % 16 == 0, .dp = random() % 8 == 0, .sp = random() % 16 == 0, .pp = random() % 8 == 0};
  if (s.experts > 0) w.ep = Pick<int64_t>(random, {1, w.devices()});
  w.routing = Pick<Routing>(random, {Routing::kSame, Routing::kSpread, Routing::kExpected});
  return asked;
}

absl::StatusOr<Forecast> Of(const Asked& asked) {
  return ForecastStep(MakeModel(asked.sizes), nullptr, asked.chip, asked.workload, asked.stack, asked.format);
}

std::string Bytes(const Forecast& f) {
  std::string text = absl::StrCat(f.basis, f.certifiable, f.capacity.kv_tokens, f.capacity.sequences);
  for (const RungRow& rung : f.score.ladder)
    absl::StrAppendFormat(&text, "%s %s %a\n", rung.rung, rung.name, rung.seconds);
  for (const Interval& i : {f.seconds, f.envelope})
    absl::StrAppendFormat(&text, "%a %a %a\n", i.low, i.mid, i.high);
  for (const Doubt& doubt : f.doubts)
    absl::StrAppendFormat(&text, "%d %a\n", static_cast<int>(doubt.constant), doubt.share);
  return text;
}

void ExpectLadder(const Forecast& f) {
  const Score& score = f.score;
  ASSERT_EQ(score.ladder.size(), 9u);
  ASSERT_EQ(score.attribution.size(), score.ops.size());
  for (size_t rung = 0; rung < 9; ++rung) {
    EXPECT_EQ(score.ladder[rung].rung, absl::StrCat("R", rung));
    EXPECT_EQ(score.ladder[rung].evidence, rung < 4 ? 'B' : 'E');
    double forward = 0, backward = 0;
    for (size_t op = 0; op < score.ops.size(); ++op) {
      EXPECT_GE(score.attribution[op][rung], 0) << score.ops[op].path;
      forward += score.attribution[op][rung];
      backward += score.attribution[score.ops.size() - 1 - op][rung];
    }
    const double below = rung == 0 ? 0 : score.ladder[rung - 1].seconds;
    EXPECT_GE(score.ladder[rung].seconds, below);
    EXPECT_EQ(forward, score.ladder[rung].seconds - below) << "R" << rung;
    EXPECT_EQ(forward, backward) << "no order of the sum loses a bit";
  }
}

void ExpectIntervals(const Forecast& f) {
  EXPECT_GT(f.bound, 0);
  EXPECT_EQ(f.bound, f.score.ladder[3].seconds);
  for (const Interval& i : {f.seconds, f.envelope}) {
    EXPECT_LE(f.bound, i.low);
    EXPECT_LE(i.low, f.seconds.mid);
    EXPECT_LE(f.seconds.mid, i.high);
    EXPECT_TRUE(std::isfinite(i.high));
  }
  EXPECT_EQ(f.envelope.mid, f.seconds.mid);
  double shares = 0;
  for (size_t i = 0; i < f.doubts.size(); ++i) {
    shares += f.doubts[i].share;
    EXPECT_GE(f.doubts[i].share, i + 1 < f.doubts.size() ? f.doubts[i + 1].share : 0);
  }
  EXPECT_NEAR(shares, f.doubts.empty() ? 0 : 1, 1e-9);
}

// Every rung takes at least as long, and the estimates do. Of a pipeline that holds at R3 and at the end:
// which stage is the slowest is found at R3, and the rungs between are those of that one.
void ExpectNoLess(const Forecast& more, const Forecast& less) {
  const double lost = Lost(more.score) + Lost(less.score);
  for (size_t rung = 0; rung < 9; ++rung) {
    if (more.terms.stages.size() > 1 && rung != 3 && rung != 8) continue;
    EXPECT_GE(more.score.ladder[rung].seconds + lost, less.score.ladder[rung].seconds) << "R" << rung;
  }
  EXPECT_GE(more.seconds.mid + lost, less.seconds.mid);
}

constexpr int kDraws = 5000;  // more than half of them are refused
constexpr int kEnough = 1500;

TEST(Forecasts, KeepTheirLaws) {
  std::mt19937_64 random(1711);
  const std::vector<std::string> chips = Scorable();
  ASSERT_GT(chips.size(), 10u);
  int scored = 0;
  std::set<std::string> scored_on;
  std::set<int> refused;
  for (int i = 0; i < kDraws && !HasFailure(); ++i) {
    const Asked asked = Draw(random, chips);
    SCOPED_TRACE(asked.Text());
    const absl::StatusOr<Forecast> forecast = Of(asked);
    if (!forecast.ok()) {
      const std::optional<Diagnostic> why = DiagnosticOf(forecast.status());
      ASSERT_TRUE(why.has_value()) << forecast.status();
      refused.insert(why->code);
      continue;
    }
    ++scored;
    scored_on.insert(asked.chip);
    ExpectLadder(*forecast);
    ExpectIntervals(*forecast);
    EXPECT_EQ(Bytes(*forecast), Bytes(*Of(asked))) << "asked twice, answered differently";
  }
  EXPECT_EQ(scored_on.size(), chips.size());
  EXPECT_GT(scored, kEnough);
  // Sizes that do not divide, types that a chip cannot multiply, networks not published, memory too small.
  EXPECT_THAT(refused, ::testing::IsSubsetOf({1702, 1703, 1704, 1706, 1712}));
  EXPECT_THAT(refused, ::testing::IsSupersetOf({1702, 1704, 1712}));
}

TEST(Forecasts, OfMoreWorkTakeNoLess) {
  std::mt19937_64 random(1712);
  const std::vector<std::string> chips = Scorable();
  int compared = 0;
  for (int i = 0; i < kDraws && !HasFailure(); ++i) {
    const Asked asked = Draw(random, chips);
    const bool batch = random() % 2 == 0;
    Asked more = asked;
    const int64_t added = 1 + static_cast<int64_t>(random() % 200);
    const Workload& w = asked.workload;
    if (batch) more.workload.batch += w.microbatches > 1 ? added * w.dp * w.microbatches : added;
    if (!batch) more.workload.context += added;
    SCOPED_TRACE(absl::StrCat(asked.Text(), ", then ", batch ? "batch " : "context ",
                              batch ? more.workload.batch : more.workload.context));
    const absl::StatusOr<Forecast> less = Of(asked), most = Of(more);
    if (!less.ok()) {
      EXPECT_FALSE(most.ok()) << "less work is refused: " << less.status();
      continue;
    }
    if (!most.ok()) continue;
    ++compared;
    ExpectNoLess(*most, *less);
  }
  EXPECT_GT(compared, kEnough);
}

Diagnostic Refusal(const absl::Status& status) {
  EXPECT_TRUE(DiagnosticOf(status).has_value()) << status;
  return DiagnosticOf(status).value_or(Diagnostic());
}

TEST(Forecasts, RefuseWhatTheyDoNotKnow) {
  const Graph graph = MakeModel({});
  const auto of = [&](const std::string& chip, const std::string& stack, Workload w) {
    return Refusal(ForecastStep(graph, nullptr, chip, w, stack, "bf16").status());
  };
  EXPECT_EQ(of("v6f", "", {}).code, 1701);
  EXPECT_THAT(of("v6f", "", {}).hint, HasSubstr("v6e"));
  EXPECT_EQ(of("v6e", "tgi", {}).code, 1711);
  EXPECT_THAT(of("v6e", "tgi", {}).hint, HasSubstr("vllm"));
  EXPECT_EQ(of("v6e", "", {.shards = 3}).code, 1702);
  EXPECT_EQ(of("v6e", "", {.batch = 0}).code, 1703);
  EXPECT_EQ(of("v6e", "", {.pp = 2}).code, 1702);
  EXPECT_EQ(of("gh200", "", {.shards = 2}).code, 1706) << "its network is not published";
  Workload int8{};
  SetFormat("int8", int8);
  EXPECT_EQ(of("b300_sxm", "", int8).code, 1704);
}

// Micro-scaled floats are stored in four bits and multiplied in sixteen.
TEST(Forecasts, WidenMicroScaledFloats) {
  const Graph graph = MakeModel(Llama8B());
  Workload fp4, wide;
  SetFormat("mxfp4", fp4);
  const auto of = [&](const Workload& w) {
    return ForecastStep(graph, nullptr, "v6e", w, "", "mxfp4")->score;
  };
  const Score narrow = of(fp4), plain = of(wide);
  EXPECT_NEAR(narrow.ladder[1].seconds, plain.ladder[1].seconds, Lost(narrow) + Lost(plain));
  EXPECT_LT(narrow.ladder[3].seconds, plain.ladder[3].seconds / 2) << "read in four bits";
}

// The batch that the refusal names is the largest that is accepted.
TEST(Forecasts, OfWhatDoesNotFitNameABatchThatDoes) {
  const Graph graph = MakeModel(Llama8B());
  for (const int64_t dp : {1, 2}) {
    for (const std::string stack : {"", "vllm", "trtllm"}) {
      Workload w{.batch = 4001, .context = 3001, .dp = dp};
      const auto of = [&] { return ForecastStep(graph, nullptr, "h100_sxm", w, stack, "bf16"); };
      const Diagnostic no = Refusal(of().status());
      EXPECT_EQ(no.code, 1712);
      const size_t at = no.hint.find("a batch of ");
      ASSERT_NE(at, std::string::npos) << no.hint;
      w.batch = std::stoll(no.hint.substr(at + 11));
      const absl::StatusOr<Forecast> fits = of();
      ASSERT_TRUE(fits.ok()) << stack << " " << dp << ": " << fits.status();
      EXPECT_GE(fits->capacity.kv_tokens, w.batch * 3002);
      w.batch += dp;
      EXPECT_EQ(Refusal(of().status()).code, 1712) << stack << " " << dp;
    }
  }
}

TEST(Forecasts, OfADecodeWithoutAContext) {
  const absl::StatusOr<Forecast> forecast =
      ForecastStep(MakeModel({}), nullptr, "v6e", {.context = 0}, "", "bf16");
  ASSERT_TRUE(forecast.ok()) << forecast.status();
  EXPECT_GT(forecast->capacity.kv_tokens, 0);
  EXPECT_GE(forecast->capacity.sequences, 1);
}

}  // namespace
}  // namespace twinforge
