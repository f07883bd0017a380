#include "weights/text.h"

#include <charconv>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "weights/pool.h"

namespace twinforge {
namespace {

// Deeper programs than this are an attack on the stack, not a model.
constexpr int kDeepest = 200;
constexpr size_t kHighestRank = 32;
// Runs in all index maps of one program: `x 1000000` is short to write and long to hold.
constexpr int64_t kMostRuns = int64_t{1} << 21;

constexpr absl::string_view kMapNames[] = {"add", "sub", "mul", "div"};
constexpr absl::string_view kStatNames[] = {"absmax", "mean", "sumsquares", "min", "max"};

// ---- printing

std::string ShortestText(double value) {
  char buffer[32];
  const std::to_chars_result result = std::to_chars(buffer, buffer + sizeof(buffer), value);
  return std::string(buffer, result.ptr);
}

// The fewest digits that mean `value` to this dtype: a bf16 of 0.10009765625 is 0.1.
std::string NumberText(double value, DType dtype) {
  for (int digits = 1; digits < 17; ++digits) {
    char buffer[32];
    const std::to_chars_result written =
        std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::general, digits);
    double shorter = 0;
    std::from_chars(buffer, written.ptr, shorter);
    if (SameBits(RoundTo(dtype, shorter), value)) return ShortestText(shorter);
  }
  return ShortestText(value);
}

std::string JsonText(absl::string_view text) {
  std::string quoted = "\"";
  for (char c : text) {
    switch (c) {
      case '"':
        quoted += "\\\"";
        break;
      case '\\':
        quoted += "\\\\";
        break;
      case '\n':
        quoted += "\\n";
        break;
      case '\t':
        quoted += "\\t";
        break;
      case '\r':
        quoted += "\\r";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          absl::StrAppend(&quoted, "\\u", absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad4));
        } else {
          quoted += c;
        }
    }
  }
  return quoted + "\"";
}

// Dtype and shape of one member of a stack.
std::string MemberText(const Weight& w) {
  return absl::StrCat(Name(w.dtype()), ShapeText(absl::MakeConstSpan(w.shape()).subspan(1)));
}
std::string TypeText(const Weight& w) { return absl::StrCat(Name(w.dtype()), ShapeText(w.shape())); }

std::string GroupText(const Weight& w, const std::string& x) {
  switch (w.group_fn()) {
    case GroupFn::kKeepLargest:
      return absl::StrCat("keep(", x, ", ", w.axis(), ", ", w.keep(), " of ", w.group_size(), ")");
    case GroupFn::kScale:
      return absl::StrCat("scale(", x, ", ", w.axis(), ", ", w.group_size(), ", ", Name(w.group_target()),
                          ")");
    case GroupFn::kCodes:
      return absl::StrCat("codes(", x, ", ", w.axis(), ", ", w.group_size(), ", ", Name(w.group_target()),
                          ")");
  }
  return "";
}

// ---- parsing

class Parser {
 public:
  explicit Parser(absl::string_view text) : text_(text) {}

  absl::StatusOr<WeightPtr> Program() {
    TWIN_ASSIGN_OR_RETURN(WeightPtr w, Node(0));
    Skip();
    if (at_ != text_.size()) return Wrong("expected the end of the program");
    return w;
  }

 private:
  absl::Status Wrong(absl::string_view message) const {
    int64_t line = 1, column = 1;
    for (char c : text_.substr(0, at_)) {
      column = c == '\n' ? 1 : column + 1;
      line += c == '\n' ? 1 : 0;
    }
    return Error(1590, absl::StrCat("weight program: line ", line, ", column ", column), message);
  }

  absl::Status Judge(Mistake mistake) const { return mistake == nullptr ? absl::OkStatus() : Wrong(mistake); }

  void Skip() {
    while (at_ < text_.size() && absl::ascii_isspace(text_[at_])) ++at_;
  }

  bool Try(char c) {
    Skip();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  absl::Status Expect(char c) {
    return Try(c) ? absl::OkStatus() : Wrong(absl::StrCat("expected '", std::string(1, c), "'"));
  }

  absl::string_view Word() {
    Skip();
    const size_t begin = at_;
    while (at_ < text_.size() && (absl::ascii_isalnum(text_[at_]) || text_[at_] == '_')) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  absl::Status ExpectWord(absl::string_view word) {
    return Word() == word ? absl::OkStatus() : Wrong(absl::StrCat("expected '", word, "'"));
  }

  // Characters up to a comma, a colon, a bracket or a space.
  absl::string_view Token() {
    Skip();
    const size_t begin = at_;
    while (at_ < text_.size() &&
           text_.substr(at_, 1).find_first_of(",:)]([ \n\t\r") == absl::string_view::npos)
      ++at_;
    return text_.substr(begin, at_ - begin);
  }

  absl::StatusOr<int64_t> Integer() {
    int64_t value = 0;
    if (!absl::SimpleAtoi(Token(), &value)) return Wrong("expected a whole number");
    return value;
  }

  absl::StatusOr<double> Number() {
    const absl::string_view token = Token();
    double value = 0;
    const std::from_chars_result result = std::from_chars(token.data(), token.data() + token.size(), value);
    if (token.empty() || result.ec != std::errc() || result.ptr != token.data() + token.size()) {
      return Wrong("expected a number");
    }
    return value;
  }

  absl::StatusOr<std::vector<int64_t>> List() {
    std::vector<int64_t> list;
    TWIN_RETURN_IF_ERROR(Expect('['));
    if (Try(']')) return list;
    do {
      if (list.size() == kHighestRank) return Wrong("too many axes");
      TWIN_ASSIGN_OR_RETURN(const int64_t value, Integer());
      list.push_back(value);
    } while (Try(','));
    TWIN_RETURN_IF_ERROR(Expect(']'));
    return list;
  }

  absl::StatusOr<DType> Type() {
    const std::optional<DType> dtype = DTypeFromName(Word());
    if (!dtype.has_value()) return Wrong("expected a dtype such as bf16");
    return *dtype;
  }

  absl::StatusOr<std::string> String() {
    TWIN_RETURN_IF_ERROR(Expect('"'));
    std::string value;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (static_cast<unsigned char>(text_[at_]) < 0x20) return Wrong("a control character in a name");
      if (text_[at_] != '\\') {
        value += text_[at_++];
        continue;
      }
      ++at_;
      TWIN_RETURN_IF_ERROR(Escape(value));
    }
    TWIN_RETURN_IF_ERROR(Expect('"'));
    return value;
  }

  absl::Status Escape(std::string& value) {
    static constexpr absl::string_view kFrom = "\"\\/bfnrt";
    static constexpr absl::string_view kTo = "\"\\/\b\f\n\r\t";
    if (at_ == text_.size()) return Wrong("a name without an end");
    if (text_[at_] == 'u') {
      ++at_;
      return UnicodeEscape(value);
    }
    const size_t found = kFrom.find(text_[at_]);
    if (found == absl::string_view::npos) return Wrong("an unknown escape in a name");
    value += kTo[found];
    ++at_;
    return absl::OkStatus();
  }

  absl::StatusOr<uint32_t> HexUnit() {
    uint32_t unit = 0;
    const absl::string_view digits = text_.substr(at_, 4);
    const std::from_chars_result result =
        std::from_chars(digits.data(), digits.data() + digits.size(), unit, 16);
    if (digits.size() < 4 || result.ptr != digits.data() + 4)
      return Wrong("expected four hexadecimal digits");
    at_ += 4;
    return unit;
  }

  absl::Status UnicodeEscape(std::string& value) {
    TWIN_ASSIGN_OR_RETURN(uint32_t point, HexUnit());
    if (point >= 0xd800 && point < 0xe000) {
      if (point >= 0xdc00 || text_.substr(at_, 2) != "\\u") return Wrong("half of a surrogate pair");
      at_ += 2;
      TWIN_ASSIGN_OR_RETURN(const uint32_t low, HexUnit());
      if (low < 0xdc00 || low >= 0xe000) return Wrong("half of a surrogate pair");
      point = 0x10000 + ((point - 0xd800) << 10) + (low - 0xdc00);
    }
    if (point < 0x80) {
      value += static_cast<char>(point);
    } else if (point < 0x800) {
      value += static_cast<char>(0xc0 | point >> 6);
    } else if (point < 0x10000) {
      value += static_cast<char>(0xe0 | point >> 12);
      value += static_cast<char>(0x80 | (point >> 6 & 0x3f));
    } else {
      value += static_cast<char>(0xf0 | point >> 18);
      value += static_cast<char>(0x80 | (point >> 12 & 0x3f));
      value += static_cast<char>(0x80 | (point >> 6 & 0x3f));
    }
    if (point >= 0x80) value += static_cast<char>(0x80 | (point & 0x3f));
    return absl::OkStatus();
  }

  // The index map that stands here: up to the comma or parenthesis that ends it.
  absl::StatusOr<IndexMap> Indices() {
    Skip();
    size_t end = at_;
    for (int depth = 0; end < text_.size(); ++end) {
      const char c = text_[end];
      if (c == '[' || c == '(') ++depth;
      if (depth == 0 && (c == ',' || c == ')')) break;
      if (c == ']' || c == ')') --depth;
    }
    absl::StatusOr<IndexMap> map =
        ParseIndexMap(absl::StripTrailingAsciiWhitespace(text_.substr(at_, end - at_)), run_budget_);
    if (!map.ok()) return Wrong(DiagnosticOf(map.status())->message);
    at_ = end;
    return map;
  }

  absl::StatusOr<WeightPtr> Node(int depth) {
    if (depth > kDeepest) return Wrong("the program is nested too deeply");
    Skip();
    const size_t begin = at_;
    const absl::string_view verb = Word();
    if (verb.empty()) return Wrong("expected a verb such as take");
    TWIN_RETURN_IF_ERROR(Expect('('));
    absl::StatusOr<WeightPtr> made = Verb(verb, depth, begin);
    if (!made.ok()) return made;
    TWIN_RETURN_IF_ERROR(Expect(')'));
    return made;
  }

  absl::StatusOr<WeightPtr> Verb(absl::string_view verb, int depth, size_t begin) {
    if (verb == "source") return SourceVerb();
    if (verb == "stack") return StackVerb();
    if (verb == "fill") return FillVerb();
    if (verb == "concat") return ConcatVerb(depth);
    if (verb == "stat") return StatVerb(depth);
    if (verb == "take") return TakeVerb(depth);
    if (verb == "transpose") {
      TWIN_ASSIGN_OR_RETURN(WeightPtr x, Operand(depth));
      TWIN_ASSIGN_OR_RETURN(std::vector<int64_t> perm, List());
      TWIN_RETURN_IF_ERROR(Judge(WhyNotTranspose(x, perm)));
      return WeightPool::Transpose(std::move(x), std::move(perm));
    }
    if (verb == "reshape") {
      TWIN_ASSIGN_OR_RETURN(WeightPtr x, Operand(depth));
      TWIN_ASSIGN_OR_RETURN(Shape shape, List());
      TWIN_RETURN_IF_ERROR(Judge(WhyNotReshape(x, shape)));
      return WeightPool::Reshape(std::move(x), std::move(shape));
    }
    if (verb == "cast") {
      TWIN_ASSIGN_OR_RETURN(WeightPtr x, Operand(depth));
      TWIN_ASSIGN_OR_RETURN(const DType dtype, Type());
      TWIN_RETURN_IF_ERROR(Judge(WhyNotCast(x, dtype)));
      return WeightPool::Cast(std::move(x), dtype);
    }
    if (verb == "contract") {
      TWIN_ASSIGN_OR_RETURN(WeightPtr a, Operand(depth));
      TWIN_ASSIGN_OR_RETURN(WeightPtr b, Node(depth + 1));
      TWIN_RETURN_IF_ERROR(Judge(WhyNotContract(a, b)));
      return WeightPool::Contract(std::move(a), std::move(b));
    }
    if (verb == "keep" || verb == "scale" || verb == "codes") return GroupVerb(verb, depth);
    for (size_t fn = 0; fn < std::size(kMapNames); ++fn) {
      if (verb != kMapNames[fn]) continue;
      TWIN_ASSIGN_OR_RETURN(WeightPtr x, Operand(depth));
      TWIN_ASSIGN_OR_RETURN(WeightPtr y, Node(depth + 1));
      TWIN_RETURN_IF_ERROR(Judge(WhyNotMap(x, y)));
      return WeightPool::Map(static_cast<MapFn>(fn), std::move(x), std::move(y));
    }
    at_ = begin;
    return Wrong(absl::StrCat("unknown verb '", absl::CHexEscape(verb), "'"));
  }

  // An operand and the comma behind it.
  absl::StatusOr<WeightPtr> Operand(int depth) {
    TWIN_ASSIGN_OR_RETURN(WeightPtr x, Node(depth + 1));
    TWIN_RETURN_IF_ERROR(Expect(','));
    return x;
  }

  absl::StatusOr<WeightPtr> SourceVerb() {
    TWIN_ASSIGN_OR_RETURN(const std::string name, String());
    TWIN_RETURN_IF_ERROR(Expect(':'));
    TWIN_ASSIGN_OR_RETURN(const DType dtype, Type());
    TWIN_ASSIGN_OR_RETURN(Shape shape, List());
    TWIN_RETURN_IF_ERROR(Judge(WhyNotShape(shape)));
    return WeightPool::Source(name, dtype, std::move(shape));
  }

  absl::StatusOr<WeightPtr> StackVerb() {
    TWIN_ASSIGN_OR_RETURN(const std::string prefix, String());
    TWIN_RETURN_IF_ERROR(Expect(','));
    TWIN_ASSIGN_OR_RETURN(const int64_t first, Integer());
    TWIN_RETURN_IF_ERROR(Expect(':'));
    TWIN_ASSIGN_OR_RETURN(const int64_t end, Integer());
    TWIN_RETURN_IF_ERROR(Expect(','));
    TWIN_ASSIGN_OR_RETURN(const std::string suffix, String());
    TWIN_RETURN_IF_ERROR(Expect(':'));
    TWIN_ASSIGN_OR_RETURN(const DType dtype, Type());
    TWIN_ASSIGN_OR_RETURN(const Shape member, List());
    if (first < 0 || end <= first) return Wrong("a stack needs members, numbered from 0 or more");
    TWIN_RETURN_IF_ERROR(Judge(WhyNotStack(first, end - first, member)));
    run_budget_ -= end - first;
    if (run_budget_ < 0) return Wrong("the stacks of this program have too many members");
    return WeightPool::Stack(prefix, first, end - first, suffix, dtype, member);
  }

  absl::StatusOr<WeightPtr> FillVerb() {
    TWIN_ASSIGN_OR_RETURN(const double value, Number());
    TWIN_RETURN_IF_ERROR(Expect(':'));
    TWIN_ASSIGN_OR_RETURN(const DType dtype, Type());
    TWIN_ASSIGN_OR_RETURN(Shape shape, List());
    TWIN_RETURN_IF_ERROR(Judge(WhyNotShape(shape)));
    return WeightPool::Fill(value, dtype, std::move(shape));
  }

  absl::StatusOr<WeightPtr> TakeVerb(int depth) {
    TWIN_ASSIGN_OR_RETURN(WeightPtr x, Operand(depth));
    TWIN_ASSIGN_OR_RETURN(const int64_t axis, Integer());
    TWIN_RETURN_IF_ERROR(Expect(','));
    TWIN_ASSIGN_OR_RETURN(IndexMap map, Indices());
    double fill = 0;
    if (Try(',')) {
      TWIN_ASSIGN_OR_RETURN(fill, Number());
    }
    TWIN_RETURN_IF_ERROR(Judge(WhyNotTake(x, axis, map)));
    return WeightPool::Take(std::move(x), axis, std::move(map), fill);
  }

  absl::StatusOr<WeightPtr> ConcatVerb(int depth) {
    TWIN_ASSIGN_OR_RETURN(const int64_t axis, Integer());
    std::vector<WeightPtr> xs;
    while (Try(',')) {
      TWIN_ASSIGN_OR_RETURN(WeightPtr x, Node(depth + 1));
      xs.push_back(std::move(x));
    }
    TWIN_RETURN_IF_ERROR(Judge(WhyNotConcat(axis, xs)));
    return WeightPool::Concat(axis, std::move(xs));
  }

  absl::StatusOr<WeightPtr> StatVerb(int depth) {
    const absl::string_view name = Word();
    for (size_t kind = 0; kind < std::size(kStatNames); ++kind) {
      if (name != kStatNames[kind]) continue;
      TWIN_RETURN_IF_ERROR(Expect(','));
      TWIN_ASSIGN_OR_RETURN(WeightPtr x, Operand(depth));
      TWIN_ASSIGN_OR_RETURN(std::vector<int64_t> axes, List());
      TWIN_RETURN_IF_ERROR(Judge(WhyNotStat(x, axes)));
      return WeightPool::Stat(static_cast<StatKind>(kind), std::move(x), std::move(axes));
    }
    return Wrong("expected a statistic such as absmax");
  }

  absl::StatusOr<WeightPtr> GroupVerb(absl::string_view verb, int depth) {
    TWIN_ASSIGN_OR_RETURN(WeightPtr x, Operand(depth));
    TWIN_ASSIGN_OR_RETURN(const int64_t axis, Integer());
    TWIN_RETURN_IF_ERROR(Expect(','));
    TWIN_ASSIGN_OR_RETURN(int64_t size, Integer());
    GroupFn fn = GroupFn::kKeepLargest;
    int64_t keep = 0;
    DType target = x->dtype();
    if (verb == "keep") {
      keep = size;
      TWIN_RETURN_IF_ERROR(ExpectWord("of"));
      TWIN_ASSIGN_OR_RETURN(size, Integer());
    } else {
      fn = verb == "scale" ? GroupFn::kScale : GroupFn::kCodes;
      TWIN_RETURN_IF_ERROR(Expect(','));
      TWIN_ASSIGN_OR_RETURN(target, Type());
    }
    TWIN_RETURN_IF_ERROR(Judge(WhyNotGroup(fn, x, axis, size, keep, target)));
    return WeightPool::Group(fn, std::move(x), axis, size, keep, target);
  }

  absl::string_view text_;
  size_t at_ = 0;
  int64_t run_budget_ = kMostRuns;
};

}  // namespace

std::string Text(const WeightPtr& w) {
  switch (w->kind()) {
    case WeightKind::kSource:
      return absl::StrCat("source(", JsonText(w->source_name()), ": ", TypeText(*w), ")");
    case WeightKind::kStack: {
      const absl::string_view name = w->stack_name();
      const auto at = static_cast<size_t>(w->stack_at());
      return absl::StrCat("stack(", JsonText(name.substr(0, at)), ", ", w->stack_first(), ":",
                          w->stack_first() + w->shape()[0], ", ", JsonText(name.substr(at)), ": ",
                          MemberText(*w), ")");
    }
    case WeightKind::kFill:
      return absl::StrCat("fill(", NumberText(w->fill(), w->dtype()), ": ", TypeText(*w), ")");
    case WeightKind::kTake: {
      const std::string fill =
          SameBits(w->fill(), 0) ? "" : absl::StrCat(", ", NumberText(w->fill(), w->dtype()));
      return absl::StrCat("take(", Text(w->child()), ", ", w->axis(), ", ", w->map().Text(), fill, ")");
    }
    case WeightKind::kTranspose:
      return absl::StrCat("transpose(", Text(w->child()), ", ", ShapeText(w->perm()), ")");
    case WeightKind::kReshape:
      return absl::StrCat("reshape(", Text(w->child()), ", ", ShapeText(w->shape()), ")");
    case WeightKind::kConcat: {
      std::string text = absl::StrCat("concat(", w->axis());
      for (const WeightPtr& x : w->children()) absl::StrAppend(&text, ", ", Text(x));
      return text + ")";
    }
    case WeightKind::kCast:
      return absl::StrCat("cast(", Text(w->child()), ", ", Name(w->dtype()), ")");
    case WeightKind::kMap:
      return absl::StrCat(kMapNames[static_cast<int>(w->map_fn())], "(", Text(w->child(0)), ", ",
                          Text(w->child(1)), ")");
    case WeightKind::kContract:
      return absl::StrCat("contract(", Text(w->child(0)), ", ", Text(w->child(1)), ")");
    case WeightKind::kStat:
      return absl::StrCat("stat(", kStatNames[static_cast<int>(w->stat_kind())], ", ", Text(w->child()), ", ",
                          ShapeText(w->axes()), ")");
    case WeightKind::kGroup:
      return GroupText(*w, Text(w->child()));
  }
  return "";
}

absl::StatusOr<WeightPtr> ParseWeight(absl::string_view text) { return Parser(text).Program(); }

}  // namespace twinforge
