// A tensor channel in plain memory, for tests and the simulator: no descriptors, no sockets, no threads. Two
// channels of different hosts copy, as over a network, and such fetches can be held back and made to fail.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "transport/tensor_channel.hpp"

namespace troupe::transport {

// The shared world of fake channels: what is put into one can be fetched from every other. Thread-safe.
class FakeTensorChannel : public TensorChannel {
 public:
  struct World;
  static std::shared_ptr<World> NewWorld();
  FakeTensorChannel(std::shared_ptr<World> world, Bytes capacity, std::string host = "fake");

  [[nodiscard]] bool Near(const proto::TensorRef& ref) const override;
  absl::StatusOr<Reservation> Reserve(Bytes size) override;
  void FetchAsync(const proto::TensorRef& ref, Duration timeout, Done done) override;
  // A slice with these bytes, however few they are.
  absl::StatusOr<proto::TensorRef> PutSlice(std::span<const std::byte> bytes);
  absl::Status Release(const proto::TensorRef& ref) override;
  absl::Status Retain(const proto::TensorRef& ref) override;
  [[nodiscard]] Bytes used() const override;
  [[nodiscard]] Bytes capacity() const override { return capacity_; }

  // From now on fetches from other hosts wait: their room is taken, their bytes have not come.
  void Hold();
  // Ends the oldest held fetch: with its bytes, or with `failure`. False when there is none.
  bool CompleteNext(const absl::Status& failure = absl::OkStatus());
  // Completes all that is held, and goes back to completing at once.
  void Resume();
  [[nodiscard]] std::size_t held() const;

 private:
  struct HeldFetch {
    proto::TensorRef ref;
    std::shared_ptr<Reservation> room;
    Done done;
  };
  absl::StatusOr<Reservation> ReserveSlice(Bytes size);
  absl::StatusOr<TensorData> FetchHere(const proto::TensorRef& ref);
  // What came from another host becomes a slice of this channel that goes with its last holder.
  absl::StatusOr<TensorData> Copy(const proto::TensorRef& ref, Reservation& room);
  void Complete(const HeldFetch& fetch, const absl::Status& failure);

  std::shared_ptr<World> world_;
  const Bytes capacity_;
  const std::string host_;
  const std::uint64_t id_;
  mutable std::mutex mutex_;
  bool hold_ = false;           // guarded by mutex_
  std::deque<HeldFetch> held_;  // guarded by mutex_
};

}  // namespace troupe::transport
