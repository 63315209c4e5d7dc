// What the experiments of FaST-GShare (001) have in common: the paper's table, the profiles that follow from it,
// and runs over seeds.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/experiments/sweep.hpp"
#include "sim/shared_gpu.hpp"

namespace troupe::sim {

// papers/fast_profile_and_sched.csv.
class FastTable {
 public:
  // NotFound when it is not there.
  [[nodiscard]] static absl::StatusOr<FastTable> Read(const std::string& data);

  // NotFound, with the file's name, when there is no such line.
  [[nodiscard]] absl::StatusOr<double> Value(const std::string& item, const std::string& model,
                                             const std::string& unit) const;
  // Requests a second of so many percent of the SMs: of eight instances of 12, of one instance of 100.
  [[nodiscard]] absl::StatusOr<double> Rate(const std::string& model, const std::string& sm_percent) const;
  // One instance on all SMs gives the time of a run; eight instances of 12 % of them the saturation.
  [[nodiscard]] absl::StatusOr<RunCost> CostOf(const std::string& model) const;

  // Instances of one model that are to be placed, each of this part of a GPU (section 5.4).
  struct Pods {
    std::uint32_t count = 0;
    std::uint32_t quota_percent = 0, sm_percent = 0;
  };
  [[nodiscard]] absl::StatusOr<Pods> PodsToPack(const std::string& model) const;

 private:
  struct Row {
    std::string item, model, sm_percent, quota_percent, value, unit;
  };
  std::string path_;
  std::vector<Row> rows_;
};

struct FastCase {
  std::string key;
  std::string baseline;  // a key; empty: none
  std::function<absl::StatusOr<Summary>(std::uint64_t seed)> run;
};
// The cases of `sweep` are these; its quantities and the paper's figures are the caller's.
[[nodiscard]] absl::StatusOr<std::vector<Figure>> RunFast(Sweep sweep, const std::vector<FastCase>& cases,
                                                          const ExperimentOptions& options);
// Of the policies of the slot `sharing` those that are wanted.
[[nodiscard]] std::vector<std::string> SharingPresets(const ExperimentOptions& options,
                                                      const std::vector<std::string>& all);

// How a function shares the GPU; zeros say nothing, as in proto::GpuSharing.
struct Sharing {
  std::uint32_t sm_partition = 0;
  std::uint32_t quota_request = 0, quota_limit = 0;
  std::uint32_t instances = 0;
};
[[nodiscard]] proto::GpuSharing ToProto(const Sharing& sharing);

}  // namespace troupe::sim
