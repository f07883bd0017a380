#include "base/parallel.h"

#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace twinforge {
namespace {

// How often each place was visited, whatever the grain; loops inside loops and beside them included.
std::vector<int> Visits(int64_t count, int64_t grain) {
  std::vector<int> visits(count);
  ParallelFor(count, grain, [&](int64_t begin, int64_t end) {
    EXPECT_LT(begin, end);
    for (int64_t i = begin; i < end; ++i) ++visits[i];
  });
  return visits;
}

TEST(ParallelFor, VisitsEachPlaceOnce) {
  for (int64_t count : {0, 1, 2, 63, 64, 65, 1000, 4097}) {
    for (int64_t grain : {0, 1, 7, 64, 100000}) EXPECT_EQ(Visits(count, grain), std::vector<int>(count, 1));
  }
}

TEST(ParallelFor, RunsInsideAnother) {
  std::atomic<int64_t> sum = 0;
  ParallelFor(100, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      ParallelFor(50, 1, [&](int64_t from, int64_t to) { sum += to - from; });
    }
  });
  EXPECT_EQ(sum, 5000);
}

TEST(ParallelFor, RunsBesideAnother) {
  std::atomic<int64_t> sum = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        ParallelFor(100, 10, [&](int64_t from, int64_t to) { sum += to - from; });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sum, 4 * 200 * 100);
}

}  // namespace
}  // namespace twinforge
