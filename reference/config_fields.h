// The fields of an emitted module's Config: facts of the graph under the names that its code uses.
#ifndef TWINFORGE_REFERENCE_CONFIG_FIELDS_H_
#define TWINFORGE_REFERENCE_CONFIG_FIELDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace twinforge {

class ConfigFields {
 public:
  // An expression that reads the fact: "CONFIG.norm_eps". Where that name already has another value, a number
  // follows it: "CONFIG.norm_eps_2". `meaning` is the comment beside the field.
  std::string Float(absl::string_view name, double value, absl::string_view meaning = "");
  std::string Int(absl::string_view name, int64_t value, absl::string_view meaning = "");
  std::string String(absl::string_view name, absl::string_view value, absl::string_view meaning = "");
  std::string Floats(absl::string_view name, absl::Span<const double> values, absl::string_view meaning = "");

  // The dataclass, fields in order of their first use.
  std::string Text() const;

 private:
  struct Field {
    std::string name, type, value, meaning;
  };
  std::string Use(absl::string_view name, absl::string_view type, std::string value,
                  absl::string_view meaning);

  std::vector<Field> fields_;
};

}  // namespace twinforge

#endif  // TWINFORGE_REFERENCE_CONFIG_FIELDS_H_
