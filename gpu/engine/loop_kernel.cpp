#include "gpu/engine/loop_kernel.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "gpu/engine/control_steps.hpp"
#include "gpu/ops/op_support.hpp"

namespace troupe::gpu {
namespace {

constexpr Bytes kPlaceUnit(64);

Bytes PlannedBytes(const ValueInfo& info) {
  return Bytes(static_cast<std::uint64_t>(info.elements()) * CellSize(info.type));
}

// A tensor of rows as the trips see it: for each of `rows` rows, one block of `block` bytes for each trip.
struct Rows {
  std::size_t rows = 1;
  std::size_t block = 0;
};
Rows RowsOf(const TensorView& part, std::size_t axis) {
  Rows rows;
  for (std::size_t d = 0; d < axis; ++d) rows.rows *= static_cast<std::size_t>(part.shape[d]);
  rows.block = rows.rows == 0 ? 0 : BytesOf(part) / rows.rows;
  return rows;
}

std::int64_t PlaceOf(const TripAxis& along, std::int64_t trip, std::int64_t trips) {
  return along.backwards ? trips - 1 - trip : trip;
}

bool IsTrue(const TensorView& condition) {
  return condition.data[0] != std::byte{0};
}

}  // namespace

std::uint64_t LoopKernel::Reserve(Bytes size) {
  const std::uint64_t place = scratch_.count();
  scratch_ += AlignUp(size, kPlaceUnit);
  return place;
}

LoopKernel::LoopKernel(LoopForm form, std::span<const ValueInfo> out) : form_(std::move(form)) {
  const CpuPlan& plan = *form_.body.plan;
  scratch_ = AlignUp(plan.activation_bytes(), kPlaceUnit);
  numbers_ = Reserve(kPlaceUnit * 3);
  for (std::size_t i = 0; i < form_.states; ++i) {
    // A trip may write a smaller value than the loop's output was planned for, and never a larger one.
    const Bytes size = std::max(PlannedBytes(out[i]), plan.output_bytes(told() + i));
    places_.push_back(Reserve(size));
    places_.push_back(Reserve(size));
  }
  for (std::size_t i = 0; i < form_.parts.size(); ++i)
    part_places_.push_back(Reserve(PlannedBytes(plan.input(given() + form_.states + i))));
  for (std::size_t i = 0; i < form_.gathered.size(); ++i) {
    planned_.push_back(out[form_.states + i].shape);
    rooms_.push_back(PlannedBytes(out[form_.states + i]));
    gather_places_.push_back(Reserve(plan.output_bytes(told() + form_.states + i)));
  }
}

absl::Status LoopKernel::Run(std::span<const TensorView> in, std::span<TensorView> out,
                             std::byte* scratch) const {
  return RunInParts(in, out, scratch, [] { return absl::OkStatus(); });
}

absl::Status LoopKernel::RunInParts(std::span<const TensorView> in, std::span<TensorView> out,
                                    std::byte* scratch, const Pause& pause) const {
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t trips, MostTrips(in));
  const auto frame = frames_.Take([] { return std::make_unique<Frame>(); });
  Begin(in, scratch, *frame);
  bool goes_on = !form_.counts || in[1].data == nullptr || IsTrue(in[1]);
  std::int64_t trip = 0;
  for (; goes_on && trip < trips; ++trip) {
    if (trip == kMaxTrips) {
      return absl::InvalidArgumentError(
          absl::StrCat("it went round ", kMaxTrips, " times, which is the most, and was not at its end"));
    }
    TROUPE_RETURN_IF_ERROR(pause());
    TROUPE_RETURN_IF_ERROR(BringParts(in, trip, scratch, *frame));
    TROUPE_RETURN_IF_ERROR(form_.body.plan->RunSubgraph(frame->in, frame->out, scratch, pause));
    TROUPE_RETURN_IF_ERROR(Gather(trip, trips, out, *frame));
    if (form_.counts) goes_on = IsTrue(frame->out[0]);
    Turn(trip, scratch, *frame);
  }
  frame->trips = trip;
  Finish(in, out, *frame);
  return absl::OkStatus();
}

absl::StatusOr<std::int64_t> LoopKernel::MostTrips(std::span<const TensorView> in) const {
  if (form_.counts) {
    for (std::size_t i = 0; i < 2; ++i)
      if (std::ranges::find(in[i].shape, 0) != in[i].shape.end())
        return absl::InvalidArgumentError(absl::StrCat("its input ", i, " has no element"));
    std::int64_t trips = kMaxTrips + 1;
    if (in[0].data != nullptr) std::memcpy(&trips, in[0].data, sizeof(trips));
    return std::min(std::max<std::int64_t>(trips, 0), kMaxTrips + 1);
  }
  std::int64_t trips = -1;
  for (std::size_t i = 0; i < form_.parts.size(); ++i) {
    const Shape& shape = in[form_.states + i].shape;
    const std::size_t axis = form_.parts[i].axis;
    if (shape.size() <= axis || (trips >= 0 && shape[axis] != trips)) {
      return absl::InvalidArgumentError(
          absl::StrCat("its inputs have lengths that differ along the axes of the trips: one is ",
                       FormatShape(shape), ", another has ", trips, " parts"));
    }
    trips = shape[axis];
  }
  return trips;
}

void LoopKernel::Begin(std::span<const TensorView> in, std::byte* scratch, Frame& frame) const {
  const std::size_t states = given() + form_.states;
  frame.in.resize(states + form_.parts.size() + form_.body.captures.size());
  frame.out.resize(told() + form_.states + form_.gathered.size());
  frame.gathered.assign(form_.gathered.size(), Shape());
  std::byte* const numbers = scratch + numbers_;
  if (form_.counts) {
    const ValueInfo& number = form_.body.plan->input(0);
    const ValueInfo& condition = form_.body.plan->input(1);
    frame.in[0] = {number.type, number.shape, numbers};
    frame.in[1] = {condition.type, condition.shape, numbers + 64};
    numbers[64] = std::byte{1};  // a trip begins only while the condition holds
    frame.out[0] = {proto::BOOL, {}, numbers + 128};
  }
  for (std::size_t i = given(); i < states; ++i) frame.in[i] = in[i];
  for (std::size_t i = 0; i < form_.body.captures.size(); ++i)
    frame.in[states + form_.parts.size() + i] = in[form_.body.captures[i]];
  for (std::size_t i = 0; i < form_.states; ++i)
    frame.out[told() + i] = {in[given() + i].type, {}, scratch + places_[2 * i]};
  for (std::size_t i = 0; i < form_.gathered.size(); ++i)
    frame.out[told() + form_.states + i] = {proto::DATA_TYPE_UNSPECIFIED, {}, scratch + gather_places_[i]};
}

absl::Status LoopKernel::BringParts(std::span<const TensorView> in, std::int64_t trip, std::byte* scratch,
                                    Frame& frame) const {
  if (form_.counts) std::memcpy(frame.in[0].data, &trip, sizeof(trip));
  for (std::size_t i = 0; i < form_.parts.size(); ++i) {
    const TripAxis& along = form_.parts[i];
    const TensorView& whole = in[form_.states + i];
    const std::int64_t trips = whole.shape[along.axis];
    TensorView& part = frame.in[form_.states + i];
    part.type = whole.type;
    part.shape = whole.shape;
    part.shape.erase(part.shape.begin() + static_cast<std::ptrdiff_t>(along.axis));
    part.data = scratch + part_places_[i];
    if (BytesOf(part) > PlannedBytes(form_.body.plan->input(form_.states + i)).count()) {
      return absl::InvalidArgumentError(
          absl::StrCat("a part of shape ", FormatShape(part.shape), " is larger than planned"));
    }
    const Rows rows = RowsOf(part, along.axis);
    const auto place = static_cast<std::size_t>(PlaceOf(along, trip, trips));
    for (std::size_t row = 0; row < rows.rows; ++row) {
      CopyBytes(part.data + row * rows.block,
                whole.data + (row * static_cast<std::size_t>(trips) + place) * rows.block, rows.block);
    }
  }
  return absl::OkStatus();
}

absl::Status LoopKernel::Gather(std::int64_t trip, std::int64_t trips, std::span<TensorView> out,
                                Frame& frame) const {
  for (std::size_t i = 0; i < form_.gathered.size(); ++i) {
    TensorView& whole = out[form_.states + i];
    if (whole.data == nullptr) continue;  // an output that nothing reads
    TensorView part = frame.out[told() + form_.states + i];
    part.type = whole.type;
    if (trip == 0) frame.gathered[i] = part.shape;
    if (part.shape != frame.gathered[i]) {
      return absl::InvalidArgumentError(absl::StrCat(
          "trip ", trip, " made a part of shape ", FormatShape(part.shape), " where the first made ",
          FormatShape(frame.gathered[i]), "; the parts of one output must have one shape"));
    }
    const TripAxis& along = form_.gathered[i];
    const std::size_t bytes = BytesOf(part);
    // A Loop gathers along the first axis from its begin, so how many trips there will be need not be known.
    const auto reach = static_cast<std::size_t>(form_.counts ? trip + 1 : trips);
    if (reach * bytes > rooms_[i].count() || part.shape.size() < along.axis)
      return absl::InvalidArgumentError("its trips make more than was planned for");
    const Rows rows = RowsOf(part, along.axis);
    const auto place = static_cast<std::size_t>(PlaceOf(along, trip, trips));
    for (std::size_t row = 0; row < rows.rows; ++row) {
      CopyBytes(whole.data + (row * static_cast<std::size_t>(trips) + place) * rows.block,
                part.data + row * rows.block, rows.block);
    }
  }
  return absl::OkStatus();
}

// What this trip made is what the next one reads.
void LoopKernel::Turn(std::int64_t trip, std::byte* scratch, Frame& frame) const {
  for (std::size_t i = 0; i < form_.states; ++i) {
    std::swap(frame.in[given() + i].shape, frame.out[told() + i].shape);
    frame.in[given() + i].data = frame.out[told() + i].data;
    frame.out[told() + i].data = scratch + places_[2 * i + (trip % 2 == 0 ? 1 : 0)];
  }
}

void LoopKernel::Finish(std::span<const TensorView> in, std::span<TensorView> out, const Frame& frame) const {
  for (std::size_t i = 0; i < form_.states; ++i) {
    if (out[i].data == nullptr) continue;
    const TensorView& last = frame.trips == 0 ? in[given() + i] : frame.in[given() + i];
    out[i].shape = last.shape;
    CopyBytes(out[i].data, last.data, BytesOf(last));
  }
  for (std::size_t i = 0; i < form_.gathered.size(); ++i) {
    TensorView& whole = out[form_.states + i];
    if (whole.data == nullptr) continue;
    const auto axis = static_cast<std::ptrdiff_t>(form_.gathered[i].axis);
    whole.shape = planned_[i];
    if (frame.trips > 0) {
      whole.shape = frame.gathered[i];
      whole.shape.insert(whole.shape.begin() + axis, 0);
    }
    whole.shape[form_.gathered[i].axis] = frame.trips;
  }
}

}  // namespace troupe::gpu
