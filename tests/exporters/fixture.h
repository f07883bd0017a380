// A small real checkpoint, twins of it, and folders to write them in.
#ifndef TWINFORGE_TESTS_EXPORTERS_FIXTURE_H_
#define TWINFORGE_TESTS_EXPORTERS_FIXTURE_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "exporters/exporter.h"
#include "exporters/twin.h"
#include "ir/model.h"

namespace twinforge {

// A folder that is gone at the end of the test.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Every file below a folder, by relative name; the empty map where there is none.
using Tree = std::map<std::string, std::string>;
Tree ReadTree(const std::string& folder);
void WriteFile(const std::string& path, const std::string& content);
std::string ReadFile(const std::string& path);
// Names that stand directly in a folder.
std::string List(const std::string& folder);

// samples/tiny-llama, opened; copied to `folder` first where one is given.
std::string TinyLlama();
void CopyTinyLlama(const std::string& folder);
Model Open(const std::string& path);

// What a recipe would make of it, without recipes.
enum class Rewriting {
  kNone,     // the graph as imported
  kPad,      // d_ff 56 -> 64: every family's layout can say it
  kNative,   // kPad; o, gate, up and down turned to [in, out]; q, k, v in one tensor
  kRescale,  // up doubled, down halved
  kLose,     // one row of up dropped: d_ff 56 -> 55
};
Model Twin(Rewriting rewriting, const std::string& path = TinyLlama());

// The twin's folder, opened as the command line does.
StoredTwin OpenStored(const std::string& folder);

// Small tiles, so that a small checkpoint is many groups.
ExportOptions SmallTiles(Target target);

Provenance SomeProvenance();

// PlanExport and Export; a failure of the plan is a failure of the test.
absl::StatusOr<ExportResult> Forge(const Model& model, const ExportOptions& options, const std::string& out);

}  // namespace twinforge

#endif  // TWINFORGE_TESTS_EXPORTERS_FIXTURE_H_
