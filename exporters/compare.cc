#include "exporters/compare.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "exporters/plan_parts.h"
#include "exporters/tiles.h"

namespace twinforge {
namespace {

std::string ElementText(const Shape& shape, int64_t at) {
  std::vector<int64_t> index(shape.size());
  for (int64_t i = static_cast<int64_t>(shape.size()) - 1; i >= 0; --i) {
    index[i] = at % shape[i];
    at /= shape[i];
  }
  return ShapeText(index);
}

std::string ValueText(DType dtype, const std::byte* at) {
  if (dtype == DType::kC64) {
    return absl::StrCat("(", ToDouble(DType::kF32, at), ", ", ToDouble(DType::kF32, at + 4), ")");
  }
  return absl::StrCat(ToDouble(dtype, at));
}

class Comparer {
 public:
  Comparer(const CompareRequest& request, int64_t share, const std::function<void(int64_t)>& advance)
      : request_(request), share_(share), advance_(advance), found_(request.pairs.size()) {}

  absl::StatusOr<std::vector<std::string>> Run(int threads) {
    std::vector<std::thread> others;
    for (int i = 1; i < threads; ++i) others.emplace_back([this] { Work(); });
    Work();
    for (std::thread& thread : others) thread.join();
    TWIN_RETURN_IF_ERROR(status_);
    return std::move(found_);
  }

 private:
  void Work() {
    while (!stop_) {
      size_t at = next_++;
      if (at >= request_.pairs.size()) return;
      absl::Status status = One(request_.pairs[at], &found_[at]);
      if (status.ok()) continue;
      std::lock_guard<std::mutex> lock(mutex_);
      if (status_.ok()) status_ = status;
      stop_ = true;
    }
  }

  absl::Status One(const Comparison& pair, std::string* found) {
    const WeightPtr& w = pair.expected;
    // A manifest, or another model's source, may speak of a tensor that is not of this form.
    if (pair.stored->dtype() != w->dtype() || pair.stored->shape() != w->shape()) {
      *found = absl::StrCat(Name(pair.stored->dtype()), ShapeText(pair.stored->shape()), " is stored, ",
                            Name(w->dtype()), ShapeText(w->shape()), " expected");
      return absl::OkStatus();
    }
    // Half of the share for what is computed, half for what is stored.
    Tiling tiling = Cut(w, share_ / 2, request_.options.seams.tile_bytes);
    Scratch scratch;
    std::vector<std::byte> expected;
    std::vector<std::byte> stored;
    for (int64_t tile = 0; tile < tiling.tiles; ++tile) {
      int64_t first;
      Box box = TileBox(w, tiling, tile, &first);
      int64_t bytes = ElementCount(box.size) * ElementBytes(w->dtype());
      if (static_cast<int64_t>(expected.size()) < bytes) {
        expected.resize(bytes);
        stored.resize(bytes);
      }
      TWIN_RETURN_IF_ERROR(Read(w, box, request_.expected_reader, expected.data(), scratch));
      TWIN_RETURN_IF_ERROR(Read(pair.stored, box, request_.stored_reader, stored.data(), scratch));
      Advance(bytes);
      if (std::memcmp(expected.data(), stored.data(), bytes) == 0) continue;
      *found = FirstDifference(w, first, expected.data(), stored.data());
      return absl::OkStatus();
    }
    return absl::OkStatus();
  }

  static std::string FirstDifference(const WeightPtr& w, int64_t first, const std::byte* expected,
                                     const std::byte* stored) {
    int64_t width = ElementBytes(w->dtype());
    int64_t at = 0;
    while (std::memcmp(expected + at * width, stored + at * width, width) == 0) ++at;
    return absl::StrCat("element ", ElementText(w->shape(), first + at), ": ",
                        ValueText(w->dtype(), stored + at * width), " is stored, ",
                        ValueText(w->dtype(), expected + at * width), " expected");
  }

  void Advance(int64_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (advance_) advance_(bytes);
  }

  const CompareRequest& request_;
  int64_t share_;
  const std::function<void(int64_t)>& advance_;
  std::vector<std::string> found_;
  std::atomic<size_t> next_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<std::vector<std::string>> Compare(const CompareRequest& request,
                                                 const std::function<void(int64_t bytes)>& advance) {
  int threads = std::max(1, request.options.threads);
  int64_t tensors = 2 * static_cast<int64_t>(request.pairs.size());
  int64_t share = (request.options.memory - FixedBytes(tensors)) / threads;
  while (threads > 1 && share < request.options.seams.tile_bytes) {
    --threads;
    share = (request.options.memory - FixedBytes(tensors)) / threads;
  }
  for (const Comparison& pair : request.pairs) {
    if (Cut(pair.expected, share / 2, request.options.seams.tile_bytes).cost <= share / 2) continue;
    return Error(1604, pair.name, "the memory budget is too small to compare it", "give a larger --memory");
  }
  return Comparer(request, share, advance).Run(threads);
}

}  // namespace twinforge
