// LAYER LOAD: the weights of one run on their way through its window of device memory.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "gpu/device/device.hpp"
#include "gpu/memory/weight_window.hpp"
#include "gpu/swap/link_port.hpp"
#include "gpu/swap/model_load.hpp"
#include "gpu/worker/host_model.hpp"

namespace troupe::gpu {

// The parts of a model that have come. Transfers may overtake each other; the parts are counted in order. Any
// thread.
class PartArrivals {
 public:
  PartArrivals(std::shared_ptr<ModelLoad> load, std::size_t parts)
      : load_(std::move(load)), arrivals_(parts) {}
  void Arrived(std::size_t part, Time at);

 private:
  const std::shared_ptr<ModelLoad> load_;  // hears of each part, in order
  std::mutex mutex_;
  std::vector<std::optional<Time>> arrivals_;  // guarded by mutex_
  std::size_t counted_ = 0;                    // guarded by mutex_
};

// Parts are sent in the order of their first use, each when its place in the window is free; the steps of the
// launch wait for theirs. Made by the runner, shared with what is on its way; the main loop's thread, but for
// what the link calls.
class LayerLoad : public std::enable_shared_from_this<LayerLoad> {
 public:
  // Called on a thread of the device.
  struct Calls {
    std::function<void()> begun;                      // the first part is there
    std::function<void(const absl::Status&)> landed;  // all that one Send sent is there, or failed
  };
  // `order`, `deadline`: of the run, for its transfers.
  LayerLoad(std::shared_ptr<const WeightWindow> window, HostModel host, DeviceRange at, std::uint64_t order,
            std::optional<Time> deadline, Calls calls);

  // Before the first Send: the device raises one of them for each part as it comes. Null: it has none.
  void SignalWith(SignalsPtr signals) { signals_ = std::move(signals); }
  // All steps before `step` have ended: sends what has a place now.
  void Send(std::size_t step, LinkPort& port);
  // `landed` was called.
  void Landed() { --transfers_; }
  // Sends nothing more; the launches that wait for it get this error.
  void Stop(const absl::Status& why);
  // Nothing is on its way: the window and the host copy are not in use.
  [[nodiscard]] bool quiet() const { return transfers_ == 0; }

  // What the launch needs: where the weights lie, what each step waits for, and the steps to be told of.
  [[nodiscard]] std::vector<WeightPiece> Pieces() const;
  [[nodiscard]] StepGate Gate() const;
  [[nodiscard]] std::vector<std::size_t> Marks() const;
  [[nodiscard]] const std::shared_ptr<ModelLoad>& load() const { return load_; }
  [[nodiscard]] const WeightWindow& window() const { return *window_; }

 private:
  void Arrived(std::size_t part, Time at);

  const std::shared_ptr<const WeightWindow> window_;
  const HostModel host_;
  const DeviceRange at_;
  const std::uint64_t order_;
  const std::optional<Time> deadline_;
  const Calls calls_;
  const std::shared_ptr<ModelLoad> load_;
  SignalsPtr signals_;
  std::size_t sent_ = 0;
  std::size_t transfers_ = 0;
  bool stopped_ = false;
  PartArrivals arrivals_;
};

}  // namespace troupe::gpu
