// UCX's context and worker, for the sources of UcxEndpoint only: this header shows UCX types and no other
// header includes it.
#pragma once

#include <sys/socket.h>
#include <ucp/api/ucp.h>

#include <functional>
#include <list>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/units.hpp"

namespace troupe::transport {

// Owned by the endpoint, used on its progress thread only.
class UcxCore {
 public:
  // `interface`: the only network interface on which UCX may listen; empty: all of them.
  static absl::StatusOr<std::unique_ptr<UcxCore>> Make(const std::string& transports,
                                                       const std::string& interface);
  UcxCore(const UcxCore&) = delete;
  UcxCore& operator=(const UcxCore&) = delete;
  ~UcxCore();

  [[nodiscard]] ucp_worker_h worker() const { return worker_; }
  [[nodiscard]] int event_fd() const { return event_fd_; }
  // Calls `callback` with `context` for every active message of this id.
  absl::Status Handle(unsigned id, ucp_am_recv_callback_t callback, void* context);
  // Moves everything on. True when something moved.
  bool Progress();
  // True when the event descriptor will tell of anything new: time to sleep.
  [[nodiscard]] bool Arm() { return ucp_worker_arm(worker_) == UCS_OK; }
  // Drops an endpoint by force; `closed` is called when UCX has let go of it and of all memory of its
  // operations.
  void Close(ucp_ep_h endpoint, std::function<void()> closed);
  [[nodiscard]] bool closing() const { return !closing_.empty(); }

 private:
  struct Closing {
    void* request;
    std::function<void()> closed;
  };
  UcxCore() = default;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int event_fd_ = -1;
  std::list<Closing> closing_;
};

// "what: UCX's reason", with the code that fits.
[[nodiscard]] absl::Status UcxStatus(ucs_status_t status, const std::string& what);

// "1.2.3.4:56" or "[::1]:56". InvalidArgument for anything else: names are not looked up here.
absl::StatusOr<sockaddr_storage> ParseAddress(const std::string& text);
// How many bytes of it are in use.
[[nodiscard]] socklen_t AddressLength(const sockaddr_storage& address);
[[nodiscard]] std::string FormatAddress(const sockaddr_storage& address);
// The network interface that has this address; empty when none has it, as for 0.0.0.0.
[[nodiscard]] std::string InterfaceOf(const sockaddr_storage& address);

}  // namespace troupe::transport
