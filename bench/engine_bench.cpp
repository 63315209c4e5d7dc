// Runs one network again and again on request, so that a script can alternate it with something else.
//
// usage: engine_bench MODEL.onnx THREADS [PRECISION]. Prints one line of facts when ready; then, for each line with a
// count on standard input, the median time of that many runs in milliseconds.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "bench/model_files.hpp"
#include "gpu/engine/plan.hpp"
#include "gpu/import/import_model.hpp"
#include "proto/precision.hpp"

namespace troupe::gpu {
namespace {

struct AlignedDelete {
  void operator()(std::byte* data) const { ::operator delete[](data, std::align_val_t(64)); }
};
using Buffer = std::unique_ptr<std::byte[], AlignedDelete>;

Buffer MakeBuffer(std::size_t bytes) {
  Buffer buffer(
      static_cast<std::byte*>(::operator new[](std::max<std::size_t>(bytes, 1), std::align_val_t(64))));
  std::memset(buffer.get(), 0, bytes);
  return buffer;
}

std::size_t BytesOf(const proto::TensorSpec& spec) {
  std::size_t bytes = ElementSize(spec.type());
  for (auto dim : spec.shape()) bytes *= static_cast<std::size_t>(dim);
  return bytes;
}

double MillisSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

// The input of the reference networks: element i of n is i / n; whole numbers become small ones.
void FillInput(const proto::TensorSpec& spec, std::byte* data) {
  const std::size_t count = BytesOf(spec) / ElementSize(spec.type());
  for (std::size_t i = 0; i < count; ++i) {
    if (spec.type() == proto::FP32) {
      reinterpret_cast<float*>(data)[i] = static_cast<float>(i) / static_cast<float>(count);
    } else if (spec.type() == proto::INT64) {
      reinterpret_cast<std::int64_t*>(data)[i] = 1;
    }
  }
}

// The sum of an output's magnitudes, which is enough to see that two engines compute the same.
double Magnitude(const proto::TensorSpec& spec, const std::byte* data) {
  double sum = 0;
  if (spec.type() != proto::FP32) return sum;
  for (std::size_t i = 0; i < BytesOf(spec) / sizeof(float); ++i) {
    sum += std::abs(static_cast<double>(reinterpret_cast<const float*>(data)[i]));
  }
  return sum;
}

absl::Status Serve(const std::string& path, int threads, proto::Precision precision) {
  TROUPE_ASSIGN_OR_RETURN(ImportedModel imported, ImportOnnx(bench::ReadFile(path), {}));
  imported.model.set_precision(precision);
  const auto inputs = bench::ConcreteInputs(imported.model);
  const auto packing = std::chrono::steady_clock::now();
  TROUPE_ASSIGN_OR_RETURN(PackedModel packed, PackModel(imported.model, imported.weights, inputs));
  const double pack_ms = MillisSince(packing);
  imported.weights = {};
  const Buffer weights = MakeBuffer(packed.weights.size());
  std::memcpy(weights.get(), packed.weights.data(), packed.weights.size());
  const auto building = std::chrono::steady_clock::now();
  TROUPE_ASSIGN_OR_RETURN(const auto plan, Plan::Build(packed.model, packed.weights, inputs, threads));
  const double build_ms = MillisSince(building);
  packed.weights = {};
  std::vector<Buffer> memory;
  PlanBindings bindings;
  bindings.weights = weights.get();
  bindings.activations = memory.emplace_back(MakeBuffer(plan->activation_bytes().count())).get();
  for (const proto::TensorSpec& input : inputs) {
    FillInput(input, memory.emplace_back(MakeBuffer(BytesOf(input))).get());
    bindings.inputs.push_back(memory.back().get());
  }
  for (std::size_t i = 0; i < plan->outputs().size(); ++i) {
    bindings.outputs.push_back(memory.emplace_back(MakeBuffer(plan->output_bytes(i).count())).get());
  }
  TROUPE_RETURN_IF_ERROR(plan->Run(bindings).status());
  std::cout << "ready output=" << Magnitude(plan->outputs()[0], bindings.outputs[0])
            << " build_ms=" << build_ms << " pack_ms=" << pack_ms << " steps=" << plan->step_count()
            << " activation_bytes=" << plan->activation_bytes().count()
            << " weights_bytes=" << packed.model.weights_bytes() << std::endl;
  for (int count = 0; std::cin >> count;) {
    std::vector<double> times;
    for (int i = 0; i < std::max(count, 1); ++i) {
      const auto begin = std::chrono::steady_clock::now();
      TROUPE_RETURN_IF_ERROR(plan->Run(bindings).status());
      times.push_back(MillisSince(begin));
    }
    std::ranges::sort(times);
    std::cout << times[times.size() / 2] << std::endl;
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace troupe::gpu

int main(int argc, char** argv) {
  const auto precision = troupe::proto::ParsePrecision(argc > 3 ? argv[3] : "fp32");
  if (argc < 3 || argc > 4 || !precision) {
    std::cerr << "usage: engine_bench MODEL.onnx THREADS [PRECISION]\n";
    return 2;
  }
  const absl::Status status = troupe::gpu::Serve(argv[1], std::atoi(argv[2]), *precision);
  if (!status.ok()) std::cerr << argv[1] << ": " << status << "\n";
  return status.ok() ? 0 : 1;
}
