// Pieces of Python's own syntax: numbers, strings, indentation.
#ifndef TWINFORGE_REFERENCE_PYTHON_H_
#define TWINFORGE_REFERENCE_PYTHON_H_

#include <cstdint>
#include <initializer_list>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace twinforge {

// The shortest text that Python reads back as the same float: "0.25", "1e-05", "1.0".
std::string PyFloat(double value);
// A literal in double quotes. Whatever is not printable ASCII is escaped, so that a name of a file's ends
// nothing.
std::string PyString(absl::string_view text);
// The same inside an f-string, without quotes: braces are doubled too.
std::string PyInFString(absl::string_view text);
// "(4, 20, 48)", "(4,)".
std::string PyTuple(absl::Span<const int64_t> values);
// The parts joined. They are evaluated from left to right, as the arguments of a call are not: what a part
// defines on the way stands in the same order whoever compiles this.
std::string InOrder(std::initializer_list<absl::string_view> parts);
// Every line that is not empty moved right by `columns`.
std::string Indented(absl::string_view text, int columns);

}  // namespace twinforge

#endif  // TWINFORGE_REFERENCE_PYTHON_H_
