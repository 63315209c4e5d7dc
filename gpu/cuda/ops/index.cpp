// Steps whose elements' places come with the data: gathers, scatters, one-hot, triangles, running sums. An
// index outside of what it chooses from ends the run with an error.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "gpu/cuda/gpu_kernel.hpp"
#include "gpu/cuda/ops/boxes.hpp"

namespace troupe::gpu::cuda {
namespace {

std::int32_t SizeOf(const ValueInfo& info) {
  return static_cast<std::int32_t>(ElementSize(info.type));
}

Made MakeGather(const GpuStep& step) {
  const Shape& shape = step.in[0].shape;
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t axis,
                          NormalizeAxis(step.ctx, step.ctx.Int("axis", 0), shape.size()));
  GatherArguments arguments;
  arguments.index_type = ElementOf(step.in[1].type);
  arguments.element_size = SizeOf(step.in[0]);
  arguments.dim = shape[static_cast<std::size_t>(axis)];
  arguments.block = Product(std::span(shape).subspan(static_cast<std::size_t>(axis) + 1));
  arguments.chosen = step.in[1].elements();
  arguments.narrow = Narrow({step.in[0].elements(), step.out[0].elements()});
  return MakeGpu([arguments](const KernelLaunch& launch, In in, Out out, std::byte*) {
    GatherArguments now = arguments;
    now.count = Elements(out[0]);
    now.in = in[0].data;
    now.indices = in[1].data;
    now.out = out[0].data;
    now.trouble = launch.trouble;
    return launch.Put(Widened(now));
  });
}

// Scatters write into a copy of the data; of two updates of one element either may stay, as ONNX has it.
template <class Arguments>
Made MakeMove(const Arguments& arguments) {
  return MakeGpu(
      [arguments](const KernelLaunch& launch, In in, Out out, std::byte*) -> absl::Status {
        Arguments now = arguments;
        if (now.scatters && out[0].data != in[0].data) TROUPE_RETURN_IF_ERROR(CopyWhole(launch, in, out));
        now.count = now.scatters ? Elements(in[2]) : Elements(out[0]);
        now.in = now.scatters ? in[2].data : in[0].data;
        now.indices = in[1].data;
        now.out = out[0].data;
        now.trouble = launch.trouble;
        return launch.Put(now);
      },
      arguments.scatters ? 0 : -1);
}

bool Scatters(const GpuStep& step) {
  return step.ctx.step.op().starts_with("Scatter");
}

// GatherElements, ScatterElements.
Made MakeIndexMove(const GpuStep& step) {
  const Shape& data = step.in[0].shape;
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t axis,
                          NormalizeAxis(step.ctx, step.ctx.Int("axis", 0), data.size()));
  IndexMoveArguments arguments;
  arguments.scatters = Scatters(step);
  arguments.index_type = ElementOf(step.in[1].type);
  arguments.box = BoxOf(step.in[1].shape);
  arguments.element_size = SizeOf(step.in[0]);
  const Shape own = RowMajorStrides(data);
  std::ranges::copy(own, arguments.elsewhere.by);
  arguments.axis_stride = own[static_cast<std::size_t>(axis)];
  arguments.elsewhere.by[axis] = 0;
  Simplify(arguments.box, {&arguments.elsewhere});
  arguments.dim = data[static_cast<std::size_t>(axis)];
  return MakeMove(arguments);
}

// GatherND, ScatterND.
Made MakeTupleMove(const GpuStep& step) {
  const Shape& data = step.in[0].shape;
  const Shape& indices = step.in[1].shape;
  const auto batch = static_cast<std::size_t>(step.ctx.Int("batch_dims", 0));
  const auto depth = static_cast<std::size_t>(indices.back());
  TupleMoveArguments arguments;
  arguments.scatters = Scatters(step);
  arguments.index_type = ElementOf(step.in[1].type);
  arguments.element_size = SizeOf(step.in[0]);
  arguments.depth = static_cast<std::int32_t>(depth);
  std::copy_n(data.begin() + static_cast<std::ptrdiff_t>(batch), depth, arguments.dim);
  arguments.narrow =
      Narrow({step.in[0].elements(), step.in[arguments.scatters ? 2 : 1].elements(), step.out[0].elements()});
  arguments.block = Product(std::span(data).subspan(batch + depth));
  // Without batches all tuples are of one.
  arguments.tuples =
      std::max<std::int64_t>(1, Product(std::span(indices).subspan(batch, indices.size() - 1 - batch)));
  return MakeMove(arguments);
}

Made MakeOneHot(const GpuStep& step) {
  OneHotArguments arguments;
  arguments.index_type = ElementOf(step.in[0].type);
  const Shape& shape = step.out[0].shape;
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t axis,
                          NormalizeAxis(step.ctx, step.ctx.Int("axis", -1), shape.size()));
  arguments.element_size = SizeOf(step.out[0]);
  arguments.depth = shape[static_cast<std::size_t>(axis)];
  arguments.inner = Product(std::span(shape).subspan(static_cast<std::size_t>(axis) + 1));
  arguments.narrow = Narrow({step.out[0].elements()});
  return MakeGpu([arguments](const KernelLaunch& launch, In in, Out out, std::byte*) {
    OneHotArguments now = arguments;
    now.count = Elements(out[0]);
    now.indices = in[0].data;
    now.values = in[2].data;
    now.out = out[0].data;
    return launch.Put(now);
  });
}

Made MakeTrilu(const GpuStep& step) {
  TriluArguments arguments;
  const Shape& shape = step.in[0].shape;
  arguments.element_size = SizeOf(step.in[0]);
  arguments.upper = step.ctx.Int("upper", 1) != 0;
  arguments.rows = shape[shape.size() - 2];
  arguments.columns = shape.back();
  arguments.narrow = Narrow({step.out[0].elements()});
  return MakeGpu([arguments](const KernelLaunch& launch, In in, Out out, std::byte*) {
    TriluArguments now = arguments;
    now.count = Elements(out[0]);
    now.in = in[0].data;
    now.out = out[0].data;
    now.k = Present(in, 1) ? Data<std::int64_t>(in[1]) : nullptr;
    return launch.Put(now);
  });
}

Made MakeRunningSum(const GpuStep& step) {
  RunningSumArguments arguments;
  arguments.type = ElementOf(step.in[0].type);
  arguments.axis_type = ElementOf(step.in[1].type);
  arguments.box = BoxOf(step.in[0].shape);
  arguments.element_size = SizeOf(step.in[0]);
  arguments.exclusive = step.ctx.Int("exclusive", 0) != 0;
  arguments.reverse = step.ctx.Int("reverse", 0) != 0;
  return MakeGpu([arguments](const KernelLaunch& launch, In in, Out out, std::byte*) {
    RunningSumArguments now = arguments;
    now.count = Elements(out[0]);
    now.in = in[0].data;
    now.axis = in[1].data;
    now.out = out[0].data;
    now.trouble = launch.trouble;
    return launch.Put(now);
  });
}

}  // namespace

void AddIndexKernels(KernelTable& table) {
  table["Gather"] = &MakeGather;
  for (const char* const op : {"GatherElements", "ScatterElements", "Scatter"}) table[op] = &MakeIndexMove;
  for (const char* const op : {"GatherND", "ScatterND"}) table[op] = &MakeTupleMove;
  table["OneHot"] = &MakeOneHot;
  table["Trilu"] = &MakeTrilu;
  table["CumSum"] = &MakeRunningSum;
}

}  // namespace troupe::gpu::cuda
