#include "cost/serve.h"

#include <cmath>
#include <random>

#include "base/diagnostic.h"
#include "cost/chip_file.h"
#include "cost/forecast.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cost/models.h"

namespace twinforge {
namespace {

using ::testing::HasSubstr;

struct Served {
  ServingTerms terms;
  FittedConstants fitted;
};

Served Of(const std::string& chip, const Serving& serving, const std::string& stack, int64_t dp = 1) {
  static const Graph& graph = *new Graph(MakeModel(Llama8B()));
  Workload workload{.routing = Routing::kExpected};
  workload.dp = dp;
  const Calibration::Stack& row = **FindStack(ShippedCalibration(), stack);
  absl::StatusOr<ServingTerms> terms = ServingTermsOf(**FindChipFacts(chip), graph, workload, serving, row);
  EXPECT_TRUE(terms.ok()) << terms.status();
  return {*std::move(terms),
          ConstantsFor(ShippedCalibration(), stack, **FindIn(ShippedChips(), chip), "bf16")};
}

// Little's law: those who generate are to all clients as their output is to output and wait.
TEST(SteadyStates, KeepLittlesLaw) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 200; ++i) {
    const Serving serving{.input_len = 1 + static_cast<int64_t>(random() % 8000),
                          .output_len = 1 + static_cast<int64_t>(random() % 3000),
                          .concurrency = 1 + static_cast<int64_t>(random() % 500)};
    const char* stack = i % 2 == 0 ? "vllm" : "trtllm";
    const Served s = Of("h200_sxm", serving, stack, 1 + static_cast<int64_t>(random() % 2));
    const Steady steady = SteadyState(s.terms, s.fitted, s.fitted.mid);
    const double output = s.terms.output_len * steady.tpot;
    EXPECT_NEAR(steady.running * (output + steady.wait), s.terms.batch * output,
                1e-9 * s.terms.batch * output);
    EXPECT_GT(steady.running, 0);
    EXPECT_LE(steady.running, s.terms.batch);
    EXPECT_GT(steady.ttft, 0);
  }
}

TEST(SteadyStates, OfOneClientHaveNoQueue) {
  Served s = Of("h200_sxm", {.input_len = 1000, .output_len = 200, .concurrency = 1}, "vllm");
  const double prompt = EstimatePrefill(s.terms.prefill, s.fitted, s.fitted.mid);
  for (const double queue : {0.0, 0.5, 1.0}) {
    Constants constants = s.fitted.mid;
    constants[static_cast<size_t>(Constant::kQueue)] = queue;
    constants[static_cast<size_t>(Constant::kFirstQueue)] = queue;
    const Steady steady = SteadyState(s.terms, s.fitted, constants);
    EXPECT_DOUBLE_EQ(steady.wait, prompt);
    EXPECT_DOUBLE_EQ(steady.ttft, prompt + Of(constants, Constant::kFirstPrompt));
  }
}

TEST(SteadyStates, OfMoreClientsAreNoFaster) {
  double last = 0, first = 0;
  for (int64_t clients = 1; clients <= 256; clients *= 2) {
    const Served s = Of("h200_sxm", {.input_len = 1024, .output_len = 1024, .concurrency = clients}, "vllm");
    const Steady steady = SteadyState(s.terms, s.fitted, s.fitted.mid);
    EXPECT_GE(steady.tpot, last);
    EXPECT_GE(steady.ttft, first);
    last = steady.tpot;
    first = steady.ttft;
  }
}

// No more run than the memory that the engine takes holds.
TEST(ServingTerms, AreOfAsManyAsFit) {
  const Served s = Of("l40s", {.input_len = 8000, .output_len = 2000, .concurrency = 400}, "vllm");
  EXPECT_EQ(s.terms.batch, static_cast<double>(s.terms.capacity.sequences));
  EXPECT_LT(s.terms.batch, 400);
  EXPECT_GE(s.terms.batch, 1);
}

Diagnostic Refusal(const std::string& chip, const Serving& serving, Workload workload = {}) {
  static const Graph& graph = *new Graph(MakeModel(Llama8B()));
  const absl::Status status = ForecastServing(graph, chip, workload, serving, "vllm", "bf16").status();
  EXPECT_TRUE(DiagnosticOf(status).has_value()) << status;
  return DiagnosticOf(status).value_or(Diagnostic());
}

TEST(Serving, ThatCannotBeIsRefused) {
  const Serving one{.input_len = 100, .output_len = 100, .concurrency = 1};
  // 16 GB of parameters: on a v5e of 16 GiB, of which vLLM takes nine tenths, not even they fit.
  EXPECT_EQ(Refusal("v5e", one).code, 1712);
  EXPECT_THAT(Refusal("v5e", one).hint, HasSubstr("2 shards would do"));
  EXPECT_EQ(Refusal("l40s", {.input_len = 1000000, .output_len = 10, .concurrency = 1}).code, 1712)
      << "parameters fit, one sequence does not";
  EXPECT_EQ(Refusal("v6f", one).code, 1701);
  EXPECT_EQ(Refusal("v6e", one, {.shards = 3}).code, 1702);
  EXPECT_EQ(Refusal("gh200", one, {.shards = 2}).code, 1706);
  EXPECT_EQ(Refusal("v6e", {.input_len = 0}).place, "input-len");
  EXPECT_EQ(Refusal("v6e", {.output_len = 0}).place, "output-len");
  EXPECT_EQ(Refusal("v6e", {.concurrency = 0}).place, "concurrency");
  EXPECT_EQ(Refusal("v6e", {.output_len = int64_t{1} << 40}).code, 1703);
}

TEST(Serving, SaysItsIntervals) {
  const Graph graph = MakeModel(Llama8B());
  const auto forecast = ForecastServing(graph, "h200_sxm", {}, {.concurrency = 32}, "vllm", "bf16");
  ASSERT_TRUE(forecast.ok()) << forecast.status();
  for (const Interval& i : {forecast->tpot, forecast->ttft}) {
    EXPECT_GT(i.low, 0);
    EXPECT_LE(i.low, i.mid);
    EXPECT_LE(i.mid, i.high);
  }
  EXPECT_GE(forecast->tpot.low, forecast->tpot_bound);
  EXPECT_LE(forecast->running, 32);
}

// Each client has one answer in the time that it takes, wherever it waits.
TEST(Serving, GivesClientsBeyondTheCacheTheirWait) {
  const Graph graph = MakeModel(Llama8B());
  double most = 0;
  for (const int64_t clients : {1, 32, 1000, 100000}) {
    const Serving serving{.input_len = 2048, .output_len = 256, .concurrency = clients};
    const auto forecast = ForecastServing(graph, "h200_sxm", {}, serving, "vllm", "bf16");
    ASSERT_TRUE(forecast.ok()) << forecast.status();
    const double answer = forecast->ttft.mid + 255 * forecast->tpot.mid;
    EXPECT_NEAR(forecast->tokens_per_second * answer, 256.0 * static_cast<double>(clients), 1e-3);
    // The queue grows with the clients, the rate stays at what the chip gives.
    if (clients == 1000) most = forecast->tokens_per_second;
    if (clients == 100000) {
      EXPECT_NEAR(forecast->tokens_per_second / most, 1, 0.05);
    }
  }
}

}  // namespace
}  // namespace twinforge
