// Opens a model: outside names become roles here, and go no further.
//
//   OpenModel("checkpoint/")            config.json + safetensors, names and shapes checked against the
//   family ModelFromConfig("config.json")      the same model without bytes: plans, counts and scores work on
//   it
#ifndef TWINFORGE_IMPORTERS_IMPORTER_H_
#define TWINFORGE_IMPORTERS_IMPORTER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/model.h"

namespace twinforge {

// `config_path` overrides <path>/config.json (needed for a single file elsewhere).
absl::StatusOr<Model> OpenModel(const std::string& path, const std::string& config_path = "");

// The same with `config` in place of what <path>/config.json says; `place` names it.
absl::StatusOr<Model> OpenModelBy(JsonValue config, const std::string& place, const std::string& path);

absl::StatusOr<Model> ModelFromConfig(const std::string& config_path);
// `place` names the text in diagnostics.
absl::StatusOr<Model> ModelFromConfigText(absl::string_view json, absl::string_view place);

// model_types that are understood, ascending.
std::vector<std::string> SupportedModelTypes();

// Elements of all parameters (tied ones once), and of those a token passes through:
// total - experts * (1 - top_k / experts). Matches the published counts.
struct ParameterCounts {
  int64_t total = 0;
  int64_t active = 0;
  int64_t embedding = 0;
  int64_t expert = 0;
};
ParameterCounts CountParameters(const Graph& graph);

}  // namespace twinforge

#endif  // TWINFORGE_IMPORTERS_IMPORTER_H_
