// What estimates refuse, each with its code.
#include <gtest/gtest.h>

#include "base/diagnostic.h"
#include "cost/calibration.h"
#include "cost/forecast.h"
#include "tests/cost/models.h"

namespace twinforge {
namespace {

int CodeOf(const absl::Status& status) { return DiagnosticOf(status).value_or(Diagnostic()).code; }

TEST(Refusals, AConstantBelowItsBoundIsNoCalibration) {
  Calibration calibration = ShippedCalibration();
  EXPECT_TRUE(CheckCalibration(calibration).ok());
  calibration.mutable_base(0)->set_value(-0.1);
  EXPECT_EQ(CodeOf(CheckCalibration(calibration)), 1710);
  calibration = ShippedCalibration();
  calibration.mutable_base(0)->set_constant("luck");
  EXPECT_EQ(CodeOf(CheckCalibration(calibration)), 1710);
  calibration = ShippedCalibration();
  calibration.mutable_base()->DeleteSubrange(0, 1);
  EXPECT_EQ(CodeOf(CheckCalibration(calibration)), 1710);
}

TEST(Refusals, AnEngineThatNobodyMeasuredIsNamed) {
  const absl::Status status =
      ForecastStep(MakeModel({}), nullptr, "h100", {.batch = 1, .context = 8}, "homemade", "bf16").status();
  EXPECT_EQ(CodeOf(status), 1711) << status;
  EXPECT_NE(DiagnosticOf(status)->hint.find("vllm"), std::string::npos);
}

TEST(Refusals, WhatDoesNotFitNamesABatchThatDoes) {
  const Graph graph = MakeModel(Llama8B());
  Workload workload = {.batch = 4096, .context = 4096};
  const absl::Status status = ForecastStep(graph, nullptr, "h100", workload, "vllm", "bf16").status();
  ASSERT_EQ(CodeOf(status), 1712) << status;
  const std::string hint = DiagnosticOf(status)->hint;
  const std::string before = "a batch of ";
  ASSERT_NE(hint.find(before), std::string::npos) << hint;
  workload.batch = std::stoll(hint.substr(hint.find(before) + before.size()));
  EXPECT_TRUE(ForecastStep(graph, nullptr, "h100", workload, "vllm", "bf16").ok()) << workload.batch;
  ++workload.batch;
  EXPECT_EQ(CodeOf(ForecastStep(graph, nullptr, "h100", workload, "vllm", "bf16").status()), 1712);
}

}  // namespace
}  // namespace twinforge
