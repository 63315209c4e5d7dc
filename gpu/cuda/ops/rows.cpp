// Steps over rows: softmax, layer normalisation, reductions, global pooling.
#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "gpu/cuda/gpu_kernel.hpp"
#include "gpu/cuda/ops/boxes.hpp"

namespace troupe::gpu::cuda {
namespace {

// Before opset 13 everything from the axis on is one row.
Made MakeSoftmax(const GpuStep& step) {
  const bool old = step.ctx.opset < 13;
  const Shape shape = step.in[0].shape.empty() ? Shape{1} : step.in[0].shape;
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t axis,
                          NormalizeAxis(step.ctx, step.ctx.Int("axis", old ? 1 : -1), shape.size()));
  const auto at = static_cast<std::size_t>(axis);
  SoftmaxArguments arguments;
  arguments.n = old ? Product(std::span(shape).subspan(at)) : shape[at];
  arguments.inner = old ? 1 : Product(std::span(shape).subspan(at + 1));
  arguments.count = arguments.n == 0 ? 0 : Product(shape) / arguments.n;
  arguments.log = step.ctx.step.op() == "LogSoftmax";
  return MakeGpu(
      [arguments](const KernelLaunch& launch, In in, Out out, std::byte*) {
        SoftmaxArguments now = arguments;
        now.in = Data<float>(in[0]);
        now.out = MutableData<float>(out[0]);
        return launch.Put(now);
      },
      0);
}

Made MakeLayerNorm(const GpuStep& step) {
  const Shape& shape = step.in[0].shape;
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t axis,
                          NormalizeAxis(step.ctx, step.ctx.Int("axis", -1), shape.size()));
  LayerNormArguments arguments;
  arguments.n = Product(std::span(shape).subspan(static_cast<std::size_t>(axis)));
  arguments.count = arguments.n == 0 ? 0 : Product(shape) / arguments.n;
  arguments.epsilon = step.ctx.Float("epsilon", 1e-5F);
  return MakeGpu(
      [arguments](const KernelLaunch& launch, In in, Out out, std::byte*) {
        LayerNormArguments now = arguments;
        now.in = Data<float>(in[0]);
        now.out = MutableData<float>(out[0]);
        now.scale = Data<float>(in[1]);
        now.shift = Present(in, 2) ? Data<float>(in[2]) : nullptr;
        now.mean = out.size() > 1 ? MutableData<float>(out[1]) : nullptr;
        now.inverse = out.size() > 2 ? MutableData<float>(out[2]) : nullptr;
        return launch.Put(now);
      },
      0);
}

struct ReduceEntry {
  std::string_view name;
  ReduceOp op;
};
constexpr ReduceEntry kReduce[] = {
    {"ReduceSum", ReduceOp::kSum},       {"ReduceMean", ReduceOp::kMean},
    {"ReduceMax", ReduceOp::kMax},       {"ReduceMin", ReduceOp::kMin},
    {"ReduceProd", ReduceOp::kProd},     {"ReduceL1", ReduceOp::kL1},
    {"ReduceL2", ReduceOp::kL2},         {"ReduceSumSquare", ReduceOp::kSumSquare},
    {"ReduceLogSum", ReduceOp::kLogSum}, {"GlobalAveragePool", ReduceOp::kMean},
    {"GlobalMaxPool", ReduceOp::kMax},   {"ReduceLogSumExp", ReduceOp::kLogSumExp},
};

absl::StatusOr<Shape> ReducedAxes(const GpuStep& step) {
  const std::size_t rank = step.in[0].shape.size();
  Shape axes;
  if (step.ctx.step.op().starts_with("Global")) {
    for (std::size_t d = 2; d < rank; ++d) axes.push_back(static_cast<std::int64_t>(d));
    return axes;
  }
  axes = step.ctx.Ints("axes");
  if (Present(step.in, 1)) {
    TROUPE_ASSIGN_OR_RETURN(axes, RequireInts(step.ctx, step.in, 1, "axes"));
  }
  if (axes.empty() && step.ctx.Int("noop_with_empty_axes", 0) == 0) {
    axes.resize(rank);
    std::iota(axes.begin(), axes.end(), 0);
  }
  return NormalizeAxes(step.ctx, std::move(axes), rank);
}

Made MakeReduce(const GpuStep& step) {
  const Shape& shape = step.in[0].shape;
  TROUPE_ASSIGN_OR_RETURN(const Shape axes, ReducedAxes(step));
  ReduceArguments arguments;
  for (const ReduceEntry& entry : kReduce) {
    if (entry.name == step.ctx.step.op()) arguments.op = entry.op;
  }
  const Shape own = RowMajorStrides(shape);
  arguments.n = arguments.count = 1;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const bool gone = std::ranges::binary_search(axes, static_cast<std::int64_t>(d));
    Box& box = gone ? arguments.folded : arguments.kept;
    Strides& at = gone ? arguments.folded_at : arguments.kept_at;
    at.by[box.rank] = own[d];
    box.size[box.rank++] = shape[d];
    (gone ? arguments.n : arguments.count) *= shape[d];
  }
  Simplify(arguments.kept, {&arguments.kept_at});
  Simplify(arguments.folded, {&arguments.folded_at});
  return MakeGpu([arguments](const KernelLaunch& launch, In in, Out out, std::byte*) {
    ReduceArguments now = arguments;
    now.in = Data<float>(in[0]);
    now.out = MutableData<float>(out[0]);
    return launch.Put(now);
  });
}

// The lines of an axis: `n` elements, `inner` apart, `count` of them.
template <class Arguments>
absl::StatusOr<Arguments> ReadLines(const GpuStep& step, std::int64_t axis_default) {
  const Shape& shape = step.in[0].shape;
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t axis,
                          NormalizeAxis(step.ctx, step.ctx.Int("axis", axis_default), shape.size()));
  Arguments arguments;
  arguments.n = shape[static_cast<std::size_t>(axis)];
  arguments.inner = Product(std::span(shape).subspan(static_cast<std::size_t>(axis) + 1));
  arguments.count = arguments.n == 0 ? 0 : Product(shape) / arguments.n;
  return arguments;
}

Made MakeArg(const GpuStep& step) {
  TROUPE_ASSIGN_OR_RETURN(ArgArguments arguments, ReadLines<ArgArguments>(step, 0));
  arguments.largest = step.ctx.step.op() == "ArgMax";
  arguments.last = step.ctx.Int("select_last_index", 0) != 0;
  return MakeGpu([arguments](const KernelLaunch& launch, In in, Out out, std::byte*) {
    ArgArguments now = arguments;
    now.in = Data<float>(in[0]);
    now.out = MutableData<std::int64_t>(out[0]);
    return launch.Put(now);
  });
}

Made MakeTopK(const GpuStep& step) {
  TROUPE_ASSIGN_OR_RETURN(TopKArguments arguments, ReadLines<TopKArguments>(step, -1));
  const ValueInfo& out = step.out[0].absent() ? step.out[1] : step.out[0];
  arguments.k = arguments.count == 0 ? 0 : out.elements() / arguments.count;
  arguments.largest = step.ctx.Int("largest", 1) != 0;
  return MakeGpu([arguments](const KernelLaunch& launch, In in, Out out, std::byte*) {
    TopKArguments now = arguments;
    now.in = Data<float>(in[0]);
    now.values = MutableData<float>(out[0]);
    now.indices = out.size() > 1 ? MutableData<std::int64_t>(out[1]) : nullptr;
    return launch.Put(now);
  });
}

}  // namespace

void AddRowKernels(KernelTable& table) {
  for (const ReduceEntry& entry : kReduce) table[entry.name] = &MakeReduce;
  table["Softmax"] = table["LogSoftmax"] = &MakeSoftmax;
  table["LayerNormalization"] = &MakeLayerNorm;
  table["ArgMax"] = table["ArgMin"] = &MakeArg;
  table["TopK"] = &MakeTopK;
}

}  // namespace troupe::gpu::cuda
