#include "gpu/import/likely_inputs.hpp"

#include <algorithm>

#include "gpu/import/import_report.hpp"
#include "proto/open_dimension.hpp"

namespace troupe::gpu {
namespace {

// The inputs for one row, with these sizes of their other open dimensions.
InputSpecs InputsOf(const ImportedModel& imported, const OpenDimensions::Sizes& sizes) {
  InputSpecs inputs;
  for (const proto::TensorSpec& input : imported.model.inputs())
    inputs.push_back(imported.open.ForOneRow(sizes, input));
  return inputs;
}

std::uint32_t AtLeastOne(std::int64_t size) {
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(size, 1, kMostLikelySizeOfStage));
}

}  // namespace

absl::Status ForLikelyInputs(const ImportedModel& imported,
                             const std::function<absl::Status(const InputSpecs&)>& work) {
  if (!imported.likely_inputs.empty()) return work(imported.likely_inputs);
  absl::Status first;
  for (const auto& trial : imported.open.Trials()) {
    const absl::Status status = work(InputsOf(imported, imported.open.SizesOf(trial)));
    first.Update(status);
    if (!absl::IsInvalidArgument(status)) return status;
  }
  return first;
}

std::vector<std::uint32_t> LikelySizes(const ImportedModel& imported, const InputSpecs& inputs) {
  std::vector<std::uint32_t> sizes;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const proto::TensorSpec& input = imported.model.inputs(static_cast<int>(i));
    for (int j = 1; j < input.shape_size(); ++j)
      if (input.shape(j) < 0) sizes.push_back(AtLeastOne(inputs[i].shape(j)));
  }
  return sizes;
}

std::vector<std::uint32_t> LikelyRows(const ImportedModel& imported) {
  std::vector<std::uint32_t> rows;
  bool more = false;
  for (std::size_t i = 0; i < imported.likely_inputs.size(); ++i) {
    const proto::TensorSpec& likely = imported.likely_inputs[i];
    rows.push_back(likely.shape().empty() ? 1 : AtLeastOne(likely.shape(0)));
    more = more || (proto::LeadingIsOpen(imported.model.inputs(static_cast<int>(i))) && rows.back() != 1);
  }
  return more ? rows : std::vector<std::uint32_t>();
}

}  // namespace troupe::gpu
