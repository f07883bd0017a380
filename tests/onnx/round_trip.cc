// onnx_round_trip FILE...: reads each model, writes it again in both layouts, and prints a line for each:
//
//   a/model.onnx   same      both layouts hold what was read
//   b/model.onnx   refused   TF2003 ...
//   c/model.onnx   differs   keep: byte 17
//
// Judge of the first layout is protobuf: the file parsed at once and written by its own writer. It is asked
// twice, with all raw data spliced in and with the large alone. Of the second, every tensor's type, shape and
// bytes.
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/diagnostic.h"
#include "onnx/message_parts.h"
#include "onnx/rewrite.h"
#include "onnx/tensor_data.h"

namespace twinforge {
namespace {

std::string BytesOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// What a file would hold once written.
std::string Written(const NewFile& file) {
  std::string bytes(static_cast<size_t>(file.size), '\0');
  int64_t reach = 0;
  for (const Stretch& stretch : file.stretches) {
    TWIN_CHECK(stretch.offset >= reach && stretch.program == nullptr, "stretches ascend");
    reach = stretch.offset + stretch.length;
    char* at = bytes.data() + stretch.offset;
    if (stretch.text != nullptr) {
      std::memcpy(at, stretch.text->data() + stretch.from, static_cast<size_t>(stretch.length));
    } else {
      const absl::Status read =
          stretch.file->ReadAt(stretch.from, stretch.length, reinterpret_cast<std::byte*>(at));
      TWIN_CHECK(read.ok(), "a source that is there");
    }
  }
  return bytes;
}

std::string ProtobufsForm(const std::string& bytes) {
  ::onnx::ModelProto model;
  google::protobuf::io::CodedInputStream coded(reinterpret_cast<const uint8_t*>(bytes.data()),
                                               static_cast<int>(bytes.size()));
  coded.SetRecursionLimit(1000);
  TWIN_CHECK(model.ParseFromCodedStream(&coded), "what is read here is read by protobuf");
  std::string form;
  google::protobuf::io::StringOutputStream stream(&form);
  google::protobuf::io::CodedOutputStream out(&stream);
  out.SetSerializationDeterministic(true);
  model.SerializeToCodedStream(&out);
  out.Trim();
  return form;
}

std::string FirstDifference(const std::string& got, const std::string& wanted) {
  if (got == wanted) return "";
  const auto at = std::mismatch(got.begin(), got.end(), wanted.begin(), wanted.end());
  return absl::StrCat("byte ", at.first - got.begin(), " of ", got.size(), ", not ", wanted.size());
}

absl::StatusOr<OnnxMessage> MessageFrom(const std::string& path, int64_t view_from) {
  auto bytes = ModelBytes::Open(path);
  if (!bytes.ok()) return bytes.status();
  OnnxMessage message;
  message.path = path;
  message.proto = std::make_shared<::onnx::ModelProto>();
  message.files = std::make_shared<ExternalFiles>(path);
  const absl::Status read = ReadMessage(*std::move(bytes), view_from, *message.proto, *message.files);
  if (!read.ok()) return read;
  const auto model = CheckedOnnxModel(message);
  if (!model.ok()) return model.status();
  return message;
}

// The elements of every tensor, "TYPE[shape]: bytes"; those of strings are the message's own.
std::vector<std::string> Elements(const OnnxMessage& message, const std::string& data) {
  std::vector<std::string> all;
  ForEachTensor(*message.proto, [&](const ::onnx::TensorProto& tensor) {
    const auto type = ElementTypeFromCode(tensor.data_type());
    const Shape shape(tensor.dims().begin(), tensor.dims().end());
    std::string text = absl::StrCat(ElementTypeName(*type), ShapeText(shape), ": ");
    if (tensor.data_location() == ::onnx::TensorProto::EXTERNAL && !data.empty()) {
      const int64_t offset = std::stoll(tensor.external_data(1).value());
      TWIN_CHECK(offset % 4096 == 0 && tensor.external_data(2).key() == "length",
                 "aligned, and said in order");
      absl::StrAppend(&text, data.substr(static_cast<size_t>(offset),
                                         static_cast<size_t>(PackedBytes(*type, ElementCount(shape)))));
    } else if (*type == ElementType::kString) {
      for (const std::string& s : tensor.string_data()) absl::StrAppend(&text, s.size(), " ", s);
    } else {
      const auto packed = PackedTensor::Of(tensor, *message.files, message.path);
      TWIN_CHECK(packed.ok(), "a tensor that was checked");
      std::string bytes(static_cast<size_t>(packed->byte_size()), '\0');
      TWIN_CHECK(packed->ReadAt(0, packed->byte_size(), reinterpret_cast<std::byte*>(bytes.data())).ok(),
                 "read");
      absl::StrAppend(&text, bytes);
    }
    all.push_back(std::move(text));
  });
  return all;
}

std::string Reason(const absl::Status& status) {
  const std::optional<Diagnostic> said = DiagnosticOf(status);
  return said ? absl::StrCat("TF", said->code, " ", said->message) : std::string(status.message());
}

// "" where both layouts hold what was read.
absl::StatusOr<std::string> Difference(const std::string& path) {
  const std::string source = BytesOf(path);
  for (const int64_t view_from : {int64_t{1}, kViewFrom}) {
    auto message = MessageFrom(path, view_from);
    if (!message.ok()) return message.status();
    OnnxRewrite rewrite;
    rewrite.message = *std::move(message);
    const auto kept = PlanOnnxFiles(std::move(rewrite), DataLayout::kKeep, "model.onnx");
    if (!kept.ok()) return kept.status();
    if (!kept->notes.empty()) return std::string("keep: has notes");
    const std::string difference = FirstDifference(Written(kept->files[0]), ProtobufsForm(source));
    if (!difference.empty()) return absl::StrCat("keep: ", difference);
  }
  OnnxRewrite rewrite;
  auto message = MessageFrom(path, kViewFrom);
  if (!message.ok()) return message.status();
  rewrite.message = *std::move(message);
  const std::vector<std::string> wanted = Elements(rewrite.message, "");
  const auto single = PlanOnnxFiles(std::move(rewrite), DataLayout::kSingle, "model.onnx");
  if (!single.ok()) return single.status();
  OnnxMessage again;
  again.proto = std::make_shared<::onnx::ModelProto>();
  again.files = std::make_shared<ExternalFiles>();
  const auto bytes = ModelBytes::Of(Written(single->files[0]), "again");
  const absl::Status read = ReadMessage(bytes, kViewFrom, *again.proto, *again.files);
  if (!read.ok()) return read;
  const std::string data = single->files.size() > 1 ? Written(single->files[1]) : "";
  return Elements(again, data) == wanted ? std::string() : std::string("single: other elements");
}

int Main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const absl::StatusOr<std::string> difference = Difference(argv[i]);
    const char* verdict = !difference.ok() ? "refused" : difference->empty() ? "same" : "differs";
    const std::string why = difference.ok() ? *difference : Reason(difference.status());
    std::printf("%s\t%s\t%s\n", argv[i], verdict, Visible(why).c_str());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace twinforge

int main(int argc, char** argv) { return twinforge::Main(argc, argv); }
