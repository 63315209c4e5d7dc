// WEIGHT CHECKS: compares weights that an earlier worker has left with their host copies, byte by byte: that
// worker may have written anything before it died.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "base/units.hpp"
#include "gpu/device/device.hpp"
#include "gpu/swap/model_load.hpp"
#include "gpu/worker/host_model.hpp"

namespace troupe::gpu {

struct WeightCheck {
  HostModel host;  // as long as the range
  DeviceRange weights;
  std::shared_ptr<ModelLoad> load;    // whose groups arrive as they are found equal
  Time deadline = Time::max();        // the most urgent goes first
  std::function<void()> first_group;  // the first group is equal
  // At the end: DataLoss when a group differs. The load is complete, or ends where the difference is.
  std::function<void(const absl::Status&)> done;
};

// One thread, from the first check on; it looks for the most urgent one after each group. The callbacks are
// called on it. Begin and Hurry from any thread.
class WeightChecks {
 public:
  explicit WeightChecks(Device& device) : device_(device) {}
  ~WeightChecks() { Close(); }
  void Begin(WeightCheck check);
  // Never makes it less urgent.
  void Hurry(const std::string& digest, Time deadline);
  // Waits for the group at hand; what is left is not compared, and nothing is called any more.
  void Close();

 private:
  struct UnderWay {
    WeightCheck check;
    std::size_t group = 0;  // the next one
  };
  using List = std::list<UnderWay>;
  void Serve();
  [[nodiscard]] List::iterator MostUrgent();
  // Compares one group; true when the check has ended.
  [[nodiscard]] bool Advance(UnderWay& under_way);

  Device& device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  List checks_;            // guarded by mutex_; only the thread removes
  bool stopping_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace troupe::gpu
