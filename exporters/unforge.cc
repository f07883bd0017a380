#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/diagnostic.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "exporters/plan_parts.h"
#include "exporters/publish.h"
#include "exporters/twin.h"
#include "ir/foreign_file.h"

namespace twinforge {
namespace {

constexpr char kIndexName[] = "model.safetensors.index.json";

struct Homeward {
  std::map<std::string, const LedgerRow*> rows;  // by source tensor
  int64_t rescaled = 0;
  int64_t rounded = 0;
  std::vector<std::string> missing;
};

// What to do about a source that no longer can be told apart, with the steps that may have done it.
std::string WayHome(const std::vector<std::string>& steps) {
  std::string hint =
      "take the source checkpoint itself, or forge a twin without the step that folded it: --skip-step";
  if (!steps.empty()) absl::StrAppend(&hint, "; this twin's steps: ", absl::StrJoin(steps, "; "));
  return hint;
}

// Which sources can come back, and which only roughly; one that can't is refused.
absl::StatusOr<Homeward> Judge(const TwinManifest& manifest, const std::vector<LedgerRow>& ledger,
                               const std::vector<SourceTensor>& sources) {
  Homeward home;
  const LedgerRow* lost = nullptr;
  int64_t count = 0;
  for (size_t i = 0; i < ledger.size(); ++i) {
    const LedgerRow& row = ledger[i];
    switch (row.fate) {
      case Fate::kRescaled:
        ++home.rescaled;
        break;
      case Fate::kRounded:
        ++home.rounded;
        break;
      case Fate::kMoved:
        break;
      case Fate::kUnused:
        if (!sources[i].ignored.empty()) {
          home.missing.push_back(row.source);
          continue;
        }
        [[fallthrough]];
      case Fate::kPartial:
      case Fate::kConsumed:
        if (count++ == 0) lost = &row;
        continue;
    }
    home.rows[row.source] = &row;
  }
  if (lost == nullptr) return home;
  return Error(
      1802, lost->source,
      absl::StrCat("it cannot be turned back: ", lost->reason.empty() ? FateName(lost->fate) : lost->reason,
                   count > 1 ? absl::StrCat("; so it is with ", count - 1, " more") : ""),
      WayHome(manifest.provenance.steps));
}

absl::StatusOr<OutputFile> FileBack(const ManifestSourceFile& source, const Homeward& home) {
  OutputFile file{.name = source.name};
  std::vector<HeaderEntry> entries;
  int64_t offset = 0;
  for (const SourceTensor& tensor : source.tensors) {
    auto row = home.rows.find(tensor.name);
    if (row == home.rows.end()) continue;
    int64_t bytes = *FileBytes(tensor.source->dtype(), tensor.source->element_count());
    entries.push_back({tensor.name, tensor.source->dtype(), tensor.source->shape(), bytes});
    file.tensors.push_back({tensor.name, row->second->inverse, {}, offset, bytes});
    offset += bytes;
  }
  bool whole = entries.size() == source.tensors.size();
  file.header = whole && !source.header.empty() ? source.header : WriteHeader(entries, source.metadata);
  file.bytes = static_cast<int64_t>(file.header.size()) + offset;
  if (whole && Sha256Hex(file.header) != source.header_sha256) {
    return Error(1801, source.name,
                 "the header that the manifest describes is not the one whose hash it gives",
                 "fetch or forge this twin again");
  }
  return file;
}

void AddTexts(const TwinManifest& manifest, const Homeward& home, ExportPlan& plan) {
  for (const SmallFile& text : manifest.source_texts) {
    // An index must name what is there.
    bool stale = text.name == kIndexName && !home.missing.empty();
    plan.small_files.push_back({text.name, stale ? IndexText(plan.files) : text.content});
  }
  for (const std::string& name : manifest.companions) {
    const auto is_text = [&](const SmallFile& text) { return text.name == name; };
    if (std::none_of(plan.small_files.begin(), plan.small_files.end(), is_text))
      plan.companions.push_back({CompanionInTwin(name), name});
  }
}

void Warn(const Homeward& home, ExportPlan& plan) {
  if (home.rescaled > 0) {
    plan.warnings.push_back(
        absl::StrCat(home.rescaled, " tensors were rescaled and come back within rounding, not bit for bit"));
  }
  if (home.rounded > 0) {
    plan.warnings.push_back(
        absl::StrCat(home.rounded, " tensors were rounded by a cast and come back as rounded"));
  }
  if (home.missing.empty()) return;
  plan.warnings.push_back(
      absl::StrCat(home.missing.front(),
                   home.missing.size() > 1 ? absl::StrCat(" and ", home.missing.size() - 1, " more") : "",
                   " of the source are not in the twin, since the model does not use them"));
}

}  // namespace

absl::StatusOr<ExportPlan> PlanUnforge(const TwinManifest& manifest, const StoredTwin& stored,
                                       const ExportOptions& options) {
  TWIN_RETURN_IF_ERROR(CheckStored(manifest, stored));
  std::vector<NamedProgram> programs;
  for (const ManifestTensor& tensor : manifest.tensors) programs.push_back({tensor.name, tensor.program});
  std::vector<SourceTensor> sources;
  for (const ManifestSourceFile& file : manifest.source_files) {
    if (IsForeignHeader(file.header)) {
      return Error(1802, file.name, "the twin was made from an ONNX file, which is more than its tensors",
                   "keep the file itself");
    }
    sources.insert(sources.end(), file.tensors.begin(), file.tensors.end());
  }
  std::vector<WeightPtr> nodes;
  for (const SourceTensor& tensor : sources) nodes.push_back(tensor.source);
  ExportPlan plan;
  plan.target = Target::kHf;
  plan.ledger = Invert(programs, nodes);
  TWIN_ASSIGN_OR_RETURN(Homeward home, Judge(manifest, plan.ledger, sources));
  for (const ManifestSourceFile& source : manifest.source_files) {
    TWIN_ASSIGN_OR_RETURN(OutputFile file, FileBack(source, home));
    if (file.tensors.empty() && !source.tensors.empty()) continue;
    for (const OutputTensor& tensor : file.tensors) plan.bytes_out += tensor.bytes;
    plan.files.push_back(std::move(file));
  }
  AddTexts(manifest, home, plan);
  Warn(home, plan);
  TWIN_RETURN_IF_ERROR(PlanMemory(static_cast<int64_t>(manifest.tensors.size()), options, plan));
  std::vector<SourceFile> files;
  for (const ManifestFile& file : manifest.files) files.push_back({file.name, file.bytes, file.sha256});
  plan.digest = DigestOf(plan, files);
  return plan;
}

absl::StatusOr<ExportResult> Unforge(const StoredTwin& stored, const ExportPlan& plan,
                                     const ExportOptions& options, const std::string& out,
                                     const std::function<void(const Progress&)>& progress) {
  PublishRequest request{
      .plan = plan, .options = options, .root = stored.root, .reader = *stored.reader, .out = out};
  return WriteAndPublish(request, progress);
}

}  // namespace twinforge
