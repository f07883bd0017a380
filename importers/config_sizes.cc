#include "importers/config_sizes.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "ir/largest.h"

namespace twinforge {
namespace {

constexpr int64_t kMostExperts = int64_t{1} << 22;  // of all layers: 1,024 layers of 4,096
constexpr char kNoModel[] = "no model is that large: correct the config";

// TF1406 where a key says a size beyond its bounds, TF1414 where one follows from other keys.
absl::Status CheckSize(const DimSpec& dim, int64_t size, const ConfigView& config) {
  const int64_t least = dim.may_be_zero() ? 0 : 1, most = LargestSize(dim.name());
  if (size >= least && size <= most) return absl::OkStatus();
  const std::string key = config.FirstKey(dim.key());
  if (!key.empty()) {
    const std::string range = absl::StrCat("a size from ", least, " to ", most);
    return config.WrongKind(key, range, size > most ? kNoModel : "");
  }
  const std::string name = dim.key().empty() ? dim.name() : absl::StrCat("\"", dim.key(0), "\"");
  return Error(1414, config.place(),
               absl::StrCat(name, " is not said and becomes ", size, " (", dim.absent(),
                            "), where a size from ", least, " to ", most, " is needed"),
               kNoModel);
}

}  // namespace

absl::Status TooLarge(const ConfigView& config, absl::string_view what) {
  return Error(1414, config.place(), absl::StrCat(what, " would be too large for any machine"), kNoModel);
}

absl::StatusOr<std::map<std::string, int64_t>> SizesOf(const FamilySpec& family, const ConfigView& config) {
  std::map<std::string, int64_t> dims;
  for (const DimSpec& dim : family.dim()) {
    Number number;
    *number.mutable_key() = dim.key();
    number.set_unless_null(dim.unless_null());
    // What a key says needs no default, and none may exist: 28 heads of 3584 padded to 30.
    absl::Status derived;
    if (!dim.absent().empty()) {
      const absl::StatusOr<int64_t> absent = Evaluate(dim.absent(), dims, config.place());
      derived = absent.status();
      if (absent.ok()) number.set_absent(static_cast<double>(*absent));
    }
    TWIN_RETURN_IF_ERROR(config.CheckAgree(dim.key()));
    const absl::StatusOr<int64_t> stated = config.GetWhole(number);
    if (!stated.ok()) return derived.ok() ? stated.status() : derived;
    TWIN_RETURN_IF_ERROR(CheckSize(dim, *stated, config));
    dims[dim.name()] = *stated;
  }
  const auto experts = dims.find("expert");
  if (experts != dims.end() && dims.at("layers") > kMostExperts / experts->second)
    return TooLarge(config, absl::StrCat(dims.at("layers"), " layers of ", experts->second, " experts"));
  return dims;
}

absl::StatusOr<int64_t> Evaluate(absl::string_view expression, const std::map<std::string, int64_t>& dims,
                                 absl::string_view place) {
  const std::vector<std::string> words = absl::StrSplit(expression, ' ', absl::SkipEmpty());
  TWIN_CHECK(words.size() % 2 == 1, absl::StrCat("family expression: ", expression));
  const auto value = [&](const std::string& word) {
    int64_t number = 0;
    if (absl::SimpleAtoi(word, &number)) return number;
    const auto found = dims.find(word);
    TWIN_CHECK(found != dims.end(), absl::StrCat("family expression names an unknown dim: ", expression));
    return found->second;
  };
  int64_t result = value(words[0]);
  for (size_t i = 1; i < words.size(); i += 2) {
    const int64_t operand = value(words[i + 1]);
    TWIN_CHECK(words[i] == "*" || words[i] == "/", absl::StrCat("family expression: ", expression));
    if (words[i] == "*") {
      if (__builtin_mul_overflow(result, operand, &result)) {
        return Error(1414, place, absl::StrCat(expression, " is too large a number"));
      }
    } else if (operand == 0 || result % operand != 0) {
      return Error(1414, place, absl::StrCat(expression, " is not whole: ", result, " / ", operand));
    } else {
      result /= operand;
    }
  }
  return result;
}

}  // namespace twinforge
