// UCX's context and worker, for the sources of UcxEndpoint only: this header shows UCX types and no other
// header includes it.
#pragma once

#include <ucp/api/ucp.h>

#include <functional>
#include <list>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/units.hpp"
#include "transport/ip_address.hpp"

namespace troupe::transport {

// Active messages: what a reader asks, and what an owner answers (fetch_wire).
inline constexpr unsigned kAskId = 1;
inline constexpr unsigned kAnswerId = 2;

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

}  // namespace troupe::transport
