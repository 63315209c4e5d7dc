// The driver on which these tests run: a fake one, or (tests/gpu/run.sh) the machine's own.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "base/check.hpp"
#include "gpu/cuda/device.hpp"

namespace troupe::gpu::test {

// The driver that TROUPE_CUDA_DRIVER names, else the fake one of this build.
inline bool RealDriver() {
  return std::getenv("TROUPE_CUDA_DRIVER") != nullptr;
}
inline std::string FakeLibrary(const std::string& name) {
  const char* const build = std::getenv("TROUPE_BUILD_DIR");
  TROUPE_CHECK(build != nullptr, "run this test with ctest, or set TROUPE_BUILD_DIR");
  return std::string(build) + "/tests/fake_cuda/" + name;
}
inline std::string DriverLibrary() {
  return RealDriver() ? std::getenv("TROUPE_CUDA_DRIVER") : FakeLibrary("libcuda.so.1");
}

inline CudaOptions SmallOptions() {
  CudaOptions options;
  options.driver = DriverLibrary();
  options.memory = MiB(64);
  if (RealDriver()) return options;
  options.blas = FakeLibrary("libcublas.so.13");
  options.blas_lt = FakeLibrary("libcublasLt.so.13");
  options.dnn = FakeLibrary("libcudnn.so.9");
  return options;
}

// Sets the fake driver's machine until the end of this object's life; gpu/cuda/fake/fake_driver.hpp lists the
// words.
class FakeMachine {
 public:
  explicit FakeMachine(const char* words) { Configure(words); }
  ~FakeMachine() { Configure(""); }
  FakeMachine(const FakeMachine&) = delete;
  FakeMachine& operator=(const FakeMachine&) = delete;

 private:
  static void Configure(const char* words) {
    void* const library = dlopen(DriverLibrary().c_str(), RTLD_NOW);
    TROUPE_CHECK(library != nullptr, "the fake driver is not built");
    reinterpret_cast<void (*)(const char*)>(dlsym(library, "FakeCudaConfigure"))(words);
  }
};

}  // namespace troupe::gpu::test
