#include "transport/stream_endpoint.hpp"

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <cstdint>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "transport/fetch_wire.hpp"
#include "transport/steady_clock.hpp"
#include "transport/stream_client.hpp"
#include "transport/stream_server.hpp"

namespace troupe::transport {
namespace {

class Endpoint : public RemoteEndpoint {
 public:
  Endpoint(StreamEndpoint::Options options, SliceSource source)
      : options_(std::move(options)),
        server_(loop_, std::move(source), options_.credentials, options_.refusals, token_),
        client_(loop_, options_.credentials) {}
  ~Endpoint() override {
    boost::asio::post(loop_, [this] {
      client_.Stop();
      server_.Stop();
      work_.reset();
    });
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Start() {
    TROUPE_RETURN_IF_ERROR(server_.Listen(options_.bind));
    address_ = FormatEndpointAddress({FetchProtocol::kStream, server_.address(), token_});
    thread_ = std::thread([this] { loop_.run(); });
    return absl::OkStatus();
  }
  [[nodiscard]] const std::string& address() const override { return address_; }
  [[nodiscard]] std::uint64_t strangers() const override { return server_.strangers(); }
  void Fetch(const proto::ArenaRef& ref, std::span<std::byte> destination, std::shared_ptr<void> keeper,
             Duration timeout, Done done) override;

 private:
  const StreamEndpoint::Options options_;
  const EndpointToken token_ = FreshToken();
  std::string address_;  // with the token
  std::atomic<std::size_t> pending_ = 0;
  boost::asio::io_context loop_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{loop_.get_executor()};
  StreamServer server_;  // both: on the loop's thread only, once it runs
  StreamClient client_;
  std::thread thread_;
};

void Endpoint::Fetch(const proto::ArenaRef& ref, std::span<std::byte> destination,
                     std::shared_ptr<void> keeper, Duration timeout, Done done) {
  auto endpoint = EndpointOf(ref, FetchProtocol::kStream);
  if (!endpoint.ok()) return done(endpoint.status());
  if (destination.size() != ref.length())
    return done(absl::FailedPreconditionError(absl::StrCat(
        "a tensor of ", ref.length(), " bytes does not fit the place of ", destination.size(), " for it")));
  if (pending_.fetch_add(1) >= options_.pending) {
    pending_.fetch_sub(1);
    return done(absl::ResourceExhaustedError(
        absl::StrCat(options_.pending, " tensors are being fetched already; try again later")));
  }
  StreamFetch fetch{*std::move(endpoint),  ref,    destination, std::move(keeper),
                    SteadyNow() + timeout, nullptr};
  fetch.done = [this, done = std::move(done)](absl::Status status) {
    pending_.fetch_sub(1);
    done(std::move(status));
  };
  boost::asio::post(loop_, [this, fetch = std::move(fetch)]() mutable { client_.Fetch(std::move(fetch)); });
}

}  // namespace

absl::StatusOr<std::unique_ptr<RemoteEndpoint>> StreamEndpoint::Start(Options options, SliceSource source) {
  if (options.refusals == nullptr) options.refusals = std::make_shared<SocketRefusals>();
  auto endpoint = std::make_unique<Endpoint>(std::move(options), std::move(source));
  TROUPE_RETURN_IF_ERROR(endpoint->Start());
  return endpoint;
}

}  // namespace troupe::transport
