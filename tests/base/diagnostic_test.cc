#include "base/diagnostic.h"

#include <gtest/gtest.h>

#include "absl/strings/str_split.h"

namespace twinforge {
namespace {

TEST(Codes, AscendInTheirRangesAndHavePages) {
  int before = 0;
  for (const CodeInfo& info : AllCodes()) {
    EXPECT_GT(info.code, before) << info.code << " is out of order or was given twice";
    before = info.code;
    EXPECT_EQ(FindCode(info.code), &info);
    EXPECT_FALSE(info.title.empty());
    EXPECT_LE(std::vector<std::string>(absl::StrSplit(info.title, ' ')).size(), 10u) << info.code;
    EXPECT_GT(info.page.size(), 40u) << info.code << " has no page worth reading";
    EXPECT_NE(info.exit, ExitCode::kDone) << info.code;
    EXPECT_TRUE(info.code < 7000 || info.exit == ExitCode::kInternal) << info.code;
  }
  EXPECT_EQ(FindCode(1), nullptr);
}

TEST(Error, CarriesWhatWasSaid) {
  const absl::Status status = Error(1201, "f", "overlap", "fetch it again");
  EXPECT_EQ(Render(status), "error[TF1201]: f: overlap\n  hint: fetch it again\n");
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kCorrupt);
  EXPECT_EQ(Render(WithPlace(status, "step 3")),
            "error[TF1201]: step 3: f: overlap\n  hint: fetch it again\n");
  EXPECT_EQ(Render(Error(1201, "", "overlap")), "error[TF1201]: overlap\n");
  EXPECT_TRUE(WithPlace(absl::OkStatus(), "x").ok());
}

TEST(Error, WithoutACodeIsOurBug) {
  EXPECT_EQ(ExitCodeOf(absl::InternalError("x")), ExitCode::kInternal);
  EXPECT_EQ(Render(absl::InternalError("x")), "error[TF7000]: x\n");
  EXPECT_DEATH(Error(9999, "", "").IgnoreError(), "TF9999 is not in codes.def");
}

TEST(Nearest, OnlyWhatIsLike) {
  const std::vector<std::string> known = {"BF16", "F16", "F32"};
  EXPECT_EQ(Nearest("BF17", known), "BF16");
  EXPECT_EQ(Nearest("F31", known), "F32");
  EXPECT_EQ(Nearest("elephant", known), "");
}

}  // namespace
}  // namespace twinforge
