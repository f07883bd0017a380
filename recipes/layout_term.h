// What the way in which weights lie is worth, where only the TPU compiler knows: the R4 term of orientation
// and fusing.
//
//   orient_weights (layer) -6.2 %, fuse_qkv (layer) -1.3 %, orient_weights (head) -5.1 %
//     R4 of the layers 11.0 ms, of the head 0.7 ms     a step of 12.2 ms would take 0.7 ms less: gain 1.063
//
// Measurements have no constant for layouts, the compiler's own cycles do (class C). So the term scales what
// the estimate has at R4 by the compiler's relative change, and is shown beside the estimate, never within
// it.
#ifndef TWINFORGE_RECIPES_LAYOUT_TERM_H_
#define TWINFORGE_RECIPES_LAYOUT_TERM_H_

#include <optional>
#include <vector>

#include "recipes/advise.h"

namespace twinforge {

// The twin's time without the term over its time with it. Each word is of a rewrite alone: the middle and the
// low end take of a layer (and of the head) the one gain that is largest, since others may be the same gain
// seen twice, and the high end all of them; a word that is undecided takes its worst off the low end. Empty
// where some word is unknown or sees a loss, or none sees a gain.
std::optional<Interval> LayoutGain(const std::vector<RewriteWord>& words, const Forecast& twin);

}  // namespace twinforge

#endif  // TWINFORGE_RECIPES_LAYOUT_TERM_H_
