#include "importers/adapter.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/diagnostic.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "importers/adapter_config.h"
#include "importers/checkpoint.h"
#include "importers/checkpoint_folder.h"
#include "ir/layout_parts.h"
#include "weights/build.h"

namespace twinforge {
namespace {

namespace fs = std::filesystem;

constexpr absl::string_view kModules = "base_model.model.";
constexpr absl::string_view kWeight = ".weight";
constexpr absl::string_view kA = ".lora_A.weight";
constexpr absl::string_view kB = ".lora_B.weight";

// The model's tensors, and the adapter's under names of their own.
class ModelAndAdapter : public TensorReader {
 public:
  ModelAndAdapter(std::shared_ptr<const TensorReader> model, std::shared_ptr<const Checkpoint> adapter,
                  absl::string_view prefix)
      : model_(std::move(model)), adapter_(std::move(adapter)) {
    for (const StoredTensor& tensor : adapter_->tensors()) {
      stored_[absl::StrCat(prefix, tensor.name)] = Source(tensor.name, tensor.dtype, tensor.shape);
    }
  }

  absl::Status ReadElements(const Weight& source, int64_t first, int64_t count,
                            std::byte* out) const override {
    const auto own = stored_.find(source.source_name());
    if (own != stored_.end()) return adapter_->ReadElements(*own->second, first, count, out);
    if (model_ != nullptr) return model_->ReadElements(source, first, count, out);
    return Error(1310, source.source_name(), "the model was made from a config alone and has no bytes");
  }

  absl::Status CheckUnchanged() const override {
    TWIN_RETURN_IF_ERROR(adapter_->CheckUnchanged());
    return model_ == nullptr ? absl::OkStatus() : model_->CheckUnchanged();
  }

  std::vector<std::string> Files() const override {
    std::vector<std::string> paths = adapter_->Files();
    if (model_ == nullptr) return paths;
    for (std::string& path : model_->Files()) paths.push_back(std::move(path));
    return paths;
  }

 private:
  std::shared_ptr<const TensorReader> model_;
  std::shared_ptr<const Checkpoint> adapter_;
  absl::flat_hash_map<std::string, WeightPtr> stored_;
};

// B [out, r] of a stored tensor, cut to the rows of one of its parts.
absl::StatusOr<WeightPtr> RowsOfPart(const WeightPtr& b, const LayoutTensor& tensor,
                                     const FactoredTensor& factored, size_t index,
                                     const std::vector<ParamType>& types) {
  // Of the factored extents only out axes are rows of B.
  Shape joined;
  int64_t join = -1, rows = 1;
  const FactoredPart& part = factored.parts[index];
  for (size_t i = 0; i < part.perm.size(); ++i) {
    if (part.perm[i] < types[index].in) continue;
    if (static_cast<int64_t>(i) == tensor.join_axis) join = static_cast<int64_t>(joined.size());
    joined.push_back(factored.joined[i]);
    rows *= part.sizes[i];
  }
  if (tensor.parts.size() == 1) return b;
  if (join < 0)
    return Error(1422, tensor.NameAt(0), "an adapter of tensors joined along their inputs is not merged");
  const int64_t rank = b->shape()[1];
  joined.push_back(rank);
  const WeightPtr whole = Reshape(b, joined);
  const int64_t size = part.sizes[tensor.join_axis];
  if (tensor.arrangement == Bundle::Arrangement::kInterleave) {
    const auto parts = static_cast<int64_t>(tensor.parts.size());
    return Reshape(Take(whole, join, IndexMap::Slice(static_cast<int64_t>(index), size, parts)),
                   {rows, rank});
  }
  int64_t start = 0;
  for (size_t i = 0; i < index; ++i) start += factored.parts[i].sizes[tensor.join_axis];
  return Reshape(Slice(whole, join, start, size), {rows, rank});
}

// Adds the pairs of one module.
absl::Status AddModule(const LayoutTensor& tensor, const Graph& graph, const WeightPtr& a, const WeightPtr& b,
                       double factor, Adapter& adapter) {
  std::map<std::string, const ParamType*> pointers;
  std::vector<ParamType> types;
  int64_t in = 1, out = 0;
  for (const LayoutPart& part : tensor.parts) {
    const Param* param = graph.FindParam(part.role);
    if (param == nullptr || !param->type.is_kernel() || param->type.lead != 0 || part.experts > 0) {
      return Error(1422, tensor.NameAt(0), "only kernels outside experts take an adapter");
    }
    pointers[part.role] = &param->type;
    types.push_back(param->type);
    const Shape shape = param->type.shape();
    int64_t columns = 1, rows = 1;
    for (int i = 0; i < static_cast<int>(shape.size()); ++i)
      (i < param->type.in ? columns : rows) *= shape[i];
    in = columns;
    out += rows;
  }
  const int64_t rank = a->shape().empty() ? 0 : a->shape()[0];
  if (a->shape() != Shape{rank, in} || b->shape() != Shape{out, rank} || rank < 1) {
    return Error(1423, tensor.NameAt(0),
                 absl::StrCat("lora_A ", ShapeText(a->shape()), " and lora_B ", ShapeText(b->shape()),
                              " for a kernel of ", out, " x ", in));
  }
  TWIN_ASSIGN_OR_RETURN(const FactoredTensor factored, FactorTensor(tensor, pointers));
  for (size_t i = 0; i < tensor.parts.size(); ++i) {
    TWIN_ASSIGN_OR_RETURN(WeightPtr rows, RowsOfPart(b, tensor, factored, i, types));
    adapter[tensor.parts[i].role] = {a, std::move(rows), factor};
  }
  return absl::OkStatus();
}

// The tensor is one that adapter_config.json speaks of, in the rank that it says.
absl::Status CheckDeclared(const AdapterConfig& config, const StoredTensor& tensor, const std::string& module,
                           bool is_a) {
  if (const std::string key = config.WhyNotFor(module); !key.empty()) {
    return Error(1422, tensor.name,
                 absl::StrCat("by ", key, " of adapter_config.json the adapter is not for its module"),
                 "peft would leave this tensor out without a word; correct the config, or remove the tensor");
  }
  const int64_t rank = config.RankOf(module);
  if (tensor.shape.size() == 2 && tensor.shape[is_a ? 0 : 1] == rank) return absl::OkStatus();
  return Error(1423, tensor.name,
               absl::StrCat("it is ", ShapeText(tensor.shape), ", and adapter_config.json says rank ", rank));
}

// Each module that the config is for has its matrices.
absl::Status CheckComplete(const AdapterConfig& config, const std::vector<std::string>& modules,
                           const Checkpoint& checkpoint, const std::string& path) {
  for (const std::string& module : modules) {
    if (!config.Wants(module) || checkpoint.Find(absl::StrCat(kModules, module, kA)) != nullptr) continue;
    return Error(1422, absl::StrCat(path, "/adapter_model.safetensors"),
                 absl::StrCat("it has no matrices for ", module,
                              ", which adapter_config.json names in target_modules"),
                 "fetch the adapter again, or correct the config: target_modules, exclude_modules or "
                 "layers_to_transform");
  }
  return absl::OkStatus();
}

// Every value is a number: a single NaN would spread over the kernel that it is merged into.
absl::Status CheckFinite(const Checkpoint& checkpoint, const std::string& path) {
  constexpr int64_t kBlock = int64_t{1} << 18;
  std::vector<std::byte> bytes;
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    const WeightPtr source = Source(tensor.name, tensor.dtype, tensor.shape);
    const int64_t width = ElementBytes(tensor.dtype);
    int64_t elements = 1;
    for (const int64_t extent : tensor.shape) elements *= extent;
    for (int64_t first = 0; first < elements; first += kBlock) {
      const int64_t count = std::min(kBlock, elements - first);
      bytes.resize(count * width);
      TWIN_RETURN_IF_ERROR(checkpoint.ReadElements(*source, first, count, bytes.data()));
      for (int64_t i = 0; i < count; ++i) {
        const double value = ToDouble(tensor.dtype, bytes.data() + i * width);
        if (std::isfinite(value)) continue;
        return Error(1424, absl::StrCat(path, "/adapter_model.safetensors: ", JsonQuoted(tensor.name, 200)),
                     absl::StrCat("element ", first + i, " is ",
                                  std::isnan(value) ? "NaN"
                                  : value > 0       ? "Inf"
                                                    : "-Inf"),
                     "take another checkpoint of the run that trained the adapter");
      }
    }
  }
  return absl::OkStatus();
}

// The first of adapter/, adapter/2/, ... that no source of the model bears.
std::string FreePrefix(const Model& model) {
  for (int number = 1;; ++number) {
    const std::string prefix = number == 1 ? "adapter/" : absl::StrCat("adapter/", number, "/");
    const auto bears = [&](const SourceTensor& source) { return absl::StartsWith(source.name, prefix); };
    if (std::none_of(model.sources.begin(), model.sources.end(), bears)) return prefix;
  }
}

}  // namespace

absl::StatusOr<Adapter> LoadAdapter(const std::string& path, Model& model) {
  if (model.unlisted.tensors > 0)
    return Error(1414, "--from-config",
                 absl::StrCat("the config calls for ", model.unlisted.tensors,
                              " tensors, too many to look for an adapter's one by one"));
  const std::string prefix = FreePrefix(model);
  for (const char* name : {"adapter_config.json", "adapter_model.safetensors"})
    TWIN_RETURN_IF_ERROR(CheckInsideIfThere(path, name));
  TWIN_ASSIGN_OR_RETURN(const AdapterConfig config, AdapterConfig::ReadFrom(path));
  const std::string file = absl::StrCat(path, "/adapter_model.safetensors");
  std::error_code error;
  if (!fs::exists(file, error)) return Error(1420, path, "there is no adapter_model.safetensors");
  TWIN_ASSIGN_OR_RETURN(std::shared_ptr<const Checkpoint> checkpoint, Checkpoint::Open(file));
  absl::flat_hash_map<std::string, const LayoutTensor*> places;
  std::vector<std::string> modules;
  for (const LayoutTensor& tensor : model.layouts[0].tensors) {
    for (int64_t i = 0; i < tensor.count(); ++i) {
      const std::string name = tensor.NameAt(i);
      places[name] = &tensor;
      const bool there = model.graph.FindParam(tensor.parts[0].role) != nullptr;
      if (there && absl::EndsWith(name, kWeight)) modules.emplace_back(absl::StripSuffix(name, kWeight));
    }
  }
  TWIN_RETURN_IF_ERROR(config.CheckNamed(modules));

  const auto source_of = [&](const StoredTensor& tensor) {
    return Source(absl::StrCat(prefix, tensor.name), tensor.dtype, tensor.shape);
  };
  Adapter adapter;
  for (const StoredTensor& tensor : checkpoint->tensors()) {
    const bool is_a = absl::EndsWith(tensor.name, kA);
    const absl::string_view module = absl::StripSuffix(absl::StripSuffix(tensor.name, kA), kB);
    const auto place = places.find(absl::StrCat(absl::StripPrefix(module, kModules), kWeight));
    const StoredTensor* partner = checkpoint->Find(absl::StrCat(module, is_a ? kB : kA));
    if (module.size() == tensor.name.size() || !absl::StartsWith(module, kModules) || place == places.end() ||
        partner == nullptr) {
      return Error(1422, tensor.name, "the model has no weight for this adapter tensor");
    }
    TWIN_RETURN_IF_ERROR(
        CheckDeclared(config, tensor, std::string(absl::StripPrefix(module, kModules)), is_a));
    if (!is_a) continue;
    TWIN_RETURN_IF_ERROR(
        AddModule(*place->second, model.graph, source_of(tensor), source_of(*partner),
                  config.Factor(std::string(absl::StripPrefix(module, kModules)), tensor.shape[0]), adapter));
  }
  TWIN_RETURN_IF_ERROR(CheckComplete(config, modules, *checkpoint, path));
  TWIN_RETURN_IF_ERROR(CheckFinite(*checkpoint, path));
  for (const StoredTensor& tensor : checkpoint->tensors()) {
    model.sources.push_back({absl::StrCat(prefix, tensor.name),
                             absl::StrCat(prefix, checkpoint->files()[0].name), source_of(tensor), ""});
  }
  std::sort(model.sources.begin(), model.sources.end(),
            [](const SourceTensor& x, const SourceTensor& y) { return x.name < y.name; });
  model.reader = std::make_shared<ModelAndAdapter>(std::move(model.reader), std::move(checkpoint), prefix);
  return adapter;
}

}  // namespace twinforge
