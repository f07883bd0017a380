#include "importers/family.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/check.h"
#include "base/embedded.h"
#include "base/first_mistake.h"
#include "importers/importer.h"

namespace twinforge {

absl::Span<const EmbeddedFile> Embedded_families();

namespace {}  // namespace

absl::StatusOr<FamilySpec> ParseFamily(absl::string_view text, absl::string_view place) {
  FamilySpec family;
  FirstMistake error;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  if (!parser.ParseFromString(std::string(text), &family)) {
    return absl::InvalidArgumentError(absl::StrCat(place, ":", error.place(), ": ", error.message()));
  }
  if (family.name().empty() || family.model_type().empty() || family.architecture().empty() ||
      family.layout().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(place, ": a family has a name, model_type, architecture, layout"));
  }
  return family;
}

const std::vector<FamilySpec>& AllFamilies() {
  static const auto* const families = [] {
    auto* all = new std::vector<FamilySpec>;
    for (const EmbeddedFile& file : Embedded_families()) {
      absl::StatusOr<FamilySpec> family = ParseFamily(file.text, file.name);
      TWIN_CHECK(family.ok(), std::string(family.status().message()));
      all->push_back(*std::move(family));
    }
    return all;
  }();
  return *families;
}

const FamilySpec* FindFamily(absl::string_view model_type) {
  for (const FamilySpec& family : AllFamilies()) {
    const auto& types = family.model_type();
    if (std::find(types.begin(), types.end(), model_type) != types.end()) return &family;
  }
  return nullptr;
}

std::vector<std::string> SupportedModelTypes() {
  std::vector<std::string> types;
  for (const FamilySpec& family : AllFamilies()) {
    types.insert(types.end(), family.model_type().begin(), family.model_type().end());
  }
  std::sort(types.begin(), types.end());
  return types;
}

}  // namespace twinforge
