// Strings.
#include <re2/re2.h>

#include <algorithm>
#include <clocale>
#include <cwctype>
#include <map>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "onnx/kernels/kernel.h"
#include "onnx/kernels/places.h"
#include "onnx/tensor.h"

namespace twinforge {
namespace {

// UTF-8 letters in the other case, by the C library's Unicode table; bytes that are no UTF-8 stay.
std::string InCase(const std::string& text, bool upper) {
  static const locale_t kUnicode = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const auto byte = [&](size_t k) { return static_cast<uint32_t>(static_cast<unsigned char>(text[k])); };
    const uint32_t lead = byte(i);
    const size_t length = lead < 0x80       ? 1
                          : lead >> 5 == 6  ? 2
                          : lead >> 4 == 14 ? 3
                          : lead >> 3 == 30 ? 4
                                            : 0;
    uint32_t point = length <= 1 ? lead : lead & (0x7f >> length);
    bool sound = length > 0 && i + length <= text.size();
    for (size_t k = 1; sound && k < length; ++k) {
      sound = byte(i + k) >> 6 == 2;
      point = point << 6 | (byte(i + k) & 0x3f);
    }
    if (!sound || kUnicode == nullptr) {
      out += text[i++];
      continue;
    }
    i += length;
    const uint32_t turned =
        static_cast<uint32_t>(upper ? towupper_l(point, kUnicode) : towlower_l(point, kUnicode));
    if (turned < 0x80) {
      out += static_cast<char>(turned);
    } else if (turned < 0x800) {
      out += {static_cast<char>(0xc0 | turned >> 6), static_cast<char>(0x80 | (turned & 0x3f))};
    } else if (turned < 0x10000) {
      out += {static_cast<char>(0xe0 | turned >> 12), static_cast<char>(0x80 | (turned >> 6 & 0x3f)),
              static_cast<char>(0x80 | (turned & 0x3f))};
    } else {
      out += {static_cast<char>(0xf0 | turned >> 18), static_cast<char>(0x80 | (turned >> 12 & 0x3f)),
              static_cast<char>(0x80 | (turned >> 6 & 0x3f)), static_cast<char>(0x80 | (turned & 0x3f))};
    }
  }
  return out;
}

void StringNormalizer(OpCall& c) {
  const OnnxTensor& x = c.In(0);
  ONNX_EXPECT(c, x.is_string() && (x.rank() == 1 || (x.rank() == 2 && x.dim(0) == 1)),
              "takes strings [C] or [1, C]");
  const std::string action = c.Str("case_change_action", "NONE");
  const bool sensitive = c.Int("is_case_sensitive", 0) != 0;
  ONNX_EXPECT(c, action == "NONE" || action == "LOWER" || action == "UPPER",
              "knows no such case_change_action");
  const auto compared = [&](const std::string& s) { return sensitive ? s : InCase(s, false); };
  std::set<std::string> stop;
  for (const std::string& word : c.StrsAttr("stopwords")) stop.insert(compared(word));
  std::vector<std::string> kept;
  for (const std::string& word : x.strings()) {
    if (stop.count(compared(word)) == 0)
      kept.push_back(action == "NONE" ? word : InCase(word, action == "UPPER"));
  }
  if (kept.empty()) kept.push_back("");
  Shape shape = x.shape();
  shape.back() = static_cast<int64_t>(kept.size());
  c.Out(0, OnnxTensor(shape, kept));
}

void StringConcat(OpCall& c) {
  ONNX_EXPECT(c, c.In(0).is_string() && c.In(1).is_string(), "takes strings");
  const Shape shape = BroadcastInputs(c, 0, 1);
  ONNX_EXPECT(c, true, "");
  const std::vector<int64_t> a = BroadcastPlaces(c.In(0).shape(), shape),
                             b = BroadcastPlaces(c.In(1).shape(), shape);
  std::vector<std::string> y;
  for (size_t k = 0; k < a.size(); ++k)
    y.push_back(absl::StrCat(c.In(0).strings()[a[k]], c.In(1).strings()[b[k]]));
  c.Out(0, OnnxTensor(shape, y));
}

// As Python's split: by runs of white space where there is no delimiter.
std::vector<std::string> PartsOf(const std::string& text, const std::string& delimiter, int64_t most) {
  std::vector<std::string> parts;
  size_t at = 0;
  const bool space = delimiter.empty();
  const auto skip = [&] {
    while (space && at < text.size() && absl::ascii_isspace(static_cast<unsigned char>(text[at]))) ++at;
  };
  skip();
  while (at < text.size() && static_cast<int64_t>(parts.size()) < most) {
    size_t end = at;
    if (space) {
      while (end < text.size() && !absl::ascii_isspace(static_cast<unsigned char>(text[end]))) ++end;
    } else {
      end = text.find(delimiter, at);
      if (end == std::string::npos) break;
    }
    parts.push_back(text.substr(at, end - at));
    at = end + (space ? 0 : delimiter.size());
    if (!space && at == text.size()) {
      parts.push_back("");
      return parts;
    }
    skip();
  }
  if (at < text.size()) parts.push_back(text.substr(at));
  return parts;
}

void StringSplit(OpCall& c) {
  const OnnxTensor& x = c.In(0);
  ONNX_EXPECT(c, x.is_string(), "takes strings");
  const std::string delimiter = c.Str("delimiter", "");
  const int64_t most = c.HasAttr("maxsplit") ? c.Int("maxsplit", 0) : INT64_MAX;
  std::vector<std::vector<std::string>> all;
  std::vector<int64_t> counts;
  int64_t width = 0;
  for (const std::string& text : x.strings()) {
    all.push_back(PartsOf(text, delimiter, most));
    counts.push_back(static_cast<int64_t>(all.back().size()));
    width = std::max(width, counts.back());
  }
  Shape shape = x.shape();
  shape.push_back(width);
  ONNX_EXPECT(c, c.Affordable(shape), "");
  std::vector<std::string> y;
  for (std::vector<std::string>& parts : all) {
    parts.resize(static_cast<size_t>(width));
    y.insert(y.end(), parts.begin(), parts.end());
  }
  c.Out(0, OnnxTensor(shape, y));
  c.Out(1, TensorOf<int64_t>(ElementType::kInt64, x.shape(), counts));
}

void RegexFullMatch(OpCall& c) {
  ONNX_EXPECT(c, c.In(0).is_string(), "takes strings");
  RE2::Options options;
  options.set_log_errors(false);
  const RE2 pattern(c.Str("pattern", ""), options);
  ONNX_EXPECT(c, pattern.ok(), "its pattern is no regular expression");
  std::vector<int64_t> y;
  for (const std::string& text : c.In(0).strings()) y.push_back(RE2::FullMatch(text, pattern) ? 1 : 0);
  c.Out(0, TensorOf<int64_t>(ElementType::kBool, c.In(0).shape(), y));
}

// The pool's n-grams as words of tokens, and where each counts.
using Pool = std::map<std::vector<std::string>, int64_t>;

Pool PoolOf(OpCall& c, int64_t shortest, int64_t longest) {
  std::vector<std::string> tokens = c.StrsAttr("pool_strings");
  for (const int64_t token : c.IntsAttr("pool_int64s")) tokens.push_back(absl::StrCat(token));
  const std::vector<int64_t> starts = c.IntsAttr("ngram_counts"), indexes = c.IntsAttr("ngram_indexes");
  Pool pool;
  size_t next = 0;
  for (size_t n = 0; n < starts.size() && c.ok(); ++n) {
    const int64_t size = static_cast<int64_t>(n) + 1, all = static_cast<int64_t>(tokens.size());
    const int64_t end = n + 1 < starts.size() ? starts[n + 1] : all;
    if (starts[n] < 0 || end < starts[n] || end > all || (end - starts[n]) % size != 0)
      c.Fail("ngram_counts do not fit the pool");
    for (int64_t at = starts[n]; c.ok() && at < end; at += size, ++next) {
      if (next >= indexes.size() || indexes[next] < 0)
        return c.Fail("ngram_indexes do not fit the pool"), pool;
      if (size >= shortest && size <= longest)
        pool[{tokens.begin() + at, tokens.begin() + at + size}] = static_cast<int64_t>(next);
    }
  }
  return pool;
}

// Counts n-grams of a row; those of one token only without skips.
void CountNgrams(const std::vector<std::string>& row, const Pool& pool, int64_t shortest, int64_t longest,
                 int64_t skips, std::vector<double>& counts) {
  const int64_t length = static_cast<int64_t>(row.size());
  for (int64_t stride = 1; stride <= skips + 1; ++stride) {
    for (int64_t start = 0; start < length; ++start) {
      std::vector<std::string> gram;
      for (int64_t at = start; at < length && static_cast<int64_t>(gram.size()) < longest; at += stride) {
        gram.push_back(row[at]);
        const int64_t size = static_cast<int64_t>(gram.size());
        if (size < shortest || (size == 1 && stride > 1)) continue;
        const auto found = pool.find(gram);
        if (found != pool.end()) counts[found->second] += 1;
      }
    }
  }
}

void TfIdfVectorizer(OpCall& c) {
  const OnnxTensor& x = c.In(0);
  const int64_t shortest = c.Int("min_gram_length", 1), longest = c.Int("max_gram_length", 1),
                skips = c.Int("max_skip_count", 0);
  const std::string mode = c.Str("mode", "TF");
  const std::vector<int64_t> indexes = c.IntsAttr("ngram_indexes");
  const std::vector<double> weights = c.FloatsAttr("weights");
  ONNX_EXPECT(c, x.rank() <= 2 && shortest >= 1 && longest >= shortest && skips >= 0 && skips < 1e6,
              "its lengths do not fit");
  const Pool pool = PoolOf(c, shortest, longest);
  ONNX_EXPECT(c, x.is_string() || x.carrier() == ElementCarrier::kInt64, "takes strings or integers");
  int64_t width = 0;
  for (const int64_t index : indexes) width = std::max(width, index + 1);
  const int64_t rows = x.rank() == 2 ? x.dim(0) : 1, length = rows == 0 ? 0 : x.count() / rows;
  std::vector<std::string> tokens = x.is_string() ? x.strings() : std::vector<std::string>();
  if (!x.is_string()) {
    for (const int64_t v : Elements<int64_t>(x)) tokens.push_back(absl::StrCat(v));
  }
  Shape shape = x.rank() == 2 ? Shape{rows, width} : Shape{width};
  ONNX_EXPECT(c, c.Affordable(shape), "");
  ONNX_EXPECT(c, weights.empty() || weights.size() == indexes.size(), "weights are not one for each n-gram");
  std::vector<double> y(static_cast<size_t>(rows * width));
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<double> counts(indexes.size());
    CountNgrams({tokens.begin() + row * length, tokens.begin() + (row + 1) * length}, pool, shortest, longest,
                skips, counts);
    for (size_t k = 0; k < counts.size(); ++k) {
      const double weight = weights.empty() ? 1 : weights[k];
      y[row * width + indexes[k]] += mode == "TF"    ? counts[k]
                                     : mode == "IDF" ? (counts[k] > 0 ? weight : 0)
                                                     : weight * counts[k];
    }
  }
  c.Out(0, TensorOf<double>(ElementType::kFloat, shape, y));
}

constexpr KernelRow kRows[] = {
    {"StringNormalizer", StringNormalizer}, {"StringConcat", StringConcat},
    {"StringSplit", StringSplit},           {"RegexFullMatch", RegexFullMatch},
    {"TfIdfVectorizer", TfIdfVectorizer},
};

}  // namespace

absl::Span<const KernelRow> TextKernels() { return kRows; }

}  // namespace twinforge
