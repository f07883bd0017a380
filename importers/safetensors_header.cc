// The header of a safetensors file, by the rules of the format and nothing looser.
//
//   | N, 8 bytes | {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, ...} | data |
//
// The header is walked once, without a tree; then the ranges, sorted, must tile the data.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "importers/checkpoint.h"

namespace twinforge {
namespace {

constexpr int64_t kLargestNumber = int64_t{1} << 53;  // beyond it, readers of JSON disagree
constexpr int64_t kLongestName = 4096;
constexpr int64_t kMostAxes = 64;  // as numpy; bounds what a hostile shape can cost
constexpr int kHeaderDepth = 3;    // header, entry, shape
constexpr int64_t kQuoteLimit = 100;
constexpr size_t kUsualEntry = 128;  // bytes of header per tensor, to reserve by

std::string TensorPlace(absl::string_view place, absl::string_view name) {
  return absl::StrCat(place, ": tensor ", JsonQuoted(name, kQuoteLimit));
}

std::string RangeText(int64_t begin, int64_t end) { return absl::StrCat("[", begin, ", ", end, ")"); }

absl::Status CheckTensorName(absl::string_view name, absl::string_view place) {
  if (name.empty()) return Error(1216, place, "a tensor has an empty name");
  if (static_cast<int64_t>(name.size()) > kLongestName) {
    return Error(
        1216, TensorPlace(place, name),
        absl::StrCat("a name of ", name.size(), " bytes, and at most ", kLongestName, " are accepted"));
  }
  for (const char c : name) {
    const uint8_t byte = static_cast<uint8_t>(c);
    if (byte < 0x20 || byte == 0x7F) {
      return Error(1216, TensorPlace(place, name), "the name has a control character");
    }
    if (byte >= 0x80) {
      return Error(1216, TensorPlace(place, name), "the name has characters beyond ASCII",
                   "rename the tensor: two spellings of one letter would make two tensors that look alike");
    }
  }
  return absl::OkStatus();
}

// Digits and nothing else, at most 2^53.
bool IsWholeNumber(absl::string_view spelling, int64_t* out) {
  int64_t value = 0;
  for (const char c : spelling) {
    if (c < '0' || c > '9') return false;
    value = value * 10 + (c - '0');
    if (value > kLargestNumber) return false;
  }
  *out = value;
  return true;
}

absl::Status UnknownDtype(absl::string_view dtype, absl::string_view place) {
  std::vector<std::string> known;
  for (const DType each : AllDTypes()) known.emplace_back(SafetensorsName(each));
  const std::string near = dtype.size() < 32 ? Nearest(absl::AsciiStrToUpper(dtype), known) : "";
  return Error(1213, place, absl::StrCat("unknown dtype ", JsonQuoted(dtype, kQuoteLimit)),
               near.empty() ? "" : absl::StrCat("did you mean ", near, "?"));
}

// Walks one header. Errors name the file, and the tensor as soon as it has a name.
class HeaderWalk {
 public:
  HeaderWalk(absl::string_view header, absl::string_view place)
      : reader_(header, place, JsonDialect::kHeader, kHeaderDepth), place_(place), size_(header.size()) {}

  absl::Status Run(ParsedHeader* out) {
    TWIN_RETURN_IF_ERROR(reader_.Start());
    TWIN_RETURN_IF_ERROR(reader_.EnterObject());
    out->tensors.reserve(size_ / kUsualEntry);
    KeySet names;
    for (;;) {
      absl::string_view name;
      TWIN_ASSIGN_OR_RETURN(const bool more, reader_.NextMember(&name));
      if (!more) break;
      if (!names.Insert(name)) return reader_.FailDuplicate(name);
      if (name == "__metadata__") {
        TWIN_RETURN_IF_ERROR(Metadata(&out->metadata));
        continue;
      }
      TWIN_RETURN_IF_ERROR(CheckTensorName(name, place_));
      out->tensors.emplace_back();
      out->tensors.back().name = std::string(name);
      if (absl::Status status = Entry(&out->tensors.back()); !status.ok()) {
        return InTensor(status, out->tensors.back());
      }
    }
    return reader_.Finish();
  }

 private:
  // Fails unless a value of `kind` comes next. `what` is "dtype must be".
  absl::Status Require(JsonKind kind, int code, absl::string_view place, absl::string_view what) {
    if (reader_.NextIs(kind)) return absl::OkStatus();
    TWIN_ASSIGN_OR_RETURN(const JsonKind found, reader_.Peek());
    return Error(code, place, absl::StrCat(what, " ", Name(kind), ", found ", Name(found)));
  }

  absl::Status Metadata(std::map<std::string, std::string>* out) {
    const std::string place = absl::StrCat(place_, ": __metadata__");
    TWIN_RETURN_IF_ERROR(Require(JsonKind::kObject, 1217, place, "must be"));
    TWIN_RETURN_IF_ERROR(reader_.EnterObject());
    for (;;) {
      absl::string_view key, value;
      TWIN_ASSIGN_OR_RETURN(const bool more, reader_.NextMember(&key));
      if (!more) return absl::OkStatus();
      TWIN_RETURN_IF_ERROR(Require(JsonKind::kString, 1217, place,
                                   absl::StrCat("the value of ", JsonQuoted(key, kQuoteLimit), " must be")));
      TWIN_RETURN_IF_ERROR(reader_.String(&value));
      if (!out->emplace(std::string(key), std::string(value)).second) return reader_.FailDuplicate(key);
    }
  }

  // Exactly dtype, shape and data_offsets, in any order. Keeps the offsets relative to the data.
  absl::Status Entry(StoredTensor* tensor) {
    static constexpr absl::string_view kFields[] = {"dtype", "shape", "data_offsets"};
    bool seen[] = {false, false, false};
    TWIN_RETURN_IF_ERROR(Require(JsonKind::kObject, 1212, "", "the entry must be"));
    TWIN_RETURN_IF_ERROR(reader_.EnterObject());
    for (;;) {
      absl::string_view key;
      TWIN_ASSIGN_OR_RETURN(const bool more, reader_.NextMember(&key));
      if (!more) break;
      const auto field = std::find(std::begin(kFields), std::end(kFields), key) - std::begin(kFields);
      if (field == 3) return Error(1212, "", absl::StrCat("unknown field ", JsonQuoted(key, kQuoteLimit)));
      if (std::exchange(seen[field], true)) return reader_.FailDuplicate(key);
      TWIN_RETURN_IF_ERROR(field == 0 ? Dtype(tensor) : field == 1 ? Extents(tensor) : Offsets(tensor));
    }
    for (int field = 0; field < 3; ++field) {
      if (!seen[field]) return Error(1212, "", absl::StrCat("has no ", kFields[field]));
    }
    return absl::OkStatus();
  }

  // A diagnostic without a place is about the tensor; one with a place (of the JSON) stays.
  absl::Status InTensor(const absl::Status& status, const StoredTensor& tensor) {
    const std::optional<Diagnostic> diagnostic = DiagnosticOf(status);
    if (!diagnostic.has_value() || !diagnostic->place.empty()) return status;
    return WithPlace(status, TensorPlace(place_, tensor.name));
  }

  absl::Status Dtype(StoredTensor* tensor) {
    TWIN_RETURN_IF_ERROR(Require(JsonKind::kString, 1212, "", "dtype must be"));
    absl::string_view spelling;
    TWIN_RETURN_IF_ERROR(reader_.String(&spelling));
    const std::optional<DType> dtype = DTypeFromSafetensors(spelling);
    if (!dtype.has_value()) return UnknownDtype(spelling, "");
    tensor->dtype = *dtype;
    return absl::OkStatus();
  }

  absl::Status WholeNumber(absl::string_view what, int64_t* out) {
    if (!reader_.NextIs(JsonKind::kNumber)) {
      return Require(JsonKind::kNumber, 1212, "", absl::StrCat("each of ", what, " must be"));
    }
    absl::string_view spelling;
    TWIN_RETURN_IF_ERROR(reader_.Number(&spelling));
    if (IsWholeNumber(spelling, out)) return absl::OkStatus();
    return Error(
        1214, "",
        absl::StrCat(what, " has ", spelling.substr(0, 40), ", which is not a whole number from 0 to 2^53"));
  }

  absl::Status Extents(StoredTensor* tensor) {
    TWIN_RETURN_IF_ERROR(Require(JsonKind::kArray, 1212, "", "shape must be"));
    TWIN_RETURN_IF_ERROR(reader_.EnterArray());
    for (;;) {
      TWIN_ASSIGN_OR_RETURN(const bool more, reader_.NextItem());
      if (!more) return absl::OkStatus();
      if (static_cast<int64_t>(tensor->shape.size()) == kMostAxes) {
        return Error(1212, "", absl::StrCat("shape has more than ", kMostAxes, " axes"));
      }
      int64_t extent = 0;
      TWIN_RETURN_IF_ERROR(WholeNumber("shape", &extent));
      tensor->shape.push_back(extent);
    }
  }

  absl::Status Offsets(StoredTensor* tensor) {
    TWIN_RETURN_IF_ERROR(Require(JsonKind::kArray, 1212, "", "data_offsets must be"));
    TWIN_RETURN_IF_ERROR(reader_.EnterArray());
    int64_t offsets[2] = {0, 0};
    for (int count = 0;; ++count) {
      TWIN_ASSIGN_OR_RETURN(const bool more, reader_.NextItem());
      if (more ? count == 2 : count < 2) {
        return Error(
            1212, "",
            absl::StrCat("data_offsets must have two numbers, has ", more ? "more" : absl::StrCat(count)));
      }
      if (!more) break;
      TWIN_RETURN_IF_ERROR(WholeNumber("data_offsets", &offsets[count]));
    }
    if (offsets[1] < offsets[0]) {
      return Error(1215, "",
                   absl::StrCat("data_offsets end at ", offsets[1], ", before they begin at ", offsets[0]));
    }
    tensor->offset = offsets[0];
    tensor->bytes = offsets[1] - offsets[0];
    return absl::OkStatus();
  }

  JsonReader reader_;
  std::string place_;
  size_t size_;
};

// Shape times width is the range's length. An extent of 0 does not excuse an overflow among
// the others: readers that multiply in another order would see one.
absl::Status CheckSize(const StoredTensor& tensor, absl::string_view place) {
  const auto fail = [&](absl::string_view what) {
    return Error(
        1215, TensorPlace(place, tensor.name),
        absl::StrCat("shape ", ShapeText(tensor.shape), " of ", SafetensorsName(tensor.dtype), what));
  };
  int64_t bits = BitWidth(tensor.dtype);
  bool empty = false;
  for (const int64_t extent : tensor.shape) {
    if (extent == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(bits, extent, &bits)) {
      return fail(" overflows 64 bits");
    }
  }
  if (empty) bits = 0;
  if (bits % 8 != 0) return fail(absl::StrCat(" takes ", bits, " bits, which are not whole bytes"));
  if (bits / 8 == tensor.bytes) return absl::OkStatus();
  return fail(absl::StrCat(" takes ", bits / 8, " bytes, data_offsets give ", tensor.bytes));
}

// The ranges, ascending, must tile [0, data_bytes).
absl::Status CheckTiling(const std::vector<StoredTensor>& tensors, int64_t data_bytes,
                         absl::string_view place) {
  int64_t end = 0;
  const StoredTensor* owner = nullptr;  // of the byte before `end`
  for (const StoredTensor& tensor : tensors) {
    if (tensor.offset < end) {
      return Error(1201, TensorPlace(place, tensor.name),
                   absl::StrCat("bytes ", RangeText(tensor.offset, tensor.offset + tensor.bytes),
                                " overlap tensor ", JsonQuoted(owner->name, kQuoteLimit), " at ",
                                RangeText(owner->offset, owner->offset + owner->bytes)));
    }
    if (tensor.offset > end) {
      return Error(1201, TensorPlace(place, tensor.name),
                   absl::StrCat("bytes ", RangeText(end, tensor.offset), " before it belong to no tensor"));
    }
    end += tensor.bytes;  // offset + bytes <= 2^53
    if (tensor.bytes > 0 || owner == nullptr) owner = &tensor;
  }
  if (end > data_bytes) {
    return Error(
        1204, place,
        absl::StrCat("the tensors take ", end, " bytes, the file has ", data_bytes, " after its header"),
        "the file was cut short; fetch it again");
  }
  if (end < data_bytes) {
    return Error(1218, place, absl::StrCat(data_bytes - end, " bytes follow the last tensor"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ParsedHeader> ParseSafetensorsHeader(absl::string_view header, int64_t file_size,
                                                    absl::string_view place) {
  if (header.empty() || header[0] != '{') {
    // A mark before the brace is told as such by the JSON reader.
    if (header.substr(0, 3) == "\xEF\xBB\xBF") {
      return JsonReader(header, place, JsonDialect::kHeader).Start();
    }
    return Error(1211, place,
                 header.empty() ? "the header is empty"
                                : absl::StrCat("the header begins with ", JsonQuoted(header.substr(0, 1)),
                                               ", not with \"{\""));
  }
  ParsedHeader parsed;
  parsed.header_bytes = 8 + static_cast<int64_t>(header.size());
  TWIN_RETURN_IF_ERROR(HeaderWalk(header, place).Run(&parsed));
  for (const StoredTensor& tensor : parsed.tensors) TWIN_RETURN_IF_ERROR(CheckSize(tensor, place));
  // Writers emit offset order, so this is a check more than a sort. Empty tensors come before
  // the one that begins where they lie; names break ties, so that any order of keys gives one result.
  const auto before = [](const StoredTensor& a, const StoredTensor& b) {
    if (a.offset != b.offset) return a.offset < b.offset;
    if (a.bytes != b.bytes) return a.bytes < b.bytes;
    return a.name < b.name;
  };
  if (!std::is_sorted(parsed.tensors.begin(), parsed.tensors.end(), before)) {
    std::sort(parsed.tensors.begin(), parsed.tensors.end(), before);
  }
  TWIN_RETURN_IF_ERROR(CheckTiling(parsed.tensors, file_size - parsed.header_bytes, place));
  for (StoredTensor& tensor : parsed.tensors) tensor.offset += parsed.header_bytes;
  return parsed;
}

}  // namespace twinforge
