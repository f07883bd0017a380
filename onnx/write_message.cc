#include "onnx/write_message.h"

#include <utility>

#include "base/check.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "onnx/field_heads.h"
#include "onnx/message_parts.h"
#include "onnx/onnx-ml.pb.h"

namespace twinforge {
namespace {

constexpr uint32_t kRawData = ::onnx::TensorProto::kRawDataFieldNumber;
constexpr char kRawDataTag = kRawData << 3 | static_cast<uint32_t>(WireType::kLength);
constexpr size_t kDeepestGroup = 10000;  // protobuf has read them before

std::string VarintText(uint64_t value) {
  std::string text;
  for (; value >= 0x80; value >>= 7) text.push_back(static_cast<char>(value | 0x80));
  text.push_back(static_cast<char>(value));
  return text;
}

// Each tensor of the message, in the order in which its bytes stand.
struct Place {
  Stretch* payload = nullptr;
  int64_t unknown = 0;  // bytes of unknown fields, at the end
};

// Something between two bytes of protobuf's form: a new length in the place of `drop` bytes, or a payload.
struct Splice {
  int64_t at = 0;
  int64_t drop = 0;
  std::string text;
  Stretch* payload = nullptr;  // behind `text`
};

class Splicer {
 public:
  Splicer(std::shared_ptr<const std::string> text, const ModelBytes& bytes, std::vector<Place> places)
      : text_(std::move(text)), heads_(bytes, kDeepestGroup), places_(std::move(places)) {}

  absl::StatusOr<NewFile> Run(const std::string& name) {
    const int64_t size = static_cast<int64_t>(text_->size());
    TWIN_RETURN_IF_ERROR(Grown(Part::kModel, 0, size).status());
    TWIN_CHECK(next_ == places_.size(), "every tensor was met");
    NewFile file;
    file.name = name;
    int64_t at = 0;
    for (Splice& splice : splices_) {
      AddText(file, text_, at, splice.at - at);
      auto text = std::make_shared<const std::string>(std::move(splice.text));
      AddText(file, text, 0, static_cast<int64_t>(text->size()));
      if (splice.payload != nullptr) {
        splice.payload->offset = file.size;
        file.size += splice.payload->length;
        if (splice.payload->length > 0) file.stretches.push_back(std::move(*splice.payload));
      }
      at = splice.at + splice.drop;
    }
    AddText(file, text_, at, size - at);
    return file;
  }

 private:
  static void AddText(NewFile& file, const std::shared_ptr<const std::string>& text, int64_t from,
                      int64_t length) {
    if (length == 0) return;
    Stretch stretch;
    stretch.offset = file.size;
    stretch.length = length;
    stretch.text = text;
    stretch.from = from;
    file.stretches.push_back(std::move(stretch));
    file.size += length;
  }

  // By how much the message in [begin, end) becomes longer; its splices are noted, those around a part first.
  absl::StatusOr<int64_t> Grown(Part part, int64_t begin, int64_t end) {
    if (part == Part::kTensor) return GrownTensor(begin, end);
    int64_t grown = 0;
    for (int64_t at = begin; at < end;) {
      TWIN_ASSIGN_OR_RETURN(const FieldHead field, heads_.At(at, end));
      const Part below = field.wire == WireType::kLength ? PartBelow(part, field.number) : Part::kOther;
      if (below != Part::kOther) {
        const size_t around = splices_.size();
        splices_.emplace_back();
        TWIN_ASSIGN_OR_RETURN(const int64_t longer, Grown(below, field.content, field.end));
        if (longer == 0) {
          splices_.resize(around);
        } else {
          const int64_t length = field.end - field.content;
          const auto spelt = static_cast<int64_t>(VarintText(static_cast<uint64_t>(length)).size());
          Splice& splice = splices_[around];
          splice.at = field.content - spelt;
          splice.drop = spelt;
          splice.text = VarintText(static_cast<uint64_t>(length + longer));
          grown += longer + static_cast<int64_t>(splice.text.size()) - spelt;
        }
      }
      at = field.end;
    }
    return grown;
  }

  absl::StatusOr<int64_t> GrownTensor(int64_t begin, int64_t end) {
    TWIN_CHECK(next_ < places_.size(), "a tensor that the message has");
    const Place& place = places_[next_++];
    if (place.payload == nullptr) return 0;
    int64_t at = begin;
    while (at < end - place.unknown) {
      TWIN_ASSIGN_OR_RETURN(const FieldHead field, heads_.At(at, end));
      if (field.number > kRawData) break;
      at = field.end;
    }
    Splice splice;
    splice.at = at;
    splice.text = kRawDataTag + VarintText(static_cast<uint64_t>(place.payload->length));
    splice.payload = place.payload;
    const int64_t grown = static_cast<int64_t>(splice.text.size()) + place.payload->length;
    splices_.push_back(std::move(splice));
    return grown;
  }

  std::shared_ptr<const std::string> text_;
  FieldHeads heads_;
  std::vector<Place> places_;
  size_t next_ = 0;
  std::vector<Splice> splices_;  // ascending
};

}  // namespace

absl::StatusOr<NewFile> MessageFile(const ::onnx::ModelProto& message, Payloads payloads,
                                    const std::string& name) {
  std::vector<Place> places;
  ForEachTensor(message, [&](const ::onnx::TensorProto& tensor) {
    const auto found = payloads.find(&tensor);
    TWIN_CHECK(found == payloads.end() || !tensor.has_raw_data(), "raw data in one place");
    places.push_back({found == payloads.end() ? nullptr : &found->second,
                      static_cast<int64_t>(tensor.unknown_fields().size())});
  });
  std::string text;
  if (message.ByteSizeLong() > INT32_MAX || !message.SerializeToString(&text)) {
    return Error(2020, name, "has more than 2 GiB without the raw data of its tensors");
  }
  const std::shared_ptr<const ModelBytes> bytes = ModelBytes::Of(std::move(text), name);
  const std::shared_ptr<const std::string> shared(bytes, &bytes->memory());
  return Splicer(shared, *bytes, std::move(places)).Run(name);
}

}  // namespace twinforge
