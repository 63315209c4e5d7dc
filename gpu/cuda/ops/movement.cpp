// Steps that move elements and change none. Where each one comes from is asked of the CPU's kernel, once, at
// preparation: it moves numbers instead of elements, and what comes out says which element stands where. A
// pattern that is a box with strides becomes a strided move, any other a table on the GPU.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "gpu/cuda/gpu_kernel.hpp"
#include "gpu/cuda/ops/boxes.hpp"
#include "gpu/engine/program.hpp"

namespace troupe::gpu::cuda {
namespace {

// For each element of output `index`: the number of the element of input 0 that stands there, from 1 on; 0
// for a filler.
absl::StatusOr<std::vector<std::int64_t>> Sources(const GpuStep& step, std::size_t index) {
  const std::int64_t count = step.in[0].elements();
  std::vector<ValueInfo> in(step.in.begin(), step.in.end());
  std::vector<ValueInfo> out(step.out.begin(), step.out.end());
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(std::max<std::int64_t>(count, 1)));
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::int64_t>(i) + 1;
  const std::int64_t filler = 0;
  in[0].type = proto::INT64;
  in[0].constant = nullptr;
  // Pad's filler has the type of what is padded.
  if (step.ctx.step.op() == "Pad" && Present(in, 2)) {
    in[2].type = proto::INT64;
    in[2].constant = reinterpret_cast<const std::byte*>(&filler);
  }
  for (ValueInfo& info : out) info.type = proto::INT64;
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<Kernel> kernel, step.entry.make(step.ctx, in, out));
  std::vector<TensorView> views;
  for (std::size_t i = 0; i < in.size(); ++i) {
    views.push_back({in[i].type, in[i].shape, const_cast<std::byte*>(in[i].constant)});
  }
  views[0].data = reinterpret_cast<std::byte*>(numbers.data());
  std::vector<TensorView> results;
  std::vector<std::vector<std::int64_t>> moved(out.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    moved[i].resize(static_cast<std::size_t>(std::max<std::int64_t>(out[i].elements(), 1)));
    results.push_back({proto::INT64, out[i].shape, reinterpret_cast<std::byte*>(moved[i].data())});
  }
  AlignedBytes scratch(kernel->scratch().count());
  TROUPE_RETURN_IF_ERROR(kernel->Run(views, results, scratch.data()));
  moved[index].resize(static_cast<std::size_t>(out[index].elements()));
  for (const std::int64_t number : moved[index]) {
    if (number < 0 || number > count) return step.ctx.Error("does not move elements alone");
  }
  return std::move(moved[index]);
}

std::int64_t PlaceIn(const Shape& shape, const Strides& strides, std::int64_t i) {
  std::int64_t at = strides.base;
  for (std::size_t d = shape.size(); d-- > 0;) {
    at += i % shape[d] * strides.by[d];
    i /= shape[d];
  }
  return at;
}

// The strides that give exactly these sources, when there are some.
std::optional<Strides> AsStrides(const std::vector<std::int64_t>& sources, const Shape& shape) {
  if (sources.empty() || sources[0] == 0 || shape.size() > static_cast<std::size_t>(kMaxRank))
    return std::nullopt;
  Strides strides;
  strides.base = sources[0] - 1;
  const Shape steps = RowMajorStrides(shape);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] > 1) strides.by[d] = sources[static_cast<std::size_t>(steps[d])] - sources[0];
  }
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (sources[i] - 1 != PlaceIn(shape, strides, static_cast<std::int64_t>(i))) return std::nullopt;
  }
  return strides;
}

// How one output is brought about.
struct Movement {
  MoveArguments move;
  LookupArguments lookup;
  std::shared_ptr<const DeviceBlock> table;  // null: it is a move
};

absl::StatusOr<Movement> MovementTo(const GpuStep& step, std::size_t index) {
  Movement movement;
  const Shape& shape = step.out[index].shape;
  const auto size = static_cast<std::int32_t>(ElementSize(step.in[0].type));
  TROUPE_ASSIGN_OR_RETURN(const std::vector<std::int64_t> sources, Sources(step, index));
  movement.move.element_size = movement.lookup.element_size = size;
  movement.move.count = movement.lookup.count = static_cast<std::int64_t>(sources.size());
  if (const std::optional<Strides> strides = AsStrides(sources, shape); strides || sources.empty()) {
    if (sources.empty()) return movement;
    movement.move.box = BoxOf(shape);
    movement.move.from = *strides;
    movement.move.to = BroadcastStrides(shape, shape);
    Simplify(movement.move.box, {&movement.move.from, &movement.move.to});
    return movement;
  }
  const bool fills = step.ctx.step.op() == "Pad" && Present(step.in, 2);
  if (fills) std::memcpy(&movement.lookup.filler, step.in[2].constant, static_cast<std::size_t>(size));
  const std::vector<std::uint32_t> table(sources.begin(), sources.end());
  TROUPE_ASSIGN_OR_RETURN(movement.table, DeviceBlock::Upload(step.tools.context, table.data(),
                                                              table.size() * sizeof(std::uint32_t)));
  movement.lookup.table = reinterpret_cast<const std::uint32_t*>(movement.table->data());
  return movement;
}

absl::Status Move(const KernelLaunch& launch, const Movement& movement, const TensorView& in,
                  const TensorView& out) {
  if (movement.table == nullptr) {
    MoveArguments now = movement.move;
    now.in = in.data;
    now.out = out.data;
    return launch.Put(Widened(now));
  }
  LookupArguments now = movement.lookup;
  now.in = in.data;
  now.out = out.data;
  return launch.Put(now);
}

}  // namespace

Made MakeMovement(const GpuStep& step) {
  std::vector<Movement> movements;
  for (std::size_t i = 0; i < step.out.size(); ++i) {
    movements.emplace_back();
    if (step.out[i].absent()) continue;
    TROUPE_ASSIGN_OR_RETURN(movements.back(), MovementTo(step, i));
  }
  return MakeGpu([movements](const KernelLaunch& launch, In in, Out out, std::byte*) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (out[i].data != nullptr) TROUPE_RETURN_IF_ERROR(Move(launch, movements[i], in[0], out[i]));
    }
    return absl::OkStatus();
  });
}

namespace {

// Rows of each input, one behind the other.
Made MakeConcat(const GpuStep& step) {
  const Shape& shape = step.out[0].shape;
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t axis,
                          NormalizeAxis(step.ctx, step.ctx.Int("axis", 1), shape.size()));
  const auto first = static_cast<std::size_t>(axis);
  const std::int64_t outer = Product(std::span(shape).first(first));
  const std::int64_t row = Product(std::span(shape).subspan(first));
  std::vector<MoveArguments> moves;
  std::int64_t offset = 0;
  for (const ValueInfo& info : step.in) {
    const std::int64_t part = Product(std::span(info.shape).subspan(first));
    MoveArguments move;
    move.count = outer * part;
    move.element_size = static_cast<std::int32_t>(ElementSize(info.type));
    move.box = {2, {outer, part}};
    move.from = {0, {part, 1}};
    move.to = {offset, {row, 1}};
    Simplify(move.box, {&move.from, &move.to});
    moves.push_back(move);
    offset += part;
  }
  return MakeGpu([moves](const KernelLaunch& launch, In in, Out out, std::byte*) {
    for (std::size_t i = 0; i < moves.size(); ++i) {
      MoveArguments now = moves[i];
      now.in = in[i].data;
      now.out = out[0].data;
      TROUPE_RETURN_IF_ERROR(launch.Put(Widened(now)));
    }
    return absl::OkStatus();
  });
}

// The same bytes under another shape.
Made MakeView(const GpuStep&) {
  return MakeGpu(
      [](const KernelLaunch& launch, In in, Out out, std::byte*) { return CopyWhole(launch, in, out); }, -1,
      0);
}

}  // namespace

void AddMovementKernels(KernelTable& table) {
  for (const char* const op : {"Transpose", "Slice", "Split", "Expand", "Tile", "Pad", "DepthToSpace",
                               "SpaceToDepth", "ReverseSequence"})
    table[op] = &MakeMovement;
  for (const char* const op : {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout"})
    table[op] = &MakeView;
  table["Concat"] = &MakeConcat;
}

}  // namespace troupe::gpu::cuda
