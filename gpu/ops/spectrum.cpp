// DFT and STFT (opset 17, 20): spectra of real or complex signals, whose last dimension is 1 or 2.
#include <algorithm>
#include <complex>
#include <memory>

#include "absl/strings/str_cat.h"
#include "gpu/ops/convert.hpp"
#include "gpu/ops/families.hpp"
#include "gpu/ops/fourier.hpp"
#include "gpu/ops/op_support.hpp"
#include "gpu/ops/parallel_ranges.hpp"

namespace troupe::gpu {
namespace {

using Complex = std::complex<double>;
// Each has buffers of its own in scratch memory.
constexpr std::int64_t kMostLanes = 8;
constexpr std::int64_t kLongestSpectrum = std::int64_t{1} << 20;

absl::Status CheckSignal(const StepContext& ctx, const ValueInfo& in, std::size_t rank) {
  const std::int64_t parts = in.shape.empty() ? 0 : in.shape.back();
  if (in.shape.size() >= rank && (parts == 1 || parts == 2)) return absl::OkStatus();
  return ctx.Error(absl::StrCat("signal ", FormatShape(in.shape), " must have ", rank,
                                " dimensions or more, and the last must be 1 (real) or 2 (complex)"));
}

// A length that an input may give as a scalar.
absl::StatusOr<std::int64_t> LengthOf(const StepContext& ctx, Infos in, std::size_t index, const char* what,
                                      std::int64_t fallback) {
  std::int64_t length = fallback;
  if (Present(in, index)) {
    TROUPE_ASSIGN_OR_RETURN(const Shape given, RequireInts(ctx, in, index, what));
    if (given.size() != 1) return ctx.Error(absl::StrCat(what, " must be one number"));
    length = given[0];
  }
  if (length < 1 || length > kLongestSpectrum)
    return ctx.Error(absl::StrCat(what, " is ", length, ", wants 1 to 2^20"));
  return length;
}

// `count` spectra of `length` elements; what is taken of each signal, and where it lies.
struct Spectra {
  std::int64_t count = 0;
  std::int64_t length = 1;
  std::int64_t taken = 0;                       // elements; those up to the length are 0
  std::int64_t bins = 1;                        // elements of a spectrum that are kept
  std::int64_t parts = 1;                       // numbers of an element of the signal
  std::int64_t from_stride = 1, to_stride = 1;  // between elements
  bool inverse = false;
  bool window = false;  // of STFT: input 2 multiplies each frame
  // Begin of signal and spectrum number i, in elements: i / inner * outer + i % inner * each.
  std::int64_t inner = 1;
  std::int64_t from_outer = 0, from_each = 0, to_outer = 0, to_each = 0;
};

absl::StatusOr<std::int64_t> DftAxis(const StepContext& ctx, Infos in) {
  std::int64_t axis = ctx.opset < 20 ? ctx.Int("axis", 1) : -2;
  if (ctx.opset >= 20 && Present(in, 2)) {
    TROUPE_ASSIGN_OR_RETURN(const Shape given, RequireInts(ctx, in, 2, "axis"));
    if (given.size() != 1) return ctx.Error("axis must be one number");
    axis = given[0];
  }
  TROUPE_ASSIGN_OR_RETURN(axis, NormalizeAxis(ctx, axis, in[0].shape.size()));
  if (axis + 1 == static_cast<std::int64_t>(in[0].shape.size()))
    return ctx.Error("the last dimension holds real and imaginary parts and cannot be transformed");
  return axis;
}

absl::StatusOr<Spectra> ReadDft(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 1, ctx.opset < 20 ? 2 : 3, kFloatTypes));
  TROUPE_RETURN_IF_ERROR(CheckSignal(ctx, in[0], 2));
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t axis, DftAxis(ctx, in));
  const Shape& shape = in[0].shape;
  Spectra s;
  TROUPE_ASSIGN_OR_RETURN(s.length, LengthOf(ctx, in, 1, "dft_length", shape[axis]));
  const bool onesided = ctx.Int("onesided", 0) != 0;
  s.inverse = ctx.Int("inverse", 0) != 0;
  if (onesided && (s.inverse || shape.back() == 2))
    return ctx.Error("onesided is for real signals and not for the inverse; transform the whole spectrum");
  s.parts = shape.back();
  s.taken = std::min(s.length, shape[axis]);
  s.bins = onesided ? s.length / 2 + 1 : s.length;
  s.inner = Product(std::span(shape).subspan(static_cast<std::size_t>(axis) + 1)) / s.parts;
  s.count = Product(std::span(shape).first(static_cast<std::size_t>(axis))) * s.inner;
  s.from_stride = s.to_stride = s.inner;
  s.from_each = s.to_each = 1;
  s.from_outer = shape[axis] * s.inner;
  s.to_outer = s.bins * s.inner;
  return s;
}

Inferred InferDft(const StepContext& ctx, Infos in) {
  TROUPE_ASSIGN_OR_RETURN(const Spectra s, ReadDft(ctx, in));
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t axis, DftAxis(ctx, in));
  Shape shape = in[0].shape;
  shape[axis] = s.bins;
  shape.back() = 2;
  return OneValue(ctx, in[0].type, std::move(shape));
}

// Frames of a signal [batch, length, 1 or 2].
absl::StatusOr<Spectra> ReadStft(const StepContext& ctx, Infos in) {
  TROUPE_RETURN_IF_ERROR(CheckInputs(ctx, in, 2, 4, kFloatTypes));
  TROUPE_RETURN_IF_ERROR(CheckSignal(ctx, in[0], 3));
  const Shape& shape = in[0].shape;
  if (shape.size() != 3) return ctx.Error("the signal must be [batch, length, 1 or 2]");
  const bool windowed = Present(in, 2);
  if (!windowed && !Present(in, 3)) return ctx.Error("wants a window or a frame_length");
  if (windowed && (in[2].shape.size() != 1 || in[2].type != in[0].type))
    return ctx.Error("the window must be a list of the signal's type");
  Spectra s;
  TROUPE_ASSIGN_OR_RETURN(const std::int64_t step, LengthOf(ctx, in, 1, "frame_step", 0));
  TROUPE_ASSIGN_OR_RETURN(s.length, LengthOf(ctx, in, 3, "frame_length", windowed ? in[2].shape[0] : 0));
  if (windowed && in[2].shape[0] != s.length)
    return ctx.Error(absl::StrCat("a window of ", in[2].shape[0], " for frames of ", s.length));
  if (shape[1] < s.length)
    return ctx.Error(absl::StrCat("a signal of ", shape[1], " has no frame of ", s.length));
  const bool onesided = ctx.Int("onesided", 1) != 0;
  if (onesided && shape[2] == 2) return ctx.Error("onesided is for real signals; ask for the whole spectrum");
  s.parts = shape[2];
  s.taken = s.length;
  s.bins = onesided ? s.length / 2 + 1 : s.length;
  s.window = windowed;
  s.inner = (shape[1] - s.length) / step + 1;
  s.count = shape[0] * s.inner;
  s.from_outer = shape[1];
  s.from_each = step;
  s.to_outer = s.inner * s.bins;
  s.to_each = s.bins;
  return s;
}

Inferred InferStft(const StepContext& ctx, Infos in) {
  TROUPE_ASSIGN_OR_RETURN(const Spectra s, ReadStft(ctx, in));
  return OneValue(ctx, in[0].type, {in[0].shape[0], s.inner, s.bins, 2});
}

template <class T>
void OneSpectrum(const Spectra& s, const Fourier& fourier, std::int64_t i, In in, Out out, Complex* buffers) {
  const T* from = Data<T>(in[0]) + (i / s.inner * s.from_outer + i % s.inner * s.from_each) * s.parts;
  const T* window = s.window ? Data<T>(in[2]) : nullptr;
  Complex* signal = buffers;
  for (std::int64_t j = 0; j < s.length; ++j) {
    const T* at = from + j * s.from_stride * s.parts;
    signal[j] = j < s.taken ? Complex(at[0], s.parts == 2 ? at[1] : 0) : Complex();
    if (window != nullptr) signal[j] *= static_cast<double>(window[j]);
  }
  Complex* const spectrum = buffers + s.length;
  fourier.Run(signal, spectrum, spectrum + s.length);
  T* to = MutableData<T>(out[0]) + (i / s.inner * s.to_outer + i % s.inner * s.to_each) * 2;
  for (std::int64_t k = 0; k < s.bins; ++k) {
    to[k * s.to_stride * 2] = static_cast<T>(spectrum[k].real());
    to[k * s.to_stride * 2 + 1] = static_cast<T>(spectrum[k].imag());
  }
}

Made MakeSpectra(const Spectra& s) {
  const std::int64_t lanes = std::clamp<std::int64_t>(s.count, 1, kMostLanes);
  const std::uint64_t lane = 3 * static_cast<std::uint64_t>(s.length) * sizeof(Complex);
  return MakeKernel(
      [s, lane, lanes, fourier = std::make_shared<const Fourier>(s.length, s.inverse)](In in, Out out,
                                                                                       std::byte* scratch) {
        const std::int64_t cost = s.count / lanes * s.length * 16;
        ParallelRanges(lanes, cost, [&](std::int64_t first, std::int64_t last) {
          for (std::int64_t l = first; l < last; ++l) {
            auto* buffers = reinterpret_cast<Complex*>(scratch + static_cast<std::uint64_t>(l) * lane);
            for (std::int64_t i = s.count * l / lanes; i < s.count * (l + 1) / lanes; ++i) {
              if (in[0].type == proto::FP64) {
                OneSpectrum<double>(s, *fourier, i, in, out, buffers);
              } else {
                OneSpectrum<float>(s, *fourier, i, in, out, buffers);
              }
            }
          }
        });
        return absl::OkStatus();
      },
      Bytes(lane * static_cast<std::uint64_t>(lanes)));
}

Made MakeDft(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(const Spectra spectra, ReadDft(ctx, in));
  return MakeSpectra(spectra);
}

Made MakeStft(const StepContext& ctx, Infos in, Infos) {
  TROUPE_ASSIGN_OR_RETURN(const Spectra spectra, ReadStft(ctx, in));
  return MakeSpectra(spectra);
}

constexpr Operator kOperators[] = {
    {.name = "DFT",
     .min_opset = 17,
     .max_opset = kNewestOpset,
     .infer = &InferDft,
     .make = &FloatWidened<&MakeDft>,
     .types = kFloatTypes},
    {.name = "STFT",
     .min_opset = 17,
     .max_opset = kNewestOpset,
     .infer = &InferStft,
     .make = &FloatWidened<&MakeStft>,
     .types = kFloatTypes},
};

}  // namespace

std::span<const Operator> SpectrumOperators() {
  return kOperators;
}

}  // namespace troupe::gpu
