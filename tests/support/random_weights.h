// Random weight programs, each with the value that it must have.
//
// A program is built through build.h (which simplifies) and, verb by verb, as a whole
// tensor by the oracle. So `value` knows nothing of simplification: a wrong rewrite shows
// as surely as a wrong read.
#ifndef TWINFORGE_TESTS_SUPPORT_RANDOM_WEIGHTS_H_
#define TWINFORGE_TESTS_SUPPORT_RANDOM_WEIGHTS_H_

#include <random>
#include <string>
#include <vector>

#include "tests/support/naive_weights.h"
#include "weights/weight.h"

namespace twinforge {

using Random = std::mt19937_64;

// Uniform in [low, high].
int64_t Pick(Random& random, int64_t low, int64_t high);

struct RandomOptions {
  int verbs = 4;               // at most this many along the longest path
  bool only_moves = false;     // Source, Fill, Take, Transpose, Reshape, Concat
  bool computes_back = false;  // moves, casts and maps by constants: what can be turned back
  int64_t max_elements = 600;  // of any tensor on the way
  int64_t long_axis = 0;       // where not 0, sources have one axis of about this extent
  std::vector<DType> dtypes;   // of sources; empty: every type
  bool labelled = false;       // elements hold their own row-major index (else random bits or values)
};

struct RandomProgram {
  WeightPtr program;
  NaiveTensor value;
};

// Appends the sources that the program reads to `sources` under fresh names; with
// `labelled` it may read one that is there already.
RandomProgram MakeRandomProgram(Random& random, const RandomOptions& options, NaiveTensors& sources);

Box RandomBox(Random& random, const Shape& shape);

// A map into an axis of `extent` with runs forwards, backwards, skipping, repeated and fill.
IndexMap RandomMap(Random& random, int64_t extent, int64_t max_size);

// Reads a box through weights/read.h into a tensor; a failed read is a test failure.
NaiveTensor ReadBox(const WeightPtr& w, const Box& box, const TensorReader& reader, Scratch& scratch);

}  // namespace twinforge

#endif  // TWINFORGE_TESTS_SUPPORT_RANDOM_WEIGHTS_H_
