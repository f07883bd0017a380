// The part of a certificate that a chip file gives: each number that a bound used, as it stands there.
#ifndef TWINFORGE_COST_CERTIFICATE_CHIP_H_
#define TWINFORGE_COST_CERTIFICATE_CHIP_H_

#include <map>
#include <set>
#include <string>

#include "cost/certificate_numbers.h"
#include "cost/chip.pb.h"
#include "weights/dtype.h"

namespace twinforge {

// A chip's numbers as whole ones in base units.
struct CertificateChip {
  bool tpu = false;
  std::map<std::string, Natural128> peaks;  // operations a second; 0: nobody says
  Natural128 best = 0;                      // of those that multiply with themselves
  Natural128 bandwidth = 0;                 // bytes a second
  Natural128 vector_rate = 0;               // 0: unknown
  Natural128 on_chip = 0;                   // bytes
  Natural128 usable = 0;

  // What a mode's name says ("bf16", "bf16 x f8_e5m2"): the slower of the known rates.
  Natural128 RateOf(const std::string& mode) const;
};

// Writes the chip's lines to `text`. `operands`: types for which conversions are told.
CertificateChip WriteChip(const Chip& chip, const std::set<DType>& operands, std::string& text);

}  // namespace twinforge

#endif  // TWINFORGE_COST_CERTIFICATE_CHIP_H_
