// A file to be written, said as stretches before one byte is read: text, parts of other files, programs.
//
//   [0, 917)            text          the message up to the tensor
//   [917, 917 + 2^31)   a file's      copied, its holes left holes
//   [.., ..)            a program     read tile by tile
//
// Between stretches a file is zero, and stays without blocks where its file system has such files.
#ifndef TWINFORGE_ONNX_NEW_FILE_H_
#define TWINFORGE_ONNX_NEW_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "weights/weight.h"

namespace twinforge {

// One of the three sources is set.
struct Stretch {
  int64_t offset = 0;  // in the new file
  int64_t length = 0;
  std::shared_ptr<const std::string> text;
  const ReadableFile* file = nullptr;
  int64_t from = 0;   // in `text` or `file`
  WeightPtr program;  // its elements, packed; `name` is for diagnostics
  std::string name;
};

struct NewFile {
  std::string name;  // below the folder that is made, "/" between parts
  int64_t size = 0;
  std::vector<Stretch> stretches;  // ascending, none overlaps another
};

}  // namespace twinforge

#endif  // TWINFORGE_ONNX_NEW_FILE_H_
