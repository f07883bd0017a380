#include "exporters/stream.h"

#include <sys/mman.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "exporters/groups.h"
#include "exporters/overflow.h"
#include "exporters/tensor_hash.h"
#include "weights/codec.h"

namespace twinforge {
namespace {

constexpr int64_t kFoundBytes = 1 << 16;

// Memory straight from the system, given back when dropped: what an allocator keeps for later would count
// against the budget.
class Buffer {
 public:
  ~Buffer() { Drop(); }
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  int64_t capacity() const { return capacity_; }

  std::byte* Need(int64_t bytes) {
    if (bytes <= capacity_) return data_;
    Drop();
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return nullptr;
    data_ = static_cast<std::byte*>(at);
    capacity_ = bytes;
    return data_;
  }

  void Drop() {
    if (data_ != nullptr) munmap(data_, capacity_);
    data_ = nullptr;
    capacity_ = 0;
  }

 private:
  std::byte* data_ = nullptr;
  int64_t capacity_ = 0;
};

struct Worker {
  Buffer data;                   // one group, as it lies in the file
  Buffer elements;               // one tile of a packed type, unpacked
  std::vector<std::byte> found;  // a piece of what lies on disk
  std::unique_ptr<Scratch> scratch = std::make_unique<Scratch>();
  const OutputTensor* last = nullptr;
  const OutputTensor* checked = nullptr;
  bool may_overflow = false;  // `checked`, found once for all its tiles
  int64_t peak_scratch = 0;
};

struct FileState {
  int fd = -1;
  bool started = false;
  int32_t groups = 0;
  int32_t done = 0;
  int32_t turn = 0;    // the group that may hash next
  int64_t hashed = 0;  // bytes of the file so far
  Sha256 file_hash;
  TensorHash tensor_hash;
  FinishedFile finished;
};

class Stream {
 public:
  Stream(const StreamRequest& request, OutputDir& dir, const std::function<void(const Progress&)>& progress)
      : request_(request),
        dir_(dir),
        progress_(progress),
        cut_(CutFiles(request.files, request.share, request.tile_bytes)),
        files_(request.files.size()) {}

  absl::StatusOr<StreamResult> Run();

 private:
  void SkipFinished();
  void Work();
  absl::Status Process(const Group& group, Worker& worker);
  absl::Status Start(const Group& group);
  absl::StatusOr<const std::byte*> Fill(const Group& group, Worker& worker);
  absl::Status FillTile(const Group& group, int32_t tensor, int64_t tile, Worker& worker, std::byte* out,
                        int64_t* bytes);
  bool FoundWritten(const Group& group, std::byte* data);
  bool StandsWritten(const Group& group, const std::byte* data, Worker& worker);
  void HashInOrder(const Group& group, const std::byte* data);
  void HashTensors(const Group& group, const std::byte* data);
  absl::Status Finish(const Group& group);
  void Report(int64_t bytes);
  void Fail(const absl::Status& status);

  const StreamRequest& request_;
  OutputDir& dir_;
  const std::function<void(const Progress&)>& progress_;
  Groups cut_;
  std::vector<FileState> files_;
  std::atomic<size_t> next_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;  // guards what follows, and every FileState::turn
  std::condition_variable moved_;
  absl::Status status_;
  Progress done_;
  StreamResult result_;
};

absl::StatusOr<StreamResult> Stream::Run() {
  for (const OutputFile& file : request_.files) done_.bytes_total += file.bytes;
  SkipFinished();
  std::vector<std::thread> threads;
  for (int i = 1; i < request_.workers; ++i) threads.emplace_back([this] { Work(); });
  Work();
  for (std::thread& thread : threads) thread.join();
  TWIN_RETURN_IF_ERROR(status_);
  for (FileState& file : files_) result_.files.push_back(std::move(file.finished));
  return std::move(result_);
}

// Whether the file at `path` still has this hash: a journal says what was written, not what became of it
// since.
bool StillHolds(const std::string& path, const FinishedFile& file) {
  absl::StatusOr<std::unique_ptr<ReadableFile>> opened = ReadableFile::Open(path);
  if (!opened.ok() || (*opened)->size() != file.bytes) return false;
  std::vector<std::byte> block(int64_t{4} << 20);
  Sha256 hash;
  for (int64_t at = 0; at < file.bytes; at += static_cast<int64_t>(block.size())) {
    const int64_t count = std::min<int64_t>(static_cast<int64_t>(block.size()), file.bytes - at);
    if (!(*opened)->ReadAt(at, count, block.data()).ok()) return false;
    hash.Add(block.data(), count);
  }
  return hash.Finish() == file.sha256;
}

// Files that an earlier run finished, and that are still what it wrote, need no group.
void Stream::SkipFinished() {
  std::vector<bool> skip(files_.size());
  for (size_t f = 0; f < files_.size() && !dir_.doubted(); ++f) {
    const FinishedFile* found = dir_.FindFinished(request_.files[f].name);
    if (found == nullptr || found->bytes != request_.files[f].bytes ||
        found->parts.size() != request_.files[f].tensors.size() ||
        !StillHolds(absl::StrCat(dir_.partial(), "/", request_.files[f].name), *found)) {
      continue;
    }
    skip[f] = true;
    files_[f].finished = *found;
    result_.bytes_reused += found->bytes;
    done_.bytes_done += found->bytes;
  }
  std::vector<Group>& groups = cut_.groups;
  groups.erase(std::remove_if(groups.begin(), groups.end(), [&](const Group& g) { return skip[g.file]; }),
               groups.end());
  for (const Group& group : groups) ++files_[group.file].groups;
}

void Stream::Work() {
  Worker worker;
  while (!stop_) {
    size_t at = next_++;
    if (at >= cut_.groups.size()) break;
    absl::Status status = Process(cut_.groups[at], worker);
    if (!status.ok()) Fail(status);
  }
  std::lock_guard<std::mutex> lock(mutex_);
  result_.peak_scratch_bytes =
      std::max({result_.peak_scratch_bytes, worker.peak_scratch, worker.scratch->high_water()});
}

absl::Status Stream::Process(const Group& group, Worker& worker) {
  TWIN_RETURN_IF_ERROR(Start(group));
  TWIN_ASSIGN_OR_RETURN(const std::byte* data, Fill(group, worker));
  HashInOrder(group, data);
  Report(group.bytes);
  return Finish(group);
}

absl::Status Stream::Start(const Group& group) {
  const OutputFile& file = request_.files[group.file];
  std::lock_guard<std::mutex> lock(mutex_);
  FileState& state = files_[group.file];
  if (state.started) return absl::OkStatus();
  TWIN_ASSIGN_OR_RETURN(state.fd, dir_.StartFile(file.name, file.bytes));
  state.started = true;
  return absl::OkStatus();
}

// The group's bytes, on disk and in memory: found there, or made and written.
absl::StatusOr<const std::byte*> Stream::Fill(const Group& group, Worker& worker) {
  const OutputFile& file = request_.files[group.file];
  const std::byte* data = reinterpret_cast<const std::byte*>(file.header.data());
  if (group.place > 0) {
    const OutputTensor* tensor = &file.tensors[group.first];
    // A scratch keeps its largest buffers; those of another tensor may not be those of this one.
    if (tensor != worker.last && worker.scratch->high_water() > 0) {
      worker.peak_scratch = std::max(worker.peak_scratch, worker.scratch->high_water());
      worker.scratch = std::make_unique<Scratch>();
    }
    if (tensor != worker.last) worker.elements.Drop();
    worker.last = tensor;
    // What an earlier group took goes back before it crowds out what this one needs.
    if (worker.data.capacity() > group.bytes && worker.data.capacity() + group.extra > request_.share) {
      worker.data.Drop();
    }
    std::byte* room = worker.data.Need(group.bytes + OutputDir::kBlock);
    if (room == nullptr)
      return Error(1605, file.name, "the system has no memory left", "lower --memory or --threads");
    // In memory as in the file, modulo a block, so that whole blocks can be written as they are.
    if (group.offset % 8 == 0) room += group.offset % OutputDir::kBlock;
    if (!dir_.doubted() && FoundWritten(group, room)) return room;
    std::byte* at = room;
    for (int32_t t = group.first; t < group.last; ++t) {
      bool alone = group.last - group.first == 1;
      int64_t begin = alone ? group.first_tile : 0;
      int64_t end = alone ? group.last_tile : cut_.tilings[group.file][t].tiles;
      for (int64_t tile = begin; tile < end; ++tile) {
        int64_t bytes = 0;
        TWIN_RETURN_IF_ERROR(FillTile(group, t, tile, worker, at, &bytes));
        at += bytes;
      }
    }
    data = room;
    if (dir_.doubted() && StandsWritten(group, data, worker)) return data;
  }
  FileState& state = files_[group.file];
  TWIN_RETURN_IF_ERROR(dir_.WriteRange(state.fd, file.name, group.offset, data, group.bytes));
  TWIN_RETURN_IF_ERROR(dir_.NoteRange(file.name, group.offset, group.bytes, XXH3_64bits(data, group.bytes)));
  return data;
}

absl::Status Stream::FillTile(const Group& group, int32_t index, int64_t tile, Worker& worker, std::byte* out,
                              int64_t* bytes) {
  const OutputTensor& tensor = request_.files[group.file].tensors[index];
  const WeightPtr& program = tensor.program;
  int64_t first;
  Box box = TileBox(program, cut_.tilings[group.file][index], tile, &first);
  int64_t count = ElementCount(box.size);
  *bytes = *FileBytes(program->dtype(), count);
  bool packed = PackingGranule(program->dtype()) > 1;
  std::byte* into = packed ? worker.elements.Need(count) : out;
  if (into == nullptr)
    return Error(1605, tensor.name, "the system has no memory left", "lower --memory or --threads");
  absl::Status read = Read(program, box, request_.reader, into, *worker.scratch, request_.stats);
  if (!read.ok()) return WithPlace(read, absl::StrCat(tensor.name, ": "));
  if (worker.checked != &tensor) {
    worker.checked = &tensor;
    worker.may_overflow = MayOverflow(program);
  }
  if (worker.may_overflow)
    TWIN_RETURN_IF_ERROR(CheckRange(tensor, box, into, request_.reader, request_.stats));
  if (packed) Pack(program->dtype(), into, count, out);
  return absl::OkStatus();
}

// Whether an earlier run wrote this group, judged by its bytes on disk, which are then in `data`.
bool Stream::FoundWritten(const Group& group, std::byte* data) {
  const std::string& name = request_.files[group.file].name;
  const uint64_t* hash = dir_.FindRange(name, group.offset, group.bytes);
  if (hash == nullptr || !dir_.ReadBack(files_[group.file].fd, group.offset, data, group.bytes)) return false;
  if (XXH3_64bits(data, group.bytes) != *hash) return false;
  std::lock_guard<std::mutex> lock(mutex_);
  result_.bytes_reused += group.bytes;
  return true;
}

// Whether an earlier run wrote just these bytes, from whatever its source was then.
bool Stream::StandsWritten(const Group& group, const std::byte* data, Worker& worker) {
  if (!dir_.Tells(request_.files[group.file].name, group.offset, group.bytes)) return false;
  worker.found.resize(kFoundBytes);
  for (int64_t at = 0; at < group.bytes; at += kFoundBytes) {
    const int64_t count = std::min(kFoundBytes, group.bytes - at);
    if (!dir_.ReadBack(files_[group.file].fd, group.offset + at, worker.found.data(), count)) return false;
    if (std::memcmp(worker.found.data(), data + at, count) != 0) return false;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  result_.bytes_reused += group.bytes;
  return true;
}

// The groups of a file pass one at a time, in order; others read and write meanwhile.
void Stream::HashInOrder(const Group& group, const std::byte* data) {
  FileState& state = files_[group.file];
  {
    std::unique_lock<std::mutex> lock(mutex_);
    moved_.wait(lock, [&] { return stop_ || state.turn == group.place; });
    if (stop_) return;
  }
  HashTensors(group, data);
  // Between aligned tensors lie zeros, as the file was reserved.
  const std::vector<std::byte> zeros(static_cast<size_t>(group.offset - state.hashed));
  state.file_hash.Add(zeros.data(), static_cast<int64_t>(zeros.size()));
  state.file_hash.Add(data, group.bytes);
  state.hashed = group.offset + group.bytes;
  std::lock_guard<std::mutex> lock(mutex_);
  ++state.turn;
  moved_.notify_all();
}

void Stream::HashTensors(const Group& group, const std::byte* data) {
  FileState& state = files_[group.file];
  for (int32_t t = group.first; t < group.last; ++t) {
    const OutputTensor& tensor = request_.files[group.file].tensors[t];
    bool alone = group.last - group.first == 1;
    int64_t bytes = alone ? group.bytes : tensor.bytes;
    state.tensor_hash.Add(data, bytes);
    data += bytes;
    if (!alone || group.last_tile >= cut_.tilings[group.file][t].tiles) {
      state.finished.parts.push_back(state.tensor_hash.Finish());
    }
  }
}

absl::Status Stream::Finish(const Group& group) {
  FileState& state = files_[group.file];
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (stop_ || ++state.done < state.groups) return absl::OkStatus();
  }
  const OutputFile& file = request_.files[group.file];
  state.finished.bytes = file.bytes;
  state.finished.sha256 = state.file_hash.Finish();
  return dir_.FinishFile(state.fd, file.name, state.finished);
}

void Stream::Report(int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  done_.bytes_done += bytes;
  if (progress_) progress_(done_);
}

void Stream::Fail(const absl::Status& status) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (status_.ok()) status_ = status;
  stop_ = true;
  moved_.notify_all();
}

}  // namespace

absl::StatusOr<StreamResult> StreamFiles(const StreamRequest& request, OutputDir& dir,
                                         const std::function<void(const Progress&)>& progress) {
  absl::StatusOr<StreamResult> result = Stream(request, dir, progress).Run();
  if (!result.ok()) return result;
  int64_t total = 0;
  for (const OutputFile& file : request.files) total += file.bytes;
  result->bytes_written = total - result->bytes_reused;
  return result;
}

int64_t WorkerBytes(const std::vector<OutputFile>& files, int64_t share, int64_t tile_bytes,
                    std::string* hardest) {
  int64_t most = 0;
  int64_t bytes = 0;
  int64_t extra = 0;
  for (const Group& group : CutFiles(files, share, tile_bytes).groups) {
    if (group.place == 0) continue;  // headers are written from where they are
    bytes = std::max(bytes, group.bytes);
    extra = std::max(extra, group.extra);
    if (group.bytes + group.extra <= most) continue;
    most = group.bytes + group.extra;
    if (hardest != nullptr) *hardest = files[group.file].tensors[group.first].name;
  }
  // A buffer is kept from group to group as long as it fits beside what the next needs.
  return std::max(most, std::min(share, bytes + extra));
}

}  // namespace twinforge
