// The raw bytes of one connection, as the gateway's own connections read them. First byte: how large the
// pieces are in which they come.
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <memory>
#include <span>

#include "base/check.hpp"
#include "gateway/gateway_handler.hpp"
#include "gateway/http_loop.hpp"
#include "prometheus/registry.h"
#include "tests/unit/gateway/fake_cluster_admin.hpp"
#include "tests/unit/gateway/fake_inference_service.hpp"

namespace troupe::gateway {
proto::TensorSpec Spec(const std::string& name, proto::DataType type, std::vector<std::int64_t> shape);
}

namespace {

using namespace troupe;
using namespace troupe::gateway;
namespace asio = boost::asio;

GatewayOptions Options() {
  GatewayOptions options;
  options.max_request = MiB(1);
  options.max_model = MiB(4);
  options.http.max_inflight = MiB(8);
  return options;
}

// The loop has no thread of its own: each input moves it on until the input's connection has ended.
struct World {
  World() {
    spdlog::set_level(spdlog::level::off);
    service.AddEcho("f", {Spec("x", proto::FP32, {-1, 2})}, {"y"});
    service.AddEcho("two", {Spec("a", proto::UINT8, {-1}), Spec("s", proto::BYTES, {-1})}, {"b", "t"});
  }
  FakeInferenceService service;
  FakeClusterAdmin admin;
  GatewayOptions options = Options();
  GatewayHandler handler{options, service, &admin, std::make_shared<prometheus::Registry>()};
  HttpShared shared{options.http, handler};
  HttpLoop loop{shared};
};

void Drain(int fd) {
  std::array<char, 65536> answers;
  while (recv(fd, answers.data(), answers.size(), MSG_DONTWAIT) > 0) {
  }
}

void Send(World& world, int fd, std::span<const std::uint8_t> bytes, std::size_t piece) {
  while (!bytes.empty()) {
    const std::size_t count = std::min(piece, bytes.size());
    const ssize_t sent = send(fd, bytes.data(), count, MSG_DONTWAIT | MSG_NOSIGNAL);
    world.loop.context().poll();
    Drain(fd);
    if (sent > 0) bytes = bytes.subspan(static_cast<std::size_t>(sent));
    if (sent < 0 && errno != EAGAIN) return;  // the gateway has closed the connection
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static World& world = *new World();
  if (size == 0) return 0;
  std::array<int, 2> ends{};
  TROUPE_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0, "a pair of sockets");
  world.shared.connections.fetch_add(1);
  asio::io_context& context = world.loop.context();
  world.loop.Adopt(asio::ip::tcp::socket(context, asio::ip::tcp::v4(), ends[1]), false);
  context.poll();
  const std::size_t piece = data[0] == 0 ? size : data[0];
  Send(world, ends[0], {data + 1, size - 1}, piece);
  shutdown(ends[0], SHUT_WR);
  for (int turn = 0; turn < 1000 && world.shared.connections.load() > 0; ++turn) {
    context.poll();
    Drain(ends[0]);
  }
  close(ends[0]);
  for (int turn = 0; turn < 1000 && world.shared.connections.load() > 0; ++turn) context.poll();
  TROUPE_CHECK(world.shared.connections.load() == 0, "a connection ends with its client");
  TROUPE_CHECK(
      world.shared.budgets.bodies.used().count() == 0 && world.shared.budgets.answers.used().count() == 0,
      "a connection that has ended holds no bytes");
  TROUPE_CHECK(world.service.open_places() == 0, "a connection that has ended holds no inputs");
  return 0;
}
