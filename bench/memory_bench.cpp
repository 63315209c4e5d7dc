// Device memory, measured without a device: the size of the runs' pool under a bursty load, the times of
// allocations, and what a function costs beyond its weights.
//
// usage: memory_bench MODEL.onnx=MILLISECONDS ...
//
// Each network's memory by step comes from its plan for batch 1, made by the engine; its run time is given.
// Prints one figure per line: NAME VALUE UNIT.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "bench/memory_load.hpp"
#include "bench/model_files.hpp"
#include "gpu/device/virtual_plan.hpp"
#include "gpu/import/import_model.hpp"
#include "gpu/memory/memory_policy.hpp"

namespace troupe::gpu::bench {
namespace {

constexpr const char* kVariants[] = {"static", "fine", "fine-resilient"};

absl::StatusOr<Network> ReadNetwork(const std::string& argument) {
  const std::size_t split = argument.rfind('=');
  if (split == std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(argument, ": must be MODEL.onnx=MILLISECONDS"));
  }
  const std::string path = argument.substr(0, split);
  TROUPE_ASSIGN_OR_RETURN(ImportedModel imported, ImportOnnx(ReadFile(path), {}));
  std::vector<proto::TensorSpec> inputs = ConcreteInputs(imported.model);
  TROUPE_ASSIGN_OR_RETURN(PackedModel packed, PackModel(imported.model, imported.weights, inputs));
  TROUPE_ASSIGN_OR_RETURN(const std::shared_ptr<DevicePlan> plan,
                          MakeRealPlan(packed.model, packed.weights, std::move(inputs), Plan::Build, 1, 1));
  return MakeNetwork(*plan, FromSeconds(std::atof(argument.c_str() + split + 1) / 1e3));
}

void Print(const std::string& name, double value, const char* unit) {
  std::printf("%s %.9g %s\n", name.c_str(), value, unit);
}

double Megabytes(Bytes bytes) {
  return static_cast<double>(bytes.count()) / 1e6;
}

void PrintPool(const std::vector<Network>& networks, const PoolLoad& load, const std::string& suffix) {
  const PoolFigures figures = MeasurePool(networks, load);
  Print(absl::StrCat("pool_peak/", load.variant, suffix), Megabytes(figures.peak), "MB");
  if (!suffix.empty()) return;
  Print(absl::StrCat("pool_mean/", load.variant), Megabytes(figures.mean), "MB");
  Print(absl::StrCat("pool_allocation_over_run/", load.variant), figures.allocation_share, "ratio");
}

void PrintPools(const std::vector<Network>& networks) {
  for (const PoolMode mode : {PoolMode::kWorker, PoolMode::kStreamBox}) {
    for (const std::size_t streams : {std::size_t{1}, std::size_t{4}, std::size_t{8}}) {
      for (const char* variant : kVariants) {
        PrintPool(networks, {.variant = variant, .mode = mode, .streams = streams},
                  absl::StrCat(mode == PoolMode::kWorker ? "" : "/weights=by-layer",
                               streams == kStreams ? "" : absl::StrCat("/streams=", streams)));
      }
    }
  }
}

void PrintAllocations() {
  for (const Bytes quota : {GiB(1), GiB(128)}) {
    const std::vector<double> micros = MeasureChurn("fine-resilient", quota, 200'000);
    const std::string suffix = quota == GiB(1) ? "" : absl::StrCat("/quota=", quota.count() >> 30, "GiB");
    Print("allocation_p99_us" + suffix, Quantile(micros, 0.99), "us");
    Print("allocation_p50_us" + suffix, Quantile(micros, 0.5), "us");
    Print("bytes_per_extra_function" + suffix, MeasureOverhead(quota), "bytes");
  }
  for (const auto& policy : MemoryPolicies()) {
    const RequestTimes times = MeasureRequests(policy.name, 2'000);
    const std::string name(policy.name);
    Print(absl::StrCat("allocation_over_run/", name), Quantile(times.shares, 0.5), "ratio");
    Print(absl::StrCat("allocation_over_run/", name, "/p90"), Quantile(times.shares, 0.9), "ratio");
    Print(absl::StrCat("allocation_over_run/", name, "/p99"), Quantile(times.shares, 0.99), "ratio");
    Print(absl::StrCat("allocation_mean_us/", name, "/load"), Mean(times.loads), "us");
    Print(absl::StrCat("allocation_mean_us/", name, "/run"), Mean(times.runs), "us");
  }
}

int Main(int argc, char** argv) {
  std::vector<Network> networks;
  for (int i = 1; i < argc; ++i) {
    absl::StatusOr<Network> network = ReadNetwork(argv[i]);
    if (!network.ok()) {
      std::cerr << argv[i] << ": " << network.status() << "\n";
      return 1;
    }
    networks.push_back(*std::move(network));
  }
  if (!networks.empty()) PrintPools(networks);
  PrintAllocations();
  return 0;
}

}  // namespace
}  // namespace troupe::gpu::bench

int main(int argc, char** argv) {
  return troupe::gpu::bench::Main(argc, argv);
}
