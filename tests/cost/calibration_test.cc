#include "cost/calibration.h"

#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "base/diagnostic.h"
#include "cost/chip_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace twinforge {
namespace {

using ::testing::HasSubstr;

Diagnostic Refusal(const absl::Status& status) {
  EXPECT_TRUE(DiagnosticOf(status).has_value()) << status;
  return DiagnosticOf(status).value_or(Diagnostic());
}

// The smallest file that passes: a base for every constant, nothing else.
Calibration Smallest() {
  Calibration calibration;
  for (const ConstantInfo& info : AllConstants()) {
    for (const char* family : {"gpu", "tpu"}) {
      if (info.of_host && family == absl::string_view("tpu")) continue;
      Calibration::Base& base = *calibration.add_base();
      base.set_constant(std::string(info.name.data(), info.name.size()));
      if (!info.of_host) base.set_family(family);
      base.set_value(0.5);
      base.set_spread(0.1);
    }
  }
  calibration.set_unseen(0.4);
  calibration.set_unseen_first_token(0.9);
  return calibration;
}

Calibration::Scope* AddScope(Calibration& calibration, const std::string& stack,
                             const std::string& generation, const std::string& format, double matmul) {
  Calibration::Scope* scope = calibration.add_scope();
  scope->set_family("gpu");
  scope->set_stack(stack);
  scope->set_generation(generation);
  scope->set_format(format);
  Calibration::Factor& factor = *scope->add_factor();
  factor.set_constant("matmul");
  factor.set_value(matmul);
  factor.set_spread(0.2);
  return scope;
}

TEST(Constants, HaveNamesThatFindThem) {
  std::set<std::string> names;
  for (int i = 0; i < kConstants; ++i) {
    const ConstantInfo& info = AllConstants()[i];
    EXPECT_EQ(ConstantFromName(info.name), static_cast<Constant>(i));
    EXPECT_TRUE(names.emplace(info.name).second) << info.name;
  }
  EXPECT_FALSE(ConstantFromName("warp_speed").has_value());
}

TEST(Calibrations, OfTheBuildAreSound) {
  EXPECT_TRUE(CheckCalibration(ShippedCalibration()).ok());
  EXPECT_TRUE(CheckCalibration(Smallest()).ok());
  std::set<std::string> fitted(ShippedCalibration().row().begin(), ShippedCalibration().row().end());
  EXPECT_EQ(static_cast<int>(fitted.size()), ShippedCalibration().row_size()) << "a row is named twice";
  for (const Calibration::Quarantined& row : ShippedCalibration().quarantined()) {
    EXPECT_EQ(fitted.count(row.row()), 0u) << row.row() << " was quarantined and fitted on";
    EXPECT_FALSE(row.reason().empty());
  }
  int64_t rows = 0;
  for (const Calibration::Partition& partition : ShippedCalibration().partition()) rows += partition.rows();
  EXPECT_EQ(rows, ShippedCalibration().row_size());
}

TEST(Calibrations, ThatWouldBreakABoundAreRefused) {
  for (int i = 0; i < Smallest().base_size(); ++i) {
    for (const double value : {-1e-9, -1.0, std::numeric_limits<double>::infinity(), std::nan("")}) {
      Calibration calibration = Smallest();
      calibration.mutable_base(i)->set_value(value);
      const Diagnostic no = Refusal(CheckCalibration(calibration));
      EXPECT_EQ(no.code, 1710);
      EXPECT_EQ(no.place, calibration.base(i).constant());
    }
    Calibration spread = Smallest();
    spread.mutable_base(i)->set_spread(-0.1);
    EXPECT_EQ(Refusal(CheckCalibration(spread)).code, 1710);
  }
}

TEST(Calibrations, OfMoreThanAWholeAreRefused) {
  int shares = 0;
  for (int i = 0; i < Smallest().base_size(); ++i) {
    Calibration calibration = Smallest();
    calibration.mutable_base(i)->set_value(1.01);
    const bool share = Info(*ConstantFromName(calibration.base(i).constant())).unit == "share";
    shares += share;
    EXPECT_EQ(CheckCalibration(calibration).ok(), !share) << calibration.base(i).constant();
  }
  EXPECT_EQ(shares, 5);  // exposed twice, share, queue, first_queue
}

TEST(Calibrations, WithoutABaseOrWithAnUnknownNameAreRefused) {
  for (int i = 0; i < Smallest().base_size(); ++i) {
    Calibration calibration = Smallest();
    const std::string name = calibration.base(i).constant();
    calibration.mutable_base()->DeleteSubrange(i, 1);
    EXPECT_EQ(Refusal(CheckCalibration(calibration)).code, 1710);
    EXPECT_EQ(Refusal(CheckCalibration(calibration)).place, name);
  }
  Calibration calibration = Smallest();
  calibration.mutable_base(0)->set_constant("warp_speed");
  EXPECT_EQ(Refusal(CheckCalibration(calibration)).place, "warp_speed");
  calibration = Smallest();
  AddScope(calibration, "vllm", "", "", 1)->mutable_factor(0)->set_constant("warp_speed");
  EXPECT_THAT(Refusal(CheckCalibration(calibration)).message, HasSubstr("no constant has this name"));
  for (const double factor : {0.0, -1.0, std::nan("")}) {
    calibration = Smallest();
    AddScope(calibration, "vllm", "", "", factor);
    EXPECT_EQ(Refusal(CheckCalibration(calibration)).code, 1710) << factor;
  }
  calibration = Smallest();
  calibration.clear_unseen();
  EXPECT_EQ(Refusal(CheckCalibration(calibration)).code, 1710);
  calibration = Smallest();
  calibration.clear_unseen_first_token();
  EXPECT_EQ(Refusal(CheckCalibration(calibration)).code, 1710);
}

TEST(Calibrations, GiveAnEnginesConstantsToNoFamily) {
  for (int i = 0; i < Smallest().base_size(); ++i) {
    Calibration calibration = Smallest();
    Calibration::Base& base = *calibration.mutable_base(i);
    base.set_family(Info(*ConstantFromName(base.constant())).of_host ? "gpu" : "");
    EXPECT_EQ(Refusal(CheckCalibration(calibration)).code, 1710) << base.constant();
  }
}

TEST(Constants, AreComposedOfAllScopesThatMatch) {
  Calibration calibration = Smallest();
  AddScope(calibration, "vllm", "", "", 2);
  AddScope(calibration, "", "hopper", "", 3);
  AddScope(calibration, "", "", "fp8", 5);
  AddScope(calibration, "vllm", "hopper", "fp8", 7)->set_band(0.1);
  const auto matmul = [&](const char* stack, const char* generation, const char* format) {
    return Of(ComposedConstants(calibration, "gpu", stack, generation, format).mid, Constant::kMatmul);
  };
  EXPECT_DOUBLE_EQ(matmul("vllm", "hopper", "fp8"), 0.5 * 2 * 3 * 5 * 7);
  EXPECT_DOUBLE_EQ(matmul("vllm", "hopper", "bf16"), 0.5 * 2 * 3);
  EXPECT_DOUBLE_EQ(matmul("trtllm", "hopper", "fp8"), 0.5 * 3 * 5);
  EXPECT_DOUBLE_EQ(matmul("", "", ""), 0.5);
  EXPECT_DOUBLE_EQ(Of(ComposedConstants(calibration, "tpu", "vllm", "hopper", "fp8").mid, Constant::kMatmul),
                   0.5)
      << "another family's";
  const FittedConstants all = ComposedConstants(calibration, "gpu", "vllm", "hopper", "fp8");
  EXPECT_TRUE(all.seen);
  EXPECT_NEAR(Of(all.spread, Constant::kMatmul), std::sqrt(0.1 * 0.1 + 4 * 0.2 * 0.2), 1e-12);
  EXPECT_FALSE(ComposedConstants(calibration, "gpu", "vllm", "hopper", "bf16").seen);
}

TEST(Constants, OfWhatNobodyMeasuredHaveTheWideBand) {
  const Calibration& shipped = ShippedCalibration();
  const Chip& h100 = **FindIn(ShippedChips(), "h100_sxm");
  const FittedConstants seen = ConstantsFor(shipped, "trtllm", h100, "fp8");
  EXPECT_TRUE(seen.seen);
  EXPECT_THAT(seen.basis, HasSubstr("fitted on"));
  const FittedConstants unseen = ConstantsFor(shipped, "trtllm", h100, "int4");
  EXPECT_FALSE(unseen.seen);
  EXPECT_EQ(unseen.band, shipped.unseen());
  EXPECT_EQ(unseen.first_token_band, shipped.unseen_first_token());
  EXPECT_GT(unseen.band, seen.band);
  EXPECT_THAT(unseen.basis, HasSubstr("no row of trtllm on sm_90 in int4"));
  EXPECT_THAT(ConstantsFor(shipped, "", h100, "fp8").basis, HasSubstr("any engine"));
  for (const Chip& chip : ShippedChips()) {
    const FittedConstants fitted = ConstantsFor(shipped, "vllm", chip, "bf16");
    EXPECT_GT(fitted.matmul_excess, 0) << chip.id();
    EXPECT_GT(fitted.memory_excess, 0) << chip.id();
    for (int i = 0; i < kConstants; ++i) {
      EXPECT_GE(fitted.mid[i], 0);
      EXPECT_TRUE(AllConstants()[i].unit != "share" || fitted.mid[i] <= 1);
    }
  }
}

TEST(Stacks, AreKnownByName) {
  for (const char* name : {"vllm", "trtllm", "sglang", "jax"}) {
    const auto stack = FindStack(ShippedCalibration(), name);
    ASSERT_TRUE(stack.ok()) << stack.status();
    EXPECT_GT((*stack)->memory_fraction(), 0.5);
    EXPECT_LE((*stack)->memory_fraction(), 1);
    EXPECT_GE((*stack)->page(), 1);
  }
  const Diagnostic no = Refusal(FindStack(ShippedCalibration(), "tgi").status());
  EXPECT_EQ(no.code, 1711);
  EXPECT_THAT(no.hint, HasSubstr("vllm, trtllm, sglang, jax"));
}

}  // namespace
}  // namespace twinforge
