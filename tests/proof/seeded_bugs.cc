#include "tests/proof/seeded_bugs.h"

#include <utility>

#include "weights/build.h"

namespace twinforge {

std::function<void(Rewriter&)> Attrs(std::string path, std::function<void(OpAttrs&)> change) {
  return [=](Rewriter& rewriter) {
    const Node& node = *rewriter.graph().FindNode(path);
    OpAttrs attrs = *node.attrs;
    change(attrs);
    rewriter.SetAttrs(node.id, attrs);
  };
}

std::function<void(Rewriter&)> Program(std::string role, ProgramChange change) {
  return [=](Rewriter& rewriter) {
    const Param param = *rewriter.graph().FindParam(role);
    rewriter.SetParam(role, param.type, change(rewriter.graph(), param));
  };
}

std::function<void(Rewriter&)> Both(std::function<void(Rewriter&)> first,
                                    std::function<void(Rewriter&)> second) {
  return [=](Rewriter& rewriter) {
    first(rewriter);
    second(rewriter);
  };
}

std::function<void(Rewriter&)> Reordered(std::string role, std::string axis,
                                         std::function<std::vector<int64_t>(int64_t)> order) {
  return Program(role, [=](const Graph&, const Param& param) {
    const int at = param.type.Find(axis);
    return PermuteAxis(param.program, at, order(param.type.axes[at].size));
  });
}

std::function<void(Rewriter&)> Swapped(std::string a, std::string b) {
  return [=](Rewriter& rewriter) {
    const Param first = *rewriter.graph().FindParam(a), second = *rewriter.graph().FindParam(b);
    rewriter.SetParam(a, first.type, second.program);
    rewriter.SetParam(b, second.type, first.program);
  };
}

std::function<void(Rewriter&)> Scaled(std::string role, double factor) {
  return Program(role, [=](const Graph&, const Param& param) { return Scale(param.program, factor); });
}

std::function<void(Rewriter&)> Dropped(std::string path, std::string slot) {
  return [=](Rewriter& rewriter) { rewriter.RemoveParam(rewriter.graph().FindNode(path)->id, slot); };
}

std::function<void(Rewriter&)> Unpadded(std::string role, std::string axis) {
  return [=](Rewriter& rewriter) {
    Param param = *rewriter.graph().FindParam(role);
    ParamAxis& padded = param.type.axes[param.type.Find(axis)];
    padded.logical = padded.size;
    rewriter.SetParam(role, param.type, param.program);
  };
}

}  // namespace twinforge
