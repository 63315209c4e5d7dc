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
  std::size_t together = 8;  // functions at a time, where several run
  Bytes spare;               // device memory beyond weights, for runs and libraries
};

struct Network {
  std::string name;  // the name of its file
  HostedModel model;
  std::uint64_t first_weights = 0;  // the end of the weights that its first step reads
};

class Bed {
 public:
  explicit Bed(BedOptions options);
  [[nodiscard]] const BedOptions& options() const { return options_; }
  [[nodiscard]] const std::vector<Network>& networks() const { return networks_; }
  // Whether each worker has memory of its own: then any number of workers may run at once, else only one at a
  // time.
  [[nodiscard]] bool real() const { return options_.device.starts_with("cuda:"); }
  [[nodiscard]] Bytes largest() const;
  // The device memory of one run of the network, measured with a worker of its own.
  [[nodiscard]] Bytes ActivationsOf(const Network& network);
  // Starts a worker of this device with so much of its memory.
  [[nodiscard]] std::unique_ptr<Rig> Start(WorkerCommand command, Bytes quota);

 private:
  void Load(const std::string& file);

  const BedOptions options_;
  std::unique_ptr<Site> site_;
  transport::LinkBuckets links_;
  std::vector<Network> networks_;
};

// Lets the script that started the program measure from outside: the program prints "sample NAME", and reads
// a line when the script is done (or the input ends).
void Sample(const std::string& name);
// Reports which figure could not be measured, and why.
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
