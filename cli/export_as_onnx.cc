#include "cli/export_as_onnx.h"

#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/status_macros.h"
#include "exporters/publish.h"

namespace twinforge {

absl::StatusOr<Outcome> ExportAsOnnx(const Model& model, const WriteFlags& flags, const std::string& out) {
  if (!model.has_bytes()) {
    return Error(1612, "", "a model from a config alone has no weights to write",
                 "name the checkpoint's folder");
  }
  TWIN_ASSIGN_OR_RETURN(const PlannedExport planned, PlanWrite(model, flags));
  const PublishRequest request{.plan = planned.plan,
                               .options = planned.options,
                               .root = model.root,
                               .reader = *model.reader,
                               .out = out,
                               .close = nullptr};
  TWIN_ASSIGN_OR_RETURN(const ExportResult result, WriteAndPublish(request, nullptr));
  Outcome outcome;
  AddPlanJson(planned, outcome.json);
  outcome.done = absl::StrCat("the model is written to ", result.folder);
  outcome.human = absl::StrCat(HumanPlan(planned), "operator set ", planned.plan.opset, ", computed in ",
                               planned.plan.computed_in, "; written to ", result.folder, "\n");
  outcome.json["opset"] = planned.plan.opset;
  outcome.json["computed_in"] = planned.plan.computed_in;
  outcome.json["out"] = result.folder;
  return outcome;
}

}  // namespace twinforge
