// What follows from a certificate's chip and shapes: rates of modes, folds, tiles, bytes in memory.
//
//   rules.ModeOf("bf16", "f8_e4m3")     {"bf16", 918 T, the right one converted}
//   rules.TileOf(product)               multiply-adds that the matrix units spend
//   rules.BytesOf(array)                padded on a TPU, linear on a GPU
//
// Written anew from docs/cost.md, for a check of what cost/ wrote.
#ifndef TWINFORGE_CHECK_CERTIFICATE_RULES_H_
#define TWINFORGE_CHECK_CERTIFICATE_RULES_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "check/certificate_file.h"

namespace twinforge {

// Collects what is wrong, in the order of the lines where it is met.
class CertFindings {
 public:
  struct Finding {
    int line = 0;
    std::string message;
  };

  void Add(int line, std::string message) { all_.push_back({line, std::move(message)}); }
  // "tile is 12, and 13 follows".
  void Expect(int line, absl::string_view what, Wide found, Wide expected);
  void ExpectSeconds(int line, absl::string_view what, Wide found, Wide expected);
  const std::vector<Finding>& all() const { return all_; }

 private:
  std::vector<Finding> all_;
};

// How two types meet in the matrix unit.
struct CertMode {
  std::string as;
  Wide rate;
  bool converts_left = false;
  bool converts_right = false;
};

class CertRules {
 public:
  // What the chip's lines lack or have too much becomes a finding; what is unknown then fails every sum.
  CertRules(const Certificate& certificate, CertFindings& findings);

  Wide best() const { return best_; }  // operations a second of the fastest type that meets itself
  Wide bandwidth() const { return bandwidth_; }
  Wide on_chip() const { return on_chip_; }
  Wide usable() const { return usable_; }
  std::optional<Wide> vector_rate() const { return vector_rate_; }

  // Nothing where the chip's lines know no way.
  std::optional<CertMode> ModeOf(const std::string& left, const std::string& right) const;
  // The closed form for a kind of product ("dense": "folds" on a TPU); "" for a kind that there is not.
  std::string FormOf(const std::string& kind) const;
  // Multiply-adds of one device without any idle place.
  static Wide MacsOf(const CertProduct& product);
  Wide TileOf(const CertProduct& product) const;
  Wide BytesOf(const CertArray& array) const;

  // The text that a form's name stands for; "" where there is no such form.
  static absl::string_view FormText(absl::string_view name);
  // Bits of an element; 0 for a type that there is not.
  static int64_t BitsOf(absl::string_view dtype);

 private:
  Wide Take(const std::string& name, absl::string_view dimension);
  Wide TakeOr(const std::string& name, absl::string_view dimension, Wide absent);
  bool Has(const std::string& name) const { return certificate_.numbers.count(name) > 0; }
  Wide InBase(const CertNumber& number, absl::string_view dimension);
  void TakeMemory();
  void TakePeaks();
  bool Meet(const std::string& left, const std::string& right) const;
  std::vector<std::string> FormsOf(const std::string& dtype) const;

  Wide Folds(const CertProduct& p) const;
  Wide Tiles(const CertProduct& p) const;

  const Certificate& certificate_;
  CertFindings& findings_;
  std::map<std::string, bool> taken_;
  bool systolic_ = false;
  Wide lanes_;
  Wide edge_;
  Wide units_;
  Wide sublanes_;
  Wide best_;
  Wide bandwidth_;
  Wide on_chip_;
  Wide usable_;
  std::optional<Wide> vector_rate_;
  std::map<std::string, Wide> rates_;  // 0: unpublished
  std::map<std::string, bool> alone_;
};

}  // namespace twinforge

#endif  // TWINFORGE_CHECK_CERTIFICATE_RULES_H_
