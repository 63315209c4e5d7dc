// The tensor arithmetic of a step with for_each: how a tensor is split, and put together again.
#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.hpp"
#include "base/status.hpp"
#include "cluster/workflow_schedule.hpp"

namespace troupe::cluster {

namespace {

// False when the product does not fit.
bool Multiply(std::uint64_t& product, std::uint64_t factor) {
  return !__builtin_mul_overflow(product, factor, &product) &&
         product <= std::numeric_limits<std::int64_t>::max();
}

std::string DescribeTensor(const proto::TensorSpec& spec) {
  return absl::StrCat("tensor '", spec.name(), "' of shape [", absl::StrJoin(spec.shape(), ","), "]");
}

// Sizes before, at and after a dimension; the last one in bytes.
struct Extent {
  std::uint64_t outer = 1;
  std::uint64_t size = 0;
  std::uint64_t inner = 0;
};

absl::StatusOr<Extent> ExtentOf(const proto::TensorSpec& tensor, std::uint32_t dimension) {
  if (static_cast<std::int64_t>(dimension) >= tensor.shape_size()) {
    return absl::InvalidArgumentError(absl::StrCat(DescribeTensor(tensor), " has no dimension ", dimension));
  }
  Extent extent;
  extent.inner = ElementSize(tensor.type());
  if (extent.inner == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        DescribeTensor(tensor), " is ", proto::DataType_Name(tensor.type()), ", which cannot be split"));
  }
  for (int i = 0; i < tensor.shape_size(); ++i) {
    if (tensor.shape(i) < 0)
      return absl::InvalidArgumentError(absl::StrCat(DescribeTensor(tensor), " has no concrete shape"));
    const auto size = static_cast<std::uint64_t>(tensor.shape(i));
    const auto at = static_cast<std::uint32_t>(i);
    if (at == dimension) {
      extent.size = size;
    } else if (!Multiply(at < dimension ? extent.outer : extent.inner, size)) {
      return absl::InvalidArgumentError(absl::StrCat(DescribeTensor(tensor), " is too large"));
    }
  }
  std::uint64_t all = extent.outer;
  if (!Multiply(all, extent.size) || !Multiply(all, extent.inner)) {
    return absl::InvalidArgumentError(absl::StrCat(DescribeTensor(tensor), " is too large"));
  }
  return extent;
}

}  // namespace

absl::Status CheckBytes(const proto::TensorSpec& tensor, std::uint64_t bytes) {
  std::uint64_t expected = ElementSize(tensor.type());
  const bool lengths_of_their_own = expected == 0;
  for (const std::int64_t size : tensor.shape()) {
    if (size < 0)
      return absl::InvalidArgumentError(absl::StrCat(DescribeTensor(tensor), " has no concrete shape"));
    if (!Multiply(expected, static_cast<std::uint64_t>(size)))
      return absl::InvalidArgumentError(absl::StrCat(DescribeTensor(tensor), " is too large"));
  }
  if (lengths_of_their_own || bytes == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(DescribeTensor(tensor), " has ", bytes, " bytes, and ", expected, " are expected"));
}

absl::StatusOr<ForEachPlan> PlanForEach(const proto::TensorSpec& tensor, std::uint32_t dimension,
                                        std::uint64_t most) {
  const absl::StatusOr<Extent> extent = ExtentOf(tensor, dimension);
  if (!extent.ok()) return extent.status();
  if (extent->size > most) {
    return absl::InvalidArgumentError(absl::StrCat(
        DescribeTensor(tensor), " would be ", extent->size, " calls, one for each element along dimension ",
        dimension, "; the step makes at most ", most, " calls ('most' of its for_each)"));
  }
  ForEachPlan plan;
  plan.parts = extent->size;
  plan.outer = extent->outer;
  plan.piece = extent->inner;
  plan.stride = extent->inner * extent->size;
  plan.part_shape.assign(tensor.shape().begin(), tensor.shape().end());
  plan.part_shape[dimension] = 1;
  return plan;
}

absl::StatusOr<std::vector<proto::TensorSpec>> OutputsOfNoCall(const proto::WorkflowStep& step) {
  if (step.outputs().empty()) {
    return absl::FailedPreconditionError(
        "it makes no call, and its workflow was submitted before the outputs of steps were kept: submit "
        "the workflow again");
  }
  std::vector<proto::TensorSpec> outputs;
  for (proto::TensorSpec output : step.outputs()) {
    for (int i = 0; i < output.shape_size(); ++i)
      if (output.shape(i) < 0 || i == static_cast<int>(step.for_each().dimension())) output.set_shape(i, 0);
    outputs.push_back(std::move(output));
  }
  return outputs;
}

std::string SlicePart(std::string_view tensor, const ForEachPlan& plan, std::uint64_t i) {
  TROUPE_CHECK(tensor.size() == plan.outer * plan.stride && i < plan.parts,
               "the tensor is not the one of the plan");
  std::string part;
  part.reserve(plan.outer * plan.piece);
  for (std::uint64_t o = 0; o < plan.outer; ++o)
    part.append(tensor.substr(o * plan.stride + i * plan.piece, plan.piece));
  return part;
}

absl::StatusOr<proto::TensorSpec> ConcatenatedSpec(const std::vector<proto::TensorSpec>& parts,
                                                   std::uint32_t dimension) {
  if (parts.empty()) return absl::InvalidArgumentError("no parts to put together");
  proto::TensorSpec whole = parts.front();
  std::uint64_t size = 0;
  for (const proto::TensorSpec& part : parts) {
    const absl::StatusOr<Extent> extent = ExtentOf(part, dimension);
    if (!extent.ok()) return extent.status();
    proto::TensorSpec same = part;
    same.set_shape(static_cast<int>(dimension), whole.shape(static_cast<int>(dimension)));
    const bool fits = same.type() == whole.type() && std::equal(same.shape().begin(), same.shape().end(),
                                                                whole.shape().begin(), whole.shape().end());
    if (!fits || __builtin_add_overflow(size, extent->size, &size)) {
      return absl::InvalidArgumentError(absl::StrCat(DescribeTensor(part), " does not go with ",
                                                     DescribeTensor(whole), " along dimension ", dimension));
    }
  }
  whole.set_shape(static_cast<int>(dimension), static_cast<std::int64_t>(size));
  const absl::StatusOr<Extent> extent = ExtentOf(whole, dimension);
  if (!extent.ok()) return extent.status();
  return whole;
}

absl::StatusOr<std::string> Concatenate(const std::vector<proto::TensorSpec>& specs,
                                        const std::vector<std::string_view>& parts, std::uint32_t dimension) {
  const absl::StatusOr<proto::TensorSpec> whole = ConcatenatedSpec(specs, dimension);
  if (!whole.ok()) return whole.status();
  if (parts.size() != specs.size())
    return absl::InvalidArgumentError("parts and their descriptions differ in number");
  std::string bytes;
  std::vector<std::uint64_t> run;  // bytes of each part per outer index
  std::uint64_t outer = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Extent extent = *ExtentOf(specs[i], dimension);
    outer = extent.outer;
    run.push_back(extent.size * extent.inner);
    TROUPE_RETURN_IF_ERROR(CheckBytes(specs[i], parts[i].size()));
  }
  for (std::uint64_t o = 0; o < outer; ++o) {
    for (std::size_t i = 0; i < parts.size(); ++i) bytes.append(parts[i].substr(o * run[i], run[i]));
  }
  return bytes;
}

}  // namespace troupe::cluster
