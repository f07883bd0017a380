#include "base/parallel.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace twinforge {
namespace {

constexpr unsigned kMostHelpers = 15;
constexpr int64_t kPiecesPerThread = 8;  // so that one slow piece does not keep the others waiting

thread_local bool inside_loop = false;

struct Loop {
  absl::FunctionRef<void(int64_t, int64_t)> body;
  int64_t count;
  int64_t piece;
  std::atomic<int64_t> next{0};

  void Work() {
    inside_loop = true;
    for (int64_t begin; (begin = next.fetch_add(piece)) < count;) body(begin, std::min(count, begin + piece));
    inside_loop = false;
  }
};

// Threads that wait for a loop to share. One loop at a time; they live as long as the process.
class Helpers {
 public:
  Helpers() : count_(std::min(kMostHelpers, std::max(1u, std::thread::hardware_concurrency()) - 1)) {
    for (unsigned i = 0; i < count_; ++i) std::thread([this] { Serve(); }).detach();
  }

  int64_t count() const { return count_; }

  // False if another loop has them.
  bool Run(Loop& loop) {
    {
      std::lock_guard lock(mutex_);
      if (loop_ != nullptr) return false;
      loop_ = &loop;
      ++turn_;
    }
    wake_.notify_all();
    loop.Work();
    std::unique_lock lock(mutex_);
    loop_ = nullptr;  // nobody else may join
    done_.wait(lock, [this] { return working_ == 0; });
    return true;
  }

 private:
  void Serve() {
    uint64_t served = 0;
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return loop_ != nullptr && turn_ != served; });
      served = turn_;
      Loop* loop = loop_;
      ++working_;
      lock.unlock();
      loop->Work();
      lock.lock();
      if (--working_ == 0) done_.notify_all();
    }
  }

  const unsigned count_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  Loop* loop_ = nullptr;  // that may be joined
  uint64_t turn_ = 0;
  int working_ = 0;
};

Helpers& TheHelpers() {
  static Helpers* const helpers = new Helpers;  // never destroyed: its threads wait on it until the end
  return *helpers;
}

}  // namespace

void ParallelFor(int64_t count, int64_t grain, absl::FunctionRef<void(int64_t begin, int64_t end)> body) {
  if (count <= 0) return;
  grain = std::max<int64_t>(1, grain);
  if (inside_loop || count <= grain) return body(0, count);
  Helpers& helpers = TheHelpers();
  const int64_t pieces = (helpers.count() + 1) * kPiecesPerThread;
  Loop loop{body, count, std::max(grain, (count + pieces - 1) / pieces)};
  if (helpers.count() == 0 || !helpers.Run(loop)) body(0, count);
}

}  // namespace twinforge
