#include "weights/read.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "weights/read_walk.h"

namespace twinforge {

namespace {
constexpr int64_t kAlign = 64;
}

Scratch::Memory Scratch::Allocate(int64_t bytes) {
  Memory memory(static_cast<std::byte*>(std::aligned_alloc(kAlign, bytes)));
  TWIN_CHECK(memory != nullptr, "no memory for scratch");
  return memory;
}

void Scratch::Reserve(int64_t bytes) {
  TWIN_CHECK(pushed_.empty(), "Reserve in the middle of a read");
  constexpr int64_t kMostPushes = 64;  // each may lose almost one alignment
  const int64_t rounded = (bytes + kAlign - 1) / kAlign * kAlign + (bytes == 0 ? 0 : kMostPushes * kAlign);
  if (rounded <= block_bytes_) return;
  block_.reset();  // give the old one back before asking for the new one
  block_ = Allocate(rounded);
  block_bytes_ = rounded;
}

std::byte* Scratch::Push(int64_t bytes) {
  if (pushed_.empty() && block_bytes_ < rounded_high_water_) Reserve(rounded_high_water_);
  Pushed pushed = {bytes, (bytes + kAlign - 1) / kAlign * kAlign, nullptr};
  std::byte* at = block_.get() + block_used_;
  if (block_used_ + pushed.rounded <= block_bytes_) {
    block_used_ += pushed.rounded;
  } else {
    pushed.own = Allocate(pushed.rounded);
    at = pushed.own.get();
  }
  in_use_ += bytes;
  high_water_ = std::max(high_water_, in_use_);
  rounded_in_use_ += pushed.rounded;
  rounded_high_water_ = std::max(rounded_high_water_, rounded_in_use_);
  pushed_.push_back(std::move(pushed));
  return at;
}

void Scratch::Pop() {
  TWIN_CHECK(!pushed_.empty(), "Pop without Push");
  const Pushed& last = pushed_.back();
  in_use_ -= last.bytes;
  rounded_in_use_ -= last.rounded;
  if (last.own == nullptr) block_used_ -= last.rounded;
  pushed_.pop_back();
}

std::byte* Room::Push(int64_t bytes) {
  in_use_ += bytes;
  high_water_ = std::max(high_water_, in_use_);
  return scratch_ == nullptr ? nullptr : scratch_->Push(bytes);
}

void Room::Pop(int64_t bytes) {
  in_use_ -= bytes;
  if (scratch_ != nullptr) scratch_->Pop();
}

Ints RowBlock(absl::Span<const int64_t> size, int64_t limit) {
  Ints block(size.size(), 1);
  for (int64_t i = static_cast<int64_t>(size.size()) - 1; i >= 0; --i) {
    block[i] = std::max<int64_t>(1, std::min(size[i], limit));
    if (block[i] < size[i]) break;
    limit /= block[i];
  }
  return block;
}

bool StreamsByRows(const Weight& w) {
  switch (w.kind()) {
    case WeightKind::kSource:
    case WeightKind::kStack:
    case WeightKind::kFill:
      return true;
    case WeightKind::kTranspose:
    case WeightKind::kReshape:
    case WeightKind::kContract:
    case WeightKind::kStat:
      return false;
    case WeightKind::kTake:
    case WeightKind::kCast:
    case WeightKind::kGroup:
      return StreamsByRows(*w.child());
    case WeightKind::kConcat:
    case WeightKind::kMap:
      return std::all_of(w.children().begin(), w.children().end(),
                         [](const WeightPtr& child) { return StreamsByRows(*child); });
  }
  return false;
}

bool SameRoomEverywhere(const Weight& w) {
  switch (w.kind()) {
    case WeightKind::kSource:
    case WeightKind::kStack:
    case WeightKind::kFill:
      return true;
    case WeightKind::kTake:     // a box may meet other runs,
    case WeightKind::kReshape:  // be cut elsewhere,
    case WeightKind::kConcat:   // meet another operand
    case WeightKind::kGroup:    // or cut a group
      return false;
    case WeightKind::kTranspose:
    case WeightKind::kCast:
    case WeightKind::kMap:
    case WeightKind::kContract:
    case WeightKind::kStat:
      return std::all_of(w.children().begin(), w.children().end(),
                         [](const WeightPtr& child) { return SameRoomEverywhere(*child); });
  }
  return false;
}

absl::Status Walk::Visit(const Weight& w, const Region& region, const Target& to) {
  for (int64_t n : region.size) {
    if (n == 0) return absl::OkStatus();
  }
  switch (w.kind()) {
    case WeightKind::kSource:
      return VisitSource(w, region, to);
    case WeightKind::kStack:
      return VisitStack(w, region, to);
    case WeightKind::kFill:
      return VisitFill(w, region, to);
    case WeightKind::kTake:
      return VisitTake(w, region, to);
    case WeightKind::kTranspose:
      return VisitTranspose(w, region, to);
    case WeightKind::kReshape:
      return VisitReshape(w, region, to);
    case WeightKind::kConcat:
      return VisitConcat(w, region, to);
    case WeightKind::kCast:
      return VisitCast(w, region, to);
    case WeightKind::kMap:
      return VisitMap(w, region, to);
    case WeightKind::kContract:
      return VisitContract(w, region, to);
    case WeightKind::kStat:
      return VisitStat(w, region, to);
    case WeightKind::kGroup:
      return VisitGroup(w, region, to);
  }
  return absl::OkStatus();
}

const double* StatCache::Find(const Weight& stat) const {
  const auto it = values_.find(&stat);
  return it == values_.end() ? nullptr : it->second.second.data();
}

void StatCache::Insert(const WeightPtr& stat, std::vector<double> values) {
  const Weight* key = stat.get();
  values_[key] = {stat, std::move(values)};
}

absl::Status PrepareStats(const WeightPtr& w, const TensorReader& reader, Scratch& scratch,
                          StatCache& cache) {
  if (OnlyMoves(w)) return absl::OkStatus();
  for (const WeightPtr& child : w->children()) {
    TWIN_RETURN_IF_ERROR(PrepareStats(child, reader, scratch, cache));
  }
  if (w->kind() != WeightKind::kStat || cache.Find(*w) != nullptr) return absl::OkStatus();
  std::vector<double> values(w->element_count());
  TWIN_RETURN_IF_ERROR(
      Read(w, WholeBox(w->shape()), reader, reinterpret_cast<std::byte*>(values.data()), scratch, &cache));
  cache.Insert(w, std::move(values));
  return absl::OkStatus();
}

absl::Status Read(const WeightPtr& w, const Box& box, const TensorReader& reader, std::byte* out,
                  Scratch& scratch, const StatCache* stats) {
  // All the room of this read at once: a block of earlier, smaller reads would lie idle beside the memory of
  // each push that it can't hold, and what is held would be the sum of both.
  if (w->kind() != WeightKind::kSource) scratch.Reserve(ScratchBytes(w, box, stats));
  const Region region = {Ints(box.start.begin(), box.start.end()), Ints(box.size.begin(), box.size.end())};
  return Walk(&reader, &scratch, stats).Visit(*w, region, DenseTarget(out, box.size));
}

int64_t ScratchBytes(const WeightPtr& w, const Box& box, const StatCache* stats) {
  const Region region = {Ints(box.start.begin(), box.start.end()), Ints(box.size.begin(), box.size.end())};
  Walk walk(nullptr, nullptr, stats);
  const absl::Status status = walk.Visit(*w, region, DenseTarget(nullptr, box.size));
  TWIN_CHECK(status.ok(), "measuring met an error");
  return walk.high_water();
}

}  // namespace twinforge
