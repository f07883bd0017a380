#include <google/protobuf/text_format.h>

#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/diagnostic.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "exporters/manifest.h"
#include "exporters/manifest.pb.h"
#include "ir/foreign_file.h"
#include "ir/text.h"
#include "weights/text.h"

namespace twinforge {
namespace {

constexpr size_t kPieceBytes = 1 << 20;

std::string TextOf(const ManifestProto& proto) {
  std::string text;
  google::protobuf::TextFormat::Printer printer;
  printer.SetUseUtf8StringEscaping(true);
  printer.PrintToString(proto, &text);
  return text;
}

class Writer {
 public:
  Writer(const ManifestRequest& request, const std::function<absl::Status(absl::string_view)>& append)
      : request_(request), append_(append) {}

  absl::Status Run() {
    TWIN_RETURN_IF_ERROR(WriteHead());
    TWIN_RETURN_IF_ERROR(WriteSource());
    TWIN_RETURN_IF_ERROR(WriteTensors());
    TWIN_RETURN_IF_ERROR(WriteLedger());
    TWIN_RETURN_IF_ERROR(WriteGraphs());
    TWIN_RETURN_IF_ERROR(Flush());
    return append_(absl::StrCat("manifest_sha256: \"", sha_.Finish(), "\"\n"));
  }

 private:
  absl::Status Put(const ManifestProto& proto) {
    pending_ += TextOf(proto);
    return pending_.size() >= kPieceBytes ? Flush() : absl::OkStatus();
  }

  absl::Status Flush() {
    sha_.Add(pending_.data(), static_cast<int64_t>(pending_.size()));
    absl::Status status = append_(pending_);
    pending_.clear();
    return status;
  }

  // Every line of `text` as one entry of a repeated string field, made by `add`.
  template <typename Add>
  absl::Status PutLines(absl::string_view text, Add add) {
    if (text.empty()) return absl::OkStatus();
    if (text.back() == '\n') text.remove_suffix(1);
    for (absl::string_view line : absl::StrSplit(text, '\n')) {
      ManifestProto proto;
      add(proto)->assign(line.data(), line.size());
      TWIN_RETURN_IF_ERROR(Put(proto));
    }
    return absl::OkStatus();
  }

  absl::Status WriteHead() {
    const Provenance& from = request_.provenance;
    ManifestProto proto;
    proto.set_schema("twinforge.manifest.v1");
    proto.set_tool_version(kVersion);
    proto.set_target(std::string(TargetName(request_.plan.target)));
    proto.set_opset(request_.plan.opset);
    proto.set_computed_in(request_.plan.computed_in);
    proto.set_layout(request_.plan.layout);
    proto.set_family(request_.model.family);
    proto.set_model_type(request_.model.model_type);
    proto.set_recipe_name(from.recipe_name);
    proto.set_fidelity(from.fidelity);
    proto.set_chip(from.chip);
    proto.set_shards(from.shards);
    proto.set_bound(from.bound);
    proto.set_kernel(from.kernel);
    for (const std::string& step : from.steps) proto.add_steps(step);
    for (const std::string& step : from.skipped) proto.add_skipped(step);
    TWIN_RETURN_IF_ERROR(Put(proto));
    return PutLines(from.recipe_text, [](ManifestProto& p) { return p.add_recipe(); });
  }

  absl::Status WriteSource() {
    std::map<std::string, std::map<std::string, const SourceTensor*>> by_file;
    for (const SourceTensor& tensor : request_.model.sources) by_file[tensor.file][tensor.name] = &tensor;
    for (const SourceFile& file : request_.model.files) {
      if (file.header_sha256.empty()) continue;  // no tensors in it
      const bool own = absl::EndsWith(file.name, ".safetensors");
      TWIN_RETURN_IF_ERROR(own ? WriteSourceFile(file, by_file[file.name])
                               : WriteForeignFile(file, by_file[file.name]));
    }
    for (absl::string_view name : kSourceTexts) {
      if (request_.model.root.empty()) break;
      std::string path = absl::StrCat(request_.model.root, "/", name);
      absl::StatusOr<std::string> content = ReadTextFile(path);
      if (!content.ok()) continue;
      ManifestProto proto;
      auto* text = proto.add_source_texts();
      text->set_name(std::string(name));
      text->set_content(*content);
      TWIN_RETURN_IF_ERROR(Put(proto));
    }
    ManifestProto proto;
    for (const Companion& file : request_.plan.companions) proto.add_companions(file.from);
    return Put(proto);
  }

  absl::Status WriteSourceFile(const SourceFile& file,
                               const std::map<std::string, const SourceTensor*>& tensors) {
    std::string path = absl::StrCat(request_.model.root, "/", file.name);
    TWIN_ASSIGN_OR_RETURN(std::string bytes, ReadHeaderBytes(path));
    if (Sha256Hex(bytes) != file.header_sha256) {
      return Error(1205, path, "its header is not the one that was opened",
                   "run again when nothing writes there");
    }
    TWIN_ASSIGN_OR_RETURN(ReadHeader header, ParseHeader(absl::string_view(bytes).substr(8), path));
    ManifestProto proto;
    auto* row = proto.add_source_files();
    row->set_name(file.name);
    row->set_bytes(file.bytes);
    row->set_header_sha256(file.header_sha256);
    for (const auto& [key, value] : header.metadata) {
      auto* entry = row->add_metadata();
      entry->set_key(key);
      entry->set_value(value);
    }
    if (WriteHeader(header.entries, header.metadata) != bytes) row->set_header(bytes);
    TWIN_RETURN_IF_ERROR(Put(proto));
    for (const HeaderEntry& entry : header.entries) {
      auto known = tensors.find(entry.name);
      ManifestProto each;
      auto* tensor = each.add_source_tensors();
      tensor->set_name(entry.name);
      tensor->set_dtype(SafetensorsName(entry.dtype).data(), SafetensorsName(entry.dtype).size());
      for (int64_t extent : entry.shape) tensor->add_shape(extent);
      tensor->set_file(file.name);
      if (known != tensors.end()) tensor->set_ignored(known->second->ignored);
      TWIN_RETURN_IF_ERROR(Put(each));
    }
    return absl::OkStatus();
  }

  // Its header is nothing that stands in the file: it says what tensors lie there.
  absl::Status WriteForeignFile(const SourceFile& file,
                                const std::map<std::string, const SourceTensor*>& tensors) {
    const std::string header = ForeignHeaderOf(file.name, request_.model.sources);
    ManifestProto proto;
    auto* row = proto.add_source_files();
    row->set_name(file.name);
    row->set_bytes(file.bytes);
    row->set_header_sha256(file.header_sha256);
    row->set_header(header);
    TWIN_RETURN_IF_ERROR(Put(proto));
    for (const auto& [name, known] : tensors) {
      ManifestProto each;
      auto* tensor = each.add_source_tensors();
      tensor->set_name(name);
      const absl::string_view dtype = SafetensorsName(known->source->dtype());
      tensor->set_dtype(dtype.data(), dtype.size());
      for (int64_t extent : known->source->shape()) tensor->add_shape(extent);
      tensor->set_file(file.name);
      tensor->set_ignored(known->ignored);
      TWIN_RETURN_IF_ERROR(Put(each));
    }
    return absl::OkStatus();
  }

  absl::Status WriteTensors() {
    for (size_t f = 0; f < request_.plan.files.size(); ++f) {
      const OutputFile& file = request_.plan.files[f];
      for (size_t t = 0; t < file.tensors.size(); ++t) {
        ManifestProto proto;
        auto* row = proto.add_tensors();
        row->set_name(file.tensors[t].name);
        row->set_file(file.name);
        row->set_xxh3(request_.files[f].parts[t]);
        row->set_program(Text(file.tensors[t].program));
        for (const std::string& role : file.tensors[t].roles) row->add_roles(role);
        TWIN_RETURN_IF_ERROR(Put(proto));
      }
      TWIN_RETURN_IF_ERROR(WriteFile({file.name, request_.files[f].bytes, request_.files[f].sha256}));
    }
    for (const ManifestFile& file : request_.others) TWIN_RETURN_IF_ERROR(WriteFile(file));
    return absl::OkStatus();
  }

  absl::Status WriteFile(const ManifestFile& file) {
    ManifestProto proto;
    auto* row = proto.add_files();
    row->set_name(file.name);
    row->set_bytes(file.bytes);
    row->set_sha256(file.sha256);
    return Put(proto);
  }

  absl::Status WriteLedger() {
    for (const LedgerRow& row : request_.plan.ledger) {
      ManifestProto proto;
      auto* said = proto.add_ledger();
      said->set_source(row.source);
      said->set_fate(FateName(row.fate).data(), FateName(row.fate).size());
      said->set_reason(row.reason);
      for (const std::string& consumer : row.consumers) said->add_consumers(consumer);
      TWIN_RETURN_IF_ERROR(Put(proto));
    }
    return absl::OkStatus();
  }

  absl::Status WriteGraphs() {
    TWIN_RETURN_IF_ERROR(
        PutLines(Text(request_.model.graph), [](ManifestProto& p) { return p.add_graph(); }));
    return PutLines(request_.provenance.source_graph, [](ManifestProto& p) { return p.add_source_graph(); });
  }

  const ManifestRequest& request_;
  const std::function<absl::Status(absl::string_view)>& append_;
  std::string pending_;
  Sha256 sha_;
};

}  // namespace

absl::Status WriteManifest(const ManifestRequest& request,
                           const std::function<absl::Status(absl::string_view)>& append) {
  return Writer(request, append).Run();
}

}  // namespace twinforge
