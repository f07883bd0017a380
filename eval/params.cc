#include "eval/params.h"

#include <utility>
#include <vector>

#include "base/check.h"
#include "base/status_macros.h"

namespace twinforge {
namespace {

// A fixed mixing of 64 bits (splitmix64, Steele et al. 2014): the same values on every machine.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t KeyOf(const Weight& source, uint64_t seed) {
  uint64_t key = Mix(seed);
  for (char c : source.source_name()) key = Mix(key ^ static_cast<unsigned char>(c));
  for (int64_t extent : source.shape()) key = Mix(key ^ static_cast<uint64_t>(extent));
  return key;
}

}  // namespace

absl::StatusOr<Tensor> StoredParams::Value(const Param& param) const {
  const WeightPtr& program = param.program;
  const int64_t count = program->element_count();
  std::vector<std::byte> bytes(count * ElementBytes(program->dtype()));
  Scratch scratch;
  TWIN_RETURN_IF_ERROR(Read(program, WholeBox(program->shape()), reader_, bytes.data(), scratch));
  std::vector<double> values(count);
  Convert(program->dtype(), bytes.data(), DType::kF64, reinterpret_cast<std::byte*>(values.data()), count);
  return Tensor(program->dtype(), program->shape(), std::move(values));
}

absl::Status RandomTensors::ReadElements(const Weight& source, int64_t first, int64_t count,
                                         std::byte* out) const {
  const uint64_t key = KeyOf(source, seed_);
  const int64_t width = ElementBytes(source.dtype());
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t bits = Mix(key ^ static_cast<uint64_t>(first + i));
    const double part = static_cast<double>(bits >> 12) * 0x1p-52;  // [0, 1)
    const double size = 0x1p-8 + part * (1 - 0x1p-8);               // [1/256, 1)
    FromDouble(source.dtype(), (bits & 1) == 0 ? size : -size, out + i * width);
  }
  return absl::OkStatus();
}

}  // namespace twinforge
