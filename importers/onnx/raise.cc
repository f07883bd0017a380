#include "importers/onnx/raise.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/json_reader.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "importers/onnx/assemble.h"
#include "importers/onnx/trace.h"
#include "ir/foreign_file.h"
#include "ir/text.h"
#include "onnx/onnx-ml.pb.h"
#include "onnx/read.h"

namespace twinforge {
namespace {

// Windows of attentions, in the order of their terms, that are longer than a look is.
using LongWindows = std::map<int, int64_t>;

// Sizes that the file fixes; 0 where tokens may be as many as one likes.
OnnxProbe FixedSizes(const OnnxModel& model) {
  OnnxProbe fixed{.batch = 0, .seq = 0};
  for (const ::onnx::ValueInfoProto& input : model.graph.proto->input()) {
    const auto& tensor = input.type().tensor_type();
    const std::optional<ElementType> type = ElementTypeFromCode(tensor.elem_type());
    if (!type || !IsIntegerElement(*type) || tensor.shape().dim_size() != 2) continue;
    if (tensor.shape().dim(0).has_dim_value()) fixed.batch = tensor.shape().dim(0).dim_value();
    if (tensor.shape().dim(1).has_dim_value()) fixed.seq = tensor.shape().dim(1).dim_value();
  }
  return fixed;
}

std::vector<const AttendTerm*> AttendsOf(const OnnxTrace& trace) {
  std::vector<const AttendTerm*> attends;
  for (const Term& term : trace.terms()) {
    if (term.kind == TermKind::kAttend) attends.push_back(term.attend.get());
  }
  return attends;
}

// A number of the file stands for another, and the masks follow it: then that number is a window.
absl::Status FindLongWindows(const OnnxModel& model, const OnnxStored& stored, const OnnxTrace& first,
                             LongWindows& windows) {
  const std::vector<const AttendTerm*> attends = AttendsOf(first);
  std::set<int64_t> numbers;
  for (const AttendTerm* attend : attends) {
    if (attend->attrs.window() == 0) numbers.insert(attend->numbers.begin(), attend->numbers.end());
  }
  for (const int64_t number : numbers) {
    std::vector<int64_t> seen[2];
    bool moved = false;
    for (int i : {0, 1}) {
      OnnxProbe probe = first.probe();
      probe.numbers = {{number, 3 + i}};
      OnnxTrace trace(model, stored, probe);
      TWIN_RETURN_IF_ERROR(trace.Run());
      const std::vector<const AttendTerm*> others = AttendsOf(trace);
      if (others.size() != attends.size()) {
        return Error(2011, model.path,
                     absl::StrCat("a mask depends on the number ", number, " otherwise than a window does"));
      }
      for (size_t a = 0; a < others.size(); ++a) {
        seen[i].push_back(others[a]->attrs.window());
        moved = moved || others[a]->attrs.window() != attends[a]->attrs.window();
      }
    }
    for (size_t a = 0; moved && a < attends.size(); ++a) {
      if (seen[0][a] == attends[a]->attrs.window()) continue;
      if (seen[1][a] != seen[0][a] + 1)
        return Error(2011, model.path,
                     absl::StrCat("a mask depends on the number ", number, " otherwise than a window does"));
      windows[static_cast<int>(a)] = number + seen[0][a] - 3;
    }
  }
  return absl::OkStatus();
}

struct Look {
  std::unique_ptr<OnnxTrace> trace;
  Graph graph;
};

absl::StatusOr<Look> LookAt(const OnnxModel& model, const OnnxStored& stored, const OnnxProbe& probe,
                            const LongWindows& windows) {
  Look look;
  look.trace = std::make_unique<OnnxTrace>(model, stored, probe);
  TWIN_RETURN_IF_ERROR(look.trace->Run());
  TWIN_ASSIGN_OR_RETURN(look.graph, AssembleGraph(*look.trace, windows));
  return look;
}

// Padding on the left hides what attention_mask hides, or nothing: any other mask is a miss there.
absl::Status CheckPadding(const OnnxModel& model, const OnnxStored& stored, const OnnxTrace& first) {
  OnnxProbe probe = first.probe();
  probe.hidden = 2;
  if (probe.seq < 4 || probe.batch < 2) return absl::OkStatus();
  OnnxTrace trace(model, stored, probe);
  TWIN_RETURN_IF_ERROR(trace.Run());
  if (AttendsOf(trace).size() == AttendsOf(first).size()) return absl::OkStatus();
  std::string why = "attention is another where attention_mask hides tokens";
  if (!trace.misses().empty()) absl::StrAppend(&why, ": ", trace.misses().front().message);
  return Error(2011, model.path, why);
}

absl::StatusOr<Graph> Looked(const OnnxModel& model, const OnnxStored& stored,
                             std::vector<std::string>& warnings) {
  const OnnxProbe fixed = FixedSizes(model);
  OnnxProbe probe;
  if (fixed.batch > 0) probe.batch = fixed.batch;
  if (fixed.seq > 0) probe.seq = fixed.seq;
  if (probe.batch > 64 || probe.seq > 4096) {
    return Error(2011, model.path,
                 absl::StrCat("the file fixes ", probe.batch, " sequences of ", probe.seq, " tokens"),
                 "export it with free sizes");
  }
  TWIN_ASSIGN_OR_RETURN(const Look first, LookAt(model, stored, probe, {}));
  LongWindows windows;
  TWIN_RETURN_IF_ERROR(FindLongWindows(model, stored, *first.trace, windows));
  TWIN_RETURN_IF_ERROR(CheckPadding(model, stored, *first.trace));
  if (fixed.batch > 0 || fixed.seq > 0) {
    warnings.push_back("the file fixes how many tokens it takes; the model takes any number");
    if (windows.empty()) return first.graph;
  }
  if (fixed.batch == 0) probe.batch = 3;
  if (fixed.seq == 0) probe.seq = 11;
  TWIN_ASSIGN_OR_RETURN(Look second, LookAt(model, stored, probe, windows));
  TWIN_ASSIGN_OR_RETURN(const Graph again, AssembleGraph(*first.trace, windows));
  if (Text(second.graph) != Text(again)) {
    return Error(
        2011, model.path,
        absl::StrCat("it is another model for ", probe.seq, " tokens than for ", first.trace->probe().seq));
  }
  return std::move(second.graph);
}

// What the graph reads, and why the rest is not read.
std::vector<SourceTensor> SourcesRead(const OnnxStored& stored, const Graph& graph) {
  std::set<std::string> read;
  for (const auto& [role, param] : graph.params()) {
    const std::vector<std::string> names = SourcesOf(param.program);
    read.insert(names.begin(), names.end());
  }
  std::vector<SourceTensor> sources;
  for (SourceTensor& tensor : stored.Sources()) {
    if (!read.contains(tensor.name)) {
      if (!stored.IsInitializer(tensor.name)) continue;  // written into the graph, as its shapes are
      tensor.ignored = "a constant of the computation: attributes of the graph say it";
    }
    sources.push_back(std::move(tensor));
  }
  return sources;
}

}  // namespace

absl::StatusOr<Model> OpenOnnxModel(const std::string& path) {
  TWIN_ASSIGN_OR_RETURN(std::unique_ptr<OnnxModel> read, ReadOnnxModel(path));
  const std::shared_ptr<const OnnxModel> file = std::move(read);
  TWIN_ASSIGN_OR_RETURN(const std::shared_ptr<OnnxStored> stored, OnnxStored::Make(file));
  Model model;
  model.family = model.model_type = "onnx";
  model.warnings = file->warnings;
  TWIN_ASSIGN_OR_RETURN(model.graph, Looked(*file, *stored, model.warnings));
  model.sources = SourcesRead(*stored, model.graph);
  // No root: of the file's folder nothing but the file is read, and a twin may be written beside it.
  model.files = stored->SourceFiles();
  for (SourceFile& source : model.files)
    source.header_sha256 = Sha256Hex(ForeignHeaderOf(source.name, model.sources));
  model.reader = stored;
  return model;
}

}  // namespace twinforge
