// A copy of the virtual GPU: the bytes really move, in the time that the node's links allow.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/units.hpp"
#include "gpu/device/virtual_engine.hpp"
#include "transport/link_state.hpp"

namespace troupe::gpu {

// The way of one direction's copies: a link of the node and what is behind it, shared with other processes.
// Thread-safe.
class CopyPath {
 public:
  // NotFound when the links know no such name.
  absl::Status Use(std::shared_ptr<transport::LinkBuckets> links, const std::string& name);
  // The link's time for which each copy occupies it, as bytes that it could have passed meanwhile.
  [[nodiscard]] Bytes CostOfCopy() const;
  // When `size` more bytes will have passed that could have gone from `ready` on; `now` without links. Never
  // sooner than the bandwidth allows: what a link lets a late sleeper catch up is not for an idle one. With a
  // turn of several blocks among others the link is taken for all of them, and the next blocks go then.
  [[nodiscard]] Time Pass(Bytes size, Time ready, const transport::LinkTurn& turn, Time now);
  // Some link of the way lets nothing pass now.
  [[nodiscard]] bool Stalled(Time now) const;
  // What this process may do on the whole way now.
  [[nodiscard]] transport::LinkTurn TurnOf(Time now);

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<transport::LinkBuckets> links_;  // guarded by mutex_, as all below
  std::vector<std::size_t> path_;
  BytesPerSecond slowest_;  // zero: no limit
  Bytes cost_;              // of each copy
  Time due_;                // when all that passed will have
  Bytes taken_;             // of the link, and not used yet
};

// Adjacent bytes at both ends.
struct CopySpan {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::size_t size = 0;
};

// Where a copy is in its spans.
class SpanCursor {
 public:
  explicit SpanCursor(std::vector<CopySpan> spans);
  [[nodiscard]] std::size_t size() const { return size_; }  // of all
  [[nodiscard]] bool AtEnd() const { return moved_ == size_; }
  // The next bytes, at most `most`, of one span; an empty one without any.
  [[nodiscard]] CopySpan Next(std::size_t most) const;
  // The next bytes are the first ones of a span.
  [[nodiscard]] bool BeginsSpan() const { return within_ == 0 && !AtEnd(); }
  void Moved(std::size_t count);

 private:
  const std::vector<CopySpan> spans_;
  const std::size_t size_;
  std::size_t moved_ = 0;
  std::size_t span_ = 0;  // the span that is being moved
  std::size_t within_ = 0;
};

class CopyOperation final : public VirtualOperation {
 public:
  // How many bytes are moved before another copy may move some.
  static constexpr std::size_t kBlock = 512 << 10;
  // Up to here the submitting thread copies, as a driver stages small copies within the call.
  static constexpr std::size_t kSmall = 64 << 10;

  // `keeps` lives as long as the copy. `staged`: the host's side is not known to the device, so each block
  // goes through a buffer first, and the next one after it.
  CopyOperation(std::vector<CopySpan> spans, bool staged, CopyPath& path, OnComplete done,
                std::shared_ptr<const void> keeps = nullptr);
  bool Turn(VirtualEngine& engine) override;
  [[nodiscard]] bool small() const override { return cursor_.size() <= kSmall; }
  void Report() override;

 private:
  bool Yields(Time now, transport::LinkTurn& turn);
  absl::Status MoveBlock(const transport::LinkTurn& turn, VirtualEngine& engine);
  bool Again(Time when);
  bool End(absl::Status status);

  SpanCursor cursor_;
  const bool staged_;
  CopyPath& path_;
  OnComplete done_;
  const std::shared_ptr<const void> keeps_;
  bool begun_ = false;
  bool all_moved_ = false;
  Time due_;                            // when the link has passed what was moved
  std::optional<Time> yielding_since_;  // to more urgent ones of other processes
};

}  // namespace troupe::gpu
