#include <algorithm>
#include <map>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "importers/checkpoint_folder.h"

namespace twinforge {
namespace {

constexpr int64_t kQuoteLimit = 100;

// A shard lies beside its index: its name is a file name and nothing more.
absl::Status CheckShardName(absl::string_view file, absl::string_view tensor, absl::string_view place) {
  const std::string where = absl::StrCat(place, ": tensor ", JsonQuoted(tensor, kQuoteLimit));
  const std::string quoted = JsonQuoted(file, kQuoteLimit);
  const auto elsewhere = [&](absl::string_view what) {
    return Error(1303, where, absl::StrCat("its shard ", quoted, " ", what),
                 "shards must lie beside their index and be named by file name alone");
  };
  if (absl::StartsWith(file, "/")) return elsewhere("is an absolute path");
  if (absl::StrContains(file, "\\")) return elsewhere("has a backslash");
  if (file == ".." || absl::StartsWith(file, "../") || absl::StrContains(file, "/../")) {
    return elsewhere("climbs out of the folder");
  }
  if (absl::StrContains(file, "/")) return elsewhere("lies in another folder");
  const bool printable = std::all_of(file.begin(), file.end(), [](char c) { return c >= 0x20 && c < 0x7F; });
  if (!printable || file.size() > 255 || !absl::EndsWith(file, ".safetensors")) {
    return Error(1302, where, absl::StrCat("its shard ", quoted, " is not the name of a .safetensors file"));
  }
  return absl::OkStatus();
}

class IndexWalk {
 public:
  IndexWalk(absl::string_view text, absl::string_view place)
      : reader_(text, place, JsonDialect::kDocument), place_(place) {}

  absl::StatusOr<ShardIndex> Run() {
    TWIN_RETURN_IF_ERROR(reader_.Start());
    TWIN_RETURN_IF_ERROR(Require(JsonKind::kObject, "the index"));
    TWIN_RETURN_IF_ERROR(reader_.EnterObject());
    KeySet keys;
    bool mapped = false;
    for (;;) {
      absl::string_view key;
      TWIN_ASSIGN_OR_RETURN(const bool more, reader_.NextMember(&key));
      if (!more) break;
      if (!keys.Insert(key)) return reader_.FailDuplicate(key);
      mapped = mapped || key == "weight_map";
      TWIN_RETURN_IF_ERROR(key == "weight_map" ? WeightMap()
                           : key == "metadata" ? Metadata()
                                               : reader_.Skip());
    }
    TWIN_RETURN_IF_ERROR(reader_.Finish());
    if (!mapped) return Error(1302, place_, "the index has no weight_map");
    if (index_.tensors.empty()) return Error(1302, place_, "weight_map is empty");
    Sort();
    return std::move(index_);
  }

 private:
  absl::Status Require(JsonKind kind, absl::string_view what) {
    TWIN_ASSIGN_OR_RETURN(const JsonKind found, reader_.Peek());
    if (found == kind) return absl::OkStatus();
    return Error(1302, place_, absl::StrCat(what, " must be ", Name(kind), ", found ", Name(found)));
  }

  absl::Status WeightMap() {
    TWIN_RETURN_IF_ERROR(Require(JsonKind::kObject, "weight_map"));
    TWIN_RETURN_IF_ERROR(reader_.EnterObject());
    KeySet names;
    for (;;) {
      absl::string_view name, file;
      TWIN_ASSIGN_OR_RETURN(const bool more, reader_.NextMember(&name));
      if (!more) return absl::OkStatus();
      if (!names.Insert(name)) return reader_.FailDuplicate(name);
      if (!reader_.NextIs(JsonKind::kString)) {
        return Require(JsonKind::kString, absl::StrCat("the shard of ", JsonQuoted(name, kQuoteLimit)));
      }
      TWIN_RETURN_IF_ERROR(reader_.String(&file));
      auto it = number_of_.find(file);
      if (it == number_of_.end()) {
        TWIN_RETURN_IF_ERROR(CheckShardName(file, name, place_));
        it = number_of_.emplace(std::string(file), static_cast<int32_t>(index_.files.size())).first;
        index_.files.emplace_back(file);
      }
      index_.tensors.push_back({std::string(name), it->second});
    }
  }

  absl::Status Metadata() {
    TWIN_ASSIGN_OR_RETURN(const JsonKind kind, reader_.Peek());
    if (kind != JsonKind::kObject) return reader_.Skip();
    TWIN_RETURN_IF_ERROR(reader_.EnterObject());
    KeySet keys;
    for (;;) {
      absl::string_view key;
      TWIN_ASSIGN_OR_RETURN(const bool more, reader_.NextMember(&key));
      if (!more) return absl::OkStatus();
      if (!keys.Insert(key)) return reader_.FailDuplicate(key);
      TWIN_ASSIGN_OR_RETURN(const JsonKind found, reader_.Peek());
      if (key != "total_size" || found != JsonKind::kNumber) {
        TWIN_RETURN_IF_ERROR(reader_.Skip());
        continue;
      }
      absl::string_view spelling;
      TWIN_RETURN_IF_ERROR(reader_.Number(&spelling));
      double size = 0;  // older savers wrote 13476835328.0
      if (absl::SimpleAtod(spelling, &size) && size >= 0 && size < 9e18) {
        index_.total_size = static_cast<int64_t>(size);
      }
    }
  }

  // Files and tensors ascending by name, so that what follows does not depend on the file's order.
  void Sort() {
    std::vector<std::string> sorted = index_.files;
    std::sort(sorted.begin(), sorted.end());
    std::vector<int32_t> renumbered(index_.files.size());
    for (size_t i = 0; i < index_.files.size(); ++i) {
      renumbered[i] = static_cast<int32_t>(std::lower_bound(sorted.begin(), sorted.end(), index_.files[i]) -
                                           sorted.begin());
    }
    index_.files = std::move(sorted);
    for (IndexedTensor& tensor : index_.tensors) tensor.file = renumbered[tensor.file];
    std::sort(index_.tensors.begin(), index_.tensors.end(),
              [](const IndexedTensor& a, const IndexedTensor& b) { return a.name < b.name; });
  }

  JsonReader reader_;
  std::string place_;
  ShardIndex index_;
  absl::flat_hash_map<std::string, int32_t> number_of_;
};

}  // namespace

absl::StatusOr<ShardIndex> ParseShardIndex(absl::string_view text, absl::string_view place) {
  return IndexWalk(text, place).Run();
}

}  // namespace twinforge
