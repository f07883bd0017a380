#include "weights/read.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "weights/read_walk.h"

namespace twinforge {

std::byte* Scratch::Push(int64_t bytes) {
  constexpr int64_t kAlign = 64;
  const size_t depth = pushed_.size();
  if (depth == buffers_.size()) buffers_.emplace_back();
  std::vector<std::byte>& buffer = buffers_[depth];
  if (static_cast<int64_t>(buffer.size()) < bytes + kAlign) {
    buffer = {};  // give the old one back before asking for the new one
    buffer = std::vector<std::byte>(bytes + kAlign);
  }
  pushed_.push_back(bytes);
  in_use_ += bytes;
  high_water_ = std::max(high_water_, in_use_);
  const auto address = reinterpret_cast<uintptr_t>(buffer.data());
  return buffer.data() + (kAlign - address % kAlign) % kAlign;
}

void Scratch::Pop() {
  TWIN_CHECK(!pushed_.empty(), "Pop without Push");
  in_use_ -= pushed_.back();
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
    case WeightKind::kSource: return VisitSource(w, region, to);
    case WeightKind::kFill: return VisitFill(w, region, to);
    case WeightKind::kTake: return VisitTake(w, region, to);
    case WeightKind::kTranspose: return VisitTranspose(w, region, to);
    case WeightKind::kReshape: return VisitReshape(w, region, to);
    case WeightKind::kConcat: return VisitConcat(w, region, to);
    case WeightKind::kCast: return VisitCast(w, region, to);
    case WeightKind::kMap: return VisitMap(w, region, to);
    case WeightKind::kContract: return VisitContract(w, region, to);
    case WeightKind::kStat: return VisitStat(w, region, to);
    case WeightKind::kGroup: return VisitGroup(w, region, to);
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

absl::Status PrepareStats(const WeightPtr& w, const TensorReader& reader, Scratch& scratch, StatCache& cache) {
  if (OnlyMoves(w)) return absl::OkStatus();
  for (const WeightPtr& child : w->children()) {
    TWIN_RETURN_IF_ERROR(PrepareStats(child, reader, scratch, cache));
  }
  if (w->kind() != WeightKind::kStat || cache.Find(*w) != nullptr) return absl::OkStatus();
  std::vector<double> values(w->element_count());
  TWIN_RETURN_IF_ERROR(Read(w, WholeBox(w->shape()), reader, reinterpret_cast<std::byte*>(values.data()),
                            scratch, &cache));
  cache.Insert(w, std::move(values));
  return absl::OkStatus();
}

absl::Status Read(const WeightPtr& w, const Box& box, const TensorReader& reader, std::byte* out,
                  Scratch& scratch, const StatCache* stats) {
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
