// How fast weight programs are read, beside a plain copy of as many bytes.
//
// The stored tensor lies in memory, so what is measured is this side of the disk: a
// reader that keeps up with `Copy` here keeps up with `cp` there. Boxes are what the
// exporter asks for, 32 MiB of whole rows.
#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "base/check.h"
#include "weights/build.h"
#include "weights/invert.h"
#include "weights/read.h"

namespace twinforge {
namespace {

constexpr int64_t kRows = 4096;
constexpr int64_t kColumns = 11008;  // 86 MiB of bf16
constexpr int64_t kBoxBytes = 32 << 20;

class Memory : public TensorReader {
 public:
  Memory() : data_(kRows * kColumns * 4) {
    uint32_t state = 1;
    for (std::byte& b : data_) b = static_cast<std::byte>((state = state * 1664525u + 1013904223u) >> 25);
  }
  absl::Status ReadElements(const Weight& source, int64_t first, int64_t count,
                            std::byte* out) const override {
    const int64_t bytes = ElementBytes(source.dtype());
    std::memcpy(out, data_.data() + first * bytes, count * bytes);
    return absl::OkStatus();
  }
  const std::byte* data() const { return data_.data(); }

 private:
  std::vector<std::byte> data_;
};

const Memory& Stored() {
  static const Memory* const memory = new Memory();
  return *memory;
}

WeightPtr Bf16() { return Source("w", DType::kBF16, {kRows, kColumns}); }

void ReadInBoxes(benchmark::State& state, const WeightPtr& w) {
  const int64_t row = w->element_count() / w->shape()[0] * ElementBytes(w->dtype());
  const int64_t rows = std::max<int64_t>(1, kBoxBytes / row);
  std::vector<std::byte> out(rows * row);
  Scratch scratch;
  const Memory& stored = Stored();
  for (auto _ : state) {
    for (int64_t first = 0; first < w->shape()[0]; first += rows) {
      Box box = WholeBox(w->shape());
      box.start[0] = first;
      box.size[0] = std::min(rows, w->shape()[0] - first);
      TWIN_CHECK(Read(w, box, stored, out.data(), scratch).ok(), "a read in memory failed");
    }
  }
  state.SetBytesProcessed(state.iterations() * w->element_count() * ElementBytes(w->dtype()));
  state.counters["scratch"] = static_cast<double>(scratch.high_water());
}

void Copy(benchmark::State& state) {
  std::vector<std::byte> out(kBoxBytes);
  const int64_t bytes = kRows * kColumns * 2;
  const Memory& stored = Stored();
  for (auto _ : state) {
    for (int64_t at = 0; at < bytes; at += kBoxBytes) {
      std::memcpy(out.data(), stored.data() + at, std::min(kBoxBytes, bytes - at));
      benchmark::ClobberMemory();
    }
  }
  state.SetBytesProcessed(state.iterations() * bytes);
}
BENCHMARK(Copy)->Unit(benchmark::kMillisecond);

void Register(const char* name, WeightPtr w) {
  benchmark::RegisterBenchmark(name, [w](benchmark::State& state) {
    ReadInBoxes(state, w);
  })->Unit(benchmark::kMillisecond);
}

// Each head of `width` rows or columns padded to `padded`.
IndexMap PaddedHeads(int64_t extent, int64_t width, int64_t padded) {
  std::vector<Run> runs;
  for (int64_t at = 0; at < extent; at += width) {
    runs.push_back({at, 1, width});
    runs.push_back({Run::kFill, 0, padded - width});
  }
  return IndexMap(std::move(runs));
}

IndexMap RotaryHalves(int64_t extent, int64_t width) {
  const IndexMap block({{0, 2, width / 2}, {1, 2, width / 2}});
  return IndexMap::Tile(block, extent / width, width);
}

// What a planner asks before it chooses a box.
void PredictScratch(benchmark::State& state, const WeightPtr& w) {
  const Box box = WholeBox(w->shape());
  for (auto _ : state) benchmark::DoNotOptimize(ScratchBytes(w, box));
}

void RegisterAll() {
  const WeightPtr w = Bf16();
  Register("Untouched", w);
  Register("PadRows", Pad(w, 0, 64));
  Register("PadHeads/rows", Take(w, 0, PaddedHeads(kRows, 64, 128)));
  Register("PadHeads/columns", Take(w, 1, PaddedHeads(kColumns, 64, 128)));
  Register("RotaryHalves/rows", Take(w, 0, RotaryHalves(kRows, 64)));
  Register("RotaryHalves/columns", Take(w, 1, RotaryHalves(kColumns, 64)));
  Register("Transpose/1B", Transpose(Source("w", DType::kF8E4M3, {kRows, kColumns}), {1, 0}));
  Register("Transpose/2B", Transpose(w, {1, 0}));
  Register("Transpose/4B", Transpose(Source("w", DType::kF32, {kRows, kColumns}), {1, 0}));
  Register("TransposePadHeads", Pad(Transpose(Reshape(w, {64, 64, kColumns}), {2, 0, 1}), 2, 64));
  Register("FuseColumns", Concat(1, {w, w}));
  Register("SliceColumns", Slice(w, 1, 128, 256));
  Register("WidenToF32", Cast(w, DType::kF32));
  Register("RoundToBf16", Cast(Source("w", DType::kF32, {kRows, kColumns}), DType::kBF16));
  Register("Scale", Scale(w, 0.7));
  Register("ScaleRows", Map(MapFn::kMul, w, Source("w", DType::kBF16, {kRows, 1})));
  Register("MergeLora",
           MergeLora(Source("w", DType::kBF16, {1024, 1024}), Source("w", DType::kBF16, {16, 1024}),
                     Source("w", DType::kBF16, {1024, 16}), 2));
  Register("KeepTwoOfFour", GroupKeepLargest(Source("w", DType::kBF16, {256, kColumns}), 1, 4, 2));
  const auto predict = [](const char* name, WeightPtr w) {
    benchmark::RegisterBenchmark(name, [w](benchmark::State& state) { PredictScratch(state, w); });
  };
  predict("Predict/RotaryHalves/rows", Take(w, 0, RotaryHalves(kRows, 64)));
  predict("Predict/PadHeads/rows", Take(w, 0, PaddedHeads(kRows, 64, 128)));
  predict("Predict/TransposePadHeads", Pad(Transpose(Reshape(w, {64, 64, kColumns}), {2, 0, 1}), 2, 64));
  predict("Predict/WidenToF32", Cast(w, DType::kF32));
}

// Ledger and inverses of a model of many tensors.
void InvertModel(benchmark::State& state) {
  std::vector<WeightPtr> sources;
  std::vector<NamedProgram> twin;
  for (int64_t i = 0; i < state.range(0); ++i) {
    const std::string name = "model.layers." + std::to_string(i);
    sources.push_back(Source(name, DType::kBF16, {512, 256}));
    WeightPtr program = sources.back();
    if (i % 3 == 1) program = Transpose(Take(program, 0, PaddedHeads(512, 64, 128)), {1, 0});
    if (i % 9 == 2) program = Take(program, 0, RotaryHalves(512, 64));
    twin.push_back({name, program});
  }
  for (auto _ : state) benchmark::DoNotOptimize(Invert(twin, sources));
}
BENCHMARK(InvertModel)->Arg(100000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace twinforge

int main(int argc, char** argv) {
  twinforge::RegisterAll();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
