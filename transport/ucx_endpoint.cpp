#include "transport/ucx_endpoint.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/status.hpp"
#include "transport/fetch_wire.hpp"
#include "transport/memory_file.hpp"
#include "transport/steady_clock.hpp"
#include "transport/ucx_client.hpp"
#include "transport/ucx_core.hpp"
#include "transport/ucx_server.hpp"

namespace troupe::transport {
namespace {

bool HasRdmaDevices() {
  std::error_code error;
  const bool is_empty = std::filesystem::is_empty("/sys/class/infiniband", error);
  return !error && !is_empty;
}

// Fetches that the progress thread has not taken yet. Thread-safe.
class OrderQueue {
 public:
  void Add(UcxFetch order) {
    const std::lock_guard lock(mutex_);
    orders_.push_back(std::move(order));
  }
  [[nodiscard]] std::vector<UcxFetch> Take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(orders_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<UcxFetch> orders_;  // guarded by mutex_
};

class Endpoint : public RemoteEndpoint {
 public:
  Endpoint(UcxEndpoint::Options options, std::unique_ptr<UcxCore> core, SliceSource source, UniqueFd wake)
      : options_(std::move(options)),
        wake_(std::move(wake)),
        core_(std::move(core)),
        server_(
            std::make_unique<UcxServer>(*core_, std::move(source), options_.refusals, token_, strangers_)),
        client_(std::make_unique<UcxClient>(*core_)) {}
  ~Endpoint() override {
    stop_.store(true);
    Wake();
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Start() {
    TROUPE_RETURN_IF_ERROR(server_->Listen(options_.bind));
    TROUPE_RETURN_IF_ERROR(client_->Start());
    address_ = FormatEndpointAddress({FetchProtocol::kUcx, server_->address(), token_});
    thread_ = std::thread([this] { Run(); });
    return absl::OkStatus();
  }
  [[nodiscard]] const std::string& address() const override { return address_; }
  [[nodiscard]] std::uint64_t strangers() const override { return strangers_.load(); }
  void Fetch(const proto::ArenaRef& ref, std::span<std::byte> destination, std::shared_ptr<void> keeper,
             Duration timeout, Done done) override;

 private:
  void Wake() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
  }
  void Run();
  bool TakeOrders();
  void Sleep();
  void Finish();

  const UcxEndpoint::Options options_;
  const EndpointToken token_ = FreshToken();
  std::string address_;                       // with the token
  std::atomic<std::uint64_t> strangers_ = 0;  // counted by the server
  UniqueFd wake_;
  std::unique_ptr<UcxCore> core_;  // everything of UCX: progress thread only, once that runs
  std::unique_ptr<UcxServer> server_;
  std::unique_ptr<UcxClient> client_;
  std::atomic<std::size_t> pending_ = 0;
  std::atomic<bool> stop_ = false;
  OrderQueue orders_;
  std::thread thread_;
};

void Endpoint::Fetch(const proto::ArenaRef& ref, std::span<std::byte> destination,
                     std::shared_ptr<void> keeper, Duration timeout, Done done) {
  const auto endpoint = EndpointOf(ref, FetchProtocol::kUcx);
  if (!endpoint.ok()) return done(endpoint.status());
  if (destination.size() != ref.length())
    return done(absl::FailedPreconditionError(absl::StrCat(
        "a tensor of ", ref.length(), " bytes does not fit the place of ", destination.size(), " for it")));
  if (pending_.fetch_add(1) >= options_.pending) {
    pending_.fetch_sub(1);
    return done(absl::ResourceExhaustedError(
        absl::StrCat(options_.pending, " tensors are being fetched already; try again later")));
  }
  UcxFetch order{ref, *endpoint, destination, std::move(keeper), SteadyNow() + timeout, nullptr};
  order.done = [this, done = std::move(done)](absl::Status status) {
    pending_.fetch_sub(1);
    done(std::move(status));
  };
  orders_.Add(std::move(order));
  Wake();
}

bool Endpoint::TakeOrders() {
  std::vector<UcxFetch> orders = orders_.Take();
  for (UcxFetch& order : orders) client_->Fetch(std::move(order));
  return !orders.empty();
}

void Endpoint::Run() {
  while (!stop_.load()) {
    bool moved = TakeOrders();
    moved |= core_->Progress();
    const Time now = SteadyNow();
    client_->Step(now);
    server_->Step(now);
    if (!moved && core_->Arm()) Sleep();
  }
  Finish();
}

void Endpoint::Sleep() {
  Time until = std::min(client_->next_deadline(), server_->next_deadline());
  // UCX does not promise an event for the end of a close.
  if (core_->closing()) until = std::min(until, SteadyNow() + std::chrono::milliseconds(1));
  pollfd entries[2] = {{core_->event_fd(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
  poll(entries, 2, PollMillis(until));
  std::uint64_t rings = 0;
  [[maybe_unused]] const ssize_t got = read(wake_.get(), &rings, sizeof(rings));
}

void Endpoint::Finish() {
  TakeOrders();
  client_->Stop();
  server_->Stop();
  const Time patience = SteadyNow() + std::chrono::seconds(1);
  for (bool moved = true; (moved || core_->closing()) && SteadyNow() < patience;) {
    moved = core_->Progress();
    if (!moved) usleep(100);
  }
  server_->StopListening();
  core_.reset();
  server_.reset();
  client_.reset();
}

}  // namespace

absl::StatusOr<std::unique_ptr<RemoteEndpoint>> UcxEndpoint::Start(Options options, SliceSource source) {
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return ErrnoStatus(errno, "making the wake-up of a UCX endpoint");
  if (options.refusals == nullptr) options.refusals = std::make_shared<SocketRefusals>();
  TROUPE_ASSIGN_OR_RETURN(const sockaddr_storage address, ParseAddress(options.bind));
  const std::string interface =
      options.only_interface_of_bind && !HasRdmaDevices() ? InterfaceOf(address) : std::string();
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<UcxCore> core, UcxCore::Make(options.transports, interface));
  auto endpoint =
      std::make_unique<Endpoint>(std::move(options), std::move(core), std::move(source), std::move(wake));
  TROUPE_RETURN_IF_ERROR(endpoint->Start());
  return endpoint;
}

}  // namespace troupe::transport
