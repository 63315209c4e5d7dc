// GPU KERNEL: one step of a plan, made for concrete shapes; and what it is made with and put on a stream
// with. The plan around it is laid out as the CPU's is (gpu/engine), from the same Program.
#pragma once

#include <map>
#include <memory>
#include <string_view>

#include "gpu/cuda/fused_product.hpp"
#include "gpu/cuda/graphs.hpp"
#include "gpu/cuda/kernels.hpp"
#include "gpu/cuda/libraries.hpp"
#include "gpu/cuda/trouble_words.hpp"
#include "gpu/device/device.hpp"
#include "gpu/ops/op_support.hpp"
#include "proto/function.pb.h"

namespace troupe::gpu::cuda {

// What the steps of a device's plans share. Owner: the device.
struct Tools {
  Context& context;
  std::unique_ptr<Kernels> kernels;
  std::unique_ptr<Libraries> libraries;
  GraphBudget graphs;
  std::unique_ptr<BlasLt> blas_lt;
  TroubleWords words;
  // Where plans are recorded when they are made; under the device's lock for that.
  struct Warming {
    CUstream stream = nullptr;
    DeviceRange anywhere{};  // of the device's memory
  } warm{};
};

// One launch as a kernel sees it.
struct KernelLaunch {
  Tools& tools;
  CUstream stream = nullptr;
  CUstream lane = nullptr;          // its own stream, which is the other one but for a share of the SMs
  std::int32_t* trouble = nullptr;  // of the GPU: set to another value than 0 by data that makes no sense
  unsigned blocks = Kernels::kAsManyAsTheWork;  // that a kernel of our own has at most
  [[nodiscard]] Spot spot() const { return {stream, lane}; }
  template <class Arguments>
  [[nodiscard]] absl::Status Put(const Arguments& arguments) const {
    return tools.kernels->Launch(stream, arguments, blocks);
  }
};

class GpuKernel : public Kernel {
 public:
  // Addresses in `in` and `out` are the GPU's. Puts its work on the stream and returns.
  virtual absl::Status Enqueue(const KernelLaunch& launch, In in, Out out, std::byte* scratch) const = 0;
  absl::Status Run(In, Out, std::byte*) const final {
    return absl::InternalError("a kernel of the GPU was run on the host");
  }
};

// A step that is to become a kernel; constants among the inputs are the host's.
struct GpuStep {
  Tools& tools;
  const Operator& entry;  // of the CPU, which knows what the step means
  const StepContext& ctx;
  Infos in;
  Infos out;
  proto::Precision precision;  // of products and convolutions
};
using MakeGpuKernel = Made (*)(const GpuStep& step);

// By the operator's name. A maker is asked for steps that are covered (gpu/coverage), and for no others.
using KernelTable = std::map<std::string_view, MakeGpuKernel>;
[[nodiscard]] const KernelTable& GpuKernels();
// Where a library of the GPU has no kernel: "Conv 'c1': no kernel of the GPU covers <what>".
[[nodiscard]] absl::Status NoneInLibrary(const GpuStep& step, std::string_view what);

// A kernel whose Enqueue is a function object.
template <class F>
class GpuFunctionKernel final : public GpuKernel {
 public:
  GpuFunctionKernel(F enqueue, int in_place, int view, Bytes scratch)
      : enqueue_(std::move(enqueue)), in_place_(in_place), view_(view), scratch_(scratch) {}
  absl::Status Enqueue(const KernelLaunch& launch, In in, Out out, std::byte* scratch) const override {
    return enqueue_(launch, in, out, scratch);
  }
  [[nodiscard]] int in_place_input() const override { return in_place_; }
  [[nodiscard]] int view_of_input() const override { return view_; }
  [[nodiscard]] Bytes scratch() const override { return scratch_; }

 private:
  F enqueue_;
  int in_place_;
  int view_;
  Bytes scratch_;
};
template <class F>
[[nodiscard]] Made MakeGpu(F enqueue, int in_place = -1, int view = -1, Bytes scratch = Bytes(0)) {
  return std::unique_ptr<Kernel>(
      std::make_unique<GpuFunctionKernel<F>>(std::move(enqueue), in_place, view, scratch));
}
// Moves all bytes of input 0 to output 0.
[[nodiscard]] absl::Status CopyWhole(const KernelLaunch& launch, In in, Out out);

// A step that moves elements as the CPU's kernel would, in a pattern that is known when it is made.
Made MakeMovement(const GpuStep& step);

// The activation that was fused into the step.
[[nodiscard]] Function FusedFunction(const GpuStep& step);
// A function by its ONNX name; kNone when there is none.
[[nodiscard]] UnaryOp FindUnary(std::string_view op);
// The box of a shape of at most kMaxRank dimensions, and where an input that broadcasts to it lies.
[[nodiscard]] Box BoxOf(const Shape& shape);
[[nodiscard]] Strides BroadcastStrides(const Shape& in, const Shape& out);
// Of numbers and truth values.
[[nodiscard]] Element ElementOf(proto::DataType type);

// Families, one source each.
void AddElementKernels(KernelTable& table);
void AddMovementKernels(KernelTable& table);
void AddIndexKernels(KernelTable& table);
void AddQuantizedKernels(KernelTable& table);
void AddResizeKernels(KernelTable& table);
void AddRowKernels(KernelTable& table);
void AddWindowKernels(KernelTable& table);
void AddMatrixKernels(KernelTable& table);

}  // namespace troupe::gpu::cuda
