#include "onnx/rewrite.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/diagnostic.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "onnx/message_parts.h"
#include "onnx/tensor_data.h"
#include "onnx/write_message.h"

namespace twinforge {
namespace {

using ::onnx::TensorProto;

constexpr int64_t kAlignment = 4096;
constexpr char kOtherLayout[] = "--data-layout single writes one data file beside the model";

int64_t Aligned(int64_t offset) { return (offset + kAlignment - 1) / kAlignment * kAlignment; }

std::string LocationOf(const TensorProto& tensor) {
  for (const auto& entry : tensor.external_data()) {
    if (entry.key() == "location") return entry.value();
  }
  return "";
}

void SetExternal(TensorProto& tensor, const std::string& location, int64_t offset, int64_t length) {
  tensor.clear_external_data();
  const auto add = [&](const char* key, const std::string& value) {
    auto& entry = *tensor.add_external_data();
    entry.set_key(key);
    entry.set_value(value);
  };
  add("location", location);
  add("offset", absl::StrCat(offset));
  add("length", absl::StrCat(length));
  tensor.set_data_location(TensorProto::EXTERNAL);
}

// How many entries with a key for which `drop` holds were taken out.
template <typename Drop>
int64_t DropKeys(TensorProto& tensor, Drop drop) {
  auto& entries = *tensor.mutable_external_data();
  const int before = entries.size();
  for (int i = before; i-- > 0;) {
    if (drop(entries.Get(i).key())) entries.DeleteSubrange(i, 1);
  }
  return before - entries.size();
}

// The tensor's elements are the program's from here on.
void BecomeProgram(TensorProto& tensor, const Weight& program) {
  tensor.clear_float_data(), tensor.clear_int32_data(), tensor.clear_int64_data();
  tensor.clear_double_data(), tensor.clear_uint64_data(), tensor.clear_raw_data();
  tensor.set_data_type(static_cast<int32_t>(*ElementTypeOf(program.dtype())));
  tensor.clear_dims();
  for (const int64_t extent : program.shape()) tensor.add_dims(extent);
}

// A tensor in a data file that keeps its name.
struct Kept {
  TensorProto* tensor;
  int64_t offset, length;  // where it lies in the source
  std::optional<Stretch> replaced;
};

class Planner {
 public:
  Planner(OnnxFiles& out, DataLayout layout, const std::string& name)
      : out_(out), layout_(layout), name_(name) {}

  absl::Status Run() {
    absl::Status status;
    ForEachTensor(*message().proto, [&](TensorProto& tensor) {
      if (status.ok()) status = Place(tensor);
    });
    TWIN_RETURN_IF_ERROR(status);
    std::vector<NewFile> data;
    for (auto& [location, tensors] : kept_) {
      TWIN_ASSIGN_OR_RETURN(NewFile file, KeptFile(location, tensors));
      data.push_back(std::move(file));
    }
    if (single_.size > 0) data.push_back(std::move(single_));
    NoteKeys();
    TWIN_ASSIGN_OR_RETURN(NewFile model, MessageFile(*message().proto, std::move(payloads_), name_));
    if (model.size > INT32_MAX) {
      return Error(2020, name_, absl::StrCat("would have ", model.size, " bytes, more than one message may"),
                   kOtherLayout);
    }
    out_.files.push_back(std::move(model));
    for (NewFile& file : data) out_.files.push_back(std::move(file));
    return absl::OkStatus();
  }

 private:
  OnnxMessage& message() { return out_.rewrite.message; }

  std::string PlaceText(const TensorProto& tensor) {
    return absl::StrCat(message().path, ": tensor ", JsonQuoted(tensor.name(), 200));
  }

  absl::Status Place(TensorProto& tensor) {
    const std::string place = PlaceText(tensor);
    const auto program = out_.rewrite.programs.find(&tensor);
    const bool replaced = program != out_.rewrite.programs.end();
    ExternalFiles& files = *message().files;
    Stretch source;
    source.name = tensor.name();
    std::string location;
    int64_t offset = 0, length = 0;
    if (tensor.data_location() == TensorProto::EXTERNAL) {
      TWIN_ASSIGN_OR_RETURN(const PackedTensor packed, PackedTensor::Of(tensor, files, place));
      location = LocationOf(tensor);
      offset = packed.range()->offset, length = packed.range()->length;
      source.file = packed.range()->file, source.from = offset, source.length = length;
    } else if (const LeftBytes* left = files.LeftInFile(tensor); left != nullptr) {
      source.from = left->offset, source.length = left->length;
      source.file = files.model().file();
      if (source.file == nullptr) source.text = {std::shared_ptr<void>(), &files.model().memory()};
    } else if (!replaced) {
      return absl::OkStatus();  // the message has it
    }
    if (replaced) {
      const Weight& weight = *program->second;
      if (!ElementTypeOf(weight.dtype()) || BitWidth(weight.dtype()) < 8) {
        return Error(2020, place, absl::StrCat("cannot be written as ", Name(weight.dtype())));
      }
      Stretch made;
      made.name = tensor.name();
      made.program = program->second;
      made.length = *FileBytes(weight.dtype(), weight.element_count());
      source = std::move(made);
      BecomeProgram(tensor, weight);
    }
    if (layout_ == DataLayout::kSingle && source.length == 0) {  // no element, no data anywhere
      tensor.clear_external_data();
      tensor.clear_data_location();
    } else if (layout_ == DataLayout::kSingle && (!location.empty() || source.length >= kViewFrom)) {
      MoveToSingle(tensor, std::move(source));
    } else if (!location.empty()) {
      kept_[location].push_back(
          {&tensor, offset, length, replaced ? std::optional<Stretch>(std::move(source)) : std::nullopt});
    } else {
      payloads_[&tensor] = std::move(source);
    }
    return absl::OkStatus();
  }

  void MoveToSingle(TensorProto& tensor, Stretch source) {
    single_.name = name_ + ".data";
    checksums_ += DropKeys(tensor, [](const std::string& key) { return key == "checksum"; });
    prepacked_ +=
        DropKeys(tensor, [](const std::string& key) { return absl::StartsWith(key, "prepacked_"); });
    ++moved_;
    const auto key = std::make_tuple(source.file, source.program.get(), source.from, source.length);
    const auto [known, is_new] = shared_.emplace(key, Aligned(single_.size));
    SetExternal(tensor, single_.name, known->second, source.length);
    if (!is_new) return;
    source.offset = known->second;
    single_.size = source.offset + source.length;
    if (source.length > 0) single_.stretches.push_back(std::move(source));
  }

  // The file's name below another folder, where it leads to the same place whatever lies around that.
  absl::StatusOr<std::string> NameBelow(const std::string& location) {
    const std::filesystem::path path(location);
    const bool leads_up = std::find(path.begin(), path.end(), "..") != path.end();
    const std::string name = path.lexically_normal().string();
    if (!leads_up && name != name_ && name.back() != '/' && names_.insert(name).second) return name;
    return Error(2020, message().path,
                 absl::StrCat("external data at ", JsonQuoted(location, 200),
                              " cannot be kept under that name below another folder"),
                 kOtherLayout);
  }

  absl::StatusOr<NewFile> KeptFile(const std::string& location, std::vector<Kept>& tensors) {
    NewFile file;
    TWIN_ASSIGN_OR_RETURN(file.name, NameBelow(location));
    ExternalPlace at;
    at.location = location;
    const ReadableFile& source = message().files->FileOf(at);
    std::vector<std::pair<int64_t, int64_t>>
        used;  // [begin, end) of what stays, then joined where they touch
    std::map<std::pair<int64_t, int64_t>, int> replaced;
    for (const Kept& kept : tensors) {
      const std::pair<int64_t, int64_t> range(kept.offset, kept.offset + kept.length);
      if (kept.replaced) {
        ++replaced[range];
      } else if (kept.length > 0) {
        used.push_back(range);
      }
    }
    file.size = source.size();
    const std::vector<std::pair<int64_t, int64_t>> dropped = Freed(used, replaced);
    AddCopies(source, dropped, file);
    for (Kept& kept : tensors) {
      if (!kept.replaced) continue;
      PlaceReplaced(kept, location, dropped, replaced, file);
    }
    std::sort(file.stretches.begin(), file.stretches.end(),
              [](const Stretch& a, const Stretch& b) { return a.offset < b.offset; });
    if (replaced.empty()) return file;
    for (const Kept& kept : tensors) {
      checksums_ += DropKeys(*kept.tensor, [](const std::string& key) { return key == "checksum"; });
      if (file.size != source.size()) SayLength(kept);
    }
    return file;
  }

  // Without a length a tensor reaches to the end of its file, which is another now.
  void SayLength(const Kept& kept) {
    for (const auto& entry : kept.tensor->external_data()) {
      if (entry.key() == "length") return;
    }
    auto& entry = *kept.tensor->add_external_data();
    entry.set_key("length");
    entry.set_value(absl::StrCat(kept.length));
    ++lengths_;
  }

  // Ranges of replaced tensors that no other tensor touches, ascending.
  static std::vector<std::pair<int64_t, int64_t>> Freed(
      std::vector<std::pair<int64_t, int64_t>>& used,
      const std::map<std::pair<int64_t, int64_t>, int>& replaced) {
    std::sort(used.begin(), used.end());
    int64_t reach = 0;
    for (auto& [begin, end] : used) reach = end = std::max(end, reach);  // ends ascend too
    std::vector<std::pair<int64_t, int64_t>> freed;
    for (const auto& [range, count] : replaced) {
      const auto next = std::upper_bound(used.begin(), used.end(), range.first,
                                         [](int64_t at, const auto& other) { return at < other.second; });
      const bool free = next == used.end() || next->first >= range.second;
      if (free && range.first < range.second && (freed.empty() || freed.back().second <= range.first)) {
        freed.push_back(range);
      }
    }
    return freed;
  }

  static void AddCopies(const ReadableFile& source, const std::vector<std::pair<int64_t, int64_t>>& dropped,
                        NewFile& file) {
    int64_t at = 0;
    const auto copy = [&](int64_t end) {
      if (at >= end) return;
      Stretch stretch;
      stretch.offset = stretch.from = at;
      stretch.length = end - at;
      stretch.file = &source;
      file.stretches.push_back(std::move(stretch));
    };
    for (const auto& [begin, end] : dropped) {
      copy(begin);
      at = end;
    }
    copy(source.size());
  }

  void PlaceReplaced(Kept& kept, const std::string& location,
                     const std::vector<std::pair<int64_t, int64_t>>& dropped,
                     const std::map<std::pair<int64_t, int64_t>, int>& replaced, NewFile& file) {
    const std::pair<int64_t, int64_t> range(kept.offset, kept.offset + kept.length);
    const bool alone = replaced.at(range) == 1 && std::binary_search(dropped.begin(), dropped.end(), range);
    Stretch made = std::move(*kept.replaced);
    made.offset = alone && made.length <= kept.length ? kept.offset : Aligned(file.size);
    file.size = std::max(file.size, made.offset + made.length);
    prepacked_ +=
        DropKeys(*kept.tensor, [](const std::string& key) { return absl::StartsWith(key, "prepacked_"); });
    if (made.offset != kept.offset || made.length != kept.length) {
      checksums_ += DropKeys(*kept.tensor, [](const std::string& key) { return key == "checksum"; });
      SetExternal(*kept.tensor, location, made.offset, made.length);
    }
    if (made.length > 0) file.stretches.push_back(std::move(made));
  }

  void NoteKeys() {
    if (moved_ > 0) {
      out_.notes.push_back(
          absl::StrCat(moved_, " tensors lie in ", name_,
                       ".data, each at a multiple of 4,096 bytes: their location, offset and "
                       "length are written anew"));
    }
    if (lengths_ > 0) {
      out_.notes.push_back(absl::StrCat(lengths_,
                                        " tensors reached to the end of a data file that is longer now: "
                                        "their lengths are written"));
    }
    if (checksums_ > 0) {
      out_.notes.push_back(absl::StrCat(
          checksums_, " checksums are left out: they are of data files that are not the same any more"));
    }
    if (prepacked_ > 0) {
      out_.notes.push_back(
          absl::StrCat(prepacked_, " notes of prepacked weights are left out: their weights moved"));
    }
  }

  OnnxFiles& out_;
  DataLayout layout_;
  std::string name_;
  Payloads payloads_;
  std::map<std::string, std::vector<Kept>> kept_;  // by location
  std::set<std::string> names_;                    // of data files that are kept
  NewFile single_;
  std::map<std::tuple<const ReadableFile*, const Weight*, int64_t, int64_t>, int64_t> shared_;  // -> offset
  int64_t moved_ = 0, lengths_ = 0, checksums_ = 0, prepacked_ = 0;
};

}  // namespace

absl::StatusOr<OnnxFiles> PlanOnnxFiles(OnnxRewrite rewrite, DataLayout layout, const std::string& name) {
  OnnxFiles out;
  out.rewrite = std::move(rewrite);
  TWIN_RETURN_IF_ERROR(Planner(out, layout, name).Run());
  return out;
}

}  // namespace twinforge
