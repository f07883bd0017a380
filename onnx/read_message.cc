#include "onnx/read_message.h"

#include <google/protobuf/io/coded_stream.h>

#include <vector>

#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "onnx/field_heads.h"
#include "onnx/message_parts.h"
#include "onnx/onnx-ml.pb.h"
#include "onnx/read.h"

namespace twinforge {
namespace {

// A graph in a graph is four messages deep: graph, node, attribute, graph. Types and tensors need a few more.
constexpr int kDeepestMessage = 3 * (kDeepestNesting + 1) + 40;
constexpr int64_t kLongestRun = int64_t{1} << 20;

class Walker {
 public:
  Walker(const ModelBytes& bytes, int64_t view_from, ExternalFiles& files)
      : bytes_(bytes), heads_(bytes, kDeepestMessage), view_from_(view_from), files_(files) {}

  // The fields of `out`, which lie in [begin, end).
  template <typename Message>
  absl::Status ReadFields(Message& out, int64_t begin, int64_t end, int depth) {
    constexpr Part kPart = PartOf(static_cast<const Message*>(nullptr));
    int64_t run = begin;  // what is not merged yet begins here
    for (int64_t at = begin; at < end;) {
      TWIN_ASSIGN_OR_RETURN(const FieldHead field, heads_.At(at, end));
      const bool large = field.wire == WireType::kLength && field.end - field.content >= view_from_;
      if (large && PartBelow(kPart, field.number) != Part::kOther) {
        TWIN_RETURN_IF_ERROR(Merge(out, run, at, depth));
        TWIN_RETURN_IF_ERROR(Enter(out, field, depth));
        run = field.end;
      } else if (large && kPart == Part::kTensor &&
                 field.number == ::onnx::TensorProto::kRawDataFieldNumber) {
        TWIN_RETURN_IF_ERROR(Merge(out, run, at, depth));
        Leave(out, field);
        run = field.end;
      } else if (field.end - run >= kLongestRun) {
        TWIN_RETURN_IF_ERROR(Merge(out, run, field.end, depth));
        run = field.end;
      }
      at = field.end;
    }
    return Merge(out, run, end, depth);
  }

 private:
  template <typename Message>
  absl::Status Enter(Message& out, const FieldHead& field, int depth) {
    if (depth >= kDeepestMessage) return NoModel(bytes_);
    return WithPart(out, field.number,
                    [&](auto& part) { return ReadFields(part, field.content, field.end, depth + 1); });
  }
  absl::Status Enter(::onnx::TensorProto&, const FieldHead&, int) { return NoModel(bytes_); }  // has no parts

  void Leave(::onnx::TensorProto& tensor, const FieldHead& field) {
    tensor.clear_raw_data();  // of several, the last one counts
    files_.Leave(tensor, {field.content, field.end - field.content});
  }
  template <typename Message>
  void Leave(Message&, const FieldHead&) {}

  // Neighbouring fields of `out`, merged into it as protobuf merges them.
  absl::Status Merge(google::protobuf::MessageLite& out, int64_t begin, int64_t end, int depth) {
    if (begin == end) return absl::OkStatus();
    if (end - begin > INT32_MAX) {
      return Error(2001, bytes_.name(), "has a field of more than 2 GiB that is no raw data of a tensor");
    }
    run_.resize(static_cast<size_t>(end - begin));
    TWIN_RETURN_IF_ERROR(bytes_.ReadAt(begin, end - begin, reinterpret_cast<std::byte*>(run_.data())));
    google::protobuf::io::CodedInputStream coded(run_.data(), static_cast<int>(run_.size()));
    coded.SetRecursionLimit(kDeepestMessage - depth);
    const bool merged = out.MergePartialFromCodedStream(&coded) && coded.ConsumedEntireMessage();
    if (static_cast<int64_t>(run_.size()) > 2 * kLongestRun) std::vector<uint8_t>().swap(run_);
    return merged ? absl::OkStatus() : NoModel(bytes_);
  }

  const ModelBytes& bytes_;
  FieldHeads heads_;
  int64_t view_from_;
  ExternalFiles& files_;
  std::vector<uint8_t> run_;
};

}  // namespace

absl::Status ReadMessage(std::shared_ptr<const ModelBytes> bytes, int64_t view_from, ::onnx::ModelProto& out,
                         ExternalFiles& files) {
  TWIN_RETURN_IF_ERROR(Walker(*bytes, view_from, files).ReadFields(out, 0, bytes->size(), 0));
  TWIN_RETURN_IF_ERROR(bytes->CheckUnchanged());
  files.KeepModel(std::move(bytes));
  return absl::OkStatus();
}

}  // namespace twinforge
