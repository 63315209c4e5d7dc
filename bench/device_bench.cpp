// What a device does as its daemon sees it, at the other end of a worker's ring: swaps, precisions, memory,
// shares, faults. It is the same for a real GPU (cuda:0) and a virtual one. bench/gpu.py runs it and says
// what the lines that it prints mean.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "bench/device_bed.hpp"

int main(int argc, char** argv) {
  using namespace troupe;
  using namespace troupe::gpu::bench;
  CLI::App app("Measures one device through its worker.", "device_bench");
  BedOptions options;
  std::uint64_t spare = 768;
  app.add_option("--device", options.device, "cuda:N or virtual:N")->required();
  app.add_option("--rounds", options.rounds, "of everything that is compared")->capture_default_str();
  app.add_option("--window", options.window, "seconds of a closed loop")->capture_default_str();
  app.add_option("--link", options.link, "GB/s of a virtual device's link")->capture_default_str();
  app.add_option("--together", options.together, "functions at a time")->capture_default_str();
  app.add_option("--spare", spare, "MiB of device memory beyond weights")->capture_default_str();
  std::vector<std::string> parts;
  app.add_option("--parts", parts, "of what is measured; all without it")
      ->check(CLI::IsMember(std::vector<std::string>{"swaps", "variants", "memory", "shares", "faults"}))
      ->delimiter(',');
  app.add_option("networks", options.networks, "ONNX files; the first is the one of shares and memory")
      ->required();
  CLI11_PARSE(app, argc, argv);
  options.spare = MiB(spare);
  Bed bed(options);
  const std::pair<const char*, void (*)(Bed&)> all[] = {{"swaps", MeasureSwaps},
                                                        {"variants", MeasureVariants},
                                                        {"memory", MeasureMemory},
                                                        {"shares", MeasureShares},
                                                        {"faults", MeasureFault}};
  for (const auto& [name, measure] : all) {
    if (parts.empty() || std::ranges::find(parts, name) != parts.end()) measure(bed);
  }
  return 0;
}
