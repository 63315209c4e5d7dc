// STEADY THROUGHPUT: when a closed loop of runs has been measured for long enough. Pure.
//
// The criterion: the throughputs of the last three windows lie within 2 % of their mean. A window lasts a quarter
// of a second and four runs at least. When six windows in a row bring no such three, windows get twice as long:
// what disturbs a short window evens out in a longer one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "base/units.hpp"

namespace troupe::node {

struct SteadyRule {
  Duration window = std::chrono::milliseconds(250);
  std::uint64_t runs = 4;    // of each window, at least
  std::size_t windows = 3;   // that have to agree
  double most_apart = 0.02;  // of their mean
  std::size_t patience = 6;  // windows, before they get longer
};

class SteadyThroughput {
 public:
  // Latencies that are kept of each window, so that memory is bounded: the first ones.
  static constexpr std::size_t kMostSamples = 4096;

  explicit SteadyThroughput(SteadyRule rule = {}) : rule_(rule) {}

  // A run ended. The first one only begins the first window: it brought the model and made its plan.
  void Ended(Duration latency, Duration run, Time now);
  [[nodiscard]] bool steady() const;
  // Runs that ended, the first one among them.
  [[nodiscard]] std::uint64_t ended() const { return ended_; }

  struct Figures {
    double runs_per_second = 0;
    Duration run{};  // mean
    Duration p50{}, p90{}, p99{};
    std::uint64_t runs = 0;
  };
  // Over the windows that agreed. Ask when it is steady.
  [[nodiscard]] Figures Measure() const;
  // What the last windows had, for people: "12.1, 15.0 and 9.7 runs/s".
  [[nodiscard]] std::string Describe() const;

 private:
  struct Window {
    Time begin{};
    Time end{};
    std::uint64_t runs = 0;
    Duration computed{};  // sum
    std::vector<Duration> latencies{};

    [[nodiscard]] double Rate() const { return static_cast<double>(runs) / ToSeconds(end - begin); }
  };

  SteadyRule rule_;
  std::deque<Window> windows_;  // that have ended, the latest `rule_.windows` of them
  Window open_;
  std::uint64_t ended_ = 0;
  std::size_t closed_ = 0;  // of this length
};

}  // namespace troupe::node
