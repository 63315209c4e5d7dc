#include "transport/ucx_core.hpp"

#include <signal.h>
#include <ucs/debug/debug.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"

namespace troupe::transport {
namespace {

absl::StatusCode CodeOf(ucs_status_t status) {
  switch (status) {
    case UCS_ERR_NO_MEMORY:
    case UCS_ERR_NO_RESOURCE:
      return absl::StatusCode::kResourceExhausted;
    case UCS_ERR_INVALID_PARAM:
    case UCS_ERR_INVALID_ADDR:
      return absl::StatusCode::kInvalidArgument;
    case UCS_ERR_BUSY:
    case UCS_ERR_ALREADY_EXISTS:
      return absl::StatusCode::kAlreadyExists;
    case UCS_ERR_TIMED_OUT:
      return absl::StatusCode::kDeadlineExceeded;
    case UCS_ERR_CANCELED:
      return absl::StatusCode::kCancelled;
    default:
      return absl::StatusCode::kUnavailable;
  }
}

}  // namespace

absl::Status UcxStatus(ucs_status_t status, const std::string& what) {
  return absl::Status(CodeOf(status), absl::StrCat(what, ": ", ucs_status_string(status)));
}

absl::StatusOr<std::unique_ptr<UcxCore>> UcxCore::Make(const std::string& transports,
                                                       const std::string& interface) {
  // UCX prints a backtrace and stays on a crash; a daemon is to die, so that it is restarted.
  static std::once_flag once;
  std::call_once(once, [] {
    for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGHUP}) ucs_debug_disable_signal(signal);
  });
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return UcxStatus(status, "reading UCX's configuration");
  const std::unique_ptr<ucp_config_t, void (*)(ucp_config_t*)> config_owner(config, ucp_config_release);
  if (!transports.empty()) {
    status = ucp_config_modify(config, "TLS", transports.c_str());
    if (status != UCS_OK) return UcxStatus(status, absl::StrCat("UCX transports '", transports, "'"));
  }
  // By default UCX listens for data on every interface, whatever the address of the listener is.
  if (!interface.empty() && getenv("UCX_NET_DEVICES") == nullptr) {
    status = ucp_config_modify(config, "NET_DEVICES", interface.c_str());
    if (status != UCS_OK) return UcxStatus(status, absl::StrCat("UCX on interface '", interface, "'"));
  }
  std::unique_ptr<UcxCore> core(new UcxCore());
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  status = ucp_init(&params, config, &core->context_);
  if (status != UCS_OK) return UcxStatus(status, "starting UCX");
  ucp_worker_params_t worker{};
  worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  status = ucp_worker_create(core->context_, &worker, &core->worker_);
  if (status != UCS_OK) return UcxStatus(status, "making a UCX worker");
  status = ucp_worker_get_efd(core->worker_, &core->event_fd_);
  if (status != UCS_OK) return UcxStatus(status, "asking UCX for its event descriptor");
  return core;
}

UcxCore::~UcxCore() {
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
  if (context_ != nullptr) ucp_cleanup(context_);
}

absl::Status UcxCore::Handle(unsigned id, ucp_am_recv_callback_t callback, void* context) {
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                       UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
  handler.id = id;
  handler.cb = callback;
  handler.arg = context;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  const ucs_status_t status = ucp_worker_set_am_recv_handler(worker_, &handler);
  return status == UCS_OK ? absl::OkStatus() : UcxStatus(status, "setting a UCX message handler");
}

bool UcxCore::Progress() {
  constexpr int kAtOnce = 64;  // then others get their turn
  bool moved = false;
  for (int i = 0; i < kAtOnce && ucp_worker_progress(worker_) != 0; ++i) moved = true;
  for (auto entry = closing_.begin(); entry != closing_.end();) {
    if (ucp_request_check_status(entry->request) == UCS_INPROGRESS) {
      ++entry;
      continue;
    }
    ucp_request_free(entry->request);
    const auto closed = std::move(entry->closed);
    entry = closing_.erase(entry);
    closed();
    moved = true;
  }
  return moved;
}

void UcxCore::Close(ucp_ep_h endpoint, std::function<void()> closed) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  void* request = ucp_ep_close_nbx(endpoint, &param);
  if (UCS_PTR_IS_PTR(request)) {
    closing_.push_back({request, std::move(closed)});
  } else {
    closed();
  }
}

}  // namespace troupe::transport
