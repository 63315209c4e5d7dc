// What the parts of device_bench share: one device, real or virtual, and networks in the host region beside
// it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "bench/hosted_model.hpp"
#include "bench/worker_rig.hpp"

namespace troupe::gpu::bench {

struct BedOptions {
  std::string device;                 // "cuda:0", "virtual:0"
  std::vector<std::string> networks;  // ONNX files
  int rounds = 5;
  double window = 1;         // seconds of each closed loop
  double link = 12;          // GB/s of a virtual device's link
  std::size_t together = 8;  // functions at a time, where several are
  Bytes spare;               // of device memory, beyond weights: runs, and what libraries want
};

struct Network {
  std::string name;  // of its file
  HostedModel model;
  std::uint64_t first_weights = 0;  // the end of what its first step reads, in the weights
};

class Bed {
 public:
  explicit Bed(BedOptions options);
  [[nodiscard]] const BedOptions& options() const { return options_; }
  [[nodiscard]] const std::vector<Network>& networks() const { return networks_; }
  // Whether each worker has memory of its own: then any number may run at once, else one at a time works.
  [[nodiscard]] bool real() const { return options_.device.starts_with("cuda:"); }
  [[nodiscard]] Bytes largest() const;
  // Device memory for one run of it, found by a worker of its own.
  [[nodiscard]] Bytes ActivationsOf(const Network& network);
  // A worker of this device with so much of its memory.
  [[nodiscard]] std::unique_ptr<Rig> Start(WorkerCommand command, Bytes quota);

 private:
  void Load(const std::string& file);

  const BedOptions options_;
  std::unique_ptr<Site> site_;
  transport::LinkBuckets links_;
  std::vector<Network> networks_;
};

// Something for the script that started the program to measure from outside: "sample NAME" goes out, and a line comes
// back when that is done (or the input ends).
void Sample(const std::string& name);
// What could not be measured, and why.
void Note(const std::string& text);

[[nodiscard]] double Median(std::vector<double> values);
[[nodiscard]] double Percentile(std::vector<double> values, double percent);

// The parts. Each prints "name value [baseline]" lines; bench/gpu.py says what they mean.
void MeasureSwaps(Bed& bed);
void MeasureVariants(Bed& bed);
void MeasureMemory(Bed& bed);
void MeasureShares(Bed& bed);
void MeasureFault(Bed& bed);

}  // namespace troupe::gpu::bench
