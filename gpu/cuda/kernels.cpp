#include "gpu/cuda/kernels.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "base/units.hpp"

// What nvcc made of kernels.cu, in the read-only data of the plug-in.
asm(R"(
.pushsection .rodata
.balign 64
.global TroupeCudaImage
TroupeCudaImage:
.incbin ")" TROUPE_CUDA_IMAGE R"("
.popsection
)");
extern "C" const char TroupeCudaImage[];

namespace troupe::gpu::cuda {
namespace {

constexpr unsigned kThreads = 256;
// Blocks of that size which run at a time on one SM.
constexpr unsigned kBlocksPerSm = 8;

}  // namespace

absl::StatusOr<std::unique_ptr<Kernels>> Kernels::Load(Context& context, KernelForm form) {
  context.Enter();
  CUlibrary library = nullptr;
  TROUPE_RETURN_IF_ERROR(context.Check(
      context.driver().cuLibraryLoadData(&library, TroupeCudaImage, nullptr, nullptr, 0, nullptr, nullptr, 0),
      "loading our kernels"));
  auto kernels = std::unique_ptr<Kernels>(new Kernels(context, library, form));
  TROUPE_RETURN_IF_ERROR(kernels->Find());
  return kernels;
}

absl::Status Kernels::Find() {
#define TROUPE_CUDA_FIND(Name)                                                                           \
  TROUPE_RETURN_IF_ERROR(                                                                                \
      context_.Check(context_.driver().cuLibraryGetKernel(&function##Name##_, library_, "Troupe" #Name), \
                     "looking for the kernel " #Name));
  TROUPE_CUDA_ELEMENT_KERNELS(TROUPE_CUDA_FIND)
  TROUPE_CUDA_ROW_KERNELS(TROUPE_CUDA_FIND)
#undef TROUPE_CUDA_FIND
  sms_ =
      static_cast<std::uint32_t>(std::max(context_.Attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), 1));
  return absl::OkStatus();
}

unsigned Kernels::BlocksOn(std::uint32_t sms) const {
  if (form_ == KernelForm::kWhole) return kAsManyAsTheWork;
  return (sms == 0 ? sms_ : sms) * kBlocksPerSm;
}

Kernels::~Kernels() {
  context_.Enter();
  (void)context_.driver().cuLibraryUnload(library_);
}

absl::Status Kernels::Launch(CUkernel function, CUstream stream, const char* name, std::int64_t count,
                             unsigned lanes, const void* arguments, unsigned most_blocks) const {
  if (count <= 0) return absl::OkStatus();
  const std::int64_t per_block = kThreads / lanes;
  const auto blocks =
      static_cast<unsigned>(std::min<std::int64_t>((count + per_block - 1) / per_block, most_blocks));
  void* parameters[] = {const_cast<void*>(arguments)};
  return context_.Check(context_.driver().cuLaunchKernel(reinterpret_cast<CUfunction>(function), blocks, 1, 1,
                                                         kThreads, 1, 1, 0, stream, parameters, nullptr),
                        absl::StrCat("launching the kernel ", name));
}

absl::StatusOr<std::shared_ptr<const DeviceBlock>> DeviceBlock::Take(Context& context, std::size_t size,
                                                                     std::string_view what) {
  auto block = std::shared_ptr<DeviceBlock>(new DeviceBlock(context));
  block->size_ = Bytes(size);
  context.Enter();
  const auto take = [&] {
    return context.driver().cuMemAlloc(&block->address_, std::max<std::size_t>(size, 1));
  };
  CUresult taken = take();
  if (taken == CUDA_ERROR_OUT_OF_MEMORY) {  // unless what was given back before is still on its way
    context.AwaitLater();
    taken = take();
  }
  TROUPE_RETURN_IF_ERROR(
      context.Check(taken, absl::StrCat("taking ", FormatBytes(Bytes(size)), " for ", std::string(what))));
  return block;
}

absl::StatusOr<std::shared_ptr<const DeviceBlock>> DeviceBlock::Upload(Context& context, const void* bytes,
                                                                       std::size_t size) {
  TROUPE_ASSIGN_OR_RETURN(std::shared_ptr<const DeviceBlock> block,
                          Take(context, size, "a plan's constants"));
  if (size > 0) {
    TROUPE_RETURN_IF_ERROR(context.Check(context.driver().cuMemcpyHtoD(block->address_, bytes, size),
                                         "bringing a plan's constants"));
  }
  return block;
}

DeviceBlock::~DeviceBlock() {
  if (address_ == 0) return;
  context_.Later([&driver = context_.driver(), address = address_] { (void)driver.cuMemFree(address); });
}

}  // namespace troupe::gpu::cuda
