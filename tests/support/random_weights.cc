#include "tests/support/random_weights.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "weights/build.h"

namespace twinforge {
namespace {

int64_t Count(const Shape& shape) {
  int64_t count = 1;
  for (int64_t n : shape) count *= n;
  return count;
}

bool IsNumber(DType dtype) { return dtype != DType::kC64; }

// Random bits where nothing computes with them; otherwise values that most types can
// tell apart.
NaiveTensor RandomTensor(Random& random, const RandomOptions& options, DType dtype, const Shape& shape) {
  NaiveTensor tensor(dtype, shape);
  const int64_t count = Count(shape);
  if (options.labelled) {
    for (int64_t i = 0; i < count; ++i) FromDouble(dtype, static_cast<double>(i), tensor.at(i));
    return tensor;
  }
  if (options.only_moves || dtype == DType::kC64) {
    const int64_t codes = int64_t{1} << std::min<int64_t>(8, BitWidth(dtype));
    for (std::byte& b : tensor.data) b = static_cast<std::byte>(Pick(random, 0, codes - 1));
    return tensor;
  }
  for (int64_t i = 0; i < count; ++i) {
    double value = static_cast<double>(Pick(random, -200, 200)) / 16;
    if (IsInteger(dtype)) value = static_cast<double>(Pick(random, -100, 100));
    if (Pick(random, 0, 200) == 0 && IsFloat(dtype)) value = std::nan("");
    FromDouble(dtype, value, tensor.at(i));
  }
  return tensor;
}

class Maker {
 public:
  Maker(Random& random, const RandomOptions& options, NaiveTensors& sources)
      : random_(random), options_(options), sources_(sources) {}

  RandomProgram Make(int verbs) {
    if (verbs == 0) return Leaf(AnyType(), AnyShape());
    RandomProgram x = Make(verbs - static_cast<int>(Pick(random_, 1, 2) == 1 ? 1 : std::min(verbs, 2)));
    const int kinds = options_.only_moves ? 4 : options_.computes_back ? 6 : 9;
    RandomProgram y = Grow(x, static_cast<int>(Pick(random_, 0, kinds - 1)));
    const int64_t count = Count(y.value.shape);
    const int64_t most = std::max(options_.max_elements, options_.long_axis * 16);
    return count > most || count == 0 ? x : y;
  }

 private:
  DType AnyType() {
    if (!options_.dtypes.empty()) return options_.dtypes[Pick(random_, 0, options_.dtypes.size() - 1)];
    return AllDTypes()[Pick(random_, 0, kDTypeCount - 1)];
  }

  Shape AnyShape() {
    Shape shape;
    const int64_t rank = Pick(random_, 0, 20) == 0 ? 0 : Pick(random_, 1, 4);
    for (int64_t i = 0; i < rank; ++i) shape.push_back(Pick(random_, 1, rank > 2 ? 4 : 8));
    if (options_.long_axis > 0 && rank > 0) {
      for (int64_t& n : shape) n = std::min<int64_t>(n, 2);
      shape[Pick(random_, 0, rank - 1)] = Pick(random_, options_.long_axis / 2, options_.long_axis);
    }
    return shape;
  }

  RandomProgram Leaf(DType dtype, const Shape& shape) {
    if (Pick(random_, 0, 11) == 0 && IsNumber(dtype)) {
      const double value = static_cast<double>(Pick(random_, -1, 2));
      return {Fill(value, dtype, shape), NaiveFill(value, dtype, shape)};
    }
    if (options_.labelled && !sources_.empty() && Pick(random_, 0, 1) == 0) {
      for (const auto& [name, tensor] : sources_) {
        if (tensor.dtype == dtype && tensor.shape == shape) return {Source(name, dtype, shape), tensor};
      }
    }
    if (!shape.empty() && shape[0] > 0 && Pick(random_, 0, 5) == 0) return StackLeaf(dtype, shape);
    const std::string name = absl::StrCat("s", sources_.size());
    NaiveTensor& tensor = sources_[name] = RandomTensor(random_, options_, dtype, shape);
    return {Source(name, dtype, shape), tensor};
  }

  // Members are numbered from anywhere, in names that hold other numbers too.
  RandomProgram StackLeaf(DType dtype, const Shape& shape) {
    const std::string prefix = absl::StrCat("layers.", sources_.size(), ".experts.");
    const int64_t first = Pick(random_, 0, 12);
    const Shape member(shape.begin() + 1, shape.end());
    for (int64_t i = 0; i < shape[0]; ++i) {
      const std::string name = absl::StrCat(prefix, first + i, ".w");
      sources_[name] = RandomTensor(random_, options_, dtype, member);
    }
    const WeightPtr stack = StackedSources(prefix, first, shape[0], ".w", dtype, member);
    return {stack, NaiveValue(stack, sources_)};
  }

  RandomProgram Grow(const RandomProgram& x, int kind) {
    switch (kind) {
      case 0:
        return GrowTake(x);
      case 1:
        return GrowTranspose(x);
      case 2:
        return GrowReshape(x);
      case 3:
        return GrowConcat(x);
      case 4:
        return GrowCast(x);
      case 5:
        return GrowMap(x);
      case 6:
        return GrowContract(x);
      case 7:
        return GrowStat(x);
      default:
        return GrowGroup(x);
    }
  }

  int64_t AnyAxis(const RandomProgram& x) { return Pick(random_, 0, x.value.shape.size() - 1); }

  RandomProgram GrowTake(const RandomProgram& x) {
    if (x.value.shape.empty()) return x;
    const int64_t axis = AnyAxis(x);
    const int64_t extent = x.value.shape[axis];
    const IndexMap map = RandomMap(random_, extent, std::max<int64_t>(12, extent * 2));
    const double fill = IsNumber(x.value.dtype) && Pick(random_, 0, 3) == 0 ? 1 : 0;
    return {Take(x.program, axis, map, fill), NaiveTake(x.value, axis, map, fill)};
  }

  RandomProgram GrowTranspose(const RandomProgram& x) {
    std::vector<int64_t> perm;
    for (size_t i = 0; i < x.value.shape.size(); ++i) perm.push_back(i);
    std::shuffle(perm.begin(), perm.end(), random_);
    return {Transpose(x.program, perm), NaiveTranspose(x.value, perm)};
  }

  RandomProgram GrowReshape(const RandomProgram& x) {
    Shape shape;
    int64_t left = Count(x.value.shape);
    const int64_t rank = Pick(random_, 0, 3);
    for (int64_t i = 0; i < rank && left > 1; ++i) {
      std::vector<int64_t> divisors;
      for (int64_t d = 1; d <= std::min<int64_t>(left, 64); ++d) {
        if (left % d == 0) divisors.push_back(d);
      }
      shape.push_back(divisors[Pick(random_, 0, divisors.size() - 1)]);
      left /= shape.back();
    }
    if (left > 1 || Pick(random_, 0, 3) == 0)
      shape.insert(shape.begin() + Pick(random_, 0, shape.size()), left);
    return {Reshape(x.program, shape), NaiveReshape(x.value, shape)};
  }

  RandomProgram GrowConcat(const RandomProgram& x) {
    if (x.value.shape.empty()) return x;
    const int64_t axis = AnyAxis(x);
    std::vector<RandomProgram> parts = {x};
    const int64_t more = Pick(random_, 0, 2);
    for (int64_t i = 0; i < more; ++i) {
      Shape shape = x.value.shape;
      shape[axis] = Pick(random_, 1, 4);
      parts.push_back(Pick(random_, 0, 2) == 0 ? x : Leaf(x.value.dtype, shape));
    }
    std::shuffle(parts.begin(), parts.end(), random_);
    std::vector<WeightPtr> programs;
    std::vector<NaiveTensor> values;
    for (RandomProgram& part : parts) {
      programs.push_back(part.program);
      values.push_back(part.value);
    }
    return {Concat(axis, programs), NaiveConcat(axis, values)};
  }

  RandomProgram GrowCast(const RandomProgram& x) {
    const DType to = AnyType();
    if (!IsNumber(to) || !IsNumber(x.value.dtype)) return x;
    return {Cast(x.program, to), NaiveCast(x.value, to)};
  }

  RandomProgram GrowMap(const RandomProgram& x) {
    if (!IsNumber(x.value.dtype)) return x;
    Shape shape = x.value.shape;
    shape.erase(shape.begin(), shape.begin() + Pick(random_, 0, shape.size()));
    for (int64_t& n : shape) {
      if (Pick(random_, 0, 1) == 0) n = 1;
    }
    const MapFn fn = static_cast<MapFn>(Pick(random_, 0, 3));
    if (options_.computes_back || Pick(random_, 0, 2) == 0) {
      const double value = static_cast<double>(int64_t{1} << Pick(random_, 0, 2));
      return {Map(fn, x.program, Fill(value, x.value.dtype, shape)),
              NaiveMap(fn, x.value, NaiveFill(value, x.value.dtype, shape))};
    }
    DType type = AnyType();
    if (!IsNumber(type)) type = DType::kF32;
    const RandomProgram y = Leaf(type, shape);
    return {Map(fn, x.program, y.program), NaiveMap(fn, x.value, y.value)};
  }

  RandomProgram GrowContract(const RandomProgram& x) {
    if (x.value.shape.size() < 2 || !IsNumber(x.value.dtype)) return x;
    Shape shape = x.value.shape;
    const size_t m = shape.size() - 2;
    shape[m] = shape[m + 1];
    shape[m + 1] = Pick(random_, 1, 5);
    const RandomProgram y = Leaf(x.value.dtype, shape);
    return {Contract(x.program, y.program), NaiveContract(x.value, y.value)};
  }

  RandomProgram GrowStat(const RandomProgram& x) {
    if (!IsNumber(x.value.dtype)) return x;
    std::vector<int64_t> axes;
    for (size_t i = 0; i < x.value.shape.size(); ++i) {
      if (Pick(random_, 0, 1) == 0) axes.push_back(i);
    }
    const StatKind kind = static_cast<StatKind>(Pick(random_, 0, 4));
    return {Stat(kind, x.program, axes), NaiveStat(kind, x.value, axes)};
  }

  RandomProgram GrowGroup(const RandomProgram& x) {
    if (x.value.shape.empty() || !IsNumber(x.value.dtype)) return x;
    const int64_t axis = AnyAxis(x);
    std::vector<int64_t> sizes;
    for (int64_t d = 1; d <= x.value.shape[axis]; ++d) {
      if (x.value.shape[axis] % d == 0) sizes.push_back(d);
    }
    const int64_t size = sizes[Pick(random_, 0, sizes.size() - 1)];
    const std::vector<DType> targets = {DType::kI8, DType::kF8E4M3, DType::kF4, DType::kF8E5M2,
                                        DType::kF6E2M3};
    const DType target = targets[Pick(random_, 0, targets.size() - 1)];
    const int64_t keep = Pick(random_, 1, size);
    switch (Pick(random_, 0, 2)) {
      case 0:
        return {GroupKeepLargest(x.program, axis, size, keep), NaiveKeepLargest(x.value, axis, size, keep)};
      case 1:
        return {GroupScale(x.program, axis, size, target), NaiveGroupScale(x.value, axis, size, target)};
      default:
        return {GroupCodes(x.program, axis, size, target), NaiveGroupCodes(x.value, axis, size, target)};
    }
  }

  Random& random_;
  const RandomOptions& options_;
  NaiveTensors& sources_;
};

}  // namespace

int64_t Pick(Random& random, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
}

RandomProgram MakeRandomProgram(Random& random, const RandomOptions& options, NaiveTensors& sources) {
  return Maker(random, options, sources).Make(static_cast<int>(Pick(random, 1, options.verbs)));
}

IndexMap RandomMap(Random& random, int64_t extent, int64_t max_size) {
  std::vector<Run> runs;
  int64_t left = max_size;
  const int64_t wanted = Pick(random, 1, 4);
  for (int64_t i = 0; i < wanted && left > 0; ++i) {
    const int64_t form = Pick(random, 0, 5);
    if (form == 0) {
      runs.push_back({Run::kFill, 0, Pick(random, 1, std::min<int64_t>(left, 5))});
    } else if (form == 1) {  // all of it
      const int64_t count = std::min(left, extent);
      runs.push_back({0, 1, count});
    } else if (form == 2 && !runs.empty() && runs.back().count <= left) {  // the last run again
      runs.push_back(runs.back());
    } else {
      const int64_t start = Pick(random, 0, extent - 1);
      const int64_t step = form == 3                 ? 1
                           : Pick(random, 0, 1) == 0 ? Pick(random, -3, -1)
                                                     : Pick(random, 1, 3);
      const int64_t room = step > 0 ? (extent - 1 - start) / step + 1 : start / -step + 1;
      runs.push_back({start, step, Pick(random, 1, std::min(room, left))});
    }
    left -= runs.back().count;
  }
  return IndexMap(std::move(runs));
}

Box RandomBox(Random& random, const Shape& shape) {
  Box box;
  for (int64_t extent : shape) {
    const int64_t start = Pick(random, 0, 2) == 0 ? 0 : Pick(random, 0, extent - 1);
    box.start.push_back(start);
    box.size.push_back(Pick(random, 0, 2) == 0 ? extent - start : Pick(random, 1, extent - start));
  }
  return box;
}

NaiveTensor ReadBox(const WeightPtr& w, const Box& box, const TensorReader& reader, Scratch& scratch) {
  NaiveTensor out(w->dtype(), box.size);
  const absl::Status status = Read(w, box, reader, out.data.data(), scratch);
  TWIN_CHECK(status.ok(), status.ToString());
  return out;
}

}  // namespace twinforge
