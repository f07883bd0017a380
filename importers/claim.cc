#include "importers/claim.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/parallel.h"
#include "base/status_macros.h"
#include "re2/re2.h"
#include "weights/build.h"

namespace twinforge {
namespace {

std::string Place(const Checkpoint& checkpoint, const StoredTensor& tensor) {
  return checkpoint.files()[tensor.file].name;
}

bool IsReadable(DType dtype) {
  return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

// Whether two stored tensors hold the same bytes, compared in blocks.
absl::StatusOr<bool> SameBytes(const Checkpoint& checkpoint, const StoredTensor& a, const StoredTensor& b) {
  if (a.dtype != b.dtype || a.shape != b.shape) return false;
  constexpr int64_t kBlock = 1 << 20;
  const WeightPtr x = Source(a.name, a.dtype, a.shape);
  const WeightPtr y = Source(b.name, b.dtype, b.shape);
  const int64_t width = ElementBytes(a.dtype);
  std::vector<std::byte> left(kBlock * width), right(kBlock * width);
  for (int64_t first = 0; first < x->element_count(); first += kBlock) {
    const int64_t count = std::min(kBlock, x->element_count() - first);
    TWIN_RETURN_IF_ERROR(checkpoint.ReadElements(*x, first, count, left.data()));
    TWIN_RETURN_IF_ERROR(checkpoint.ReadElements(*y, first, count, right.data()));
    if (std::memcmp(left.data(), right.data(), count * width) != 0) return false;
  }
  return true;
}

class Claimer {
 public:
  Claimer(const Layout& layout, const Checkpoint& checkpoint, const std::set<std::string>& tied,
          std::map<std::string, ParamType>& types)
      : layout_(layout),
        checkpoint_(checkpoint),
        tied_(tied),
        types_(types),
        claimed_(checkpoint.tensors().size()) {}

  absl::StatusOr<Claim> Run() {
    for (const LayoutTensor& tensor : layout_.tensors) TWIN_RETURN_IF_ERROR(Take(tensor));
    TWIN_RETURN_IF_ERROR(CheckNoneMissing());
    for (const Tie& tie : layout_.ties) TWIN_RETURN_IF_ERROR(CheckTie(tie));
    TWIN_RETURN_IF_ERROR(ListSources());
    int64_t most = -1;
    for (const auto& [dtype, bytes] : bytes_) {
      if (bytes > most) claim_.dtype = dtype;
      most = std::max(most, bytes);
    }
    return std::move(claim_);
  }

 private:
  // More are missing than there are tensors: the config is another model's, and how much of it is absent need
  // not be looked up name by name.
  bool Hopeless() const { return missing_ > static_cast<int64_t>(checkpoint_.tensors().size()) + 1; }

  absl::Status Take(const LayoutTensor& tensor) {
    const bool is_tied = tensor.parts.size() == 1 && tied_.contains(tensor.parts[0].role);
    const StoredTensor* last =
        nullptr;  // the experts of a run look alike: what was found for one holds for the next
    for (int64_t i = 0; i < tensor.count(); ++i) {
      if (!is_tied && Hopeless()) {
        missing_ += tensor.count() - i;
        break;
      }
      const std::string name = tensor.NameAt(i);
      const StoredTensor* stored = checkpoint_.Find(name);
      if (stored == nullptr) {
        if (!is_tied) NoteMissing(name, tensor);
        continue;
      }
      const bool like_last = last != nullptr && last->dtype == stored->dtype && last->shape == stored->shape;
      if (!like_last) TWIN_RETURN_IF_ERROR(Check(tensor, *stored, is_tied));
      last = stored;
      if (is_tied) {
        copies_[tensor.parts[0].role] = stored;
        continue;
      }
      bytes_[stored->dtype] += stored->bytes;
      claimed_[stored - checkpoint_.tensors().data()] = true;
    }
    return absl::OkStatus();
  }

  void NoteMissing(const std::string& name, const LayoutTensor& tensor) {
    if (missing_++ > 0) return;
    first_missing_ = name;
    first_missing_role_ = tensor.parts[0].role;
  }

  // Shape and dtype; the dtypes of the parts become what is stored.
  absl::Status Check(const LayoutTensor& tensor, const StoredTensor& stored, bool is_tied) {
    const std::string place = Place(checkpoint_, stored);
    TWIN_ASSIGN_OR_RETURN(const Shape shape, StoredShape(tensor, types_));
    if (shape != stored.shape) {
      return Error(1411, place,
                   absl::StrCat("tensor \"", stored.name, "\" is ", ShapeText(stored.shape),
                                ", config.json makes it ", ShapeText(shape)),
                   "the config may belong to another model");
    }
    if (!IsReadable(stored.dtype)) {
      return Error(1412, place,
                   absl::StrCat("tensor \"", stored.name, "\" is stored as ", Name(stored.dtype)),
                   "convert the checkpoint to bf16 first");
    }
    if (is_tied) return absl::OkStatus();
    for (const LayoutPart& part : tensor.parts) {
      const auto [first, is_first] = holder_.emplace(part.role, &stored);
      if (!is_first && first->second->dtype != stored.dtype) {
        return Error(1412, place,
                     absl::StrCat("tensor \"", stored.name, "\" is ", Name(stored.dtype), ", \"",
                                  first->second->name, "\" of the same stack ", Name(first->second->dtype)));
      }
      types_.at(part.role).dtype = stored.dtype;
    }
    return absl::OkStatus();
  }

  absl::Status CheckNoneMissing() const {
    if (missing_ == 0) return absl::OkStatus();
    std::string hint = "a shard may be absent, or the config may belong to another model";
    for (const Tie& tie : layout_.ties) {
      if (first_missing_role_ != tie.role) continue;
      hint = absl::StrCat("if the model ties it, config.json must say \"", tie.key, "\": true");
    }
    const int64_t others = missing_ - 1;
    return Error(1409, checkpoint_.root(),
                 absl::StrCat("tensor \"", first_missing_, "\"",
                              others == 0 ? std::string(" is") : absl::StrCat(" and ", others, " others are"),
                              " missing"),
                 hint);
  }

  // A tied role takes its partner's dtype; where it is stored too, it must be a copy.
  absl::Status CheckTie(const Tie& tie) {
    if (!tied_.contains(tie.role)) return absl::OkStatus();
    types_.at(tie.role).dtype = types_.at(tie.to).dtype;
    const auto copy = copies_.find(tie.role);
    if (copy == copies_.end()) return absl::OkStatus();
    const StoredTensor& partner = *holder_.at(tie.to);
    TWIN_ASSIGN_OR_RETURN(const bool same, SameBytes(checkpoint_, *copy->second, partner));
    if (same) return absl::OkStatus();
    return Error(1413, Place(checkpoint_, *copy->second),
                 absl::StrCat("tensor \"", copy->second->name, "\" differs from \"", partner.name,
                              "\", to which config.json ties it"),
                 absl::StrCat("set ", tie.key, " to false if both are meant"));
  }

  // Names, files and nodes of all stored tensors.
  void MakeSources() {
    constexpr int64_t kWorthAThread = 1024;
    const std::vector<StoredTensor>& tensors = checkpoint_.tensors();
    claim_.sources.resize(tensors.size());
    ParallelFor(static_cast<int64_t>(tensors.size()), kWorthAThread, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        claim_.sources[i].name = tensors[i].name;
        claim_.sources[i].file = Place(checkpoint_, tensors[i]);
        claim_.sources[i].source = Source(tensors[i].name, tensors[i].dtype, tensors[i].shape);
      }
    });
  }

  absl::Status ListSources() {
    std::vector<std::pair<std::unique_ptr<RE2>, absl::string_view>> ignored;
    for (const IgnoredTensor& rule : layout_.ignored) {
      ignored.emplace_back(std::make_unique<RE2>(rule.pattern), rule.reason);
    }
    std::map<std::string, std::string> copy_of;
    for (const Tie& tie : layout_.ties) {
      const auto copy = copies_.find(tie.role);
      if (copy != copies_.end())
        copy_of[copy->second->name] = absl::StrCat("a copy of ", holder_.at(tie.to)->name);
    }
    const StoredTensor* unknown = nullptr;
    int64_t unknowns = 0;
    MakeSources();
    claim_.stored.reserve(claim_.sources.size());
    for (size_t i = 0; i < claim_.sources.size(); ++i) {
      const StoredTensor& tensor = checkpoint_.tensors()[i];
      SourceTensor& source = claim_.sources[i];
      if (claimed_[i]) {
        claim_.stored.emplace(tensor.name, source.source);
        continue;
      }
      if (const auto copy = copy_of.find(tensor.name); copy != copy_of.end()) source.ignored = copy->second;
      for (const auto& [pattern, reason] : ignored) {
        if (source.ignored.empty() && RE2::FullMatch(tensor.name, *pattern))
          source.ignored = std::string(reason);
      }
      if (source.ignored.empty() && unknowns++ == 0) unknown = &tensor;
    }
    if (unknown == nullptr) return absl::OkStatus();
    const std::string others = unknowns == 1 ? "" : absl::StrCat(" and ", unknowns - 1, " others");
    return Error(1410, Place(checkpoint_, *unknown),
                 absl::StrCat("tensor \"", unknown->name, "\"", others, ": no role of the model uses ",
                              unknowns == 1 ? "it" : "them"),
                 "the checkpoint may be of another family, an adapter, or hold a part that is not supported");
  }

  const Layout& layout_;
  const Checkpoint& checkpoint_;
  const std::set<std::string>& tied_;
  std::map<std::string, ParamType>& types_;
  Claim claim_;
  std::vector<bool> claimed_;  // by position in checkpoint_.tensors()
  int64_t missing_ = 0;
  std::string first_missing_, first_missing_role_;
  std::map<std::string, const StoredTensor*> copies_;             // stored tensors of tied roles
  absl::flat_hash_map<std::string, const StoredTensor*> holder_;  // role -> first tensor that holds it
  std::map<DType, int64_t> bytes_;
};

}  // namespace

size_t ChooseLayout(const std::vector<CompiledLayout>& layouts, const Checkpoint& checkpoint) {
  size_t best = 0;
  int64_t fewest = -1;
  for (size_t i = 0; i < layouts.size(); ++i) {
    int64_t missing = 0;
    for (const LayoutTensor& tensor : layouts[i].layout.tensors) {
      // More missing than there are: the rest is as good as missing too.
      for (int64_t k = 0; k < tensor.count(); ++k) {
        if (missing > static_cast<int64_t>(checkpoint.tensors().size())) {
          missing += tensor.count() - k;
          break;
        }
        missing += checkpoint.Find(tensor.NameAt(k)) == nullptr;
      }
    }
    if (fewest >= 0 && missing >= fewest) continue;
    best = i;
    fewest = missing;
  }
  return best;
}

absl::StatusOr<Claim> ClaimTensors(const Layout& layout, const Checkpoint& checkpoint,
                                   const std::set<std::string>& tied,
                                   std::map<std::string, ParamType>& types) {
  return Claimer(layout, checkpoint, tied, types).Run();
}

}  // namespace twinforge
