#include "exporters/groups.h"

#include <algorithm>

#include "base/parallel.h"
#include "weights/dtype.h"

namespace twinforge {
namespace {

class Cutter {
 public:
  Cutter(int32_t file, int64_t share, int64_t tile_bytes, std::vector<Group>& out)
      : file_(file), share_(share), tile_bytes_(tile_bytes), out_(out) {}

  void Header(int64_t bytes) {
    out_.push_back({.file = file_, .place = place_++, .bytes = bytes});
    offset_ = bytes;
  }

  // What begins at `offset` of its file, behind zeros where that is not the end of what comes before.
  void Tensor(int32_t index, const OutputTensor& tensor, const Tiling& tiling, int64_t offset) {
    if (offset != offset_) open_ = false;
    offset_ = offset;
    if (tensor.bytes == 0 || tiling.tiles <= 1) {
      int64_t extra = tiling.cost - tensor.bytes;
      if (open_) {
        int64_t joined = out_.back().bytes + tensor.bytes;
        if (joined > tile_bytes_ || joined + std::max(extra, out_.back().extra) > share_) open_ = false;
      }
      // Files in an order of their own (a source's, on the way home) may place a wide type after an odd
      // number of bytes; readers write elements aligned, so it gets a buffer of its own.
      if (open_ && out_.back().bytes % ElementBytes(tensor.program->dtype()) != 0) open_ = false;
      if (!open_) Begin(index, 0);
      Group& group = out_.back();
      group.bytes += tensor.bytes;
      group.extra = std::max(group.extra, extra);
      group.last = index + 1;
      group.last_tile = tiling.tiles;
      offset_ += tensor.bytes;
      return;
    }
    for (int64_t tile = 0; tile < tiling.tiles; ++tile) {
      int64_t first;
      Box box = TileBox(tensor.program, tiling, tile, &first);
      Begin(index, tile);
      Group& group = out_.back();
      group.bytes = *FileBytes(tensor.program->dtype(), ElementCount(box.size));
      group.extra = tiling.cost - group.bytes;
      group.last = index + 1;
      group.last_tile = tile + 1;
      offset_ += group.bytes;
    }
    open_ = false;
  }

 private:
  void Begin(int32_t tensor, int64_t tile) {
    out_.push_back({.file = file_,
                    .place = place_++,
                    .offset = offset_,
                    .first = tensor,
                    .last = tensor,
                    .first_tile = tile});
    open_ = true;
  }

  int32_t file_;
  int64_t share_;
  int64_t tile_bytes_;
  std::vector<Group>& out_;
  int32_t place_ = 0;
  int64_t offset_ = 0;
  bool open_ = false;  // the last group has room for another small tensor
};

}  // namespace

Groups CutFiles(const std::vector<OutputFile>& files, int64_t share, int64_t tile_bytes) {
  Groups result;
  result.tilings.resize(files.size());
  for (size_t f = 0; f < files.size(); ++f) {
    const OutputFile& file = files[f];
    Cutter cutter(static_cast<int32_t>(f), share, tile_bytes, result.groups);
    cutter.Header(static_cast<int64_t>(file.header.size()));
    std::vector<Tiling>& tilings = result.tilings[f];
    tilings.resize(file.tensors.size());
    constexpr int64_t kWorthAThread = 256;
    ParallelFor(static_cast<int64_t>(tilings.size()), kWorthAThread, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) tilings[t] = Cut(file.tensors[t].program, share, tile_bytes);
    });
    for (size_t t = 0; t < tilings.size(); ++t) {
      const int64_t offset = static_cast<int64_t>(file.header.size()) + file.tensors[t].offset;
      cutter.Tensor(static_cast<int32_t>(t), file.tensors[t], tilings[t], offset);
    }
  }
  return result;
}

}  // namespace twinforge
