// The half of a UCX endpoint that answers others' fetches.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "transport/fetch_wire.hpp"
#include "transport/remote_endpoint.hpp"
#include "transport/socket_refusals.hpp"
#include "transport/ucx_core.hpp"

namespace troupe::transport {

// On the progress thread only. Bounded: at most kPeers connections, kSilent of them that have not asked
// with the right token yet (for one more the oldest is closed), each for kFirstAsk at most; kSends answers on their way (more are
// refused with ResourceExhausted), each of which must be taken within kPatience, or its connection is closed.
class UcxServer {
 public:
  static constexpr std::size_t kPeers = 1024;
  static constexpr std::size_t kSilent = 64;
  static constexpr Duration kFirstAsk = std::chrono::seconds(5);
  static constexpr std::size_t kSends = 256;
  static constexpr Duration kPatience = std::chrono::seconds(30);

  // `token` is what readers have to know; `strangers` counts readers that do not know it.
  UcxServer(UcxCore& core, SliceSource source, std::shared_ptr<SocketRefusals> refusals,
            const EndpointToken& token, std::atomic<std::uint64_t>& strangers)
      : core_(core),
        source_(std::move(source)),
        refusals_(std::move(refusals)),
        token_(token),
        strangers_(strangers) {}
  UcxServer(const UcxServer&) = delete;
  UcxServer& operator=(const UcxServer&) = delete;
  ~UcxServer();
  absl::Status Listen(const std::string& bind);
  [[nodiscard]] const std::string& address() const { return address_; }
  // Closes what failed and what takes too long.
  void Step(Time now);
  [[nodiscard]] Time next_deadline() const;
  // Ends all connections; the core must still be moved on until nothing is closing.
  void Stop();
  // Before the worker goes.
  void StopListening();

 private:
  struct Peer {
    Time since;           // when it connected
    bool asked = false;   // something that makes sense, with the right token
    bool failed = false;  // to be closed in the next Step
  };
  struct Send {
    UcxServer* server;
    ucp_ep_h peer;
    FetchAnswer header;
    std::string refusal;
    PinnedBytes pinned;
    Time deadline;
    std::list<std::unique_ptr<Send>>::iterator place;
  };
  static void OnConnect(ucp_conn_request_h request, void* server);
  static void OnError(void* server, ucp_ep_h peer, ucs_status_t status);
  static ucs_status_t OnAsk(void* server, const void* header, std::size_t header_length, void* data,
                            std::size_t length, const ucp_am_recv_param_t* param);
  static void OnSent(void* request, ucs_status_t status, void* send);
  void Answer(ucp_ep_h peer, const FetchAsk& ask);
  // NotFound for a reader that does not know the token: the references of an earlier process at this address
  // have another one.
  [[nodiscard]] absl::Status CheckToken(const EndpointToken& told);
  absl::StatusOr<PinnedBytes> Find(const FetchAsk& ask);
  void Fail(ucp_ep_h peer);
  void Refuse(ucp_ep_h peer, SocketRefusal reason);
  void CrowdOut();
  void EndSilent(Time now);
  void DropAsked();
  void Forget(ucp_ep_h peer);

  UcxCore& core_;
  SliceSource source_;
  const std::shared_ptr<SocketRefusals> refusals_;
  const EndpointToken token_;
  std::atomic<std::uint64_t>& strangers_;
  ucp_listener_h listener_ = nullptr;
  std::string address_;
  std::map<ucp_ep_h, Peer> peers_;
  std::deque<std::pair<Time, ucp_ep_h>> silent_;  // that have not asked so, oldest first; some have since
  bool any_failed_ = false;
  std::list<std::unique_ptr<Send>> sends_;  // oldest first
};

}  // namespace troupe::transport
