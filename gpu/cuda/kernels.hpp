// Our own kernels as a library of the driver: of no context, so that each launch is in that of its stream.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "gpu/cuda/context.hpp"
#include "gpu/cuda/kernels/arguments.hpp"
#include "gpu/cuda/kernels/index_arguments.hpp"
#include "gpu/cuda/kernels/list.hpp"
#include "gpu/cuda/kernels/quantized_arguments.hpp"
#include "gpu/cuda/kernels/row_arguments.hpp"
#include "gpu/cuda/kernels/window_arguments.hpp"
#include "gpu/device/device_settings.hpp"

namespace troupe::gpu::cuda {

// Loaded once per device; outlives the launches. Thread-safe.
class Kernels {
 public:
  // FailedPrecondition when the image has no code for this GPU.
  static absl::StatusOr<std::unique_ptr<Kernels>> Load(Context& context, KernelForm form);
  ~Kernels();
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  static constexpr unsigned kAsManyAsTheWork = 0x7fffffffU;
  // Of a launch on so many SMs; 0: on all of them.
  [[nodiscard]] unsigned BlocksOn(std::uint32_t sms) const;
  // Puts a kernel on a stream, in at most so many blocks. Nothing when there are no elements.
#define TROUPE_CUDA_LAUNCH(Name)                                                                             \
  absl::Status Launch(CUstream stream, const Name##Arguments& arguments, unsigned blocks = kAsManyAsTheWork) \
      const {                                                                                                \
    return Launch(function##Name##_, stream, #Name, arguments.count, k##Name##Lanes, &arguments, blocks);    \
  }
#define TROUPE_CUDA_LANES(Name) static constexpr unsigned k##Name##Lanes = 1;
#define TROUPE_CUDA_ROW_LANES(Name) static constexpr unsigned k##Name##Lanes = 32;
  TROUPE_CUDA_ELEMENT_KERNELS(TROUPE_CUDA_LANES)
  TROUPE_CUDA_ROW_KERNELS(TROUPE_CUDA_ROW_LANES)
  TROUPE_CUDA_ELEMENT_KERNELS(TROUPE_CUDA_LAUNCH)
  TROUPE_CUDA_ROW_KERNELS(TROUPE_CUDA_LAUNCH)
#undef TROUPE_CUDA_LAUNCH
#undef TROUPE_CUDA_LANES
#undef TROUPE_CUDA_ROW_LANES

 private:
  Kernels(Context& context, CUlibrary library, KernelForm form)
      : context_(context), library_(library), form_(form) {}
  absl::Status Find();
  absl::Status Launch(CUkernel function, CUstream stream, const char* name, std::int64_t count,
                      unsigned lanes, const void* arguments, unsigned most_blocks) const;

  Context& context_;
  const CUlibrary library_;
  const KernelForm form_;
  std::uint32_t sms_ = 1;
#define TROUPE_CUDA_FUNCTION(Name) CUkernel function##Name##_ = nullptr;
  TROUPE_CUDA_ELEMENT_KERNELS(TROUPE_CUDA_FUNCTION)
  TROUPE_CUDA_ROW_KERNELS(TROUPE_CUDA_FUNCTION)
#undef TROUPE_CUDA_FUNCTION
};

// Memory beside what launches bring: a plan's constants and tables, a library's workspace. Outside of what
// the device hands out.
class DeviceBlock {
 public:
  static absl::StatusOr<std::shared_ptr<const DeviceBlock>> Upload(Context& context, const void* bytes,
                                                                   std::size_t size);
  // As it was found.
  static absl::StatusOr<std::shared_ptr<const DeviceBlock>> Take(Context& context, std::size_t size,
                                                                 std::string_view what);
  ~DeviceBlock();
  DeviceBlock(const DeviceBlock&) = delete;
  DeviceBlock& operator=(const DeviceBlock&) = delete;
  [[nodiscard]] std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }
  [[nodiscard]] Bytes size() const { return size_; }

 private:
  explicit DeviceBlock(Context& context) : context_(context) {}
  Context& context_;
  CUdeviceptr address_ = 0;
  Bytes size_;
};

}  // namespace troupe::gpu::cuda
