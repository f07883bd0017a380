// A graph of one op over x [batch, seq, d_model], its parameters random in f64: what differential tests of
// blocks run on.
#ifndef TWINFORGE_TESTS_EVAL_SINGLE_OP_H_
#define TWINFORGE_TESTS_EVAL_SINGLE_OP_H_

#include <map>
#include <string>
#include <vector>

#include "eval/evaluate.h"
#include "ir/graph.h"

namespace twinforge {

using SlotTypes =
    std::vector<std::pair<std::string, std::string>>;  // slot -> "d_model=4 -> heads=2, head_dim=2"

// Values by index, for formulas written out.
class Values4 {
 public:
  Values4() = default;
  Values4(Shape shape, std::vector<double> data) : shape_(std::move(shape)), data_(std::move(data)) {}
  double at(std::initializer_list<int64_t> index) const;
  double& at(std::initializer_list<int64_t> index);
  const Shape& shape() const { return shape_; }
  const std::vector<double>& data() const { return data_; }

 private:
  int64_t PlaceOf(std::initializer_list<int64_t> index) const;
  Shape shape_;
  std::vector<double> data_;
};

class SingleOp {
 public:
  // The graph's text is `x` and one line; a mistake in it is a failed test.
  SingleOp(const std::string& op, const std::string& attrs, const SlotTypes& slots,
           const std::string& x = "f64[batch, seq, d_model=4]");

  const Graph& graph() const { return graph_; }
  Values4 Param(const std::string& slot) const;
  bool Has(const std::string& slot) const;
  // Random in (-1, 1), of the given extents.
  static Values4 Random(const Shape& shape, uint64_t seed);
  Values4 Run(const Values4& x, DecodeState* state = nullptr) const;
  // The same through the decomposition, one step deep.
  Values4 RunOnce(const Values4& x) const;
  // x in pieces along axis 1, with a state.
  Values4 RunInPieces(const Values4& x, const std::vector<int64_t>& pieces) const;

 private:
  Graph graph_;
  RandomTensors reader_{11};
};

// Fails the running test where they differ by more than a few last places of the largest value.
void ExpectSame(const Values4& want, const Values4& got);

}  // namespace twinforge

#endif  // TWINFORGE_TESTS_EVAL_SINGLE_OP_H_
