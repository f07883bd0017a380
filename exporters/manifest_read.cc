#include <google/protobuf/text_format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/diagnostic.h"
#include "base/file.h"
#include "base/first_mistake.h"
#include "base/json_reader.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "exporters/manifest.h"
#include "exporters/manifest.pb.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "reference/onnx/write_onnx.h"
#include "weights/build.h"
#include "weights/text.h"

namespace twinforge {
namespace {

constexpr absl::string_view kSealKey = "manifest_sha256: \"";
constexpr int64_t kLargestManifest = int64_t{1} << 30;
constexpr int64_t kMostShards = 4096;

bool IsHash(absl::string_view text, size_t digits = 64) {
  return text.size() == digits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::string Sentence(const absl::Status& status) {
  const std::optional<Diagnostic> d = DiagnosticOf(status);
  if (!d.has_value()) return std::string(status.message());
  return d->place.empty() ? d->message : absl::StrCat(d->place, ": ", d->message);
}

// A file inside the folder: relative, without . or .. and without bytes that a terminal obeys.
bool IsInside(absl::string_view name) {
  if (name.empty() || name.size() > 4096) return false;
  for (char c : name) {
    if (static_cast<unsigned char>(c) < 0x20 || c == '\\' || c == 0x7f) return false;
  }
  for (absl::string_view part : absl::StrSplit(name, '/')) {
    if (part.empty() || part == "." || part == "..") return false;
  }
  return true;
}

class Reader {
 public:
  Reader(absl::string_view text, absl::string_view place) : text_(text), place_(place) {}

  absl::StatusOr<TwinManifest> Run() {
    TWIN_RETURN_IF_ERROR(CheckSeal());
    TWIN_RETURN_IF_ERROR(Parse());
    TWIN_RETURN_IF_ERROR(ReadHead());
    TWIN_RETURN_IF_ERROR(ReadSource());
    TWIN_RETURN_IF_ERROR(ReadFiles());
    TWIN_RETURN_IF_ERROR(ReadTensors());
    TWIN_RETURN_IF_ERROR(CheckSources());
    TWIN_RETURN_IF_ERROR(ReadLedger());
    TWIN_RETURN_IF_ERROR(CheckGraphs());
    return std::move(manifest_);
  }

 private:
  absl::Status Fail(absl::string_view message) const {
    return Error(1801, place_, message, "fetch or forge this twin again");
  }

  absl::Status CheckSeal() {
    size_t end = text_.size();
    size_t start = end < 2 ? absl::string_view::npos : text_.rfind('\n', end - 2);
    start = start == absl::string_view::npos ? 0 : start + 1;
    absl::string_view last = text_.substr(start);
    if (!absl::StartsWith(last, kSealKey) || last.size() != kSealKey.size() + 66) {
      return Fail("it does not end with its own hash");
    }
    if (last.substr(kSealKey.size(), 64) != Sha256Hex(text_.substr(0, start))) {
      return Fail("its bytes are not those that its last line hashes: it was changed or cut");
    }
    return absl::OkStatus();
  }

  absl::Status Parse() {
    FirstMistake mistake;
    google::protobuf::TextFormat::Parser parser;
    parser.RecordErrorsTo(&mistake);
    if (!parser.ParseFromString(std::string(text_), &proto_))
      return Fail(absl::StrCat(mistake.place(), ": ", mistake.message()));
    return absl::OkStatus();
  }

  absl::Status ReadOnnxHead() {
    manifest_.computed_in = proto_.computed_in();
    const bool onnx = manifest_.target == Target::kOnnx;
    const bool known = proto_.opset() >= kOldestOnnxOpset && proto_.opset() <= kNewestOnnxOpset &&
                       DTypeFromName(manifest_.computed_in);
    if (onnx ? !known : proto_.opset() != 0)
      return Fail("its operator set is not one that is written, or the type that it computes in is none");
    manifest_.opset = static_cast<int>(proto_.opset());
    return absl::OkStatus();
  }

  absl::Status ReadHead() {
    if (proto_.schema() != "twinforge.manifest.v1") return Fail("it is not of schema twinforge.manifest.v1");
    const std::optional<Target> target = TargetFromName(proto_.target());
    if (!target) return Fail("its target is none of hf, twin and onnx");
    manifest_.target = *target;
    TWIN_RETURN_IF_ERROR(ReadOnnxHead());
    manifest_.tool_version = proto_.tool_version();
    manifest_.layout = proto_.layout();
    manifest_.family = proto_.family();
    manifest_.model_type = proto_.model_type();
    Provenance& from = manifest_.provenance;
    from.recipe_name = proto_.recipe_name();
    from.recipe_text = Joined(proto_.recipe());
    from.fidelity = proto_.fidelity();
    from.bound = proto_.bound();
    from.chip = proto_.chip();
    from.shards = proto_.shards();
    if (from.shards < 1 || from.shards > kMostShards) return Fail("it is for an impossible number of shards");
    from.kernel = proto_.kernel();
    from.skipped.assign(proto_.skipped().begin(), proto_.skipped().end());
    from.steps.assign(proto_.steps().begin(), proto_.steps().end());
    from.source_graph = Joined(proto_.source_graph());
    manifest_.graph = Joined(proto_.graph());
    return absl::OkStatus();
  }

  // A text that no graph has is damage to the manifest, whoever reads it.
  absl::Status CheckGraph(absl::string_view name, absl::string_view text) const {
    absl::StatusOr<Graph> graph = ParseGraph(text);
    const absl::Status status = graph.ok() ? Verify(*graph) : graph.status();
    return status.ok() ? status : Fail(absl::StrCat(name, ": ", Sentence(status)));
  }

  absl::Status CheckGraphs() const {
    TWIN_RETURN_IF_ERROR(CheckGraph("graph", manifest_.graph));
    if (manifest_.provenance.source_graph.empty()) return absl::OkStatus();
    return CheckGraph("source_graph", manifest_.provenance.source_graph);
  }

  template <typename Lines>
  static std::string Joined(const Lines& lines) {
    std::string text;
    for (const std::string& line : lines) absl::StrAppend(&text, line, "\n");
    return text;
  }

  absl::Status ReadSource() {
    std::map<std::string, size_t> at;
    for (const ManifestProto::SourceFile& row : proto_.source_files()) {
      ManifestSourceFile file{.name = row.name(), .bytes = row.bytes(), .header_sha256 = row.header_sha256()};
      if (!IsInside(file.name) || !IsHash(file.header_sha256) || file.bytes < 0) {
        return Fail(
            absl::StrCat("source file number ", at.size() + 1, " has no possible name, length or hash"));
      }
      for (const auto& entry : row.metadata()) file.metadata.emplace_back(entry.key(), entry.value());
      file.header = row.header();
      if (!at.emplace(file.name, at.size()).second) return Fail("it names one source file twice");
      manifest_.source_files.push_back(std::move(file));
    }
    std::set<std::string> names;
    for (const ManifestProto::SourceTensor& row : proto_.source_tensors()) {
      auto file = at.find(row.file());
      std::optional<DType> dtype = DTypeFromSafetensors(row.dtype());
      Shape shape(row.shape().begin(), row.shape().end());
      std::optional<int64_t> count = CheckedElementCount(shape);
      if (file == at.end() || !dtype.has_value() || !count.has_value() ||
          !FileBytes(*dtype, *count).has_value() || !names.insert(row.name()).second) {
        return Fail(absl::StrCat("the row of source tensor number ", names.size(), " is impossible"));
      }
      manifest_.source_files[file->second].tensors.push_back(
          {row.name(), row.file(), Source(row.name(), *dtype, shape), row.ignored()});
    }
    for (const ManifestProto::Text& row : proto_.source_texts()) {
      if (!IsInside(row.name())) return Fail("a source text has a name outside the folder");
      manifest_.source_texts.push_back({row.name(), row.content()});
    }
    for (const std::string& name : proto_.companions()) {
      if (!IsInside(name)) return Fail("a companion has a name outside the folder");
      manifest_.companions.push_back(name);
    }
    return absl::OkStatus();
  }

  absl::Status ReadFiles() {
    for (const ManifestProto::File& row : proto_.files()) {
      if (!IsInside(row.name()) || !IsHash(row.sha256()) || row.bytes() < 0 || row.name() == kManifestName ||
          !files_.insert(row.name()).second) {
        return Fail(absl::StrCat("the row of file number ", files_.size(), " is impossible"));
      }
      manifest_.files.push_back({row.name(), row.bytes(), row.sha256()});
    }
    for (const std::string& name : manifest_.companions) {
      if (files_.count(CompanionInTwin(name)) == 0)
        return Fail(absl::StrCat("the companion ", JsonQuoted(name, 200), " is none of its files"));
    }
    return absl::OkStatus();
  }

  absl::Status ReadTensors() {
    std::set<std::string> names;
    for (const ManifestProto::Tensor& row : proto_.tensors()) {
      if (!IsHash(row.xxh3(), 32) || files_.count(row.file()) == 0 || !names.insert(row.name()).second) {
        return Fail(absl::StrCat("the row of tensor number ", names.size(), " is impossible"));
      }
      absl::StatusOr<WeightPtr> program = ParseWeight(row.program());
      if (!program.ok())
        return Fail(absl::StrCat(JsonQuoted(row.name(), 200), ": ", Sentence(program.status())));
      if (!FileBytes((*program)->dtype(), (*program)->element_count()).has_value()) {
        return Fail(absl::StrCat(JsonQuoted(row.name(), 200), " does not fill whole bytes"));
      }
      manifest_.tensors.push_back({row.name(),
                                   row.file(),
                                   row.xxh3(),
                                   *std::move(program),
                                   {row.roles().begin(), row.roles().end()}});
    }
    std::sort(manifest_.tensors.begin(), manifest_.tensors.end(),
              [](const ManifestTensor& a, const ManifestTensor& b) { return a.name < b.name; });
    return absl::OkStatus();
  }

  // A program reads a source tensor as the row of that tensor says it is.
  absl::Status CheckSources() const {
    absl::flat_hash_map<absl::string_view, const Weight*> rows;
    for (const ManifestSourceFile& file : manifest_.source_files) {
      for (const SourceTensor& tensor : file.tensors) rows[tensor.name] = tensor.source.get();
    }
    absl::flat_hash_set<const Weight*> seen;
    for (const ManifestTensor& tensor : manifest_.tensors) {
      TWIN_RETURN_IF_ERROR(CheckSourcesOf(*tensor.program, rows, seen));
    }
    return absl::OkStatus();
  }

  absl::Status CheckSourcesOf(const Weight& program,
                              const absl::flat_hash_map<absl::string_view, const Weight*>& rows,
                              absl::flat_hash_set<const Weight*>& seen) const {
    if (!seen.insert(&program).second) return absl::OkStatus();
    for (const WeightPtr& child : program.children()) {
      TWIN_RETURN_IF_ERROR(CheckSourcesOf(*child, rows, seen));
    }
    const auto check = [&](const Weight& source) {
      const auto row = rows.find(source.source_name());
      if (row == rows.end() || row->second == &source) return absl::OkStatus();
      return Fail(absl::StrCat("source tensor ", JsonQuoted(source.source_name(), 200), " is ",
                               Name(row->second->dtype()), ShapeText(row->second->shape()),
                               " in its row and ", Name(source.dtype()), ShapeText(source.shape()),
                               " in a program"));
    };
    if (program.kind() == WeightKind::kSource) return check(program);
    if (program.kind() != WeightKind::kStack) return absl::OkStatus();
    if (program.shape()[0] > static_cast<int64_t>(rows.size())) {
      return Fail("a program stacks more tensors than the source has");
    }
    for (int64_t i = 0; i < program.shape()[0]; ++i) {
      TWIN_RETURN_IF_ERROR(check(*StackMember(program, i)));
    }
    return absl::OkStatus();
  }

  absl::Status ReadLedger() {
    for (const ManifestProto::Row& row : proto_.ledger()) {
      LedgerRow said{.source = row.source(), .reason = row.reason()};
      bool known = false;
      for (Fate fate :
           {Fate::kMoved, Fate::kRescaled, Fate::kRounded, Fate::kPartial, Fate::kConsumed, Fate::kUnused}) {
        if (FateName(fate) != row.fate()) continue;
        said.fate = fate;
        known = true;
      }
      if (!known) return Fail("the ledger has a fate that is none");
      said.consumers.assign(row.consumers().begin(), row.consumers().end());
      manifest_.ledger.push_back(std::move(said));
    }
    return absl::OkStatus();
  }

  absl::string_view text_;
  std::string place_;
  ManifestProto proto_;
  TwinManifest manifest_;
  std::set<std::string> files_;
};

}  // namespace

std::string CompanionInTwin(absl::string_view source_name) {
  return source_name == "README.md" ? "README.source.md" : std::string(source_name);
}

const ManifestTensor* TwinManifest::Find(absl::string_view name) const {
  auto at =
      std::lower_bound(tensors.begin(), tensors.end(), name,
                       [](const ManifestTensor& tensor, absl::string_view n) { return tensor.name < n; });
  return at != tensors.end() && at->name == name ? &*at : nullptr;
}

absl::StatusOr<TwinManifest> ParseManifest(absl::string_view text, absl::string_view place) {
  return Reader(text, place).Run();
}

absl::StatusOr<TwinManifest> ReadManifest(const std::string& folder) {
  std::string path = absl::StrCat(folder, "/", kManifestName);
  TWIN_ASSIGN_OR_RETURN(std::string text, ReadTextFile(path, kLargestManifest));
  return ParseManifest(text, path);
}

}  // namespace twinforge
