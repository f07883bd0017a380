// Any bytes: ParseOnnxModel ends in a diagnostic or a checked model, the same one whether raw data is held or
// left where it lies, whose shapes are inferred; a model without inputs is run, and that ends too.
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/diagnostic.h"
#include "onnx/describe.h"
#include "onnx/facts.h"
#include "onnx/read.h"
#include "onnx/run.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto model = twinforge::ParseOnnxModel(bytes, "fuzz.onnx");
  const auto viewed = twinforge::ParseOnnxModel(bytes, "fuzz.onnx", 2);
  TWIN_CHECK(viewed.status() == model.status(), "views that change what a file means");
  if (!model.ok()) {
    TWIN_CHECK(twinforge::DiagnosticOf(model.status()).has_value(), "a refusal without a diagnostic");
    return 0;
  }
  const twinforge::OnnxDescription description = twinforge::Describe(**model);
  TWIN_CHECK(description.depth <= twinforge::kDeepestNesting, "deeper than the limit");
  const auto facts = twinforge::InferOnnx(**viewed);
  if (!facts.ok()) {
    TWIN_CHECK(twinforge::DiagnosticOf(facts.status()).has_value(), "a refusal without a diagnostic");
  } else {
    const twinforge::OnnxShapes shapes = twinforge::DescribeShapes(**viewed, *facts);
    TWIN_CHECK(shapes.full <= shapes.values, "more shapes than values");
  }
  const auto outputs =
      twinforge::OnnxRunner(**viewed, {.elements = 1 << 12, .nodes = 200, .work = 1e6}).Run({});
  if (!outputs.ok()) {
    TWIN_CHECK(twinforge::DiagnosticOf(outputs.status()).has_value(), "a refusal without a diagnostic");
  }
  return 0;
}

extern const char* const kSeeds[];
extern const size_t kSeedCount;
const char* const kSeeds[] = {
    "\010\011:\223\001\012$\022\001a\"\010Constant*\025\012\012value_ints@\003@\001@\002\240\001"
    "\007\012 \022\001k\"\010Constant*\021\012\012value_ints@\002\240\001\007\012\022\012\001a\012"
    "\001k\022\001v\022\001i\"\004TopK\012\027\012\001v\022\001f\"\004Cast*\011\012\002to\030\001"
    "\240\001\002\012\017\012\001f\022\001y\"\007Softmax\022\001gb\003\012\001yb\003\012\001iB\002"
    "\020\022",
    "\010\011:v\012\021\012\001x\012\001w\022\001m\"\006MatMul\012\022\012\001m\012\001s\022\001"
    "y\"\007Reshape\022\001g*\033\010\002\010\002\020\001\"\020\315\314\214\077\315\314\014@33S@"
    "\315\314\214@B\001w*\023\010\001\010\002\020\001B\001xJ\010\001\002\200\077\001\001 @*\023\010"
    "\001\020\007:\012\377\377\377\377\377\377\377\377\377\001B\001sb\003\012\001yB\002\020\022",
    "\010\011:\311\001\012$\022\001a\"\010Constant*\025\012\013value_float\025\315\314\214\077\240"
    "\001\001\012$\022\001b\"\010Constant*\025\012\013value_float\025\315\314\014@\240\001\001\012"
    "\022\012\001a\012\001b\022\001c\"\007Greater\012_\012\001c\022\001y\"\002If*'\012\013else_b"
    "ranch2\025\012\013\012\001a\022\001e\"\003Neg\022\001eb\003\012\001e\240\001\005**\012\013t"
    "hen_branch2\030\012\016\012\001a\012\001a\022\001t\"\003Add\022\001tb\003\012\001t\240\001\005"
    "\022\001gb\003\012\001yB\002\020\022",
    "\010\011:\355\001\012 \022\002n3\"\010Constant*\020\012\011value_int\030\003\240\001\002\012"
    "\"\022\001z\"\010Constant*\023\012\012value_ints@\001@\002\240\001\007\012\031\012\002n3\022"
    "\002tt\"\004Cast*\011\012\002to\030\011\240\001\002\012|\012\002n3\012\002tt\012\001z\022\001"
    "y\022\002ys\"\004Loop*b\012\004body2W\012\016\012\001s\012\001s\022\001n\"\003Add\012\021\012"
    "\001k\022\002kk\"\010Identity\012\020\012\001n\022\001o\"\010Identity\022\001bZ\003\012\001"
    "iZ\003\012\001kZ\003\012\001sb\004\012\002kkb\003\012\001nb\003\012\001o\240\001\005\022\001"
    "gb\003\012\001yb\004\012\002ysB\002\020\022",
    "\010\011:\242\001\012%\022\001a\"\010Constant*\026\012\014value_floats=\315\314\214\077\240"
    "\001\006\012\014\012\001a\022\001b\"\001F:\001d\012&\012\001b\012\003ext\022\001y\"\004Conv"
    "*\023\012\014kernel_shape@\001\240\001\007\022\001g*;\010\002\020\001B\003extj\021\012\010l"
    "ocation\022\005x.binj\016\012\006offset\022\0044096j\013\012\006length\022\0018p\001b\003\012"
    "\001yB\002\020\022B\005\012\001d\020\001\312\001 \012\001F\"\001p*\001q:\016\012\001p\012\001"
    "p\022\001q\"\003MulJ\002\020\022R\001d",
};
const size_t kSeedCount = sizeof(kSeeds) / sizeof(kSeeds[0]);
