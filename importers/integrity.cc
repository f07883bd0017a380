// Reads every stored value once and reports the tensors that a training run would not leave.
//
// The work is cut into blocks in file order, which threads take one after another; what a
// block finds is summed per tensor afterwards, so the report does not depend on threads.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "importers/checkpoint.h"
#include "weights/build.h"

namespace twinforge {
namespace {

// What one block, or one tensor, holds.
struct Facts {
  int64_t nans = 0;
  int64_t infinities = 0;
  bool all_zero = true;  // +0 and -0
  bool constant = true;  // every element has the bits of `first`
  std::array<std::byte, 8> first{};
};

struct Block {
  int64_t tensor = 0;  // index into Checkpoint::tensors()
  int64_t first = 0;
  int64_t count = 0;
};

// Bits of IEEE-like types as integers: a value is not finite when its exponent is all ones.
template <typename Bits>
void CountWide(const std::byte* data, int64_t count, Bits exponent, bool is_float, Facts* facts) {
  const Bits sign = static_cast<Bits>(Bits{1} << (sizeof(Bits) * 8 - 1));
  const Bits magnitude = is_float ? static_cast<Bits>(~sign) : static_cast<Bits>(~Bits{0});
  int64_t nans = 0, infinities = 0;
  Bits any = 0;
  for (int64_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, data + i * sizeof(Bits), sizeof(Bits));
    bits &= magnitude;
    any |= bits;
    nans += bits > exponent;
    infinities += bits == exponent;
  }
  facts->all_zero = any == 0;
  if (!is_float) return;
  facts->nans += nans;
  facts->infinities += infinities;
}

// Types of one byte in memory: each code is looked up.
void CountNarrow(DType dtype, const std::byte* data, int64_t count, Facts* facts) {
  const int64_t codes = int64_t{1} << BitWidth(dtype);
  std::array<int64_t, 256> seen{};
  for (int64_t i = 0; i < count; ++i) ++seen[static_cast<uint8_t>(data[i])];
  for (int64_t code = 0; code < codes; ++code) {
    if (seen[code] == 0) continue;
    const std::byte byte = static_cast<std::byte>(code);
    const double value = ToDouble(dtype, &byte);
    if (std::isnan(value)) facts->nans += seen[code];
    if (std::isinf(value)) facts->infinities += seen[code];
    if (value != 0) facts->all_zero = false;
  }
}

void CountValues(DType dtype, const std::byte* data, int64_t count, Facts* facts) {
  switch (dtype) {
    case DType::kBool:
    case DType::kF4:
    case DType::kF6E2M3:
    case DType::kF6E3M2:
    case DType::kU8:
    case DType::kI8:
    case DType::kF8E5M2:
    case DType::kF8E4M3:
    case DType::kF8E8M0:
    case DType::kF8E4M3Fnuz:
    case DType::kF8E5M2Fnuz:
      return CountNarrow(dtype, data, count, facts);
    case DType::kF16:
      return CountWide<uint16_t>(data, count, 0x7C00, true, facts);
    case DType::kBF16:
      return CountWide<uint16_t>(data, count, 0x7F80, true, facts);
    case DType::kF32:
      return CountWide<uint32_t>(data, count, 0x7F800000, true, facts);
    case DType::kF64:
      return CountWide<uint64_t>(data, count, uint64_t{0x7FF} << 52, true, facts);
    case DType::kC64:
      return CountWide<uint32_t>(data, 2 * count, 0x7F800000, true, facts);  // its parts
    case DType::kI16:
    case DType::kU16:
      return CountWide<uint16_t>(data, count, 0, false, facts);
    case DType::kI32:
    case DType::kU32:
      return CountWide<uint32_t>(data, count, 0, false, facts);
    case DType::kI64:
    case DType::kU64:
      return CountWide<uint64_t>(data, count, 0, false, facts);
  }
}

Facts Examine(DType dtype, const std::byte* data, int64_t count) {
  Facts facts;
  const size_t width = static_cast<size_t>(ElementBytes(dtype));
  std::memcpy(facts.first.data(), data, width);
  // A run of equal elements is a buffer that equals itself moved by one element.
  facts.constant = std::memcmp(data, data + width, (count - 1) * width) == 0;
  CountValues(dtype, data, count, &facts);
  return facts;
}

void Merge(const Facts& block, bool is_first, Facts* tensor) {
  if (is_first) {
    *tensor = block;
    return;
  }
  tensor->nans += block.nans;
  tensor->infinities += block.infinities;
  tensor->all_zero = tensor->all_zero && block.all_zero;
  tensor->constant = tensor->constant && block.constant && tensor->first == block.first;
}

std::string ValueText(DType dtype, const std::byte* at) {
  if (dtype == DType::kC64) {
    return absl::StrCat(ToDouble(DType::kF32, at), "+", ToDouble(DType::kF32, at + 4), "i");
  }
  if (dtype == DType::kI64 || dtype == DType::kU64) {  // beyond 2^53 a double would round
    int64_t value;
    std::memcpy(&value, at, sizeof(value));
    return dtype == DType::kI64 ? absl::StrCat(value) : absl::StrCat(static_cast<uint64_t>(value));
  }
  return absl::StrFormat("%.9g", ToDouble(dtype, at));
}

// One element is constant of necessity, and that says nothing.
void Report(const StoredTensor& tensor, const std::string& file, const Facts& facts,
            std::vector<IntegrityRow>* rows) {
  const auto add = [&](std::string finding) { rows->push_back({tensor.name, file, std::move(finding)}); };
  if (facts.nans > 0) add(absl::StrCat(facts.nans, " NaN"));
  if (facts.infinities > 0) add(absl::StrCat(facts.infinities, " Inf"));
  if (ElementCount(tensor.shape) < 2) return;
  if (facts.all_zero) {
    add("all zero");
  } else if (facts.constant && facts.nans == 0) {
    add(absl::StrCat("constant ", ValueText(tensor.dtype, facts.first.data())));
  }
}

std::vector<Block> CutIntoBlocks(const Checkpoint& checkpoint, int64_t block_bytes) {
  std::vector<Block> blocks;
  const std::vector<StoredTensor>& tensors = checkpoint.tensors();
  for (size_t t = 0; t < tensors.size(); ++t) {
    // Multiples of 64 elements begin on a byte in every type.
    const int64_t step = std::max<int64_t>(64, block_bytes / ElementBytes(tensors[t].dtype) / 64 * 64);
    const int64_t total = ElementCount(tensors[t].shape);
    for (int64_t first = 0; first < total; first += step) {
      blocks.push_back({static_cast<int64_t>(t), first, std::min(step, total - first)});
    }
  }
  std::sort(blocks.begin(), blocks.end(), [&](const Block& a, const Block& b) {
    const StoredTensor& x = tensors[a.tensor];
    const StoredTensor& y = tensors[b.tensor];
    return std::tuple(x.file, x.offset, a.first) < std::tuple(y.file, y.offset, b.first);
  });
  return blocks;
}

// Threads take blocks in order; the first failure stops all of them.
class Scan {
 public:
  Scan(const Checkpoint& checkpoint, int64_t block_bytes)
      : checkpoint_(checkpoint), blocks_(CutIntoBlocks(checkpoint, block_bytes)), facts_(blocks_.size()) {}

  absl::Status Run(int threads) {
    std::vector<std::thread> others;
    for (int i = 1; i < threads; ++i) others.emplace_back([this] { Work(); });
    Work();
    for (std::thread& other : others) other.join();
    return failure_;
  }

  std::vector<IntegrityRow> Rows() const {
    const std::vector<StoredTensor>& tensors = checkpoint_.tensors();
    std::vector<Facts> sums(tensors.size());
    for (size_t b = 0; b < blocks_.size(); ++b) {
      Merge(facts_[b], blocks_[b].first == 0, &sums[blocks_[b].tensor]);
    }
    std::vector<IntegrityRow> rows;
    for (size_t t = 0; t < tensors.size(); ++t) {
      if (ElementCount(tensors[t].shape) == 0) continue;
      Report(tensors[t], checkpoint_.files()[tensors[t].file].name, sums[t], &rows);
    }
    return rows;
  }

 private:
  void Work() {
    std::vector<std::byte> buffer;
    for (;;) {
      const size_t b = next_.fetch_add(1);
      if (b >= blocks_.size()) return;
      const Block& block = blocks_[b];
      const StoredTensor& tensor = checkpoint_.tensors()[block.tensor];
      buffer.resize(static_cast<size_t>(block.count * ElementBytes(tensor.dtype)));
      const WeightPtr source = Source(tensor.name, tensor.dtype, tensor.shape);
      const absl::Status status = checkpoint_.ReadElements(*source, block.first, block.count, buffer.data());
      if (!status.ok()) {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (failure_.ok()) failure_ = status;
        next_ = blocks_.size();
        return;
      }
      facts_[b] = Examine(tensor.dtype, buffer.data(), block.count);
    }
  }

  const Checkpoint& checkpoint_;
  const std::vector<Block> blocks_;
  std::vector<Facts> facts_;  // one per block
  std::atomic<size_t> next_{0};
  std::mutex mutex_;
  absl::Status failure_;
};

}  // namespace

absl::StatusOr<std::vector<IntegrityRow>> ScanIntegrity(const Checkpoint& checkpoint, int threads,
                                                        int64_t block_bytes) {
  TWIN_CHECK(threads >= 1 && block_bytes >= 1, "a scan without threads or room");
  Scan scan(checkpoint, block_bytes);
  TWIN_RETURN_IF_ERROR(scan.Run(threads));
  TWIN_RETURN_IF_ERROR(checkpoint.CheckUnchanged());
  return scan.Rows();
}

}  // namespace twinforge
