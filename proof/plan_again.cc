#include "proof/plan_again.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/file.h"
#include "base/json_reader.h"
#include "exporters/difference.h"
#include "exporters/exporter.h"
#include "exporters/header.h"
#include "exporters/reference_files.h"
#include "reference/onnx/write_onnx.h"

namespace twinforge {
namespace {

constexpr int64_t kQuoted = 200;
constexpr int64_t kNoBudget = int64_t{1} << 50;  // nothing is read, so any memory is enough
constexpr char kIndexName[] = "model.safetensors.index.json";

int64_t CutAt(const TwinManifest& manifest) {
  std::map<std::string, std::pair<int64_t, int64_t>> files;  // tensors and bytes of each
  for (const ManifestTensor& tensor : manifest.tensors) {
    auto& [tensors, bytes] = files[tensor.file];
    ++tensors;
    bytes += FileBytes(tensor.program->dtype(), tensor.program->element_count()).value_or(0);
  }
  int64_t limit = 1;
  for (const auto& [name, held] : files) {
    if (held.first > 1) limit = std::max(limit, held.second);
  }
  return limit;
}

class PlanProver {
 public:
  PlanProver(const TwinManifest& manifest, const std::string& root) : manifest_(manifest), root_(root) {
    for (const ManifestFile& file : manifest.files) rows_of_[file.name] = &file;
    for (const std::string& name : manifest.companions) carried_.insert(CompanionInTwin(name));
  }

  std::vector<ProofRow> Run(const Model& twin) {
    const absl::StatusOr<ExportPlan> plan = PlanExport(twin, {.target = manifest_.target,
                                                              .memory = kNoBudget,
                                                              .threads = 1,
                                                              .shard_bytes = CutAt(manifest_),
                                                              .reference = HasReference(),
                                                              .opset = manifest_.opset,
                                                              .dtype = DTypeFromName(manifest_.computed_in)});
    if (!plan.ok()) {
      const Diagnostic d = DiagnosticOf(plan.status()).value_or(Diagnostic());
      Refuted("recipe", "layout", absl::StrCat("no forge would write this twin: ", d.place, ": ", d.message));
      return std::move(rows_);
    }
    CheckLayout(*plan);
    for (const OutputFile& file : plan->files) CheckTensorFile(file);
    for (const SmallFile& file : plan->small_files) CheckSmallFile(file);
    expected_.insert("README.md");
    CheckOthers();
    return std::move(rows_);
  }

 private:
  bool HasReference() const {
    return std::any_of(rows_of_.begin(), rows_of_.end(),
                       [](const auto& row) { return absl::StartsWith(row.first, kReferenceFolder); });
  }

  void Refuted(absl::string_view check, absl::string_view subject, std::string detail) {
    rows_.push_back({std::string(check), std::string(subject), Verdict::kRefuted, std::move(detail)});
  }

  void CheckLayout(const ExportPlan& plan) {
    if (plan.layout == manifest_.layout) {
      rows_.push_back({"recipe", "layout", Verdict::kProven, ""});
    } else {
      Refuted("recipe", "layout",
              absl::StrCat("the manifest says ", JsonQuoted(manifest_.layout, kQuoted),
                           ", a forge would take ", JsonQuoted(plan.layout, kQuoted)));
    }
  }

  // Its row, its tensors' rows and its header; the hash of the whole is taken where it is read.
  void CheckTensorFile(const OutputFile& file) {
    expected_.insert(file.name);
    for (const OutputTensor& tensor : file.tensors) {
      const ManifestTensor* said = manifest_.Find(tensor.name);
      if (said != nullptr && said->file != file.name) {
        Refuted("files", tensor.name,
                absl::StrCat("its row places it in ", JsonQuoted(said->file, kQuoted),
                             ", a forge would write it to ", file.name));
      }
    }
    const auto row = rows_of_.find(file.name);
    if (row == rows_of_.end())
      return Refuted("files", file.name, "a forge would write it, the manifest has no such file");
    if (row->second->bytes != file.bytes) {
      Refuted(
          "files", file.name,
          absl::StrCat("the manifest says ", row->second->bytes, " bytes, a forge would write ", file.bytes));
    }
    if (file.header.empty()) return;
    const absl::StatusOr<std::string> header = ReadHeaderBytes(absl::StrCat(root_, "/", file.name));
    if (header.ok() && *header != file.header)
      Refuted("files", file.name, "its header is not the one that a forge would write");
  }

  // config.json, generation_config.json and reference/ are held against graph and source by the structure.
  void CheckSmallFile(const SmallFile& file) {
    expected_.insert(file.name);
    if (rows_of_.count(file.name) == 0)
      return Refuted("files", file.name, "a forge would write it, the manifest has no such file");
    if (file.name != kIndexName && file.name != kOnnxModelName) return;
    const absl::StatusOr<std::string> there = ReadTextFile(absl::StrCat(root_, "/", file.name));
    if (!there.ok() || *there == file.content) return;  // one that is not there is found by its hash
    if (file.name == kOnnxModelName)
      return Refuted("files", file.name, "it is not the model that the graph gives");
    Refuted("files", file.name,
            absl::StrCat("it is not what a forge would write: ", DocumentDifference(*there, file.content)));
  }

  void CheckOthers() {
    for (const auto& [name, row] : rows_of_) {
      if (expected_.count(name) == 0 && carried_.count(name) == 0)
        Refuted("files", name, "the manifest lists it, and no forge of this source would write it");
    }
  }

  const TwinManifest& manifest_;
  const std::string& root_;
  std::map<std::string, const ManifestFile*> rows_of_;
  std::set<std::string> carried_;
  std::set<std::string> expected_;
  std::vector<ProofRow> rows_;
};

}  // namespace

std::vector<ProofRow> PlanAgain(const TwinManifest& manifest, const Model& twin, const std::string& root) {
  return PlanProver(manifest, root).Run(twin);
}

}  // namespace twinforge
