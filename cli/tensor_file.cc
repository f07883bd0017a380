#include "cli/tensor_file.h"

#include <algorithm>
#include <vector>

#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "cli/new_folder.h"
#include "exporters/header.h"
#include "importers/checkpoint.h"
#include "weights/build.h"

namespace twinforge {
namespace {

// The whole file as it will lie on disk.
std::string FileOf(const NamedTensors& tensors) {
  std::vector<HeaderEntry> entries;
  for (const auto& [name, tensor] : tensors) {
    entries.push_back({name, tensor.dtype(), tensor.shape(), tensor.count() * ElementBytes(tensor.dtype())});
  }
  std::sort(entries.begin(), entries.end(), WrittenBefore);
  std::string bytes = WriteHeader(entries, {});
  for (const HeaderEntry& entry : entries) {
    const Tensor& tensor = tensors.at(entry.name);
    const size_t at = bytes.size();
    bytes.resize(at + entry.bytes);
    Convert(DType::kF64, reinterpret_cast<const std::byte*>(tensor.data()), tensor.dtype(),
            reinterpret_cast<std::byte*>(bytes.data()) + at, tensor.count());
  }
  return bytes;
}

}  // namespace

absl::StatusOr<NamedTensors> ReadTensorFile(const std::string& path) {
  TWIN_ASSIGN_OR_RETURN(const std::shared_ptr<const Checkpoint> file, Checkpoint::Open(path));
  NamedTensors tensors;
  for (const StoredTensor& stored : file->tensors()) {
    if (stored.dtype == DType::kC64) return Error(1901, stored.name, "complex numbers are no input");
    const WeightPtr source = Source(stored.name, stored.dtype, stored.shape);
    const int64_t count = source->element_count();
    std::vector<std::byte> bytes(count * ElementBytes(stored.dtype));
    TWIN_RETURN_IF_ERROR(file->ReadElements(*source, 0, count, bytes.data()));
    std::vector<double> values(count);
    Convert(stored.dtype, bytes.data(), DType::kF64, reinterpret_cast<std::byte*>(values.data()), count);
    tensors[stored.name] = Tensor(stored.dtype, stored.shape, std::move(values));
  }
  return tensors;
}

absl::Status WriteTensorFile(const NamedTensors& tensors, const std::string& path) {
  return WriteNewFile(path, FileOf(tensors));
}

}  // namespace twinforge
