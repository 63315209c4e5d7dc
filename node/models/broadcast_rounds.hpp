// BROADCAST ROUNDS: models that several GPUs take at once. A dispatch that is to get its model from a GPU
// which is loading it waits a moment, so that others can join; then the worker of that GPU and theirs hear of
// the broadcast. What a worker does not get that way it takes from the host, so here a broadcast cannot fail.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "node/models/peer_copy_table.hpp"
#include "node/scheduling/broadcasts.hpp"
#include "proto/worker.pb.h"

namespace troupe::node {

struct Parts;

class BroadcastRounds {
 public:
  explicit BroadcastRounds(Parts& parts) : parts_(parts) {}

  void OnTimer();
  // Its orders are given with those of the others that join it.
  void Gather(const HeldStart& start);
  // What else a worker is to do with a model waits for the order that brings it. False: nothing is gathered.
  [[nodiscard]] bool Await(const HeldStart& start);

 private:
  struct Gathered {
    HeldStart start{};
    std::vector<HeldStart> behind{};
  };
  [[nodiscard]] bool Joins(const Gathered& waiting, const Broadcasts::Order& broadcast) const;
  [[nodiscard]] std::optional<proto::Broadcast> Send(const Broadcasts::Order& broadcast,
                                                     const std::vector<Gathered>& gathered);

  Parts& parts_;
  std::vector<Gathered> gathered_;
  std::uint64_t meetings_ = 0;
  bool armed_ = false;
};

}  // namespace troupe::node
