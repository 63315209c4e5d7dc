// FAKE GPU: the time that a fake worker's loads and runs take: its link and its compute engine; memory is
// the worker's. One life of a worker has one; nothing of it is told after it has gone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/units.hpp"

namespace troupe::actors {

class FakeGpu {
 public:
  // Calls back at `at`, on the worker's clock, unless the worker has died by then.
  using Timer = std::function<void(Time at, std::function<void()> then)>;
  struct Load {
    std::string digest{};
    Bytes bytes{};
    std::optional<std::uint32_t> peer{};  // the GPU that it is copied from
    std::optional<Time> deadline{};       // of the request that waits for it; empty without one
  };
  // Told once, at the end: when it began and, of a run, when the last of its weights came while it ran (zero:
  // all were there before).
  using Loaded = std::function<void(Time begin)>;
  using Ran = std::function<void(Time begin, Time last_weights)>;

  virtual ~FakeGpu() = default;
  virtual void Bring(const Load& load, Time now, Loaded done) = 0;
  // Behind what was brought and run before, but for what a deadline may change.
  virtual void Run(const std::string& digest, std::optional<Time> deadline, Time now, Ran done) = 0;
  // The same, and it takes so long whatever its model; zero, and where runs take what was measured: as Run.
  virtual void RunFor(Duration /*length*/, const std::string& digest, std::optional<Time> deadline, Time now,
                      Ran done) {
    Run(digest, deadline, now, std::move(done));
  }
  // As Run, of a run that answers so many requests.
  virtual void RunBatch(std::size_t /*requests*/, const std::string& digest, std::optional<Time> deadline,
                        Time now, Ran done) {
    Run(digest, deadline, now, std::move(done));
  }
  // What was brought has gone. Of no concern to an engine that does not know of memory.
  virtual void Evict(const std::string& /*digest*/) {}
};

// Of an order, which names it from now, if it has one.
template <class Order>
std::optional<Time> DeadlineOf(const Order& order, Time now) {
  return order.has_deadline_in_ns() ? std::optional(now + Duration(order.deadline_in_ns())) : std::nullopt;
}

// How long a run takes that answers so many requests, where one of them takes `run`: half of it comes anew with
// each.
inline Duration BatchTime(Duration run, std::size_t requests) {
  return run * static_cast<Duration::rep>(1 + requests) / 2;
}

struct FakeGpuRates {
  BytesPerSecond link{};
  BytesPerSecond peer_link{};
  Duration run{};
};
// One link and one engine; a run begins when its model has come. In the order of arrival.
std::unique_ptr<FakeGpu> MakeSimpleGpu(FakeGpuRates rates, FakeGpu::Timer timer);

}  // namespace troupe::actors
