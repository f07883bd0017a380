// Where an evaluation gets the values of a graph's parameters: a parameter's weight program, read whole.
//
//   StoredParams stored(*model.reader);          // a checkpoint or a twin
//   RandomTensors random(7); StoredParams made(random);   // no file: values from a seed
//
// RandomTensors makes a stored tensor's elements from its name, its extents and the seed, whatever its dtype,
// so two graphs over the same sources (a model and its twin) see the same values.
#ifndef TWINFORGE_EVAL_PARAMS_H_
#define TWINFORGE_EVAL_PARAMS_H_

#include "absl/status/statusor.h"
#include "eval/tensor.h"
#include "ir/graph.h"
#include "weights/read.h"

namespace twinforge {

class ParamSource {
 public:
  virtual ~ParamSource() = default;
  // The parameter's value: param.type's shape, its program's dtype.
  virtual absl::StatusOr<Tensor> Value(const Param& param) const = 0;
};

class StoredParams : public ParamSource {
 public:
  // `reader` outlives it.
  explicit StoredParams(const TensorReader& reader) : reader_(reader) {}
  absl::StatusOr<Tensor> Value(const Param& param) const override;

 private:
  const TensorReader& reader_;
};

// Elements uniform in (-1, 1), away from 0 by at least 1/256, rounded once to the source's dtype.
class RandomTensors : public TensorReader {
 public:
  explicit RandomTensors(uint64_t seed) : seed_(seed) {}
  absl::Status ReadElements(const Weight& source, int64_t first, int64_t count,
                            std::byte* out) const override;

 private:
  uint64_t seed_;
};

}  // namespace twinforge

#endif  // TWINFORGE_EVAL_PARAMS_H_
