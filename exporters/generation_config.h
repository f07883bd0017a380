// generation_config.json of a twin.
//
// A vocabulary that was padded has places that are no words; generate() must never say one, so the file
// lists them in suppress_tokens. A source without that file is governed by old keys of its config.json, which
// a runtime reads only as long as there is none: they are carried into it. A twin without padded places needs
// no file of its own: the source's is copied as it is, whatever it holds.
#ifndef TWINFORGE_EXPORTERS_GENERATION_CONFIG_H_
#define TWINFORGE_EXPORTERS_GENERATION_CONFIG_H_

#include "absl/status/statusor.h"
#include "base/json.h"
#include "ir/model.h"

namespace twinforge {

inline constexpr char kGenerationConfigName[] = "generation_config.json";

// What a twin with `graph` says beside the files of its source `model`. Null where nothing is to be added.
// TF1415 where the source's file can't be added to: it is no object, or its suppress_tokens is no list of
// tokens of its vocabulary.
absl::StatusOr<JsonValue> TwinGenerationConfig(const Model& model, const Graph& graph);

}  // namespace twinforge

#endif  // TWINFORGE_EXPORTERS_GENERATION_CONFIG_H_
