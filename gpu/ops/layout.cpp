#include "gpu/ops/layout.hpp"

#include <oneapi/dnnl/dnnl.hpp>

#include "absl/strings/str_cat.h"

namespace troupe::gpu {
namespace {

constexpr int kPackerVersion = 1;

std::string InstructionSet() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41:
      return "sse41";
    case dnnl::cpu_isa::avx:
      return "avx";
    case dnnl::cpu_isa::avx2:
      return "avx2";
    case dnnl::cpu_isa::avx2_vnni:
      return "avx2_vnni";
    case dnnl::cpu_isa::avx512_core:
      return "avx512";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "avx512_vnni";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "avx512_bf16";
    case dnnl::cpu_isa::avx512_core_amx:
      return "avx512_amx";
    default:
      return absl::StrCat("isa", static_cast<int>(dnnl::get_effective_cpu_isa()));
  }
}

}  // namespace

std::string DeviceTarget() {
  return absl::StrCat("cpu-", InstructionSet(), "/", kPackerVersion);
}

}  // namespace troupe::gpu
