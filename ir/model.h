// A model: the graph, where its bytes come from, and how its format says it.
//
// Importers make Models, transforms change their graph, exporters write them. The
// config text is kept only for the keys that no fact of the graph covers (token ids,
// dropout, names); what a binding covers is always written from the graph.
#ifndef TWINFORGE_IR_MODEL_H_
#define TWINFORGE_IR_MODEL_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "ir/graph.h"
#include "ir/layout.h"
#include "weights/read.h"

namespace twinforge {

// A stored tensor of the source, for plans, ledgers and manifests.
struct SourceTensor {
  std::string name;
  std::string file;     // relative to root; "" when known from a config alone
  WeightPtr source;     // the kSource node
  std::string ignored;  // reason, where no role uses it
};

// A file of the source checkpoint, for the manifest.
struct SourceFile {
  std::string name;
  int64_t bytes = 0;
  std::string header_sha256;  // safetensors only
};

// Sources of a model from a config alone that are too many to be listed.
struct UnlistedSources {
  int64_t tensors = 0;
  std::map<DType, int64_t> bytes;
};

struct Model {
  std::string family;      // "llama"
  std::string model_type;  // of config.json: "mistral"
  Graph graph;
  std::vector<Layout> layouts;        // [0] is the one its files use; others of the family follow
  JsonValue config;                   // config.json as read
  JsonValue generation_config;        // generation_config.json, or null
  std::string root;                   // folder; "" from a config alone
  std::vector<SourceTensor> sources;  // ascending by name
  UnlistedSources unlisted;           // where it has tensors, sources is empty
  std::vector<SourceFile> files;
  std::vector<std::string> companions;  // other files to carry: tokenizer.json, LICENSE (relative names)
  std::vector<std::string> warnings;
  std::shared_ptr<const TensorReader> reader;  // null from a config alone

  bool has_bytes() const { return reader != nullptr; }
};

}  // namespace twinforge

#endif  // TWINFORGE_IR_MODEL_H_
