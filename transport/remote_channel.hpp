// The tensor channel over hosts: a local channel, and a remote endpoint for what lies elsewhere.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "transport/arena_exports.hpp"
#include "transport/channel_cut.hpp"
#include "transport/local_channel.hpp"
#include "transport/remote_endpoint.hpp"

namespace troupe::transport {

// Bytes of another host are fetched into a slice of our own arena, so that our workers can map them; the
// slice is free again when the TensorData goes. Thread-safe; the endpoint has one thread.
class RemoteChannel : public TensorChannel {
 public:
  struct Options {
    LocalChannel::Options local;
    // Starts the endpoint over which other hosts are served and asked: a StreamEndpoint or a UcxEndpoint.
    std::function<absl::StatusOr<std::unique_ptr<RemoteEndpoint>>(SliceSource)> start;
    std::shared_ptr<const ChannelCut> cut{};  // by a fault that an operator injects; null: never
  };
  static absl::StatusOr<std::unique_ptr<RemoteChannel>> Create(Options options);
  ~RemoteChannel() override;

  [[nodiscard]] bool Near(const proto::TensorRef& ref) const override { return local_->Near(ref); }
  absl::StatusOr<Reservation> Reserve(Bytes size) override { return local_->Reserve(size); }
  void FetchAsync(const proto::TensorRef& ref, Duration timeout, Done done) override;
  absl::Status Release(const proto::TensorRef& ref) override { return local_->Release(ref); }
  absl::Status Retain(const proto::TensorRef& ref) override { return local_->Retain(ref); }
  [[nodiscard]] Bytes used() const override { return local_->used(); }
  [[nodiscard]] Bytes capacity() const override { return local_->capacity(); }
  [[nodiscard]] LocalChannel& local() { return *local_; }
  // Where other hosts fetch what lies here, with what they have to know for that.
  [[nodiscard]] const std::string& endpoint() const { return endpoint_->address(); }
  // Fetches of readers that did not know its token.
  [[nodiscard]] std::uint64_t strangers() const { return endpoint_->strangers(); }
  // Arenas of other processes of this host that are served at the same endpoint.
  [[nodiscard]] const std::shared_ptr<ArenaExports>& exports() const { return exports_; }

 private:
  RemoteChannel() = default;
  [[nodiscard]] bool Own(const proto::TensorRef& ref) const;
  std::shared_ptr<const ChannelCut> cut_;
  std::shared_ptr<ArenaExports> exports_ = std::make_shared<ArenaExports>();
  std::unique_ptr<RemoteEndpoint> endpoint_;  // stopped first: it reads the local channel's arena
  std::shared_ptr<LocalChannel> local_;
};

}  // namespace troupe::transport
