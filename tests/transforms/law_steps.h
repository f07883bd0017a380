// The steps that every law tries: the lines `laws: pad_ffn { multiple: 8 }` that tests/transforms/<name>.txt
// opens with. Adding a transform adds no test code, only its file.
#ifndef TWINFORGE_TESTS_TRANSFORMS_LAW_STEPS_H_
#define TWINFORGE_TESTS_TRANSFORMS_LAW_STEPS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace twinforge {

inline constexpr absl::string_view kLawMark = "laws: ";  // what such a line begins with

// In the order of AllTransforms(), a file's lines in theirs. A transform without a file, or a file without
// such a line, is a failed test.
const std::vector<std::string>& LawSteps();

}  // namespace twinforge

#endif  // TWINFORGE_TESTS_TRANSFORMS_LAW_STEPS_H_
