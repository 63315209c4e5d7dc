#include "gpu/cuda/convolution.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gpu/ops/window.hpp"

namespace troupe::gpu::cuda {
namespace {

// Of working memory that an algorithm may ask for.
constexpr Bytes kMostScratch = MiB(256);

// The dimensions as cuDNN has them: at least two spatial ones.
struct Convolution {
  std::vector<int> source;
  std::vector<int> weights;
  std::vector<int> destination;
  std::vector<int> padding;
  std::vector<int> strides;
  std::vector<int> dilations;
  int groups = 1;
  cudnnMathType_t math = CUDNN_FMA_MATH;
};

// What cuDNN may do with tensors in FP32. It knows no BF16 for them: that is computed in TF32, which rounds
// less.
cudnnMathType_t MathOf(proto::Precision precision) {
  switch (precision) {
    case proto::PRECISION_TF32:
    case proto::PRECISION_BF16:
      return CUDNN_DEFAULT_MATH;
    case proto::PRECISION_FP16:
      return CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION;
    default:
      return CUDNN_FMA_MATH;
  }
}

// Whether an algorithm of this kind rounds no more than was allowed.
bool Allowed(cudnnMathType_t math, cudnnMathType_t found) {
  if (found == CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION) return math == CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION;
  if (found == CUDNN_TENSOR_OP_MATH) return math != CUDNN_FMA_MATH;
  return true;  // cuDNN was told what its default may be
}

// Made once, shared by the launches; cuDNN copies what it is told.
class Descriptors {
 public:
  static absl::StatusOr<std::shared_ptr<const Descriptors>> Make(Tools& tools, const Convolution& conv);
  ~Descriptors() {
    if (source_ != nullptr) (void)calls_.cudnnDestroyTensorDescriptor(source_);
    if (destination_ != nullptr) (void)calls_.cudnnDestroyTensorDescriptor(destination_);
    if (bias_ != nullptr) (void)calls_.cudnnDestroyTensorDescriptor(bias_);
    if (weights_ != nullptr) (void)calls_.cudnnDestroyFilterDescriptor(weights_);
    if (convolution_ != nullptr) (void)calls_.cudnnDestroyConvolutionDescriptor(convolution_);
    if (relu_ != nullptr) (void)calls_.cudnnDestroyActivationDescriptor(relu_);
  }
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;

  // The fastest algorithm, by cuDNN's own estimate, that rounds no more than `math` allows, within
  // kMostScratch.
  absl::Status Choose(Libraries& libraries, cudnnHandle_t handle, cudnnMathType_t math);
  [[nodiscard]] Bytes scratch() const { return scratch_; }
  // out = conv(in), and with `fused` Relu(conv(in) + residual + bias).
  absl::Status Run(Libraries& libraries, cudnnHandle_t handle, const float* in, const float* weights,
                   const float* bias, const float* residual, bool fused, void* scratch, float* out) const;

 private:
  explicit Descriptors(const Dnn& calls) : calls_(calls) {}
  absl::Status Fill(Libraries& libraries, const Convolution& conv);
  absl::Status Tensor(Libraries& libraries, const std::vector<int>& dims, cudnnTensorDescriptor_t& made);

  const Dnn& calls_;
  cudnnTensorDescriptor_t source_ = nullptr;
  cudnnTensorDescriptor_t destination_ = nullptr;
  cudnnTensorDescriptor_t bias_ = nullptr;
  cudnnFilterDescriptor_t weights_ = nullptr;
  cudnnConvolutionDescriptor_t convolution_ = nullptr;
  cudnnActivationDescriptor_t relu_ = nullptr;
  cudnnConvolutionFwdAlgo_t algorithm_{};
  Bytes scratch_;
};

absl::StatusOr<std::shared_ptr<const Descriptors>> Descriptors::Make(Tools& tools, const Convolution& conv) {
  Libraries& libraries = *tools.libraries;
  TROUPE_ASSIGN_OR_RETURN(const Dnn* const calls, libraries.dnn());
  TROUPE_RETURN_IF_ERROR(libraries.Provide(tools.warm.stream));  // its handle is that of no lane
  TROUPE_ASSIGN_OR_RETURN(const cudnnHandle_t handle, libraries.DnnOn(tools.warm.stream));
  auto made = std::shared_ptr<Descriptors>(new Descriptors(*calls));
  TROUPE_RETURN_IF_ERROR(made->Fill(libraries, conv));
  TROUPE_RETURN_IF_ERROR(made->Choose(libraries, handle, conv.math));
  return made;
}

// Dense and row-major.
absl::Status Descriptors::Tensor(Libraries& libraries, const std::vector<int>& dims,
                                 cudnnTensorDescriptor_t& made) {
  std::vector<int> strides(dims.size(), 1);
  for (std::size_t d = dims.size() - 1; d-- > 0;) strides[d] = strides[d + 1] * dims[d + 1];
  TROUPE_RETURN_IF_ERROR(libraries.Check(calls_.cudnnCreateTensorDescriptor(&made), "describing a tensor"));
  return libraries.Check(
      calls_.cudnnSetTensorNdDescriptor(made, CUDNN_DATA_FLOAT, static_cast<int>(dims.size()), dims.data(),
                                        strides.data()),
      "describing a tensor");
}

absl::Status Descriptors::Fill(Libraries& libraries, const Convolution& conv) {
  const auto check = [&](cudnnStatus_t status) {
    return libraries.Check(status, "describing a convolution");
  };
  TROUPE_RETURN_IF_ERROR(Tensor(libraries, conv.source, source_));
  TROUPE_RETURN_IF_ERROR(Tensor(libraries, conv.destination, destination_));
  std::vector<int> bias(conv.destination.size(), 1);
  bias[1] = conv.destination[1];
  TROUPE_RETURN_IF_ERROR(Tensor(libraries, bias, bias_));
  TROUPE_RETURN_IF_ERROR(check(calls_.cudnnCreateFilterDescriptor(&weights_)));
  TROUPE_RETURN_IF_ERROR(
      check(calls_.cudnnSetFilterNdDescriptor(weights_, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW,
                                              static_cast<int>(conv.weights.size()), conv.weights.data())));
  TROUPE_RETURN_IF_ERROR(check(calls_.cudnnCreateConvolutionDescriptor(&convolution_)));
  TROUPE_RETURN_IF_ERROR(check(calls_.cudnnSetConvolutionNdDescriptor(
      convolution_, static_cast<int>(conv.padding.size()), conv.padding.data(), conv.strides.data(),
      conv.dilations.data(), CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT)));
  TROUPE_RETURN_IF_ERROR(check(calls_.cudnnSetConvolutionGroupCount(convolution_, conv.groups)));
  TROUPE_RETURN_IF_ERROR(check(calls_.cudnnSetConvolutionMathType(convolution_, conv.math)));
  TROUPE_RETURN_IF_ERROR(check(calls_.cudnnCreateActivationDescriptor(&relu_)));
  return check(
      calls_.cudnnSetActivationDescriptor(relu_, CUDNN_ACTIVATION_RELU, CUDNN_NOT_PROPAGATE_NAN, 0.0));
}

absl::Status Descriptors::Choose(Libraries& libraries, cudnnHandle_t handle, cudnnMathType_t math) {
  std::array<cudnnConvolutionFwdAlgoPerf_t, CUDNN_CONVOLUTION_FWD_ALGO_COUNT> found{};
  int count = 0;
  TROUPE_RETURN_IF_ERROR(libraries.Check(
      calls_.cudnnGetConvolutionForwardAlgorithm_v7(handle, source_, weights_, convolution_, destination_,
                                                    static_cast<int>(found.size()), &count, found.data()),
      "choosing a convolution"));
  for (const auto& candidate : std::span(found).first(static_cast<std::size_t>(count))) {
    if (candidate.status != CUDNN_STATUS_SUCCESS || !Allowed(math, candidate.mathType) ||
        candidate.memory > kMostScratch.count())
      continue;
    algorithm_ = candidate.algo;
    scratch_ = Bytes(candidate.memory);
    if (math == CUDNN_FMA_MATH) return absl::OkStatus();  // what a candidate calls its default may be less
    return libraries.Check(calls_.cudnnSetConvolutionMathType(convolution_, candidate.mathType),
                           "choosing a convolution");
  }
  return absl::UnimplementedError("cuDNN has no algorithm for it that rounds so little");
}

absl::Status Descriptors::Run(Libraries& libraries, cudnnHandle_t handle, const float* in,
                              const float* weights, const float* bias, const float* residual, bool fused,
                              void* scratch, float* out) const {
  const float one = 1;
  const float zero = 0;
  if (!fused) {
    return libraries.Check(
        calls_.cudnnConvolutionForward(handle, &one, source_, in, weights_, weights, convolution_, algorithm_,
                                       scratch, scratch_.count(), &zero, destination_, out),
        "a convolution");
  }
  // Without a residual the output stands in for it, times 0.
  return libraries.Check(calls_.cudnnConvolutionBiasActivationForward(
                             handle, &one, source_, in, weights_, weights, convolution_, algorithm_, scratch,
                             scratch_.count(), residual == nullptr ? &zero : &one, destination_,
                             residual == nullptr ? out : residual, bias_, bias, relu_, destination_, out),
                         "a convolution");
}

// One spatial dimension is two, the first of size 1.
std::vector<int> Widened(const Shape& dims, std::size_t lead, std::int64_t filler) {
  std::vector<int> wide;
  for (std::size_t d = 0; d < dims.size(); ++d) {
    if (d == lead && dims.size() == lead + 1) wide.push_back(static_cast<int>(filler));
    wide.push_back(static_cast<int>(dims[d]));
  }
  return wide;
}

absl::StatusOr<Convolution> Read(const GpuStep& step) {
  const Shape& x = step.in[0].shape;
  const Shape& w = step.in[1].shape;
  const std::span spatial = std::span(x).subspan(2);
  TROUPE_ASSIGN_OR_RETURN(const Window window, ReadWindow(step.ctx, spatial, Shape(w.begin() + 2, w.end())));
  Convolution conv;
  conv.source = Widened(x, 2, 1);
  conv.weights = Widened(w, 2, 1);
  conv.destination = Widened(step.out[0].shape, 2, 1);
  conv.padding = Widened(window.begin, 0, 0);
  conv.strides = Widened(window.strides, 0, 1);
  conv.dilations = Widened(window.dilations, 0, 1);
  conv.groups = static_cast<int>(step.ctx.Int("group", 1));
  conv.math = MathOf(step.precision);
  return conv;
}

}  // namespace

Made MakeConvolution(const GpuStep& step) {
  if (step.out[0].elements() == 0)
    return MakeGpu([](const KernelLaunch&, In, Out, std::byte*) { return absl::OkStatus(); });
  TROUPE_ASSIGN_OR_RETURN(const Convolution conv, Read(step));
  const Function after = FusedFunction(step);
  const auto made = Descriptors::Make(step.tools, conv);
  if (!made.ok()) {
    return absl::IsUnimplemented(made.status()) ? NoneInLibrary(step, "a convolution of this form")
                                                : made.status();
  }
  const std::int64_t channels = step.out[0].shape[1];
  const std::int64_t plane = Product(std::span(step.out[0].shape).subspan(2));
  return MakeGpu(
      [descriptors = *made, after, channels, plane](const KernelLaunch& launch, In in, Out out,
                                                    std::byte* scratch) -> absl::Status {
        Libraries& libraries = *launch.tools.libraries;
        TROUPE_ASSIGN_OR_RETURN(const cudnnHandle_t handle, libraries.DnnOn(launch.stream));
        const float* const bias = Present(in, 2) ? Data<float>(in[2]) : nullptr;
        const float* const residual = Present(in, 3) ? Data<float>(in[3]) : nullptr;
        const bool fused = bias != nullptr && after.op == UnaryOp::kRelu;
        float* const to = MutableData<float>(out[0]);
        const auto run = [&](bool as_one) {
          return descriptors->Run(libraries, handle, Data<float>(in[0]), Data<float>(in[1]), bias, residual,
                                  as_one, scratch, to);
        };
        // Not every algorithm does all of it at once.
        if (fused && run(true).ok()) return absl::OkStatus();
        TROUPE_RETURN_IF_ERROR(run(false));
        const bool rest = bias != nullptr || residual != nullptr || after.op != UnaryOp::kNone;
        if (!rest) return absl::OkStatus();
        return launch.Put(FinishArguments{Elements(out[0]), to, bias, residual, channels, plane, after});
      },
      -1, -1, (*made)->scratch());
}

}  // namespace troupe::gpu::cuda
