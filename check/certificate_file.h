// A certificate as it was read: one struct for each kind of line, with its number. Nothing is computed here.
//
//   ReadCertificate("twinforge certificate 1\n...", "llama.cert")
//   TF1810 llama.cert:57:12: a whole number is expected here
//
// There is one way to write each number and one space between words, so a text that parses and means the same
// is the same text.
#ifndef TWINFORGE_CHECK_CERTIFICATE_FILE_H_
#define TWINFORGE_CHECK_CERTIFICATE_FILE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "check/wide.h"

namespace twinforge {

// A decimal as written: digits / 10^places.
struct CertDecimal {
  Wide digits;
  int places = 0;
  std::string text;
};

// Words and whole numbers of `workload KEY VALUE`.
struct CertWorkload {
  std::map<std::string, std::string> words;
  std::map<std::string, int64_t> numbers;
  std::map<std::string, int> lines;
  std::string text;  // the lines, for their hash
};

struct CertNumber {
  int line = 0;
  CertDecimal value;
  std::string unit;
};

struct CertPeak {
  int line = 0;
  std::string dtype;
  bool alone = false;
  std::optional<CertNumber> rate;
};

struct CertConversion {
  int line = 0;
  std::string from;
  std::string to;
};

struct CertTile {
  int line = 0;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k_bits = 0;
};

struct CertForm {
  int line = 0;
  std::string text;
};

struct CertArray {
  int line = 0;
  bool cache = false;  // of an op: read from a cache
  int64_t count = 1;   // parameter, kept
  std::string dtype;
  int64_t bits = 0;
  std::vector<int64_t> shape;
  Wide bytes;
};

struct CertProduct {
  int line = 0;
  std::string kind;  // dense, scores, mix
  int64_t m = 0;
  int64_t k = 0;
  int64_t n = 0;
  int64_t count = 0;
  int64_t pairs = 0;
  int as_line = 0;  // where the rest stands
  std::string left;
  std::string right;
  std::string as;  // types that meet: "bf16", "bf16 x f8_e5m2"
  Wide useful;
  Wide idle;  // of all devices: padding, replication, sequences that nobody has
  Wide dtype_seconds;
  std::string form;
  Wide tile;
  Wide shape_seconds;
};

// A line of one number inside an op.
struct CertAmount {
  int line = 0;
  Wide value;
};

struct CertOp {
  int line = 0;
  int64_t nodes = 0;
  std::string op;
  std::string path;
  Wide useful;
  std::vector<CertProduct> products;
  std::optional<CertAmount> converts;
  std::vector<CertArray> arrays;    // weights and cache read
  std::vector<CertAmount> streams;  // gathered, written
  std::vector<CertAmount> values;   // operands and result
  CertAmount bytes;
  Wide memory_seconds;
  int rungs_line = 0;
  std::vector<Wide> rungs;  // four
};

struct CertMemory {
  int line = 0;
  Wide parameters;
  Wide cache;
  Wide usable;
  Wide on_chip;
  bool feasible = false;
  bool resident = false;
};

// What on-chip memory keeps from one step to the next at most.
struct CertSpared {
  int line = 0;
  Wide bytes;
  Wide seconds;
};

struct CertBound {
  int line = 0;
  std::string name;
  Wide seconds;
};

// low, mid and high of a constant, a part or an estimated rung.
struct CertInterval {
  int line = 0;
  std::string name;
  std::vector<Wide> ends;  // three; constants: all at the same number of places
};

struct CertEstimate {
  int rung = 4;
  std::vector<CertInterval> parts;
  CertInterval total;
};

struct CertMeasured {
  int line = 0;
  Wide seconds;
  std::string source;
};

struct Certificate {
  std::map<std::string, std::string> hashes;  // model, twin, chip, workload
  std::map<std::string, int> hash_lines;
  CertWorkload workload;
  std::string chip;
  int chip_line = 0;
  bool tpu = false;
  std::map<std::string, CertNumber> numbers;
  std::optional<CertTile> tile;
  std::vector<CertPeak> peaks;
  std::vector<CertConversion> conversions;
  std::vector<std::vector<std::string>> mixes;
  std::map<std::string, CertForm> forms;
  std::vector<CertArray> parameters;
  std::vector<CertArray> kept;
  CertMemory memory;
  std::vector<CertOp> ops;
  CertSpared spared;
  std::vector<CertBound> bounds;  // four
  int routing_line = 0;           // of the estimates
  std::string routing;            // "" where there are none
  std::vector<CertInterval> constants;
  std::vector<CertEstimate> estimates;
  std::vector<CertMeasured> measured;
  int seal_line = 0;
  std::string seal;
  absl::string_view sealed;  // the text before the seal
};

// TF1810 with line and column of what does not parse. `text` must outlive what is returned.
absl::StatusOr<Certificate> ReadCertificate(absl::string_view text, absl::string_view place);

}  // namespace twinforge

#endif  // TWINFORGE_CHECK_CERTIFICATE_FILE_H_
