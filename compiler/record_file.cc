#include "compiler/record_file.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/first_mistake.h"

namespace twinforge {
namespace {

constexpr char kHead[] = "# What the TPU compiler made of this model: written by `twinforge compile`.\n";

int64_t Plus(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<int64_t>::max() : sum;
}

int64_t TimesCount(int64_t a, int64_t count) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, count, &product) ? std::numeric_limits<int64_t>::max() : product;
}

}  // namespace

std::string CompileRecordText(const CompileRecord& record) {
  std::string text;
  google::protobuf::TextFormat::Printer printer;
  printer.SetUseUtf8StringEscaping(true);
  printer.PrintToString(record, &text);
  return absl::StrCat(kHead, text);
}

absl::StatusOr<CompileRecord> ParseCompileRecord(absl::string_view text, const std::string& place) {
  FirstMistake mistake;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&mistake);
  parser.SetRecursionLimit(16);
  CompileRecord record;
  if (parser.ParseFromString(std::string(text), &record) && record.has_twin()) return record;
  const bool parsed = mistake.message().empty();
  return Error(2108, parsed ? place : absl::StrCat(place, ":", mistake.place()),
               absl::StrCat("is no compile record: ", parsed ? "says nothing of a twin" : mistake.message()),
               "write it anew with `twinforge compile`");
}

CompiledSums SumsOf(const CompiledModel& model) {
  CompiledSums sums;
  if (!model.refused().empty()) sums.refused = 1;
  for (const CompiledModule& module : model.modules()) {
    const auto add = [&](int64_t& sum, int64_t one) { sum = Plus(sum, TimesCount(one, module.count())); };
    if (!module.error().empty()) ++sums.refused;
    add(sums.cycles, module.cycles());
    add(sums.argument_bytes, module.argument_bytes());
    add(sums.output_bytes, module.output_bytes());
    sums.temp_bytes = std::max<int64_t>(sums.temp_bytes, module.temp_bytes());
    add(sums.copies, module.copies_size());
    add(sums.copy_cycles, module.copy_cycles());
    for (const CompiledCollective& collective : module.collectives())
      add(sums.collectives, collective.count());
    add(sums.arguments, module.arguments_size());
    for (const CompiledArray& array : module.arguments())
      add(sums.padding_bytes, array.padded_bytes() - array.bytes());
    for (const UncountedOps& ops : module.uncounted()) add(sums.uncounted, ops.count());
  }
  return sums;
}

}  // namespace twinforge
