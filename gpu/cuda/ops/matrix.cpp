// MatMul and Gemm by cuBLAS, and by cuBLASLt where it does what follows in the same kernel. cuBLAS reads
// columns first: a row-major product AB is the transposed B'A' there.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "gpu/cuda/fused_product.hpp"
#include "gpu/cuda/gpu_kernel.hpp"
#include "gpu/cuda/ops/boxes.hpp"

namespace troupe::gpu::cuda {
namespace {

// Of matrices in FP32, with sums in FP32.
cublasComputeType_t ComputeTypeOf(proto::Precision precision) {
  switch (precision) {
    case proto::PRECISION_TF32:
      return CUBLAS_COMPUTE_32F_FAST_TF32;
    case proto::PRECISION_BF16:
      return CUBLAS_COMPUTE_32F_FAST_16BF;
    case proto::PRECISION_FP16:
      return CUBLAS_COMPUTE_32F_FAST_16F;
    default:
      return CUBLAS_COMPUTE_32F;
  }
}

absl::Status Multiply(const KernelLaunch& launch, const Product3& p, const float* a, const float* b,
                      float* out) {
  Libraries& libraries = *launch.tools.libraries;
  TROUPE_ASSIGN_OR_RETURN(const Blas* const calls, libraries.blas());
  TROUPE_ASSIGN_OR_RETURN(const cublasHandle_t handle, libraries.BlasOn(launch.spot()));
  return libraries.Check(
      calls->cublasGemmStridedBatchedEx_64(
          handle, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, p.n,
          p.m, p.k, &p.alpha, b, CUDA_R_32F, p.transpose_b ? p.k : p.n, p.stride_b, a, CUDA_R_32F,
          p.transpose_a ? p.m : p.k, p.stride_a, &p.beta, out, CUDA_R_32F, p.n, p.m * p.n, p.batch, p.compute,
          CUBLAS_GEMM_DEFAULT),
      "multiplying matrices");
}

// Sums of no terms, by our own kernel: what cuBLAS does without a term is not documented. An integer 0 has the bits of 0.0.
absl::Status PutZeros(const KernelLaunch& launch, const TensorView& out) {
  IntegerProductArguments zeros;
  zeros.count = Elements(out);
  zeros.k = 0;
  zeros.out = MutableData<std::int32_t>(out);
  return launch.Put(zeros);
}
// `factor` times what is there.
absl::Status Scale(const KernelLaunch& launch, const TensorView& out, float factor) {
  return launch.Put(
      UnaryArguments{Elements(out), Data<float>(out), MutableData<float>(out), {UnaryOp::kScale, factor}});
}

// Null: there is nothing to fuse, or no library that fuses it.
std::shared_ptr<FusedProduct> Fuse(const GpuStep& step, const Product3& product, bool bias,
                                   const Function& after) {
  if (product.k == 0) return nullptr;
  const bool relu = after.op == UnaryOp::kRelu;
  if ((!bias && !relu) || (!relu && after.op != UnaryOp::kNone)) return nullptr;
  return FusedProduct::Make(*step.tools.blas_lt, product, bias, relu);
}

// Bias per column and activation, in place.
absl::Status Finish(const KernelLaunch& launch, const TensorView& out, const float* bias, std::int64_t n,
                    const Function& after) {
  if (bias == nullptr && after.op == UnaryOp::kNone) return absl::OkStatus();
  return launch.Put(FinishArguments{Elements(out), MutableData<float>(out), bias, nullptr, n, 1, after});
}

// cuBLASLt chose for the whole GPU: on a part of its SMs cuBLAS, which was told of them, is the one to ask.
bool Fuses(const KernelLaunch& launch, const std::shared_ptr<FusedProduct>& fused) {
  return fused != nullptr && !launch.tools.libraries->IsBound(launch.stream);
}
absl::Status RunFused(FusedProduct& fused, const KernelLaunch& launch, In in, const float* bias, Out out) {
  return fused.Run(*launch.tools.libraries, launch.spot(), Data<float>(in[0]), Data<float>(in[1]), bias,
                   MutableData<float>(out[0]));
}

// --- MatMul

struct MatMul {
  Product3 product;
  // Where the batch cannot be strided: begin of each product's A and B; empty otherwise.
  std::vector<std::pair<std::int64_t, std::int64_t>> places;
};

Shape BatchOf(const Shape& shape) {
  return shape.size() > 2 ? Shape(shape.begin(), shape.end() - 2) : Shape();
}

// The offset of batch number `i` of `batch` in a tensor whose own batch broadcasts to it.
std::int64_t BatchOffset(const Shape& batch, const Shape& own, std::int64_t matrix, std::int64_t i) {
  const Strides strides = BroadcastStrides(own, batch);
  std::int64_t at = 0;
  for (std::size_t d = batch.size(); d-- > 0;) {
    at += i % batch[d] * strides.by[d];
    i /= batch[d];
  }
  return at * matrix;
}

absl::StatusOr<MatMul> ReadMatMul(const GpuStep& step) {
  const Shape& a = step.in[0].shape;
  const Shape& b = step.in[1].shape;
  MatMul made;
  Product3& p = made.product;
  p.compute = ComputeTypeOf(step.precision);
  p.k = a.back();
  p.m = a.size() > 1 ? a[a.size() - 2] : 1;
  p.n = b.size() > 1 ? b.back() : 1;
  const Shape batch_a = BatchOf(a);
  const Shape batch_b = BatchOf(b);
  TROUPE_ASSIGN_OR_RETURN(const Shape batch, BroadcastShapes(batch_a, batch_b));
  const std::int64_t count = Product(batch);
  if (Product(batch_b) == 1 && Product(batch_a) == count) {
    p.m *= count;
  } else if ((batch_a == batch || Product(batch_a) == 1) && (batch_b == batch || Product(batch_b) == 1)) {
    p.batch = count;
    p.stride_a = Product(batch_a) == 1 ? 0 : p.m * p.k;
    p.stride_b = Product(batch_b) == 1 ? 0 : p.k * p.n;
  } else {
    for (std::int64_t i = 0; i < count; ++i)
      made.places.emplace_back(BatchOffset(batch, batch_a, p.m * p.k, i),
                               BatchOffset(batch, batch_b, p.k * p.n, i));
  }
  return made;
}

Made MakeMatMul(const GpuStep& step) {
  TROUPE_RETURN_IF_ERROR(step.tools.libraries->blas().status());
  TROUPE_ASSIGN_OR_RETURN(const MatMul matmul, ReadMatMul(step));
  const Function after = FusedFunction(step);
  const bool empty = step.out[0].elements() == 0;
  const std::shared_ptr<FusedProduct> fused =
      empty || !matmul.places.empty() ? nullptr : Fuse(step, matmul.product, Present(step.in, 2), after);
  return MakeGpu([matmul, after, empty, fused](const KernelLaunch& launch, In in, Out out,
                                               std::byte*) -> absl::Status {
    if (empty) return absl::OkStatus();
    const float* const bias = Present(in, 2) ? Data<float>(in[2]) : nullptr;
    if (Fuses(launch, fused)) return RunFused(*fused, launch, in, bias, out);
    const Product3& p = matmul.product;
    if (p.k == 0) {
      TROUPE_RETURN_IF_ERROR(PutZeros(launch, out[0]));
      return Finish(launch, out[0], bias, p.n, after);
    }
    if (matmul.places.empty()) {
      TROUPE_RETURN_IF_ERROR(
          Multiply(launch, p, Data<float>(in[0]), Data<float>(in[1]), MutableData<float>(out[0])));
    }
    for (std::size_t i = 0; i < matmul.places.size(); ++i) {
      TROUPE_RETURN_IF_ERROR(Multiply(launch, p, Data<float>(in[0]) + matmul.places[i].first,
                                      Data<float>(in[1]) + matmul.places[i].second,
                                      MutableData<float>(out[0]) + static_cast<std::int64_t>(i) * p.m * p.n));
    }
    return Finish(launch, out[0], bias, p.n, after);
  });
}

// --- Gemm: alpha AB + beta C, where C comes into the output first

Made MakeGemm(const GpuStep& step) {
  TROUPE_RETURN_IF_ERROR(step.tools.libraries->blas().status());
  Product3 p;
  p.compute = ComputeTypeOf(step.precision);
  p.transpose_a = step.ctx.Int("transA", 0) != 0;
  p.transpose_b = step.ctx.Int("transB", 0) != 0;
  p.m = step.out[0].shape[0];
  p.n = step.out[0].shape[1];
  p.k = step.in[0].shape[p.transpose_a ? 0 : 1];
  p.alpha = step.ctx.Float("alpha", 1);
  const float beta = step.ctx.Float("beta", 1);
  MoveArguments addend;
  if (Present(step.in, 2) && beta != 0) {
    p.beta = beta;
    const Shape& shape = step.out[0].shape;
    addend.count = p.m * p.n;
    addend.element_size = sizeof(float);
    addend.box = BoxOf(shape);
    addend.from = BroadcastStrides(step.in[2].shape, shape);
    addend.to = BroadcastStrides(shape, shape);
    Simplify(addend.box, {&addend.from, &addend.to});
  }
  const Function after = FusedFunction(step);
  const bool empty = step.out[0].elements() == 0;
  // C as a bias: one number for each column.
  const bool absent = !Present(step.in, 2) || beta == 0;
  const bool bias = !absent && beta == 1 && step.in[2].elements() == p.n && step.in[2].shape.back() == p.n;
  Product3 alone = p;
  alone.beta = 0;
  const std::shared_ptr<FusedProduct> fused =
      empty || (!absent && !bias) ? nullptr : Fuse(step, alone, bias, after);
  return MakeGpu([p, addend, after, empty, bias, fused](const KernelLaunch& launch, In in, Out out,
                                                        std::byte*) -> absl::Status {
    if (empty) return absl::OkStatus();
    if (Fuses(launch, fused)) {
      return RunFused(*fused, launch, in, bias ? Data<float>(in[2]) : nullptr, out);
    }
    if (addend.count > 0) {
      MoveArguments now = addend;
      now.in = in[2].data;
      now.out = out[0].data;
      TROUPE_RETURN_IF_ERROR(launch.Put(Widened(now)));
    }
    if (p.k > 0) {
      TROUPE_RETURN_IF_ERROR(
          Multiply(launch, p, Data<float>(in[0]), Data<float>(in[1]), MutableData<float>(out[0])));
    } else {
      TROUPE_RETURN_IF_ERROR(addend.count > 0 ? Scale(launch, out[0], p.beta) : PutZeros(launch, out[0]));
    }
    return Finish(launch, out[0], nullptr, p.n, after);
  });
}

}  // namespace

void AddMatrixKernels(KernelTable& table) {
  table["MatMul"] = &MakeMatMul;
  table["Gemm"] = &MakeGemm;
}

}  // namespace troupe::gpu::cuda
