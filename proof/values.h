// Stored values that are made up for an argument: of a size that lets every path of a model count.
//
// Seen from the source and from its twin a stored tensor has the same elements, since they follow from its
// name, its extents and the seed. A matrix is scaled by the root of its last extent, so that what it yields
// is about as large as what it is given: a softmax over sums of thousands of raw products would have one
// winner, and a wrong scale would not show. Its rows differ in size, and one element in eight is eight times
// as large as the others. Loud matrices are sixteen times that, and loud vectors a quarter, so that clamps,
// caps and bends of activations are passed and a router's choice is the token's, not its bias's; quiet values
// are where a small error, an eps, shows best. An argument uses both.
#ifndef TWINFORGE_PROOF_VALUES_H_
#define TWINFORGE_PROOF_VALUES_H_

#include "eval/params.h"

namespace twinforge {

enum class Loudness { kQuiet, kLoud };

class MadeTensors : public TensorReader {
 public:
  explicit MadeTensors(uint64_t seed, Loudness loudness = Loudness::kQuiet)
      : raw_(seed), loud_(loudness == Loudness::kLoud) {}
  absl::Status ReadElements(const Weight& source, int64_t first, int64_t count,
                            std::byte* out) const override;

 private:
  RandomTensors raw_;
  bool loud_;
};

}  // namespace twinforge

#endif  // TWINFORGE_PROOF_VALUES_H_
