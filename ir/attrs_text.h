// The message of attributes that an op carries, for the printer and the parser.
#ifndef TWINFORGE_IR_ATTRS_TEXT_H_
#define TWINFORGE_IR_ATTRS_TEXT_H_

#include "ir/op.h"
#include "ir/ops.pb.h"

namespace twinforge {

// The sub-message of `attrs` that `kind` names, made if it was not set; nullptr for kNone.
google::protobuf::Message* MutableAttrs(AttrsKind kind, OpAttrs& attrs);
const google::protobuf::Message* AttrsOf(AttrsKind kind, const OpAttrs& attrs);

}  // namespace twinforge

#endif  // TWINFORGE_IR_ATTRS_TEXT_H_
