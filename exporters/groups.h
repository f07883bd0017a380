// Files cut into groups: the ranges that are read, written, hashed and journalled at once.
#ifndef TWINFORGE_EXPORTERS_GROUPS_H_
#define TWINFORGE_EXPORTERS_GROUPS_H_

#include <cstdint>
#include <vector>

#include "exporters/exporter.h"
#include "exporters/tiles.h"

namespace twinforge {

struct Group {
  int32_t file = 0;
  int32_t place = 0;   // among the groups of its file; 0 is the header
  int64_t offset = 0;  // in the file
  int64_t bytes = 0;
  int32_t first = 0;  // tensors [first, last) of the file have tiles in it; none in the header's
  int32_t last = 0;
  int64_t first_tile = 0;  // with one tensor: tiles [first_tile, last_tile) of it; with several, all of each
  int64_t last_tile = 0;
  int64_t extra = 0;  // memory beside its bytes while it is made: scratch, elements before packing
};

struct Groups {
  std::vector<Group> groups;                 // in order of file and offset
  std::vector<std::vector<Tiling>> tilings;  // by file and tensor
};

// Groups of at most `tile_bytes`, but where one tile is more; bytes and extra of each fit `share`, unless a
// tensor can't be cut so small.
Groups CutFiles(const std::vector<OutputFile>& files, int64_t share, int64_t tile_bytes);

}  // namespace twinforge

#endif  // TWINFORGE_EXPORTERS_GROUPS_H_
