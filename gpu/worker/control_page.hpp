// The control page: a page of shared memory that a worker writes and its daemon reads, also after the
// worker's death. It tells whether the worker moves, what it is at, and why it ended.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "transport/memory_file.hpp"

namespace troupe::gpu {

// What can be busy in a worker: the device's engines, and what prepares plans.
enum class Lane { kCopyIn = 0, kCopyOut = 1, kCompute = 2, kPrepare = 3, kCopyPeer = 4 };
inline constexpr std::size_t kLanes = 5;
[[nodiscard]] const char* LaneName(Lane lane);

// What the page said at one moment. Plain values: judged without the page.
struct ControlSnapshot {
  struct LaneState {
    bool busy = false;
    std::uint64_t order = 0;     // sequence of the order that the lane is at; 0: none
    std::uint64_t progress = 0;  // blocks copied, steps run, plans made
  };
  std::int64_t pid = 0;
  std::uint64_t heartbeat = 0;  // passes of the main loop's timer, at least ten a second
  std::uint64_t orders = 0;     // taken from the ring
  std::uint64_t outcomes = 0;   // answered
  std::uint64_t refused = 0;    // connections that its sockets refused or closed
  std::array<LaneState, kLanes> lanes;
  std::string last_words;  // why it ended, or the last thing that went wrong; empty: nothing yet

  // Moves whenever the worker does: while it computes only that counts, while it copies only engines and
  // outcomes. A worker whose kernel hangs keeps its heartbeat, and may go on with other runs, but it does not
  // move.
  [[nodiscard]] std::uint64_t progress() const;
};

// What a watchdog remembers of one worker: Observe every snapshot; Hung says what stood still for longer than
// its limit. Pure: time comes in. A lane counts as moving when its progress or its order changed or it was
// idle; the main loop when its heartbeat changed.
class ProgressWatch {
 public:
  struct Limits {
    Duration heartbeat = std::chrono::seconds(2);
    Duration engines = std::chrono::seconds(10);   // one step, one block of a copy
    Duration prepare = std::chrono::seconds(120);  // one whole plan
  };
  explicit ProgressWatch(Limits limits) : limits_(limits) {}
  void Observe(const ControlSnapshot& snapshot, Time now);
  // "compute stands still at order 17 for 10.1 s"; nothing while the worker moves.
  [[nodiscard]] std::optional<std::string> Hung(Time now) const;

 private:
  Limits limits_;
  std::optional<ControlSnapshot> last_;
  Time heartbeat_moved_;
  std::array<Time, kLanes> moved_;
};

// The memory itself. Every field is written by the worker only.
struct ControlPage {
  static constexpr std::uint64_t kMagic = 0x74726f7570653032;  // "troupe02"
  static constexpr std::size_t kLastWords = 512;
  struct LaneCell {
    std::atomic<std::uint32_t> busy;
    std::atomic<std::uint64_t> order;
    std::atomic<std::uint64_t> progress;
  };
  std::atomic<std::uint64_t> magic;
  std::atomic<std::int64_t> pid;
  std::atomic<std::uint64_t> heartbeat;
  std::atomic<std::uint64_t> orders;
  std::atomic<std::uint64_t> outcomes;
  LaneCell lanes[kLanes];
  std::atomic<std::uint32_t> last_words_length;
  char last_words[kLastWords];
  std::atomic<std::uint64_t> refused;  // last: workers of an earlier build leave it zero
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "signal handlers write the page");

// The worker's side: makes the page.
[[nodiscard]] absl::StatusOr<transport::MemoryFile> CreateControlPage(std::int64_t pid);
[[nodiscard]] ControlPage& PageOf(const transport::MemoryFile& memory);
// Replaces the last words. Async-signal-safe; cut at kLastWords.
void WriteLastWords(ControlPage& page, std::string_view words);

// The daemon's side. InvalidArgument for memory that is not a valid control page; nothing in it is trusted.
[[nodiscard]] absl::Status CheckControlPage(const transport::MemoryFile& memory);
[[nodiscard]] ControlSnapshot ReadControlPage(const transport::MemoryFile& memory);

}  // namespace troupe::gpu
