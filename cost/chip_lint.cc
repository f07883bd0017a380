// What can be wrong with a chip file that parses.

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cost/chip.h"
#include "cost/chip.pb.h"
#include "cost/chip_units.h"

namespace twinforge {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr double kTolerance = 0.03;  // between a published peak and the one that units and clock make

void LintNumber(absl::string_view where, const Chip::Number& number, std::vector<std::string>& findings) {
  if (!(number.value() > 0)) findings.push_back(absl::StrCat(where, ": not a positive number"));
  if (!UnitScale(number.unit())) findings.push_back(absl::StrCat(where, ": unknown unit ", number.unit()));
  if (number.source().empty()) findings.push_back(absl::StrCat(where, ": no source"));
  if (number.confidence() == Chip::CONFIDENCE_UNSET)
    findings.push_back(absl::StrCat(where, ": no confidence"));
  for (const Chip::Rival& rival : number.rival()) {
    if (rival.source().empty()) findings.push_back(absl::StrCat(where, ": a rival without source"));
  }
}

// Every Number below `message`, whatever field holds it: a field that is added later can't escape the lint.
void LintNumbers(const std::string& where, const Message& message, std::vector<std::string>& findings) {
  if (message.GetDescriptor() == Chip::Number::descriptor()) {
    LintNumber(where, static_cast<const Chip::Number&>(message), findings);
    return;
  }
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      LintNumbers(absl::StrCat(where, ": ", field->name()),
                  message.GetReflection()->GetMessage(message, field), findings);
      continue;
    }
    for (int i = 0; i < message.GetReflection()->FieldSize(message, field); ++i) {
      LintNumbers(absl::StrCat(where, ": ", field->name(), "[", i, "]"),
                  message.GetReflection()->GetRepeatedMessage(message, field, i), findings);
    }
  }
}

// peak = units x edge^2 x 2 x clock, where all three are published.
void LintPeak(const Chip& chip, std::vector<std::string>& findings) {
  if (!chip.has_matrix_units() || !chip.has_matrix_edge() || !chip.has_clock()) return;
  const double edge = chip.matrix_edge().value();
  const double made =
      chip.matrix_units().value() * edge * edge * 2 * chip.clock().value() * *UnitScale("MHz") / 1e12;
  for (const Chip::Peak& peak : chip.peak()) {
    if (peak.dtype() != "bf16" || peak.sparse24()) continue;
    const double published = peak.rate().value();
    if (std::abs(made - published) <= kTolerance * published) continue;
    findings.push_back(absl::StrFormat("%s: peak bf16: published %g, units and clock make %g TFLOP/s",
                                       chip.id(), published, made));
  }
}

void LintTypes(const Chip& chip, std::vector<std::string>& findings) {
  std::vector<std::string> native;
  for (const Chip::Peak& peak : chip.peak()) native.push_back(peak.dtype());
  const auto is_native = [&](const std::string& dtype) {
    return std::find(native.begin(), native.end(), dtype) != native.end();
  };
  for (const Chip::Conversion& conversion : chip.conversion()) {
    if (conversion.source().empty())
      findings.push_back(absl::StrCat(chip.id(), ": conversion without source"));
    if (!is_native(conversion.as())) {
      findings.push_back(absl::StrCat(chip.id(), ": conversion of ", conversion.dtype(), " to ",
                                      conversion.as(), ", which has no peak"));
    }
  }
  for (const Chip::Mix& mix : chip.mix()) {
    if (mix.source().empty()) findings.push_back(absl::StrCat(chip.id(), ": mix without source"));
    for (const std::string& dtype : mix.dtype()) {
      if (!is_native(dtype))
        findings.push_back(absl::StrCat(chip.id(), ": mix of ", dtype, ", which has no peak"));
    }
  }
}

}  // namespace

std::vector<std::string> LintChip(const Chip& chip) {
  std::vector<std::string> findings;
  LintNumbers(chip.id(), chip, findings);
  LintPeak(chip, findings);
  LintTypes(chip, findings);
  if (!chip.has_matrix_edge() && chip.tensor_tile().source().empty()) {
    findings.push_back(absl::StrCat(chip.id(), ": neither a matrix edge nor a tensor tile with its source"));
  }
  return findings;
}

}  // namespace twinforge
