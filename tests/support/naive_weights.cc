#include "tests/support/naive_weights.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace twinforge {
namespace {

using Indices = std::vector<int64_t>;

int64_t Count(const Shape& shape) {
  int64_t count = 1;
  for (int64_t n : shape) count *= n;
  return count;
}

// Row-major position of an index, and back.
int64_t Position(const Shape& shape, const Indices& index) {
  int64_t position = 0;
  for (size_t i = 0; i < shape.size(); ++i) position = position * shape[i] + index[i];
  return position;
}

Indices IndexAt(const Shape& shape, int64_t position) {
  Indices index(shape.size());
  for (size_t i = shape.size(); i-- > 0;) {
    index[i] = position % shape[i];
    position /= shape[i];
  }
  return index;
}

double Value(const NaiveTensor& x, int64_t i) { return ToDouble(x.dtype, x.at(i)); }

void Copy(const NaiveTensor& from, int64_t i, NaiveTensor& to, int64_t j) {
  std::memcpy(to.at(j), from.at(i), ElementBytes(to.dtype));
}

double Op(MapFn fn, double x, double y) {
  if (fn == MapFn::kAdd) return x + y;
  if (fn == MapFn::kSub) return x - y;
  if (fn == MapFn::kMul) return x * y;
  return x / y;
}

// Largest finite code of the types that tests quantise to, from their specifications.
double LargestCode(DType dtype) {
  switch (dtype) {
    case DType::kF4:
      return 6;
    case DType::kF6E2M3:
      return 7.5;
    case DType::kF6E3M2:
      return 28;
    case DType::kF8E4M3:
      return 448;
    case DType::kF8E5M2:
      return 57344;
    case DType::kF8E4M3Fnuz:
      return 240;
    case DType::kF8E5M2Fnuz:
      return 57344;
    case DType::kI8:
      return 127;
    case DType::kU8:
      return 255;
    case DType::kI16:
      return 32767;
    case DType::kF16:
      return 65504;
    default:
      break;
  }
  TWIN_CHECK(false, "tests do not quantise to this type");
}

// The members of each group along `axis`, as positions in x; groups in row-major order.
std::vector<Indices> Groups(const Shape& shape, int64_t axis, int64_t size) {
  Shape grouped = shape;
  grouped[axis] /= size;
  std::vector<Indices> groups;
  for (int64_t g = 0; g < Count(grouped); ++g) {
    Indices index = IndexAt(grouped, g);
    const int64_t first = index[axis] * size;
    Indices members;
    for (int64_t i = 0; i < size; ++i) {
      index[axis] = first + i;
      members.push_back(Position(shape, index));
    }
    groups.push_back(members);
  }
  return groups;
}

double ScaleOf(const NaiveTensor& x, const Indices& members, DType target) {
  double most = 0;
  bool damaged = false;
  for (int64_t i : members) {
    if (std::isnan(Value(x, i))) damaged = true;
    most = std::fmax(most, std::fabs(Value(x, i)));
  }
  if (damaged) most = std::numeric_limits<double>::quiet_NaN();
  return static_cast<float>(most / LargestCode(target));
}

bool IsNan(const NaiveTensor& x, int64_t i) { return x.dtype != DType::kC64 && std::isnan(Value(x, i)); }

std::string FirstDifference(const NaiveTensor& want, const NaiveTensor& got, bool nan_is_nan) {
  if (want.dtype != got.dtype) return absl::StrCat("types differ: ", Name(want.dtype), " ", Name(got.dtype));
  if (want.shape != got.shape) {
    return absl::StrCat("shapes differ: ", ShapeText(want.shape), " ", ShapeText(got.shape));
  }
  for (int64_t i = 0; i < Count(want.shape); ++i) {
    if (std::memcmp(want.at(i), got.at(i), ElementBytes(want.dtype)) == 0) continue;
    if (nan_is_nan && IsNan(want, i) && IsNan(got, i)) continue;
    std::string text = absl::StrCat("at ", ShapeText(IndexAt(want.shape, i)));
    if (want.dtype != DType::kC64) absl::StrAppend(&text, ": want ", Value(want, i), ", got ", Value(got, i));
    return text;
  }
  return "";
}

}  // namespace

NaiveTensor::NaiveTensor(DType dtype, Shape shape)
    : dtype(dtype), shape(std::move(shape)), data(Count(this->shape) * ElementBytes(dtype)) {}

NaiveTensor NaiveFill(double value, DType dtype, const Shape& shape) {
  NaiveTensor out(dtype, shape);
  if (dtype == DType::kC64) return out;
  for (int64_t i = 0; i < Count(shape); ++i) FromDouble(dtype, value, out.at(i));
  return out;
}

NaiveTensor NaiveTake(const NaiveTensor& x, int64_t axis, const IndexMap& map, double fill) {
  std::vector<int64_t> sources;  // the map written out
  for (const Run& run : map.runs()) {
    for (int64_t i = 0; i < run.count; ++i) sources.push_back(run.is_fill() ? -1 : run.start + i * run.step);
  }
  Shape shape = x.shape;
  shape[axis] = static_cast<int64_t>(sources.size());
  NaiveTensor out = NaiveFill(fill, x.dtype, shape);
  for (int64_t i = 0; i < Count(shape); ++i) {
    Indices index = IndexAt(shape, i);
    index[axis] = sources[index[axis]];
    if (index[axis] >= 0) Copy(x, Position(x.shape, index), out, i);
  }
  return out;
}

NaiveTensor NaiveTranspose(const NaiveTensor& x, const std::vector<int64_t>& perm) {
  Shape shape;
  for (int64_t axis : perm) shape.push_back(x.shape[axis]);
  NaiveTensor out(x.dtype, shape);
  for (int64_t i = 0; i < Count(shape); ++i) {
    const Indices index = IndexAt(shape, i);
    Indices from(index.size());
    for (size_t k = 0; k < perm.size(); ++k) from[perm[k]] = index[k];
    Copy(x, Position(x.shape, from), out, i);
  }
  return out;
}

NaiveTensor NaiveReshape(const NaiveTensor& x, const Shape& shape) {
  NaiveTensor out = x;
  out.shape = shape;
  return out;
}

NaiveTensor NaiveConcat(int64_t axis, const std::vector<NaiveTensor>& xs) {
  Shape shape = xs[0].shape;
  shape[axis] = 0;
  for (const NaiveTensor& x : xs) shape[axis] += x.shape[axis];
  NaiveTensor out(xs[0].dtype, shape);
  int64_t offset = 0;
  for (const NaiveTensor& x : xs) {
    for (int64_t i = 0; i < Count(x.shape); ++i) {
      Indices index = IndexAt(x.shape, i);
      index[axis] += offset;
      Copy(x, i, out, Position(shape, index));
    }
    offset += x.shape[axis];
  }
  return out;
}

NaiveTensor NaiveCast(const NaiveTensor& x, DType dtype) {
  if (x.dtype == dtype) return x;
  NaiveTensor out(dtype, x.shape);
  for (int64_t i = 0; i < Count(x.shape); ++i) FromDouble(dtype, Value(x, i), out.at(i));
  return out;
}

NaiveTensor NaiveMap(MapFn fn, const NaiveTensor& x, const NaiveTensor& y) {
  NaiveTensor out(x.dtype, x.shape);
  const size_t lead = x.shape.size() - y.shape.size();
  for (int64_t i = 0; i < Count(x.shape); ++i) {
    const Indices index = IndexAt(x.shape, i);
    Indices other;
    for (size_t k = 0; k < y.shape.size(); ++k) other.push_back(y.shape[k] == 1 ? 0 : index[lead + k]);
    FromDouble(out.dtype, Op(fn, Value(x, i), Value(y, Position(y.shape, other))), out.at(i));
  }
  return out;
}

NaiveTensor NaiveContract(const NaiveTensor& a, const NaiveTensor& b) {
  Shape shape = a.shape;
  const size_t m = shape.size() - 2;
  shape[m + 1] = b.shape[m + 1];
  NaiveTensor out(a.dtype, shape);
  for (int64_t i = 0; i < Count(shape); ++i) {
    Indices left = IndexAt(shape, i);
    Indices right = left;
    double sum = 0;
    for (int64_t k = 0; k < a.shape[m + 1]; ++k) {
      left[m + 1] = right[m] = k;
      sum += Value(a, Position(a.shape, left)) * Value(b, Position(b.shape, right));
    }
    FromDouble(out.dtype, sum, out.at(i));
  }
  return out;
}

NaiveTensor NaiveStat(StatKind kind, const NaiveTensor& x, const std::vector<int64_t>& axes) {
  Shape shape = x.shape;
  for (int64_t axis : axes) shape[axis] = 1;
  NaiveTensor out(DType::kF64, shape);
  for (int64_t i = 0; i < Count(shape); ++i) {
    const Indices kept = IndexAt(shape, i);
    double sum = 0, low = INFINITY, high = -INFINITY, most = 0;
    bool damaged = false;
    int64_t count = 0;
    for (int64_t j = 0; j < Count(x.shape); ++j) {
      Indices index = IndexAt(x.shape, j);
      for (int64_t axis : axes) index[axis] = 0;
      if (index != kept) continue;
      const double v = Value(x, j);
      damaged = damaged || std::isnan(v);
      sum += kind == StatKind::kSumSquares ? v * v : v;
      low = std::fmin(low, v);
      high = std::fmax(high, v);
      most = std::fmax(most, std::fabs(v));
      ++count;
    }
    double result = sum;
    if (kind == StatKind::kMean) result = sum / static_cast<double>(count);
    if (kind == StatKind::kMin) result = low;
    if (kind == StatKind::kMax) result = high;
    if (kind == StatKind::kAbsMax) result = most;
    if (damaged) result = std::numeric_limits<double>::quiet_NaN();
    FromDouble(DType::kF64, result, out.at(i));
  }
  return out;
}

NaiveTensor NaiveKeepLargest(const NaiveTensor& x, int64_t axis, int64_t size, int64_t keep) {
  NaiveTensor out = NaiveFill(0, x.dtype, x.shape);
  for (const Indices& members : Groups(x.shape, axis, size)) {
    for (int64_t i : members) {
      int64_t ahead = 0;  // members that are chosen before i
      for (int64_t j : members) {
        const double a = std::fabs(Value(x, j));
        const double b = std::fabs(Value(x, i));
        const bool larger = std::isnan(a) ? !std::isnan(b) : a > b;
        const bool equal = a == b || (std::isnan(a) && std::isnan(b));
        ahead += larger || (equal && j < i);
      }
      if (ahead < keep) Copy(x, i, out, i);
    }
  }
  return out;
}

NaiveTensor NaiveGroupScale(const NaiveTensor& x, int64_t axis, int64_t size, DType target) {
  Shape shape = x.shape;
  shape[axis] /= size;
  NaiveTensor out(DType::kF32, shape);
  int64_t g = 0;
  for (const Indices& members : Groups(x.shape, axis, size)) {
    FromDouble(DType::kF32, ScaleOf(x, members, target), out.at(g++));
  }
  return out;
}

NaiveTensor NaiveGroupCodes(const NaiveTensor& x, int64_t axis, int64_t size, DType target) {
  NaiveTensor out(target, x.shape);
  for (const Indices& members : Groups(x.shape, axis, size)) {
    const double scale = ScaleOf(x, members, target);
    for (int64_t i : members) FromDouble(target, scale == 0 ? 0.0 : Value(x, i) / scale, out.at(i));
  }
  return out;
}

NaiveTensor NaiveValue(const WeightPtr& w, const NaiveTensors& sources) {
  std::vector<NaiveTensor> xs;
  for (const WeightPtr& child : w->children()) xs.push_back(NaiveValue(child, sources));
  switch (w->kind()) {
    case WeightKind::kSource: {
      const NaiveTensor& stored = sources.at(w->source_name());
      TWIN_CHECK(stored.shape == w->shape() && stored.dtype == w->dtype(), "a source of another type");
      return stored;
    }
    case WeightKind::kStack: {
      Shape shape = w->shape();
      shape[0] = 1;
      std::vector<NaiveTensor> members;
      for (int64_t i = 0; i < w->shape()[0]; ++i) {
        const NaiveTensor& stored = sources.at(StackMemberName(*w, i));
        TWIN_CHECK(stored.dtype == w->dtype(), "a stack of another type");
        members.push_back(NaiveReshape(stored, shape));
      }
      return NaiveConcat(0, members);
    }
    case WeightKind::kFill:
      return NaiveFill(w->fill(), w->dtype(), w->shape());
    case WeightKind::kTake:
      return NaiveTake(xs[0], w->axis(), w->map(), w->fill());
    case WeightKind::kTranspose:
      return NaiveTranspose(xs[0], w->perm());
    case WeightKind::kReshape:
      return NaiveReshape(xs[0], w->shape());
    case WeightKind::kConcat:
      return NaiveConcat(w->axis(), xs);
    case WeightKind::kCast:
      return NaiveCast(xs[0], w->dtype());
    case WeightKind::kMap:
      return NaiveMap(w->map_fn(), xs[0], xs[1]);
    case WeightKind::kContract:
      return NaiveContract(xs[0], xs[1]);
    case WeightKind::kStat:
      return NaiveStat(w->stat_kind(), xs[0], w->axes());
    case WeightKind::kGroup: {
      const int64_t axis = w->axis();
      const int64_t size = w->group_size();
      switch (w->group_fn()) {
        case GroupFn::kKeepLargest:
          return NaiveKeepLargest(xs[0], axis, size, w->keep());
        case GroupFn::kScale:
          return NaiveGroupScale(xs[0], axis, size, w->group_target());
        case GroupFn::kCodes:
          return NaiveGroupCodes(xs[0], axis, size, w->group_target());
      }
    }
  }
  return {};
}

NaiveTensor NaiveBox(const NaiveTensor& x, const Box& box) {
  NaiveTensor out(x.dtype, box.size);
  for (int64_t i = 0; i < Count(box.size); ++i) {
    Indices index = IndexAt(box.size, i);
    for (size_t k = 0; k < index.size(); ++k) index[k] += box.start[k];
    Copy(x, Position(x.shape, index), out, i);
  }
  return out;
}

std::string Difference(const NaiveTensor& want, const NaiveTensor& got) {
  return FirstDifference(want, got, true);
}

std::string BitDifference(const NaiveTensor& want, const NaiveTensor& got) {
  return FirstDifference(want, got, false);
}

absl::Status MemoryReader::ReadElements(const Weight& source, int64_t first, int64_t count,
                                        std::byte* out) const {
  const auto it = tensors_.find(source.source_name());
  if (it == tensors_.end()) return absl::NotFoundError(absl::StrCat("no tensor ", source.source_name()));
  const NaiveTensor& tensor = it->second;
  if (first < 0 || count < 1 || first + count > Count(tensor.shape)) {
    return absl::OutOfRangeError(absl::StrCat(source.source_name(), ": [", first, ", +", count, ")"));
  }
  std::memcpy(out, tensor.at(first), count * ElementBytes(tensor.dtype));
  ++calls_;
  elements_ += count;
  return absl::OkStatus();
}

}  // namespace twinforge
