#include "tests/transforms/law_steps.h"

#include <gtest/gtest.h>

#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "transforms/transform.h"

namespace twinforge {

const std::vector<std::string>& LawSteps() {
  static const std::vector<std::string>& all = *new std::vector<std::string>([] {
    std::vector<std::string> steps;
    for (const TransformInfo& info : AllTransforms()) {
      const std::string path = absl::StrCat(TWINFORGE_SOURCE_DIR "/tests/transforms/", info.name, ".txt");
      std::ifstream file(path);
      const size_t before = steps.size();
      std::string line;
      while (std::getline(file, line) && absl::StartsWith(line, kLawMark)) {
        steps.emplace_back(absl::StripPrefix(line, kLawMark));
        EXPECT_TRUE(absl::StartsWith(steps.back(), absl::StrCat(info.name, " "))) << path << ": " << line;
      }
      EXPECT_GT(steps.size(), before)
          << path << " opens with no line `" << kLawMark << info.name << " { ... }`";
    }
    return steps;
  }());
  return all;
}

}  // namespace twinforge
