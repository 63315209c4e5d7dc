// What the plug-in exports.
#include "gpu/cuda/device.hpp"
#include "gpu/device/cuda_plugin.hpp"
#include "gpu/device/cuda_plugin_version.hpp"

extern "C" {

__attribute__((visibility("default"))) const char* TroupeCudaVersion() {
  return troupe::gpu::kCudaPluginVersion;
}

__attribute__((visibility("default"))) void TroupeCudaOpen(const troupe::gpu::CudaOptions& options,
                                                           troupe::gpu::CudaOpened& opened) {
  opened = troupe::gpu::cuda::Open(options);
}

}  // extern "C"
