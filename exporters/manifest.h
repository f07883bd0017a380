// twin.manifest.textproto: what a twin is, whence it came, and how to undo it.
//
// It is enough to judge a twin beside its source (prove), to give the source back
// (unforge), and to read the twin's parameters by role (inspect, score), without the
// recipe being run again. Its last line is the hash of all before it, so a changed byte
// is noticed; the files it lists carry theirs.
//
// Written row by row, since the manifest of 100,000 tensors must not need memory of its
// own size; read whole. Reading treats it as hostile: every program, shape, name and hash is
// checked, and no file is named that lies outside the folder.
#ifndef TWINFORGE_EXPORTERS_MANIFEST_H_
#define TWINFORGE_EXPORTERS_MANIFEST_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "exporters/exporter.h"
#include "exporters/header.h"
#include "exporters/output_dir.h"
#include "ir/model.h"

namespace twinforge {

inline constexpr char kManifestName[] = "twin.manifest.textproto";

// Small files of the source that the manifest keeps as they were, since a twin has its own.
inline constexpr absl::string_view kSourceTexts[] = {"config.json", "generation_config.json",
                                                     "model.safetensors.index.json"};

// The name in a twin of a file that is copied from the source: its own, but for README.md, which is the
// twin's model card.
std::string CompanionInTwin(absl::string_view source_name);

// A file of the source with tensors in it.
struct ManifestSourceFile {
  std::string name;
  int64_t bytes = 0;
  std::string header_sha256;
  Metadata metadata;
  // The header's bytes, where writing it anew (order of the tensors, metadata) would not give the same.
  std::string header;
  std::vector<SourceTensor> tensors;  // ascending by offset
};

// A tensor of the twin.
struct ManifestTensor {
  std::string name;
  std::string file;
  std::string xxh3;   // XXH3, 128 bits, of its stored bytes
  WeightPtr program;  // over the source's tensors
  std::vector<std::string> roles;
};

// A file of the twin; the manifest itself is not listed.
struct ManifestFile {
  std::string name;
  int64_t bytes = 0;
  std::string sha256;
};

struct TwinManifest {
  std::string tool_version;
  Target target = Target::kHf;
  std::string layout;       // kHf: which of the family's
  int opset = 0;            // kOnnx
  std::string computed_in;  // kOnnx
  std::string family;
  std::string model_type;
  Provenance provenance;
  std::vector<ManifestSourceFile> source_files;
  std::vector<SmallFile> source_texts;  // config.json, generation_config.json, index: as they were
  std::vector<std::string> companions;  // files of the source that the twin has, by the source's names
  std::vector<ManifestTensor> tensors;
  std::vector<ManifestFile> files;
  std::vector<LedgerRow> ledger;  // without inverses: Invert() derives them from `tensors`
  std::string graph;              // ir text of the twin, programs included

  const ManifestTensor* Find(absl::string_view name) const;
};

// The manifest of a finished plan, piece by piece. `files` has one entry per plan.files;
// `others` the small files and companions that were written.
struct ManifestRequest {
  const Model& model;
  const ExportPlan& plan;
  const Provenance& provenance;
  const std::vector<FinishedFile>& files;
  const std::vector<ManifestFile>& others;
};
absl::Status WriteManifest(const ManifestRequest& request,
                           const std::function<absl::Status(absl::string_view)>& append);

// TF1801 where it is not a manifest of ours, damaged, or says what can't be.
absl::StatusOr<TwinManifest> ParseManifest(absl::string_view text, absl::string_view place);
absl::StatusOr<TwinManifest> ReadManifest(const std::string& folder);

}  // namespace twinforge

#endif  // TWINFORGE_EXPORTERS_MANIFEST_H_
