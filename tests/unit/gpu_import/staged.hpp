// Imports a file stage by stage, and runs the stages one after the other, as a workflow does.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gpu/import/import_model.hpp"
#include "tests/unit/gpu_engine/plan_runner.hpp"

namespace troupe::gpu::test {

struct NamedTensor {
  proto::TensorSpec spec;
  std::vector<std::byte> data;
};
using Tensors = std::map<std::string, NamedTensor>;

// All stages of a file with at most so many bytes of weights each; one model when it has no more.
inline absl::StatusOr<std::vector<ImportedModel>> StagesOf(std::span<const std::byte> file, Bytes most) {
  std::vector<ImportedModel> stages;
  TROUPE_RETURN_IF_ERROR(ImportStages(file, {}, {most, most}, {.take = [&](ImportedModel stage) {
                                        stages.push_back(std::move(stage));
                                        return absl::OkStatus();
                                      }}));
  for (std::size_t i = 0; i < stages.size(); ++i)
    if (stages[i].stage != i + 1 || stages[i].stages != stages.size())
      return absl::InternalError("the stages do not know which they are");
  return stages;
}

// Adds the outputs of one model to the tensors, among which its inputs are.
inline absl::Status RunInto(const ImportedModel& imported, Tensors& tensors) {
  std::vector<proto::TensorSpec> specs;
  std::vector<std::span<const std::byte>> inputs;
  for (const auto& input : imported.model.inputs()) {
    const auto tensor = tensors.find(input.name());
    if (tensor == tensors.end()) return absl::NotFoundError(absl::StrCat("no tensor '", input.name(), "'"));
    const auto& given = tensor->second.spec;
    const bool fits = given.type() == input.type() && given.shape_size() == input.shape_size();
    if (!fits)
      return absl::InternalError(absl::StrCat("'", input.name(), "' is not what its stage declares"));
    for (int i = 0; i < input.shape_size(); ++i)
      if (input.shape(i) >= 0 && input.shape(i) != given.shape(i))
        return absl::InternalError(absl::StrCat("'", input.name(), "' has another shape"));
    specs.push_back(given);
    inputs.emplace_back(tensor->second.data);
  }
  TROUPE_ASSIGN_OR_RETURN(const auto plan, Plan::Build(imported.model, imported.weights, specs, 1));
  TROUPE_ASSIGN_OR_RETURN(const PlanResult result, RunPlan(*plan, imported.weights, inputs));
  for (std::size_t i = 0; i < result.specs.size(); ++i) {
    const auto& name = imported.model.outputs(static_cast<int>(i)).name();
    tensors[name] = {result.specs[i], result.data[i]};
  }
  return absl::OkStatus();
}

}  // namespace troupe::gpu::test
