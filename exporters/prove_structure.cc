#include "exporters/prove_structure.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/diagnostic.h"
#include "base/file.h"
#include "base/json_reader.h"
#include "exporters/difference.h"
#include "exporters/generation_config.h"
#include "exporters/model_card.h"
#include "exporters/plan_parts.h"
#include "exporters/reference_files.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "weights/build.h"
#include "weights/text.h"

namespace twinforge {
namespace {

constexpr int64_t kNamesShown = 200;

std::string Sentence(const absl::Status& status) {
  const std::optional<Diagnostic> d = DiagnosticOf(status);
  if (!d.has_value()) return std::string(status.message());
  return d->place.empty() ? d->message : absl::StrCat(d->place, ": ", d->message);
}

std::string Names(const std::vector<std::string>& names) {
  return names.empty() ? "nothing" : JsonQuoted(absl::StrJoin(names, ", "), kNamesShown);
}

void Collect(const WeightPtr& program, std::map<std::string, WeightPtr>& found) {
  if (program->kind() == WeightKind::kSource) found.emplace(program->source_name(), program);
  for (int64_t i = 0; program->kind() == WeightKind::kStack && i < program->shape()[0]; ++i) {
    const WeightPtr member = StackMember(*program, i);
    found.emplace(member->source_name(), member);
  }
  for (const WeightPtr& child : program->children()) Collect(child, found);
}

class StructureProver {
 public:
  explicit StructureProver(const StructureRequest& request)
      : source_(request.source), manifest_(request.manifest), root_(request.root), ledger_(request.ledger) {}

  std::vector<ProofRow> Run() {
    CheckGraph();
    CheckReads();
    CheckLedger();
    CheckFamily();
    CheckFidelity();
    CheckCard();
    return std::move(rows_);
  }

 private:
  void Proven(absl::string_view subject, std::string detail = "") {
    rows_.push_back({"structure", std::string(subject), Verdict::kProven, std::move(detail)});
  }
  void Refuted(absl::string_view subject, std::string detail) {
    rows_.push_back({"structure", std::string(subject), Verdict::kRefuted, std::move(detail)});
  }

  void CheckGraph() {
    absl::StatusOr<Graph> graph = ParseGraph(manifest_.graph);
    if (!graph.ok()) return Refuted("graph", Sentence(graph.status()));
    const absl::Status verified = Verify(*graph);
    if (!verified.ok()) return Refuted("graph", Sentence(verified));
    Proven("graph", absl::StrCat(graph->nodes().size(), " nodes, ", graph->params().size(), " parameters"));
    CheckPrograms(*graph);
    CheckConfig(*graph);
    CheckGenerationConfig(*graph);
  }

  const Layout* FindLayout() const {
    for (const Layout& layout : source_.layouts) {
      if (layout.name == manifest_.layout) return &layout;
    }
    return nullptr;
  }

  absl::StatusOr<std::vector<TwinTensor>> TensorsOf(const Graph& graph) const {
    if (manifest_.target != Target::kHf) return TwinTensors(graph);
    const Layout* layout = FindLayout();
    if (layout == nullptr)
      return absl::NotFoundError("the source's family has no layout of the name in the manifest");
    return TensorsOfLayout(*layout, graph);
  }

  // Every tensor's program and roles are the ones that the graph and its layout give: equal programs are one
  // object.
  void CheckPrograms(const Graph& graph) {
    absl::StatusOr<std::vector<TwinTensor>> tensors = TensorsOf(graph);
    if (!tensors.ok()) return Refuted("layout", Sentence(tensors.status()));
    std::set<absl::string_view> needed;
    for (const TwinTensor& tensor : *tensors) {
      needed.insert(tensor.name);
      const ManifestTensor* said = manifest_.Find(tensor.name);
      if (said == nullptr) {
        Refuted(tensor.name, "the graph needs this tensor, the manifest has none of that name");
        continue;
      }
      if (said->program != tensor.program) {
        Refuted(tensor.name, absl::StrCat("the graph gives ", Text(tensor.program), ", the manifest ",
                                          Text(said->program)));
      }
      if (said->roles != tensor.roles) {
        Refuted(tensor.name, absl::StrCat("its row gives it the roles ", Names(said->roles), ", it holds ",
                                          Names(tensor.roles)));
      }
    }
    for (const ManifestTensor& tensor : manifest_.tensors) {
      if (needed.count(tensor.name) == 0) Refuted(tensor.name, "no parameter of the graph is in it");
    }
    Proven("programs", absl::StrCat(tensors->size(), " tensors"));
    CheckReference(graph, *tensors);
  }

  // Code beside the weights is what the graph gives, to the byte, or is not there at all.
  void CheckReference(const Graph& graph, const std::vector<TwinTensor>& tensors) {
    std::set<std::string> said;
    for (const ManifestFile& file : manifest_.files) {
      if (absl::StartsWith(file.name, kReferenceFolder)) said.insert(file.name);
    }
    if (said.empty()) return;
    const Layout* layout = manifest_.target != Target::kHf ? nullptr : FindLayout();
    const absl::StatusOr<std::vector<SmallFile>> files = TwinReference(graph, tensors, layout);
    if (!files.ok()) return Refuted(kReferenceFolder, Sentence(files.status()));
    for (const SmallFile& file : *files) {
      if (said.erase(file.name) == 0)
        Refuted(file.name, "the graph gives this file, the manifest does not list it");
      CheckLines(file.name, file.content);
    }
    for (const std::string& name : said)
      Refuted(name, "the manifest lists it, and the graph gives no such file");
  }

  // The file `name` is `right`, or else which line is not.
  void CheckLines(const std::string& name, const std::string& right) {
    const absl::StatusOr<std::string> there = ReadTextFile(absl::StrCat(root_, "/", name));
    if (!there.ok()) return Refuted(name, Sentence(there.status()));
    if (*there == right) return Proven(name);
    const std::vector<absl::string_view> a = absl::StrSplit(*there, '\n'), b = absl::StrSplit(right, '\n');
    size_t line = 0;
    while (line + 1 < std::min(a.size(), b.size()) && a[line] == b[line]) ++line;
    Refuted(name, absl::StrCat("line ", line + 1, " is ", JsonQuoted(a[line], kNamesShown),
                               ", and should be ", JsonQuoted(b[line], kNamesShown)));
  }

  // What the programs read is there, and is what they take it for.
  void CheckReads() {
    std::map<absl::string_view, const Weight*> nodes;
    for (const SourceTensor& tensor : source_.sources) nodes[tensor.name] = tensor.source.get();
    for (const ManifestTensor& tensor : manifest_.tensors) {
      for (const auto& [name, as] : SourceNodesOf(tensor.program)) {
        const auto found = nodes.find(name);
        if (found == nodes.end()) {
          if (!IsOfAdapter(name))
            Refuted(tensor.name, absl::StrCat("it reads ", JsonQuoted(name, kNamesShown),
                                              ", which the source does not have"));
        } else if (found->second != as.get()) {
          Refuted(tensor.name, absl::StrCat("it reads ", Text(as), ", the source has another of that name"));
        }
      }
    }
  }

  void CheckConfig(const Graph& graph) {
    if (manifest_.target == Target::kOnnx) return;  // it has none
    absl::StatusOr<std::string> there = ReadTextFile(absl::StrCat(root_, "/config.json"));
    const Layout* layout = manifest_.target == Target::kHf ? FindLayout()
                           : source_.layouts.empty()       ? nullptr
                                                           : &source_.layouts[0];
    if (layout == nullptr) return;
    absl::StatusOr<JsonValue> config = ConfigFromGraph(*layout, graph, source_.config);
    if (!config.ok()) {
      // A native twin need not be sayable in the family's keys; then there is no file to be wrong.
      if (manifest_.target != Target::kHf && !there.ok()) return;
      return Refuted("config.json", Sentence(config.status()));
    }
    CheckText("config.json", there, config->Text() + "\n");
  }

  void CheckText(absl::string_view name, const absl::StatusOr<std::string>& there, const std::string& right) {
    if (!there.ok()) return Refuted(name, Sentence(there.status()));
    const std::string difference = DocumentDifference(*there, right);
    if (difference.empty()) return Proven(name);
    Refuted(name, absl::StrCat("it is not what the graph and the source say: ", difference));
  }

  // Padded places of the vocabulary are no words. Where none is padded the file is the source's own, and
  // judged with the other companions.
  void CheckGenerationConfig(const Graph& graph) {
    if (manifest_.target == Target::kOnnx) return CheckCarried({});
    absl::StatusOr<JsonValue> generation = TwinGenerationConfig(source_, graph);
    if (!generation.ok()) return Refuted(kGenerationConfigName, Sentence(generation.status()));
    CheckCarried(generation->is_null() ? std::set<std::string>()
                                       : std::set<std::string>{kGenerationConfigName});
    if (generation->is_null()) return;
    CheckText(kGenerationConfigName, ReadTextFile(absl::StrCat(root_, "/", kGenerationConfigName)),
              generation->Text() + "\n");
  }

  // What is carried along is what a forge of this source carries: none is left out, rows and all. `own` are
  // files that the twin has of its own instead.
  void CheckCarried(std::set<std::string> own) {
    if (source_.root.empty()) return;
    std::set<std::string> wanted;
    for (const Companion& file : CarriedAlong(source_.companions, std::move(own))) wanted.insert(file.from);
    std::set<std::string> said;
    for (const std::string& name : manifest_.companions) {
      if (!said.insert(name).second) Refuted(name, "the manifest names this companion twice");
      if (wanted.count(name) == 0)
        Refuted(name,
                "the manifest says that it was carried along, and a forge of this source would not carry it");
    }
    for (const std::string& name : wanted) {
      if (said.count(name) == 0)
        Refuted(name, "the source has it, and the manifest does not say that it was carried along");
    }
    if (said == wanted) Proven("companions", absl::StrCat(said.size(), " files carried along"));
  }

  // Every source tensor is held, or dropped by a rule with a name; and the manifest's ledger says the same.
  void CheckLedger() {
    std::map<absl::string_view, const LedgerRow*> said;
    const size_t before = rows_.size();
    for (const LedgerRow& row : manifest_.ledger) {
      if (!said.emplace(row.source, &row).second) Refuted(row.source, "the ledger has two rows of it");
    }
    for (size_t i = 0; i < ledger_.size(); ++i) {
      CheckLedgerRow(ledger_[i], source_.sources[i].ignored, said[ledger_[i].source]);
      said.erase(ledger_[i].source);
    }
    for (const auto& [name, row] : said) {
      if (!IsOfAdapter(name)) Refuted(name, "the ledger has a row of it, the source has no such tensor");
    }
    if (rows_.size() == before) Proven("ledger", absl::StrCat(ledger_.size(), " source tensors"));
  }

  void CheckLedgerRow(const LedgerRow& row, const std::string& ignored, const LedgerRow* said) {
    if (ignored.empty() && (row.fate == Fate::kPartial || row.fate == Fate::kUnused))
      return Refuted(row.source, absl::StrCat("the twin does not hold it: ", row.reason));
    if (said == nullptr || said->fate != row.fate) {
      return Refuted(row.source,
                     absl::StrCat("the ledger calls it ", said == nullptr ? "nothing" : FateName(said->fate),
                                  ", it is ", FateName(row.fate)));
    }
    if (said->consumers != row.consumers) {
      return Refuted(row.source, absl::StrCat("the ledger says that it went to ", Names(said->consumers),
                                              ", it went to ", Names(row.consumers)));
    }
    const std::string& reason = row.fate == Fate::kUnused && !ignored.empty() ? ignored : row.reason;
    if (said->reason != reason) {
      Refuted(row.source, absl::StrCat("the ledger gives the reason ", JsonQuoted(said->reason, kNamesShown),
                                       ", it is ", JsonQuoted(reason, kNamesShown)));
    }
  }

  void CheckFamily() {
    if (manifest_.family == source_.family && manifest_.model_type == source_.model_type) return;
    Refuted("family", absl::StrCat("the manifest says ", JsonQuoted(manifest_.family, kNamesShown), " (",
                                   JsonQuoted(manifest_.model_type, kNamesShown), "), the source is ",
                                   source_.family, " (", JsonQuoted(source_.model_type, kNamesShown), ")"));
  }

  // What is claimed of the whole follows from what became of each tensor.
  void CheckFidelity() {
    const std::string& claim = manifest_.provenance.fidelity;
    if (claim != "MOVED" && claim != "REASSOCIATED" && claim != "BOUNDED" && claim != "RETRAIN") {
      return Refuted("fidelity", absl::StrCat(JsonQuoted(claim, kNamesShown), " is no fidelity"));
    }
    for (const LedgerRow& row : ledger_) {
      const bool rounds = row.fate == Fate::kRounded;
      const bool computes = rounds || row.fate == Fate::kRescaled || row.fate == Fate::kConsumed;
      if ((claim == "MOVED" && computes) || (claim == "REASSOCIATED" && rounds)) {
        return Refuted("fidelity",
                       absl::StrCat("it claims ", claim, ", and ", row.source, " is ", FateName(row.fate)));
      }
    }
    Proven("fidelity", claim);
  }

  // README.md repeats for people what the manifest says, and says nothing else.
  void CheckCard() {
    ExportPlan plan;
    std::set<absl::string_view> files;
    for (const ManifestTensor& tensor : manifest_.tensors) {
      files.insert(tensor.file);
      plan.bytes_out += FileBytes(tensor.program->dtype(), tensor.program->element_count()).value_or(0);
    }
    plan.files.resize(files.size());
    plan.target = manifest_.target;
    plan.opset = manifest_.opset;
    plan.computed_in = manifest_.computed_in;
    plan.ledger = manifest_.ledger;
    const std::set<absl::string_view> carried(manifest_.companions.begin(), manifest_.companions.end());
    for (const ManifestFile& file : manifest_.files) {
      if (carried.count(file.name) > 0) continue;
      SmallFile small{.name = file.name};
      if (file.name == "config.json")
        small.content = ReadTextFile(absl::StrCat(root_, "/", file.name)).value_or("");
      plan.small_files.push_back(std::move(small));
    }
    // A graph that does not read is refuted where graphs are compared.
    const absl::StatusOr<Graph> graph = ParseGraph(manifest_.graph);
    CheckLines("README.md",
               ModelCard(source_, graph.ok() ? *graph : source_.graph, plan, manifest_.provenance));
  }

  const Model& source_;
  const TwinManifest& manifest_;
  const std::string& root_;
  const std::vector<LedgerRow>& ledger_;
  std::vector<ProofRow> rows_;
};

}  // namespace

std::vector<ProofRow> ProveStructure(const StructureRequest& request) {
  return StructureProver(request).Run();
}

std::map<std::string, WeightPtr> SourceNodesOf(const WeightPtr& program) {
  std::map<std::string, WeightPtr> found;
  Collect(program, found);
  return found;
}

bool IsOfAdapter(absl::string_view source_name) { return absl::StartsWith(source_name, "adapter/"); }

}  // namespace twinforge
