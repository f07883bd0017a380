// Runs a fuzz target without libFuzzer, so that every build of the tests runs it a little:
// each seed, and a fixed sequence of mutations of it. Arguments are files to replay instead.
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern const char* const kSeeds[];
extern const size_t kSeedCount;

namespace {

void Run(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

// Bytes that mean something to the grammar are tried more often than others.
char InterestingByte(std::mt19937_64& random) {
  constexpr char kBytes[] = "{}[]:,\"\\u0019-+.eE tfnNI\n\xff\xc3\xed";
  return random() % 4 == 0 ? static_cast<char>(random()) : kBytes[random() % (sizeof(kBytes) - 1)];
}

std::string Mutate(std::string text, const std::string& other, std::mt19937_64& random) {
  for (uint64_t changes = 1 + random() % 4; changes > 0; --changes) {
    const size_t at = text.empty() ? 0 : random() % text.size();
    const size_t length = text.empty() ? 0 : random() % (text.size() - at + 1);
    switch (random() % 6) {
      case 0:
        text.insert(at, 1, InterestingByte(random));
        break;
      case 1:
        text.erase(at, 1 + random() % 3);
        break;
      case 2:
        if (!text.empty()) text[at] = InterestingByte(random);
        break;
      case 3:
        if (!text.empty()) text[at] ^= static_cast<char>(1 << (random() % 8));
        break;
      case 4:
        text.insert(at, text.substr(at, length));
        break;
      case 5:
        text.insert(at, other.substr(random() % (other.size() + 1), 1 + random() % 20));
        break;
    }
    if (text.size() > 4096) text.resize(4096);
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    Run(std::string(std::istreambuf_iterator<char>(file), {}));
  }
  if (argc > 1) return 0;
  std::mt19937_64 random(20231123);
  constexpr int kMutations = 50000;  // of each seed
  for (size_t s = 0; s < kSeedCount; ++s) {
    Run(kSeeds[s]);
    for (int i = 0; i < kMutations; ++i) Run(Mutate(kSeeds[s], kSeeds[random() % kSeedCount], random));
  }
  std::printf("%zu seeds, %d mutations of each\n", kSeedCount, kMutations);
  return 0;
}
