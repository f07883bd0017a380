#include "exporters/header.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/file.h"
#include "base/json_reader.h"
#include "base/status_macros.h"

namespace twinforge {
namespace {

constexpr int64_t kLongestHeader = 100'000'000;  // the format's own limit

std::string LengthBytes(uint64_t length) {
  std::string bytes(8, '\0');
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(length >> (8 * i));
  return bytes;
}

// As serde_json writes it: only what JSON demands is escaped, other bytes go through.
void AppendString(absl::string_view text, std::string& out) {
  out += '"';
  for (char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          absl::StrAppend(&out, "\\u", absl::Hex(c, absl::kZeroPad4));
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

void AppendEntry(const HeaderEntry& entry, int64_t begin, std::string& out) {
  AppendString(entry.name, out);
  absl::StrAppend(&out, ":{\"dtype\":\"", SafetensorsName(entry.dtype), "\",\"shape\":[");
  for (size_t i = 0; i < entry.shape.size(); ++i) absl::StrAppend(&out, i == 0 ? "" : ",", entry.shape[i]);
  absl::StrAppend(&out, "],\"data_offsets\":[", begin, ",", begin + entry.bytes, "]}");
}

absl::StatusOr<int64_t> Integer(JsonReader& reader) {
  absl::string_view spelling;
  TWIN_RETURN_IF_ERROR(reader.Number(&spelling));
  int64_t value = 0;
  if (!absl::SimpleAtoi(spelling, &value) || value < 0) return reader.Fail("not a whole number");
  return value;
}

absl::StatusOr<std::vector<int64_t>> Integers(JsonReader& reader) {
  std::vector<int64_t> values;
  TWIN_RETURN_IF_ERROR(reader.EnterArray());
  while (true) {
    TWIN_ASSIGN_OR_RETURN(bool more, reader.NextItem());
    if (!more) return values;
    TWIN_ASSIGN_OR_RETURN(int64_t value, Integer(reader));
    values.push_back(value);
  }
}

struct Placed {
  HeaderEntry entry;
  int64_t begin = 0;
};

absl::StatusOr<Placed> Entry(JsonReader& reader, std::string name) {
  Placed placed;
  placed.entry.name = std::move(name);
  TWIN_RETURN_IF_ERROR(reader.EnterObject());
  while (true) {
    absl::string_view key;
    TWIN_ASSIGN_OR_RETURN(bool more, reader.NextMember(&key));
    if (!more) return placed;
    if (key == "dtype") {
      absl::string_view spelling;
      TWIN_RETURN_IF_ERROR(reader.String(&spelling));
      std::optional<DType> dtype = DTypeFromSafetensors(spelling);
      if (!dtype.has_value()) return reader.Fail("unknown dtype");
      placed.entry.dtype = *dtype;
    } else if (key == "shape") {
      TWIN_ASSIGN_OR_RETURN(placed.entry.shape, Integers(reader));
    } else if (key == "data_offsets") {
      TWIN_ASSIGN_OR_RETURN(std::vector<int64_t> offsets, Integers(reader));
      if (offsets.size() != 2 || offsets[1] < offsets[0]) return reader.Fail("not two offsets");
      placed.begin = offsets[0];
      placed.entry.bytes = offsets[1] - offsets[0];
    } else {
      return reader.Fail("unknown field");
    }
  }
}

absl::StatusOr<Metadata> ReadMetadata(JsonReader& reader) {
  Metadata metadata;
  TWIN_RETURN_IF_ERROR(reader.EnterObject());
  while (true) {
    absl::string_view key;
    TWIN_ASSIGN_OR_RETURN(bool more, reader.NextMember(&key));
    if (!more) return metadata;
    std::string name(key);
    absl::string_view value;
    TWIN_RETURN_IF_ERROR(reader.String(&value));
    metadata.emplace_back(std::move(name), std::string(value));
  }
}

}  // namespace

bool WrittenBefore(const HeaderEntry& a, const HeaderEntry& b) {
  if (a.dtype != b.dtype) return a.dtype > b.dtype;
  return a.name < b.name;
}

std::string WriteHeader(absl::Span<const HeaderEntry> entries, const Metadata& metadata) {
  std::string json = "{";
  json.reserve(entries.size() * 128 + 64);
  if (!metadata.empty()) {
    json += "\"__metadata__\":{";
    for (size_t i = 0; i < metadata.size(); ++i) {
      if (i > 0) json += ',';
      AppendString(metadata[i].first, json);
      json += ':';
      AppendString(metadata[i].second, json);
    }
    json += '}';
  }
  int64_t offset = 0;
  for (const HeaderEntry& entry : entries) {
    if (json.size() > 1) json += ',';
    AppendEntry(entry, offset, json);
    offset += entry.bytes;
  }
  json += '}';
  json.append((8 - json.size() % 8) % 8, ' ');
  return LengthBytes(json.size()) + json;
}

absl::StatusOr<ReadHeader> ParseHeader(absl::string_view text, absl::string_view place) {
  JsonReader reader(text, place, JsonDialect::kHeader);
  TWIN_RETURN_IF_ERROR(reader.Start());
  TWIN_RETURN_IF_ERROR(reader.EnterObject());
  ReadHeader header;
  std::vector<Placed> placed;
  while (true) {
    absl::string_view key;
    TWIN_ASSIGN_OR_RETURN(bool more, reader.NextMember(&key));
    if (!more) break;
    if (key == "__metadata__") {
      TWIN_ASSIGN_OR_RETURN(header.metadata, ReadMetadata(reader));
      continue;
    }
    TWIN_ASSIGN_OR_RETURN(Placed entry, Entry(reader, std::string(key)));
    placed.push_back(std::move(entry));
  }
  TWIN_RETURN_IF_ERROR(reader.Finish());
  // Stable, so that empty tensors at one offset keep the order of the file.
  std::stable_sort(placed.begin(), placed.end(),
                   [](const Placed& a, const Placed& b) { return a.begin < b.begin; });
  header.entries.reserve(placed.size());
  for (Placed& p : placed) header.entries.push_back(std::move(p.entry));
  return header;
}

absl::StatusOr<std::string> ReadHeaderBytes(const std::string& path) {
  TWIN_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, ReadableFile::Open(path));
  std::byte length[8];
  TWIN_RETURN_IF_ERROR(file->ReadAt(0, 8, length));
  int64_t count = 0;
  for (int i = 7; i >= 0; --i) count = count << 8 | static_cast<int64_t>(length[i]);
  if (count < 2 || count > kLongestHeader) return Error(1210, path, "impossible header length");
  std::string bytes(8 + count, '\0');
  TWIN_RETURN_IF_ERROR(file->ReadAt(0, 8 + count, reinterpret_cast<std::byte*>(bytes.data())));
  return bytes;
}

}  // namespace twinforge
