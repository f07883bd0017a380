#include "exporters/prove.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "exporters/compare.h"
#include "ir/text.h"
#include "ir/verify.h"
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

// Stored tensors that a program reads, as it expects them.
void CollectSources(const WeightPtr& program, std::map<std::string, WeightPtr>& found) {
  if (program->kind() == WeightKind::kSource) found.emplace(program->source_name(), program);
  for (int64_t i = 0; program->kind() == WeightKind::kStack && i < program->shape()[0]; ++i) {
    const WeightPtr member = StackMember(*program, i);
    found.emplace(member->source_name(), member);
  }
  for (const WeightPtr& child : program->children()) CollectSources(child, found);
}

bool IsOfAdapter(const std::string& name) { return name.rfind("adapter/", 0) == 0; }

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
  absl::Status CheckFiles();
  absl::StatusOr<std::string> HashFile(const ReadableFile& file);
  void CheckStrangers();
  void CheckClaims();
  void CheckStructure();
  void CheckPrograms(const Graph& graph);
  absl::StatusOr<std::vector<NamedProgram>> ProgramsOfGraph(const Graph& graph);
  void CheckConfig(const Graph& graph);
  void CheckLedger();
  absl::Status CheckForward();
  absl::Status CheckInverse();
  absl::Status ComparePairs(absl::string_view check, const std::vector<Comparison>& pairs,
                            const TensorReader& expected, const TensorReader& stored, int64_t* equal);
  const Layout* FindLayout() const;
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
  CheckStrangers();
  CheckStructure();
  CheckLedger();
  CheckClaims();
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
  for (const SmallFile& text : manifest_.source_texts) said[text.name] = &text;
  for (absl::string_view kept : kSourceTexts) said.emplace(kept, nullptr);
  for (const auto& [name, text] : said) {
    absl::StatusOr<std::string> there = ReadTextFile(absl::StrCat(source_.root, "/", name));
    if (!there.ok() && text == nullptr) continue;
    if (text == nullptr) {
      Refuted("headers", name, "the source has it, the manifest does not keep it");
    } else if (!there.ok()) {
      Refuted("headers", name, Sentence(there.status()));
    } else if (*there != text->content) {
      Refuted("headers", name, "the manifest keeps another text than the source has");
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
    TWIN_ASSIGN_OR_RETURN(std::string sha256, HashFile(**file));
    if (hashes[CompanionInTwin(name)] != sha256)
      Refuted("headers", name, "the twin carries another file of this name");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Prover::HashFile(const ReadableFile& file) {
  Sha256 sha;
  std::string piece(std::min(kHashBytes, file.size()), '\0');
  for (int64_t at = 0; at < file.size(); at += kHashBytes) {
    int64_t count = std::min(kHashBytes, file.size() - at);
    TWIN_RETURN_IF_ERROR(file.ReadAt(at, count, reinterpret_cast<std::byte*>(piece.data())));
    sha.Add(piece.data(), count);
    Advance(count);
  }
  return sha.Finish();
}

absl::Status Prover::CheckFiles() {
  std::set<std::string> listed;
  for (const ManifestFile& said : manifest_.files) {
    listed.insert(said.name);
    absl::StatusOr<std::unique_ptr<ReadableFile>> file =
        ReadableFile::Open(absl::StrCat(stored_.root, "/", said.name));
    if (!file.ok()) {
      Refuted("files", said.name, Sentence(file.status()));
      continue;
    }
    if ((*file)->size() != said.bytes) {
      Refuted("files", said.name,
              absl::StrCat("it has ", (*file)->size(), " bytes, the manifest says ", said.bytes));
      continue;
    }
    TWIN_ASSIGN_OR_RETURN(std::string sha256, HashFile(**file));
    if (sha256 == said.sha256) {
      Proven("files", said.name);
    } else {
      Refuted("files", said.name,
              absl::StrCat("its sha256 is ", sha256, ", the manifest says ", said.sha256));
    }
  }
  for (const SourceTensor& tensor : stored_.tensors) {
    if (listed.insert(tensor.file).second)
      Refuted("files", tensor.file, "the manifest does not list this file");
  }
  return absl::OkStatus();
}

// Files beside the twin's that a loader may prefer to them.
void Prover::CheckStrangers() {
  std::set<std::string> known = {kManifestName};
  for (const ManifestFile& file : manifest_.files) known.insert(file.name);
  std::set<std::string> strangers;
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(stored_.root, failed)) {
    const std::string name = entry.path().filename().string();
    const std::string ending = entry.path().extension().string();
    static const std::set<std::string> kWeights = {".safetensors", ".bin", ".pt",      ".pth",
                                                   ".gguf",        ".h5",  ".msgpack", ".json"};
    if (kWeights.count(ending) > 0 && known.count(name) == 0) strangers.insert(name);
  }
  for (const std::string& name : strangers) {
    Refuted("files", name, "it is not in the manifest, and a loader may take it for part of the model");
  }
}

// ---- structure

// What the manifest says of the twin as a whole follows from its tensors.
void Prover::CheckClaims() {
  if (manifest_.family != source_.family || manifest_.model_type != source_.model_type) {
    Refuted("structure", "family",
            absl::StrCat("the manifest says ", manifest_.family, " (", manifest_.model_type,
                         "), the source is ", source_.family, " (", source_.model_type, ")"));
  }
  const std::string& claim = manifest_.provenance.fidelity;
  if (claim != "MOVED" && claim != "REASSOCIATED" && claim != "BOUNDED" && claim != "RETRAIN") {
    return Refuted("structure", "fidelity", absl::StrCat("\"", claim, "\" is no fidelity"));
  }
  for (const LedgerRow& row : ledger_) {
    const bool rounds = row.fate == Fate::kRounded;
    const bool computes = rounds || row.fate == Fate::kRescaled || row.fate == Fate::kConsumed;
    if ((claim == "MOVED" && computes) || (claim == "REASSOCIATED" && rounds)) {
      return Refuted("structure", "fidelity",
                     absl::StrCat("it claims ", claim, ", and ", row.source, " is ", FateName(row.fate)));
    }
  }
  Proven("structure", "fidelity", claim);
}

void Prover::CheckStructure() {
  absl::StatusOr<Graph> graph = ParseGraph(manifest_.graph);
  if (!graph.ok()) return Refuted("structure", "graph", Sentence(graph.status()));
  absl::Status verified = Verify(*graph);
  if (!verified.ok()) return Refuted("structure", "graph", Sentence(verified));
  Proven("structure", "graph",
         absl::StrCat(graph->nodes().size(), " nodes, ", graph->params().size(), " parameters"));
  CheckPrograms(*graph);
  CheckConfig(*graph);
}

const Layout* Prover::FindLayout() const {
  for (const Layout& layout : source_.layouts) {
    if (layout.name == manifest_.layout) return &layout;
  }
  return nullptr;
}

absl::StatusOr<std::vector<NamedProgram>> Prover::ProgramsOfGraph(const Graph& graph) {
  std::vector<NamedProgram> programs;
  if (manifest_.target == Target::kHf) {
    const Layout* layout = FindLayout();
    if (layout == nullptr)
      return absl::NotFoundError("the source's family has no layout of the name in the manifest");
    return FilesFromGraph(*layout, graph);
  }
  for (const TwinTensor& tensor : TwinTensors(graph)) programs.push_back({tensor.name, tensor.program});
  return programs;
}

// Every tensor's program is the one that the graph and its layout give: equal programs are one object.
void Prover::CheckPrograms(const Graph& graph) {
  absl::StatusOr<std::vector<NamedProgram>> programs = ProgramsOfGraph(graph);
  if (!programs.ok()) return Refuted("structure", "layout", Sentence(programs.status()));
  std::set<std::string> said;
  for (const NamedProgram& program : *programs) {
    said.insert(program.name);
    const ManifestTensor* tensor = manifest_.Find(program.name);
    if (tensor == nullptr) {
      Refuted("structure", program.name, "the graph needs this tensor, the manifest has none of that name");
    } else if (tensor->program != program.program) {
      Refuted(
          "structure", program.name,
          absl::StrCat("the graph gives ", Text(program.program), ", the manifest ", Text(tensor->program)));
    }
  }
  for (const ManifestTensor& tensor : manifest_.tensors) {
    if (said.count(tensor.name) == 0) Refuted("structure", tensor.name, "no parameter of the graph is in it");
    std::map<std::string, WeightPtr> reads;
    CollectSources(tensor.program, reads);
    for (const auto& [name, as] : reads) {
      auto found = source_nodes_.find(name);
      // Adapters are files of their own, beside the source.
      if (found == source_nodes_.end() && !IsOfAdapter(name)) {
        Refuted("structure", tensor.name,
                absl::StrCat("it reads ", name, ", which the source does not have"));
      } else if (found != source_nodes_.end() && found->second != as) {
        Refuted("structure", tensor.name,
                absl::StrCat("it reads ", Text(as), ", the source has ", Text(found->second)));
      }
    }
  }
  Proven("structure", "programs", absl::StrCat(programs->size(), " tensors"));
}

void Prover::CheckConfig(const Graph& graph) {
  absl::StatusOr<std::string> there = ReadTextFile(absl::StrCat(stored_.root, "/config.json"));
  const Layout* layout = manifest_.target == Target::kHf ? FindLayout()
                         : source_.layouts.empty()       ? nullptr
                                                         : &source_.layouts[0];
  if (layout == nullptr) return;
  absl::StatusOr<JsonValue> config = ConfigFromGraph(*layout, graph, source_.config);
  if (!config.ok()) {
    // A native twin need not be sayable in the family's keys; then there is no file to be wrong.
    if (manifest_.target == Target::kTwin && !there.ok()) return;
    return Refuted("structure", "config.json", Sentence(config.status()));
  }
  if (!there.ok()) return Refuted("structure", "config.json", Sentence(there.status()));
  if (*there != config->Text() + "\n") {
    return Refuted("structure", "config.json", "it is not what the graph and the source's config say");
  }
  Proven("structure", "config.json");
}

// Every source tensor is held, or dropped by a rule with a name; and the manifest's ledger says the same.
void Prover::CheckLedger() {
  std::vector<NamedProgram> programs;
  for (const ManifestTensor& tensor : manifest_.tensors) programs.push_back({tensor.name, tensor.program});
  std::vector<WeightPtr> sources;
  for (const SourceTensor& tensor : source_.sources) sources.push_back(tensor.source);
  ledger_ = Invert(programs, sources);
  std::map<std::string, Fate> said;
  for (const LedgerRow& row : manifest_.ledger) said[row.source] = row.fate;
  int64_t wrong = 0;
  for (size_t i = 0; i < ledger_.size(); ++i) {
    const LedgerRow& row = ledger_[i];
    bool ignored = !source_.sources[i].ignored.empty();
    auto found = said.find(row.source);
    if (!ignored && (row.fate == Fate::kPartial || row.fate == Fate::kUnused)) {
      Refuted("structure", row.source, absl::StrCat("the twin does not hold it: ", row.reason));
      ++wrong;
    } else if (found == said.end() || found->second != row.fate) {
      Refuted("structure", row.source,
              absl::StrCat("the ledger calls it ", found == said.end() ? "nothing" : FateName(found->second),
                           ", it is ", FateName(row.fate)));
      ++wrong;
    }
  }
  if (wrong == 0) Proven("structure", "ledger", absl::StrCat(ledger_.size(), " source tensors"));
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
    std::map<std::string, WeightPtr> reads;
    CollectSources(tensor.program, reads);
    bool readable = true, adapted = false;
    for (const auto& [name, as] : reads) {
      auto found = source_nodes_.find(name);
      const bool there = found != source_nodes_.end() && found->second == as;
      readable = readable && there;
      adapted = adapted || (!there && IsOfAdapter(name));
    }
    if (adapted)
      Row("forward", tensor.name, Verdict::kIncomplete, "the adapter that it holds is not at hand");
    if (!readable) continue;  // else refuted by CheckPrograms
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
