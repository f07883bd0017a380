#include "importers/checkpoint.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/diagnostic.h"
#include "base/json_reader.h"
#include "base/parallel.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "importers/checkpoint_folder.h"
#include "weights/codec.h"

namespace twinforge {
namespace {

constexpr int64_t kLargestHeader = 100000000;  // the format's own limit
constexpr int64_t kQuoteLimit = 100;
constexpr size_t kFilesAtOnce = 32;  // opened before the first of them may be closed

// What else is found under the name of a safetensors file, by its first bytes.
struct Disguise {
  absl::string_view prefix;
  absl::string_view what;
  absl::string_view hint;
};
constexpr Disguise kDisguises[] = {
    {"version https://git-lfs", "a Git LFS pointer, not the file itself",
     "run `git lfs pull` in the checkpoint's folder"},
    {"<!doctype", "a web page", "the download failed or needs a login; fetch the file again"},
    {"<html", "a web page", "the download failed or needs a login; fetch the file again"},
    {"<?xml", "an XML document, perhaps a storage server's error", "fetch the file again"},
    {"{\"error\"", "an error message of a server",
     "the download failed or needs a login; fetch the file again"},
    {"gguf", "a GGUF file", "fetch the safetensors form of the model"},
    {"pk\x03\x04", "a zip archive, perhaps PyTorch's", "fetch the safetensors form of the model"},
    {"\x80\x02", "a Python pickle",
     "fetch the safetensors form of the model; pickles run code and are never opened"},
};

const Disguise* FindDisguise(absl::string_view start) {
  while (!start.empty() && (start[0] == ' ' || start[0] == '\n' || start[0] == '\r')) start.remove_prefix(1);
  for (const Disguise& disguise : kDisguises) {
    if (absl::StartsWithIgnoreCase(start, disguise.prefix)) return &disguise;
  }
  return nullptr;
}

// The first bytes make no sense: say what they are instead, if that is known.
absl::Status NotAHeader(const ReadableFile& file, int code, absl::string_view place,
                        absl::string_view message) {
  std::string start(static_cast<size_t>(std::min<int64_t>(file.size(), 64)), '\0');
  TWIN_RETURN_IF_ERROR(
      file.ReadAt(0, static_cast<int64_t>(start.size()), reinterpret_cast<std::byte*>(start.data())));
  if (const Disguise* disguise = FindDisguise(start)) {
    return Error(1209, place, absl::StrCat("is ", disguise->what), disguise->hint);
  }
  return Error(code, place, message);
}

uint64_t LittleEndian64(const std::byte* bytes) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = (value << 8) | static_cast<uint64_t>(bytes[i]);
  return value;
}

// The length N, when it can be one; nothing is allocated before it is known to be in the file.
absl::StatusOr<int64_t> HeaderLength(const ReadableFile& file, absl::string_view place) {
  if (file.size() == 0) return Error(1210, place, "the file is empty", "fetch it again");
  if (file.size() < 8) {
    return NotAHeader(file, 1210, place,
                      absl::StrCat("has ", file.size(), " bytes, and a header's length takes 8"));
  }
  std::array<std::byte, 8> bytes;
  TWIN_RETURN_IF_ERROR(file.ReadAt(0, 8, bytes.data()));
  const uint64_t length = LittleEndian64(bytes.data());
  if (length < 2)
    return Error(1210, place, absl::StrCat("its header has ", length, " bytes, and {} takes 2"));
  if (length > kLargestHeader) {
    return NotAHeader(
        file, 1210, place,
        absl::StrCat("its header would have ", length, " bytes, and the format's limit is ", kLargestHeader));
  }
  if (static_cast<int64_t>(length) > file.size() - 8) {
    return NotAHeader(file, 1210, place,
                      absl::StrCat("its header would have ", length, " bytes, and the file has ",
                                   file.size() - 8, " after the length"));
  }
  return static_cast<int64_t>(length);
}

struct OpenedFile {
  std::unique_ptr<ReadableFile> file;
  StoredFile stored;
  std::vector<StoredTensor> tensors;
};

// Reads and checks one file's header.
absl::StatusOr<OpenedFile> OpenFile(const CheckpointFolder::File& entry, const std::string& place) {
  OpenedFile opened;
  TWIN_ASSIGN_OR_RETURN(opened.file, ReadableFile::Open(entry.path));
  TWIN_ASSIGN_OR_RETURN(const int64_t length, HeaderLength(*opened.file, place));
  std::string start(static_cast<size_t>(8 + length), '\0');
  TWIN_RETURN_IF_ERROR(opened.file->ReadAt(0, 8 + length, reinterpret_cast<std::byte*>(start.data())));
  const absl::string_view header = absl::string_view(start).substr(8);
  if (header[0] != '{' && FindDisguise(start) != nullptr) return NotAHeader(*opened.file, 1211, place, "");
  TWIN_ASSIGN_OR_RETURN(ParsedHeader parsed, ParseSafetensorsHeader(header, opened.file->size(), place));
  opened.stored.name = entry.name;
  opened.stored.path = entry.path;
  opened.stored.header_bytes = parsed.header_bytes;
  opened.stored.header_sha256 = Sha256Hex(start);
  opened.stored.identity = opened.file->identity();
  opened.stored.metadata = std::move(parsed.metadata);
  opened.tensors = std::move(parsed.tensors);
  return opened;
}

// Files [first, first + count) of the folder, several at a time.
std::vector<absl::StatusOr<OpenedFile>> OpenFiles(const CheckpointFolder& folder, size_t first,
                                                  size_t count) {
  std::vector<absl::StatusOr<OpenedFile>> opened(count);
  ParallelFor(static_cast<int64_t>(count), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const CheckpointFolder::File& file = folder.files[first + i];
      opened[i] = OpenFile(file, absl::StrCat(folder.root, "/", file.name));
    }
  });
  return opened;
}

// `tensors` (ascending by name) against the index, both ways, and against themselves.
absl::Status CheckAgainstIndex(const std::vector<StoredTensor>& tensors, const CheckpointFolder& folder) {
  const std::string place = absl::StrCat(folder.root, "/", folder.index_name);
  const std::vector<IndexedTensor>& indexed = folder.index->tensors;
  const auto file = [&](int32_t i) { return folder.files[i].name; };
  size_t i = 0, k = 0;
  while (i < tensors.size() || k < indexed.size()) {
    const bool in_files = i < tensors.size() && (k == indexed.size() || tensors[i].name <= indexed[k].name);
    const bool in_index = k < indexed.size() && (i == tensors.size() || indexed[k].name <= tensors[i].name);
    if (in_files && in_index && tensors[i].file == indexed[k].file) {
      ++i, ++k;
      continue;
    }
    const std::string quoted = JsonQuoted(in_files ? tensors[i].name : indexed[k].name, kQuoteLimit);
    if (!in_index) {
      return Error(1305, place,
                   absl::StrCat("does not name tensor ", quoted, ", which ", file(tensors[i].file), " has"));
    }
    if (!in_files) {
      return Error(
          1304, place,
          absl::StrCat("says that ", file(indexed[k].file), " has tensor ", quoted, ", and no shard has it"));
    }
    return Error(1304, place,
                 absl::StrCat("says that ", file(indexed[k].file), " has tensor ", quoted, ", but ",
                              file(tensors[i].file), " has it"));
  }
  return absl::OkStatus();
}

absl::Status CheckUnique(const std::vector<StoredTensor>& tensors, const CheckpointFolder& folder) {
  for (size_t i = 1; i < tensors.size(); ++i) {
    if (tensors[i].name != tensors[i - 1].name) continue;
    const auto [first, second] = std::minmax(tensors[i].file, tensors[i - 1].file);
    return Error(1306, folder.root,
                 absl::StrCat("tensor ", JsonQuoted(tensors[i].name, kQuoteLimit), " is in both ",
                              folder.files[first].name, " and ", folder.files[second].name));
  }
  return absl::OkStatus();
}

// Savers get total_size wrong often enough that it is worth a word and no more.
void CompareTotalSize(const CheckpointFolder& folder, int64_t total, std::vector<std::string>* warnings) {
  const std::string place = absl::StrCat(folder.root, "/", folder.index_name);
  if (!folder.index->total_size.has_value()) {
    warnings->push_back(absl::StrCat(place, ": has no metadata.total_size"));
  } else if (*folder.index->total_size != total) {
    warnings->push_back(absl::StrCat(place, ": metadata.total_size is ", *folder.index->total_size,
                                     ", and the tensors take ", total, " bytes"));
  }
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Checkpoint>> Checkpoint::Open(const std::string& path) {
  TWIN_ASSIGN_OR_RETURN(CheckpointFolder folder, FindCheckpoint(path));
  std::shared_ptr<Checkpoint> checkpoint(new Checkpoint);  // private constructor
  checkpoint->root_ = folder.root;
  for (size_t first = 0; first < folder.files.size(); first += kFilesAtOnce) {
    const size_t count = std::min(kFilesAtOnce, folder.files.size() - first);
    for (absl::StatusOr<OpenedFile>& file : OpenFiles(folder, first, count)) {
      TWIN_ASSIGN_OR_RETURN(OpenedFile opened, std::move(file));
      for (StoredTensor& tensor : opened.tensors) {
        tensor.file = static_cast<int32_t>(checkpoint->files_.size());
        checkpoint->tensors_.push_back(std::move(tensor));
      }
      checkpoint->files_.push_back(std::move(opened.stored));
      checkpoint->pool_.Add(std::move(opened.file));  // which closes its oldest
    }
  }
  std::vector<StoredTensor>& tensors = checkpoint->tensors_;
  std::sort(tensors.begin(), tensors.end(),
            [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
  TWIN_RETURN_IF_ERROR(CheckUnique(tensors, folder));
  checkpoint->warnings_ = std::move(folder.warnings);
  if (folder.index.has_value()) {
    TWIN_RETURN_IF_ERROR(CheckAgainstIndex(tensors, folder));
    CompareTotalSize(folder, checkpoint->total_bytes(), &checkpoint->warnings_);
  }
  checkpoint->by_name_.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) checkpoint->by_name_.emplace(tensors[i].name, i);
  return std::shared_ptr<const Checkpoint>(std::move(checkpoint));
}

const StoredTensor* Checkpoint::Find(absl::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &tensors_[it->second];
}

int64_t Checkpoint::total_bytes() const {
  int64_t total = 0;
  for (const StoredTensor& tensor : tensors_) total += tensor.bytes;
  return total;
}

absl::Status Checkpoint::ReadElements(const Weight& source, int64_t first, int64_t count,
                                      std::byte* out) const {
  TWIN_CHECK(source.kind() == WeightKind::kSource, "ReadElements of something that is not stored");
  const StoredTensor* tensor = Find(source.source_name());
  if (tensor == nullptr) {
    return Error(1310, root_, absl::StrCat("has no tensor ", JsonQuoted(source.source_name(), kQuoteLimit)));
  }
  if (tensor->dtype != source.dtype() || tensor->shape != source.shape()) {
    return Error(1310,
                 absl::StrCat(files_[tensor->file].name, ": tensor ", JsonQuoted(tensor->name, kQuoteLimit)),
                 absl::StrCat("is ", Name(tensor->dtype), ShapeText(tensor->shape), ", planned as ",
                              Name(source.dtype()), ShapeText(source.shape())));
  }
  TWIN_CHECK(first >= 0 && count >= 0 && first <= source.element_count() - count,
             "a read past a tensor's end");
  const int64_t bits = BitWidth(tensor->dtype);
  if (count == 0) return absl::OkStatus();
  if (bits >= 8) {
    return pool_.ReadAt(tensor->file, tensor->offset + first * (bits / 8), count * (bits / 8), out);
  }

  // Narrow elements are read from the byte boundary before `first`, unpacked in small pieces
  // and copied: the granule of 2 or 4 elements is the unit that begins on a byte, and a
  // stored tensor is whole granules.
  const int64_t granule = PackingGranule(tensor->dtype);
  constexpr int64_t kPiece = 8192;  // elements, a multiple of every granule
  std::array<std::byte, kPiece> packed, elements;
  for (int64_t at = first / granule * granule; at < first + count; at += kPiece) {
    const int64_t piece = std::min(
        {kPiece, source.element_count() - at, (first + count - at + granule - 1) / granule * granule});
    TWIN_RETURN_IF_ERROR(
        pool_.ReadAt(tensor->file, tensor->offset + at * bits / 8, piece * bits / 8, packed.data()));
    Unpack(tensor->dtype, packed.data(), piece, elements.data());
    const int64_t begin = std::max(at, first);
    const int64_t end = std::min(at + piece, first + count);
    std::memcpy(out + (begin - first), elements.data() + (begin - at), static_cast<size_t>(end - begin));
  }
  return absl::OkStatus();
}

absl::Status Checkpoint::CheckUnchanged() const { return pool_.CheckUnchanged(); }

std::vector<std::string> Checkpoint::Files() const {
  std::vector<std::string> paths;
  for (const StoredFile& file : files_) paths.push_back(file.path);
  return paths;
}

}  // namespace twinforge
