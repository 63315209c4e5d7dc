// cuDNN's convolution as its manual defines it, on the host and in the order of its stream; it checks that
// the descriptors fit each other, as cuDNN does.
#include <cudnn.h>

#include <algorithm>
#include <vector>

#include "gpu/cuda/fake/fake_driver.hpp"
#include "gpu/cuda/fake/rounding.hpp"

namespace fake = troupe::gpu::cuda::fake;

namespace {

using fake::Rounded;
using fake::Rounding;
using Dims = std::vector<int>;

struct Handle {
  CUcontext context = nullptr;  // that was current when it was made
  CUstream stream = nullptr;
};
struct Tensor {
  Dims dims;
};
struct Convolution {
  Dims padding, strides, dilations;
  int groups = 1;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
};

// Two algorithms are known: one on the tensor cores, and one that needs 4 KiB.
constexpr cudnnConvolutionFwdAlgo_t kOnTensorCores = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM;
constexpr cudnnConvolutionFwdAlgo_t kExact = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
constexpr std::size_t kScratch = 4096;

// False: this algorithm does not compute in what the convolution asks for.
bool RoundingOf(cudnnConvolutionFwdAlgo_t algorithm, cudnnMathType_t math, Rounding& rounding) {
  rounding = Rounding::kNone;
  if (algorithm == kExact) return true;
  if (algorithm != kOnTensorCores || math == CUDNN_FMA_MATH) return false;
  rounding = math == CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION ? Rounding::kFp16 : Rounding::kTf32;
  return true;
}

template <class T, class Descriptor>
T& Of(Descriptor descriptor) {
  return *reinterpret_cast<T*>(descriptor);
}
template <class T, class Descriptor>
cudnnStatus_t Create(Descriptor* descriptor) {
  *descriptor = reinterpret_cast<Descriptor>(new T);
  return CUDNN_STATUS_SUCCESS;
}
template <class T, class Descriptor>
cudnnStatus_t Destroy(Descriptor descriptor) {
  delete &Of<T>(descriptor);
  return CUDNN_STATUS_SUCCESS;
}

// The queue of the handle's stream, on which a kernel of this algorithm is put. Its code is loaded when it is needed
// first.
fake::Queue& Put(cudnnHandle_t handle, cudnnConvolutionFwdAlgo_t algorithm) {
  static const char code[CUDNN_CONVOLUTION_FWD_ALGO_COUNT] = {};
  const CUstream stream = Of<Handle>(handle).stream;
  fake::Load(&code[algorithm], fake::QueueOf(stream).capturing());
  fake::CountBurst(stream);
  return fake::QueueOf(stream);
}

long long Count(const Dims& dims) {
  long long count = 1;
  for (const int dim : dims) count *= dim;
  return count;
}

bool Fits(const Dims& x, const Dims& w, const Dims& y, const Convolution& conv) {
  const std::size_t spatial = conv.padding.size();
  if (x.size() != spatial + 2 || w.size() != x.size() || y.size() != x.size() || x.size() < 4) return false;
  if (x[0] != y[0] || w[0] != y[1] || w[1] * conv.groups != x[1]) return false;
  for (std::size_t d = 0; d < spatial; ++d) {
    const int reach = (w[d + 2] - 1) * conv.dilations[d] + 1;
    if ((x[d + 2] + 2 * conv.padding[d] - reach) / conv.strides[d] + 1 != y[d + 2]) return false;
  }
  return true;
}

// One element of the output; any number of spatial dimensions.
double Element(const Dims& x, const Dims& w, const Convolution& conv, Rounding rounding, const float* in,
               const float* weights, int image, int channel, const Dims& at) {
  const std::size_t spatial = at.size();
  const int per_group = w[1];
  const int group = channel / (w[0] / conv.groups);
  const Dims taps(w.begin() + 2, w.end());
  double sum = 0;
  for (int c = 0; c < per_group; ++c) {
    for (long long tap = 0; tap < Count(taps); ++tap) {
      long long place = image * static_cast<long long>(x[1]) + group * per_group + c;
      bool inside = true;
      long long rest = tap;
      Dims k(spatial);
      for (std::size_t d = spatial; d-- > 0; rest /= taps[d]) k[d] = static_cast<int>(rest % taps[d]);
      for (std::size_t d = 0; d < spatial; ++d) {
        const int position = at[d] * conv.strides[d] - conv.padding[d] + k[d] * conv.dilations[d];
        inside = inside && position >= 0 && position < x[d + 2];
        place = place * x[d + 2] + position;
      }
      if (!inside) continue;
      const long long weight = (channel * static_cast<long long>(per_group) + c) * Count(taps) + tap;
      sum += static_cast<double>(Rounded(rounding, in[place])) *
             static_cast<double>(Rounded(rounding, weights[weight]));
    }
  }
  return sum;
}

struct Job {
  Dims x, w, y;
  Convolution conv;
  Rounding rounding;
  const float* in;
  const float* weights;
  const float* residual;  // null: none, as all below
  const float* bias;
  float alpha, beta, residual_scale;
  bool relu;
  float* out;

  void Run() const {
    const Dims spatial(y.begin() + 2, y.end());
    for (long long i = 0; i < Count(y); ++i) {
      long long rest = i;
      Dims at(spatial.size());
      for (std::size_t d = spatial.size(); d-- > 0; rest /= spatial[d])
        at[d] = static_cast<int>(rest % spatial[d]);
      const int channel = static_cast<int>(rest % y[1]);
      const int image = static_cast<int>(rest / y[1]);
      auto value = alpha * static_cast<float>(Element(x, w, conv, rounding, in, weights, image, channel, at));
      if (beta != 0) value += beta * out[i];
      if (residual != nullptr && residual_scale != 0) value += residual_scale * residual[i];
      if (bias != nullptr) value += bias[channel];
      out[i] = relu ? std::max(value, 0.0F) : value;
    }
  }
};

}  // namespace

extern "C" {

// Versions before 9 have fewer digits: 8902 is 8.9.2, and 90100 is 9.1.0.
std::size_t CUDNNWINAPI cudnnGetVersion() {
  const std::uint64_t major = fake::TheState().config.cudnn;
  return major < 9 ? major * 1000 + 102 : major * 10000 + 102;
}
cudnnStatus_t CUDNNWINAPI cudnnCreate(cudnnHandle_t* handle) {
  if (fake::Current() == nullptr) return CUDNN_STATUS_NOT_INITIALIZED;
  if (fake::Synchronise() != CUDA_SUCCESS) return CUDNN_STATUS_NOT_INITIALIZED;  // it takes memory
  *handle = reinterpret_cast<cudnnHandle_t>(new Handle{fake::Current()});
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t CUDNNWINAPI cudnnDestroy(cudnnHandle_t handle) {
  if (fake::Synchronise() != CUDA_SUCCESS) return CUDNN_STATUS_NOT_INITIALIZED;
  return Destroy<Handle>(handle);
}
cudnnStatus_t CUDNNWINAPI cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  // "Mismatch between the user stream and the cuDNN handle context", says the manual.
  if (stream != nullptr && fake::QueueOf(stream).context() != Of<Handle>(handle).context)
    return CUDNN_STATUS_BAD_PARAM;
  Of<Handle>(handle).stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
const char* CUDNNWINAPI cudnnGetErrorString(cudnnStatus_t) {
  return "the fake cuDNN refuses";
}
cudnnStatus_t CUDNNWINAPI cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* tensor) {
  return Create<Tensor>(tensor);
}
cudnnStatus_t CUDNNWINAPI cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor) {
  return Destroy<Tensor>(tensor);
}
cudnnStatus_t CUDNNWINAPI cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t tensor, cudnnDataType_t type,
                                                     int rank, const int dims[], const int strides[]) {
  Of<Tensor>(tensor).dims.assign(dims, dims + rank);
  long long dense = 1;
  for (int d = rank; d-- > 0; dense *= dims[d]) {
    if (strides[d] != dense) return CUDNN_STATUS_BAD_PARAM;
  }
  return type == CUDNN_DATA_FLOAT && rank >= 4 ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}
cudnnStatus_t CUDNNWINAPI cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* filter) {
  return Create<Tensor>(filter);
}
cudnnStatus_t CUDNNWINAPI cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter) {
  return Destroy<Tensor>(filter);
}
cudnnStatus_t CUDNNWINAPI cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                                     cudnnTensorFormat_t format, int rank, const int dims[]) {
  Of<Tensor>(filter).dims.assign(dims, dims + rank);
  return type == CUDNN_DATA_FLOAT && format == CUDNN_TENSOR_NCHW ? CUDNN_STATUS_SUCCESS
                                                                 : CUDNN_STATUS_BAD_PARAM;
}
cudnnStatus_t CUDNNWINAPI cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* convolution) {
  return Create<Convolution>(convolution);
}
cudnnStatus_t CUDNNWINAPI cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t convolution) {
  return Destroy<Convolution>(convolution);
}
cudnnStatus_t CUDNNWINAPI cudnnSetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t convolution, int rank,
                                                          const int padding[], const int strides[],
                                                          const int dilations[], cudnnConvolutionMode_t mode,
                                                          cudnnDataType_t type) {
  auto& conv = Of<Convolution>(convolution);
  conv.padding.assign(padding, padding + rank);
  conv.strides.assign(strides, strides + rank);
  conv.dilations.assign(dilations, dilations + rank);
  return mode == CUDNN_CROSS_CORRELATION && type == CUDNN_DATA_FLOAT ? CUDNN_STATUS_SUCCESS
                                                                     : CUDNN_STATUS_BAD_PARAM;
}
cudnnStatus_t CUDNNWINAPI cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t convolution,
                                                        int groups) {
  Of<Convolution>(convolution).groups = groups;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t CUDNNWINAPI cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t convolution,
                                                      cudnnMathType_t math) {
  Of<Convolution>(convolution).math = math;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t CUDNNWINAPI cudnnCreateActivationDescriptor(cudnnActivationDescriptor_t* activation) {
  return Create<cudnnActivationMode_t>(activation);
}
cudnnStatus_t CUDNNWINAPI cudnnDestroyActivationDescriptor(cudnnActivationDescriptor_t activation) {
  return Destroy<cudnnActivationMode_t>(activation);
}
cudnnStatus_t CUDNNWINAPI cudnnSetActivationDescriptor(cudnnActivationDescriptor_t activation,
                                                       cudnnActivationMode_t mode, cudnnNanPropagation_t,
                                                       double) {
  Of<cudnnActivationMode_t>(activation) = mode;
  return mode == CUDNN_ACTIVATION_RELU ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}
// The first algorithm rounds, whatever was asked for: a caller that asked for FP32 takes the second.
cudnnStatus_t CUDNNWINAPI cudnnGetConvolutionForwardAlgorithm_v7(
    cudnnHandle_t, const cudnnTensorDescriptor_t x, const cudnnFilterDescriptor_t w,
    const cudnnConvolutionDescriptor_t convolution, const cudnnTensorDescriptor_t y, const int wanted,
    int* count, cudnnConvolutionFwdAlgoPerf_t* found) {
  const auto& conv = Of<Convolution>(convolution);
  if (!Fits(Of<Tensor>(x).dims, Of<Tensor>(w).dims, Of<Tensor>(y).dims, conv) || wanted < 2)
    return CUDNN_STATUS_BAD_PARAM;
  found[0] = {};
  found[0].algo = kOnTensorCores;
  found[0].mathType = conv.math == CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION ? conv.math : CUDNN_TENSOR_OP_MATH;
  found[1] = {};
  found[1].algo = kExact;
  found[1].mathType = CUDNN_FMA_MATH;
  found[1].memory = kScratch;
  *count = 2;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t CUDNNWINAPI cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha,
                                                  const cudnnTensorDescriptor_t x, const void* in,
                                                  const cudnnFilterDescriptor_t w, const void* weights,
                                                  const cudnnConvolutionDescriptor_t convolution,
                                                  cudnnConvolutionFwdAlgo_t algorithm, void* scratch,
                                                  std::size_t scratch_size, const void* beta,
                                                  const cudnnTensorDescriptor_t y, void* out) {
  Rounding rounding{};
  if (!RoundingOf(algorithm, Of<Convolution>(convolution).math, rounding)) return CUDNN_STATUS_BAD_PARAM;
  if (algorithm == kExact && (scratch == nullptr || scratch_size < kScratch)) return CUDNN_STATUS_BAD_PARAM;
  const Job job{Of<Tensor>(x).dims,
                Of<Tensor>(w).dims,
                Of<Tensor>(y).dims,
                Of<Convolution>(convolution),
                rounding,
                static_cast<const float*>(in),
                static_cast<const float*>(weights),
                nullptr,
                nullptr,
                *static_cast<const float*>(alpha),
                *static_cast<const float*>(beta),
                0,
                false,
                static_cast<float*>(out)};
  fake::Queue& queue = Put(handle, algorithm);
  queue.Push([job, scratch, algorithm] {
    if (algorithm == kExact) static_cast<char*>(scratch)[kScratch - 1] = 1;  // it is there
    job.Run();
  });
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t CUDNNWINAPI cudnnConvolutionBiasActivationForward(
    cudnnHandle_t handle, const void* alpha, const cudnnTensorDescriptor_t x, const void* in,
    const cudnnFilterDescriptor_t w, const void* weights, const cudnnConvolutionDescriptor_t convolution,
    cudnnConvolutionFwdAlgo_t algorithm, void*, std::size_t, const void* residual_scale,
    const cudnnTensorDescriptor_t z, const void* residual, const cudnnTensorDescriptor_t b, const void* bias,
    const cudnnActivationDescriptor_t, const cudnnTensorDescriptor_t y, void* out) {
  const Dims& shape = Of<Tensor>(y).dims;
  Rounding rounding{};
  if (!RoundingOf(algorithm, Of<Convolution>(convolution).math, rounding)) return CUDNN_STATUS_BAD_PARAM;
  if (Of<Tensor>(z).dims != shape || Of<Tensor>(b).dims[1] != shape[1] ||
      Count(Of<Tensor>(b).dims) != shape[1])
    return CUDNN_STATUS_BAD_PARAM;
  const Job job{Of<Tensor>(x).dims,
                Of<Tensor>(w).dims,
                shape,
                Of<Convolution>(convolution),
                rounding,
                static_cast<const float*>(in),
                static_cast<const float*>(weights),
                static_cast<const float*>(residual),
                static_cast<const float*>(bias),
                *static_cast<const float*>(alpha),
                0,
                *static_cast<const float*>(residual_scale),
                true,
                static_cast<float*>(out)};
  Put(handle, algorithm).Push([job] { job.Run(); });
  return CUDNN_STATUS_SUCCESS;
}

}  // extern "C"
