// A tensor channel in plain memory, for tests and the simulator: no descriptors, no sockets, no threads.
#pragma once

#include <cstdint>
#include <memory>

#include "transport/tensor_channel.hpp"

namespace troupe::transport {

// The shared world of fake channels: what is put into one can be fetched from every other. Thread-safe.
class FakeTensorChannel : public TensorChannel {
 public:
  struct World;
  static std::shared_ptr<World> NewWorld();
  FakeTensorChannel(std::shared_ptr<World> world, Bytes capacity);

  absl::StatusOr<Reservation> Reserve(Bytes size) override;
  void FetchAsync(const proto::TensorRef& ref, Duration timeout, Done done) override;
  absl::Status Release(const proto::TensorRef& ref) override;
  absl::Status Retain(const proto::TensorRef& ref) override;
  [[nodiscard]] Bytes used() const override;
  [[nodiscard]] Bytes capacity() const override { return capacity_; }

 private:
  std::shared_ptr<World> world_;
  const Bytes capacity_;
  const std::uint64_t id_;
};

}  // namespace troupe::transport
