// The half of a UCX endpoint that fetches from others.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "base/units.hpp"
#include "proto/tensor.pb.h"
#include "transport/fetch_wire.hpp"
#include "transport/remote_endpoint.hpp"
#include "transport/ucx_core.hpp"

namespace troupe::transport {

// One fetch, as handed to the progress thread.
struct UcxFetch {
  proto::ArenaRef ref;
  EndpointAddress endpoint;
  std::span<std::byte> destination;
  std::shared_ptr<void> keeper;
  Time deadline;
  RemoteEndpoint::Done done;
};

// On the progress thread only. One connection per address, made on first use and dropped when it fails.
//   asked -> (data by rendezvous) receiving -> done
// A fetch that ends while its data are on their way (timeout, dead peer) tells its caller at once, but keeps
// its destination until its connection is closed: UCX may write there until then.
class UcxClient {
 public:
  explicit UcxClient(UcxCore& core) : core_(core) {}
  UcxClient(const UcxClient&) = delete;
  UcxClient& operator=(const UcxClient&) = delete;

  absl::Status Start();
  void Fetch(UcxFetch fetch);
  // Fails what is late or whose peer is gone, and closes failed connections.
  void Step(Time now);
  [[nodiscard]] Time next_deadline() const;
  // Fails everything with Cancelled; the core must still be moved on until nothing is closing.
  void Stop();
  [[nodiscard]] std::size_t connections() const { return connections_.size(); }

 private:
  struct Connection {
    UcxClient* client;
    std::string address;
    ucp_ep_h endpoint = nullptr;
    absl::Status failure;
  };
  struct Pending {
    UcxClient* client;
    std::shared_ptr<Connection> connection;
    std::uint64_t id;
    FetchAsk ask;
    UcxFetch fetch;
    bool receiving = false;  // UCX holds the destination
    bool asking = false;     // UCX holds the ask
  };
  using PendingMap = std::map<std::uint64_t, std::unique_ptr<Pending>>;

  static void OnError(void* connection, ucp_ep_h endpoint, ucs_status_t status);
  static ucs_status_t OnAnswer(void* client, const void* header, std::size_t header_length, void* data,
                               std::size_t length, const ucp_am_recv_param_t* param);
  static void OnAsked(void* request, ucs_status_t status, void* pending);
  static void OnReceived(void* request, ucs_status_t status, std::size_t length, void* pending);
  absl::StatusOr<std::shared_ptr<Connection>> Connect(const std::string& address);
  ucs_status_t Receive(Pending& pending, void* data, std::size_t length, bool rendezvous);
  void Ask(Pending& pending);
  void Finish(Pending& pending, const absl::Status& status);
  void EraseIfIdle(Pending& pending);
  void CloseFailed();

  UcxCore& core_;
  std::map<std::string, std::shared_ptr<Connection>> connections_;
  PendingMap pending_;  // by id
  bool any_failed_ = false;
};

}  // namespace troupe::transport
