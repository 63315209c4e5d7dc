// BACKLOG: what a GPU or a link still has to do, estimated: the work that it was given and that has not been
// reported as done, without what the first of it has had. Each report takes its own estimate away, so wrong
// estimates do not add up while it is never idle.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/units.hpp"

namespace troupe {

class Backlog {
 public:
  void Add(Duration work, Time now) {
    if (pieces_++ == 0) Begin(work, now);
    work_ += work;
  }
  // The same `work` as when it was added. Which piece is next is unknown: it counts as the mean of all that
  // are left.
  void Done(Duration work, Time now) {
    work_ -= work;
    --pieces_;
    Begin(pieces_ == 0 ? Duration() : work_ / pieces_, now);
  }
  [[nodiscard]] std::uint32_t pieces() const { return pieces_; }
  // As it was given.
  [[nodiscard]] Duration whole() const { return work_; }
  [[nodiscard]] Duration Left(Time now) const {
    return work_ - std::clamp<Duration>(now - since_, Duration(), at_hand_);
  }

 private:
  void Begin(Duration work, Time now) {
    at_hand_ = work;
    since_ = now;
  }

  Duration work_{};
  Duration at_hand_{};  // of it, the piece that is being done
  Time since_{};        // when that began
  std::uint32_t pieces_ = 0;
};

}  // namespace troupe
