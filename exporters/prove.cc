#include "exporters/prove.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/file.h"
#include "base/json_reader.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "exporters/compare.h"
#include "exporters/difference.h"
#include "exporters/header.h"
#include "exporters/prove_files.h"
#include "exporters/prove_structure.h"
#include "exporters/reference_files.h"
#include "exporters/tensor_hash.h"
#include "ir/text.h"
#include "reference/onnx/write_onnx.h"
#include "weights/build.h"
#include "weights/text.h"

namespace twinforge {
namespace {

constexpr int64_t kHashBytes = 4 << 20;

std::string Sentence(const absl::Status& status) {
  std::optional<Diagnostic> d = DiagnosticOf(status);
  if (!d.has_value()) return std::string(status.message());
  return d->place.empty() ? d->message : absl::StrCat(d->place, ": ", d->message);
}

// The verdict of its rows, the worst of them first.
void Conclude(ProofReport& report) {
  report.verdict = Verdict::kProven;
  for (const ProofRow& row : report.rows) {
    if (row.verdict == Verdict::kRefuted) report.verdict = Verdict::kRefuted;
    if (row.verdict == Verdict::kIncomplete && report.verdict == Verdict::kProven)
      report.verdict = Verdict::kIncomplete;
  }
  auto rank = [](const ProofRow& row) {
    return row.verdict == Verdict::kRefuted ? 0 : row.verdict == Verdict::kIncomplete ? 1 : 2;
  };
  std::stable_sort(report.rows.begin(), report.rows.end(),
                   [&](const ProofRow& a, const ProofRow& b) { return rank(a) < rank(b); });
}

// The header that the manifest's rows describe: unforge writes this one.
std::string HeaderOf(const ManifestSourceFile& file) {
  if (!file.header.empty()) return file.header;
  std::vector<HeaderEntry> entries;
  for (const SourceTensor& tensor : file.tensors) {
    const Weight& source = *tensor.source;
    entries.push_back({tensor.name, source.dtype(), source.shape(),
                       FileBytes(source.dtype(), source.element_count()).value_or(0)});
  }
  return WriteHeader(entries, file.metadata);
}

// What each tensor of one file hashes to, as the file passes by from its beginning.
class PassingTensors {
 public:
  // Without one of these no tensor is expected. An importer found the header sound.
  absl::Status Expect(const std::string& path) {
    TWIN_ASSIGN_OR_RETURN(const std::string bytes, ReadHeaderBytes(path));
    TWIN_ASSIGN_OR_RETURN(ReadHeader header, ParseHeader(absl::string_view(bytes).substr(8), path));
    int64_t at = static_cast<int64_t>(bytes.size());
    for (const HeaderEntry& entry : header.entries) {
      entries_.push_back({entry.name, at, entry.bytes});
      at += entry.bytes;
    }
    return absl::OkStatus();
  }
  // The tensors of a file without a header, as a forge lays those of `graph`.
  void ExpectAligned(const Graph& graph) {
    for (const OnnxStoredWeight& weight : PlacedInOnnx(graph))
      entries_.push_back({weight.tensor.name, weight.offset, weight.bytes});
  }

  void Add(int64_t offset, const char* bytes, int64_t count) {
    const int64_t end = offset + count;
    while (next_ < entries_.size() && entries_[next_].at < end) {
      const Passing& tensor = entries_[next_];
      const int64_t from = std::max(tensor.at, offset), till = std::min(end, tensor.at + tensor.bytes);
      hash_.Add(bytes + (from - offset), till - from);
      if (till < tensor.at + tensor.bytes) return;
      hashes_[tensor.name] = hash_.Finish();
      ++next_;
    }
  }
  // Tensors without elements at the end of a file pass with its last byte.
  std::map<std::string, std::string> Finish() {
    while (next_ < entries_.size()) hashes_[entries_[next_++].name] = hash_.Finish();
    return std::move(hashes_);
  }

 private:
  struct Passing {
    std::string name;
    int64_t at = 0;  // where it begins
    int64_t bytes = 0;
  };
  std::vector<Passing> entries_;  // ascending
  size_t next_ = 0;
  TensorHash hash_;
  std::map<std::string, std::string> hashes_;
};

class Prover {
 public:
  Prover(const Model& source, const TwinManifest& manifest, const StoredTwin& stored,
         const ExportOptions& options, const std::function<void(const Progress&)>& progress)
      : source_(source), manifest_(manifest), stored_(stored), options_(options), progress_(progress) {}

  absl::StatusOr<ProofReport> Run();

 private:
  void Row(absl::string_view check, absl::string_view subject, Verdict verdict, std::string detail) {
    report_.rows.push_back({std::string(check), std::string(subject), verdict, std::move(detail)});
  }
  void Proven(absl::string_view check, absl::string_view subject, std::string detail = "") {
    Row(check, subject, Verdict::kProven, std::move(detail));
  }
  void Refuted(absl::string_view check, absl::string_view subject, std::string detail) {
    Row(check, subject, Verdict::kRefuted, std::move(detail));
  }

  void CheckHeaders();
  void CheckSourceRows();
  absl::Status CheckSourceTexts();
  absl::Status CheckCompanions();
  void CheckOrigins();
  absl::Status CheckFiles();
  absl::Status CheckFile(const ManifestFile& said, bool has_tensors);
  absl::StatusOr<std::string> HashFile(const ReadableFile& file, PassingTensors& tensors);
  void CheckTensorHashes(const std::string& file, const std::map<std::string, std::string>& hashes);
  void CheckStructure();
  absl::Status CheckForward();
  absl::Status CheckInverse();
  absl::Status ComparePairs(absl::string_view check, const std::vector<Comparison>& pairs,
                            const TensorReader& expected, const TensorReader& stored, int64_t* equal);
  void Advance(int64_t bytes);

  const Model& source_;
  const TwinManifest& manifest_;
  const StoredTwin& stored_;
  const ExportOptions& options_;
  const std::function<void(const Progress&)>& progress_;
  ProofReport report_;
  Progress done_;
  std::map<std::string, WeightPtr> source_nodes_;
  std::vector<LedgerRow> ledger_;
};

absl::StatusOr<ProofReport> Prover::Run() {
  for (const SourceTensor& tensor : source_.sources) source_nodes_[tensor.name] = tensor.source;
  for (const ManifestFile& file : manifest_.files) done_.bytes_total += 2 * file.bytes;
  for (const SourceFile& file : source_.files) done_.bytes_total += file.bytes;
  CheckHeaders();
  CheckSourceRows();
  TWIN_RETURN_IF_ERROR(CheckSourceTexts());
  TWIN_RETURN_IF_ERROR(CheckCompanions());
  TWIN_RETURN_IF_ERROR(CheckFiles());
  for (ProofRow& row : Strangers(manifest_, stored_.root)) report_.rows.push_back(std::move(row));
  CheckStructure();
  absl::Status stored = CheckStored(manifest_, stored_);
  if (!stored.ok()) {
    Refuted("files", "tensors", Sentence(stored));
  } else if (!source_.has_bytes()) {
    Row("forward", "source", Verdict::kIncomplete, "the source was opened from a config alone");
  } else {
    TWIN_RETURN_IF_ERROR(CheckForward());
    TWIN_RETURN_IF_ERROR(CheckInverse());
    TWIN_RETURN_IF_ERROR(source_.reader->CheckUnchanged());
    TWIN_RETURN_IF_ERROR(stored_.reader->CheckUnchanged());
  }
  Conclude(report_);
  return std::move(report_);
}

void Prover::CheckHeaders() {
  std::map<std::string, const SourceFile*> there;
  for (const SourceFile& file : source_.files) {
    if (!file.header_sha256.empty()) there[file.name] = &file;
  }
  for (const ManifestSourceFile& said : manifest_.source_files) {
    auto found = there.find(said.name);
    if (found == there.end()) {
      Refuted("headers", said.name, "the twin was made from this file, but the source has none of that name");
    } else if (found->second->header_sha256 != said.header_sha256 || found->second->bytes != said.bytes) {
      Refuted("headers", said.name, "its header or length is not the one that the twin was made from");
    } else if (Sha256Hex(HeaderOf(said)) != said.header_sha256) {
      Refuted("headers", said.name,
              "the header that the manifest describes, by metadata and order of tensors, is another");
    } else {
      Proven("headers", said.name);
    }
    there.erase(said.name);
  }
  for (const auto& [name, file] : there) Refuted("headers", name, "the source has it, the manifest does not");
}

// The rows of source tensors are what unforge goes by: they are the source's own.
void Prover::CheckSourceRows() {
  std::map<std::string, const SourceTensor*> there;
  for (const SourceTensor& tensor : source_.sources) {
    if (!IsOfAdapter(tensor.name)) there[tensor.name] = &tensor;
  }
  for (const ManifestSourceFile& file : manifest_.source_files) {
    for (const SourceTensor& said : file.tensors) {
      auto found = there.find(said.name);
      if (found == there.end()) {
        Refuted("headers", said.name, "the manifest names it, the source does not have it");
        continue;
      }
      const SourceTensor& tensor = *found->second;
      if (tensor.source != said.source || tensor.file != said.file || tensor.ignored != said.ignored) {
        Refuted("headers", said.name,
                absl::StrCat("the manifest says ", Text(said.source), " in ", said.file, ", the source has ",
                             Text(tensor.source), " in ", tensor.file));
      }
      there.erase(found);
    }
  }
  for (const auto& [name, tensor] : there)
    Refuted("headers", name, "the manifest does not name this source tensor");
}

// config.json and the like as they were, which unforge writes back.
absl::Status Prover::CheckSourceTexts() {
  if (source_.root.empty()) return absl::OkStatus();
  std::map<std::string, const SmallFile*> said;
  for (const SmallFile& text : manifest_.source_texts) {
    if (!said.emplace(text.name, &text).second)
      Refuted("headers", text.name, "the manifest keeps two texts of it");
    if (std::find(std::begin(kSourceTexts), std::end(kSourceTexts), text.name) == std::end(kSourceTexts))
      Refuted("headers", text.name, "the manifest keeps it, and a forge keeps no text of this name");
  }
  for (absl::string_view kept : kSourceTexts) said.emplace(kept, nullptr);
  for (const auto& [name, text] : said) {
    absl::StatusOr<std::string> there = ReadTextFile(absl::StrCat(source_.root, "/", name));
    if (!there.ok() && text == nullptr) continue;
    if (text == nullptr) {
      Refuted("headers", name, "the source has it, the manifest does not keep it");
    } else if (!there.ok()) {
      Refuted("headers", name, Sentence(there.status()));
    } else if (*there != text->content) {
      Refuted("headers", name,
              absl::StrCat("the manifest keeps another text than the source has: ",
                           DocumentDifference(text->content, *there)));
    } else {
      Proven("headers", name);
    }
  }
  return absl::OkStatus();
}

// Files that the manifest calls the source's own are.
absl::Status Prover::CheckCompanions() {
  if (source_.root.empty()) return absl::OkStatus();
  std::map<std::string, std::string> hashes;
  for (const ManifestFile& file : manifest_.files) hashes[file.name] = file.sha256;
  for (const std::string& name : manifest_.companions) {
    absl::StatusOr<std::unique_ptr<ReadableFile>> file =
        ReadableFile::Open(absl::StrCat(source_.root, "/", name));
    if (!file.ok()) {
      Refuted("headers", name, Sentence(file.status()));
      continue;
    }
    PassingTensors none;
    TWIN_ASSIGN_OR_RETURN(std::string sha256, HashFile(**file, none));
    if (hashes[CompanionInTwin(name)] != sha256)
      Refuted("headers", name, "the twin carries another file of this name");
  }
  CheckOrigins();
  return absl::OkStatus();
}

// Every file of the twin is its own, or one that the source had.
void Prover::CheckOrigins() {
  std::set<std::string> known = {"README.md"};
  for (absl::string_view name : kSourceTexts) known.emplace(name);
  for (const ManifestTensor& tensor : manifest_.tensors) known.insert(tensor.file);
  for (const std::string& name : manifest_.companions) known.insert(CompanionInTwin(name));
  if (manifest_.target == Target::kOnnx)
    known.insert(kOnnxModelName);  // written anew where recipes are known
  for (const ManifestFile& file : manifest_.files) {
    if (absl::StartsWith(file.name, kReferenceFolder)) continue;  // held against the graph by the structure
    if (known.count(file.name) == 0)
      Refuted("files", file.name, "the manifest lists it, and no tensor or companion of the source is in it");
  }
}

absl::StatusOr<std::string> Prover::HashFile(const ReadableFile& file, PassingTensors& tensors) {
  Sha256 sha;
  std::string piece(std::min(kHashBytes, file.size()), '\0');
  for (int64_t at = 0; at < file.size(); at += kHashBytes) {
    int64_t count = std::min(kHashBytes, file.size() - at);
    TWIN_RETURN_IF_ERROR(file.ReadAt(at, count, reinterpret_cast<std::byte*>(piece.data())));
    sha.Add(piece.data(), count);
    tensors.Add(at, piece.data(), count);
    Advance(count);
  }
  return sha.Finish();
}

absl::Status Prover::CheckFiles() {
  std::set<std::string> listed, with_tensors;
  for (const ManifestTensor& tensor : manifest_.tensors) with_tensors.insert(tensor.file);
  for (const ManifestFile& said : manifest_.files) {
    listed.insert(said.name);
    TWIN_RETURN_IF_ERROR(CheckFile(said, with_tensors.count(said.name) > 0));
  }
  for (const SourceTensor& tensor : stored_.tensors) {
    if (listed.insert(tensor.file).second)
      Refuted("files", tensor.file, "the manifest does not list this file");
  }
  return absl::OkStatus();
}

absl::Status Prover::CheckFile(const ManifestFile& said, bool has_tensors) {
  const std::string path = absl::StrCat(stored_.root, "/", said.name);
  absl::StatusOr<std::unique_ptr<ReadableFile>> file = ReadableFile::Open(path);
  if (!file.ok()) {
    Refuted("files", said.name, Sentence(file.status()));
    return absl::OkStatus();
  }
  if ((*file)->size() != said.bytes) {
    Refuted("files", said.name,
            absl::StrCat("it has ", (*file)->size(), " bytes, the manifest says ", said.bytes));
    return absl::OkStatus();
  }
  PassingTensors tensors;
  const bool aligned = has_tensors && manifest_.target == Target::kOnnx;
  if (aligned) {
    const absl::StatusOr<Graph> graph = ParseGraph(manifest_.graph);  // refuted by the structure
    if (graph.ok()) tensors.ExpectAligned(*graph);
  }
  if (const absl::Status sound = has_tensors && !aligned ? tensors.Expect(path) : absl::OkStatus();
      !sound.ok()) {
    if (ExitCodeOf(sound) == ExitCode::kTransient) return sound;
    Refuted("files", said.name, absl::StrCat("rows of tensors place them there, and ", Sentence(sound)));
    return absl::OkStatus();
  }
  TWIN_ASSIGN_OR_RETURN(std::string sha256, HashFile(**file, tensors));
  CheckTensorHashes(said.name, tensors.Finish());
  if (sha256 == said.sha256) {
    Proven("files", said.name);
  } else {
    Refuted("files", said.name, absl::StrCat("its sha256 is ", sha256, ", the manifest says ", said.sha256));
  }
  return absl::OkStatus();
}

// The rows of `file`'s tensors name that file and their own bytes.
void Prover::CheckTensorHashes(const std::string& file, const std::map<std::string, std::string>& hashes) {
  for (const auto& [name, xxh3] : hashes) {
    const ManifestTensor* said = manifest_.Find(name);
    if (said == nullptr) continue;  // refuted by CheckStored
    if (said->file != file) {
      Refuted("files", name,
              absl::StrCat("its row places it in ", JsonQuoted(said->file, 200), ", it lies in ", file));
    } else if (said->xxh3 != xxh3) {
      Refuted("files", name, absl::StrCat("its xxh3 is ", xxh3, ", its row says ", said->xxh3));
    }
  }
}

void Prover::CheckStructure() {
  std::vector<NamedProgram> programs;
  for (const ManifestTensor& tensor : manifest_.tensors) programs.push_back({tensor.name, tensor.program});
  std::vector<WeightPtr> sources;
  for (const SourceTensor& tensor : source_.sources) sources.push_back(tensor.source);
  ledger_ = Invert(programs, sources);
  for (ProofRow& row : ProveStructure({source_, manifest_, stored_.root, ledger_}))
    report_.rows.push_back(std::move(row));
}

// ---- bytes

absl::Status Prover::ComparePairs(absl::string_view check, const std::vector<Comparison>& pairs,
                                  const TensorReader& expected, const TensorReader& stored, int64_t* equal) {
  CompareRequest request{pairs, expected, stored, options_};
  TWIN_ASSIGN_OR_RETURN(std::vector<std::string> found,
                        Compare(request, [this](int64_t bytes) { Advance(bytes); }));
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (found[i].empty()) {
      ++*equal;
      Proven(check, pairs[i].name);
    } else {
      Refuted(check, pairs[i].name, std::move(found[i]));
    }
  }
  return absl::OkStatus();
}

absl::Status Prover::CheckForward() {
  std::vector<Comparison> pairs;
  for (const ManifestTensor& tensor : manifest_.tensors) {
    bool readable = true, adapted = false;
    for (const auto& [name, as] : SourceNodesOf(tensor.program)) {
      auto found = source_nodes_.find(name);
      const bool there = found != source_nodes_.end() && found->second == as;
      readable = readable && there;
      adapted = adapted || (!there && IsOfAdapter(name));
    }
    if (adapted)
      Row("forward", tensor.name, Verdict::kIncomplete, "the adapter that it holds is not at hand");
    if (!readable) continue;  // else refuted by ProveStructure
    WeightPtr stored = Source(tensor.name, tensor.program->dtype(), tensor.program->shape());
    pairs.push_back({tensor.name, tensor.program, std::move(stored)});
  }
  return ComparePairs("forward", pairs, *source_.reader, *stored_.reader, &report_.tensors_forward);
}

absl::Status Prover::CheckInverse() {
  std::vector<Comparison> pairs;
  for (const LedgerRow& row : ledger_) {
    if (row.fate != Fate::kMoved || row.inverse == nullptr) continue;
    pairs.push_back({row.source, row.inverse, source_nodes_[row.source]});
  }
  return ComparePairs("inverse", pairs, *stored_.reader, *source_.reader, &report_.tensors_inverse);
}

void Prover::Advance(int64_t bytes) {
  report_.bytes_checked += bytes;
  done_.bytes_done = std::min(done_.bytes_done + bytes, done_.bytes_total);
  if (progress_) progress_(done_);
}

}  // namespace

absl::string_view VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kProven:
      return "PROVEN";
    case Verdict::kRefuted:
      return "REFUTED";
    case Verdict::kIncomplete:
      return "INCOMPLETE";
  }
  return "";
}

void AddProofRow(ProofRow row, ProofReport& report) {
  report.rows.push_back(std::move(row));
  Conclude(report);
}

absl::StatusOr<ProofReport> Prove(const Model& source, const TwinManifest& manifest, const StoredTwin& stored,
                                  const ExportOptions& options,
                                  const std::function<void(const Progress&)>& progress) {
  return Prover(source, manifest, stored, options, progress).Run();
}

}  // namespace twinforge
