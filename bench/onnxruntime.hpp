// ONNXRUNTIME as a yardstick: its C functions, from a library that is opened by name. No header of it is needed: the
// table of functions only ever grows, so that a place in it stays what it is.
#pragma once

#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <span>
#include <string>

namespace troupe::gpu::bench {

class OnnxRuntime {
  // The function at a place of the table. It returns its error, or null.
  template <class... Arguments>
  using Function = void* (*)(Arguments...);
  template <class... Arguments>
  [[nodiscard]] Function<Arguments...> Call(int place) const {
    return reinterpret_cast<Function<Arguments...>>(table_[place]);
  }

 public:
  // Ends the program when the library is not there.
  OnnxRuntime(const std::string& library, const std::string& model, int threads) {
    void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) Fail(dlerror());
    struct Base {
      void* const* (*table)(std::uint32_t version);
    };
    const auto base = reinterpret_cast<const Base* (*)()>(dlsym(handle, "OrtGetApiBase"));
    table_ = base != nullptr ? base()->table(kVersion) : nullptr;
    if (table_ == nullptr) Fail("the library has no API of version 16");
    void* environment = nullptr;
    void* options = nullptr;
    Check(Call<int, const char*, void**>(kCreateEnvironment)(kWarnings, "bench", &environment));
    Check(Call<void**>(kCreateOptions)(&options));
    Check(Call<void*, int>(kSetThreads)(options, threads));
    Check(Call<void*, int>(kSetOptimisation)(options, kAllOptimisations));
    Check(Call<void*, const char*, void*, void**>(kCreateSession)(environment, model.c_str(), options,
                                                                  &session_));
    Check(Call<int, int, void**>(kCreateMemoryInfo)(0, 0, &memory_));
  }

  // A tensor of floats that lies in the caller's memory.
  void* Tensor(std::span<float> data, std::array<std::int64_t, 2> shape) const {
    void* tensor = nullptr;
    Check(Call<void*, void*, std::size_t, const std::int64_t*, std::size_t, int, void**>(kCreateTensor)(
        memory_, data.data(), data.size_bytes(), shape.data(), shape.size(), kFloat, &tensor));
    return tensor;
  }

  // Runs from one tensor to another, both made by Tensor.
  void Run(const char* input, void* from, const char* output, void* to) const {
    Check(Call<void*, void*, const char* const*, void* const*, std::size_t, const char* const*, std::size_t,
               void**>(kRun)(session_, nullptr, &input, &from, 1, &output, 1, &to));
  }

 private:
  static constexpr std::uint32_t kVersion = 16;
  // Places in the table.
  static constexpr int kErrorMessage = 2, kCreateEnvironment = 3, kCreateSession = 7, kRun = 9,
                       kCreateOptions = 10, kSetOptimisation = 23, kSetThreads = 24, kCreateTensor = 49,
                       kCreateMemoryInfo = 69;
  static constexpr int kWarnings = 2, kAllOptimisations = 99, kFloat = 1;

  void Check(void* status) const {
    if (status != nullptr)
      Fail(reinterpret_cast<const char* (*)(const void*)>(table_[kErrorMessage])(status));
  }

  [[noreturn]] static void Fail(const char* what) {
    std::cerr << "onnxruntime: " << what << "\n";
    std::exit(1);
  }

  void* const* table_ = nullptr;
  void* session_ = nullptr;
  void* memory_ = nullptr;
};

}  // namespace troupe::gpu::bench
