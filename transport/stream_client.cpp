#include "transport/stream_client.hpp"

#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "transport/host_id.hpp"
#include "transport/steady_clock.hpp"
#include "transport/stream_address.hpp"

namespace troupe::transport {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {
// An ask is less than a packet: a peer takes it at once, or not at all.
constexpr Duration kAskPatience = std::chrono::seconds(30);
}  // namespace

void StreamClient::Fetch(StreamFetch fetch) {
  auto pending = std::make_shared<Pending>(loop_, std::move(fetch));
  if (stopped_)
    return Finish(*pending, absl::CancelledError("fetching tensors of other hosts has ended here"));
  all_.insert(pending);
  pending->timer.expires_after(std::max(pending->fetch.deadline - SteadyNow(), Duration::zero()));
  pending->timer.async_wait([this, pending](const error_code& error) {
    if (!error) Late(pending);
  });
  const std::string address = pending->fetch.endpoint.address;
  owners_[address].waiting.push_back(std::move(pending));
  StartNext(address);
}

// A fetch may be over before co_spawn returns, and its owner forgotten: so each step looks for it anew.
void StreamClient::StartNext(const std::string& address) {
  for (;;) {
    const auto found = owners_.find(address);
    if (found == owners_.end()) return;
    Owner& owner = found->second;
    if (owner.waiting.empty() && owner.idle.empty() && owner.busy == 0) {
      owners_.erase(found);
      return;
    }
    if (owner.waiting.empty() || owner.busy >= kConnections) return;
    const Shared next = std::move(owner.waiting.front());
    owner.waiting.pop_front();
    if (!next->fetch.done) continue;  // it was late
    ++owner.busy;
    asio::co_spawn(loop_, Run(next), asio::detached);
  }
}

StreamClient::Task<void> StreamClient::Run(Shared pending) {
  const std::string address = pending->fetch.endpoint.address;
  Owner& owner = owners_.at(address);
  absl::Status status = co_await FetchFrom(owner, *pending);
  Finish(*pending, std::move(status));
  --owner.busy;
  StartNext(address);
}

// An idle connection may have ended without our having seen it yet: then a new one is tried.
StreamClient::Task<absl::Status> StreamClient::FetchFrom(Owner& owner, Pending& pending) {
  for (;;) {
    pending.connection = TakeIdle(owner);
    const bool reused = pending.connection != nullptr;
    absl::Status status;
    if (!reused) status = co_await Connect(pending);
    bool answered = false;
    if (status.ok()) status = co_await FetchOver(*pending.connection, pending, answered);
    const Connection connection = std::exchange(pending.connection, nullptr);
    if (answered && !stopped_ && !absl::IsUnavailable(status) && !absl::IsDataLoss(status)) {
      GiveBack(pending.fetch.endpoint.address, connection);
    } else {
      connection->Close();
    }
    const bool again = reused && !answered && absl::IsUnavailable(status) && pending.fetch.done != nullptr;
    if (!again) co_return status;
    DropIdle(owner);
  }
}

StreamClient::Task<absl::Status> StreamClient::Connect(Pending& pending) {
  const std::string& address = pending.fetch.endpoint.address;
  const auto endpoint = ToEndpoint(address);
  pending.connection = std::make_shared<StreamConnection>(StreamConnection::Socket(loop_),
                                                          absl::StrCat("the host at ", address));
  if (!endpoint.ok()) co_return endpoint.status();
  const Connection connection = pending.connection;
  absl::Status status = co_await connection->Dial(*endpoint);
  if (status.ok() && credentials_ != nullptr)
    status = co_await connection->GreetAsClient(credentials_->Current(), endpoint->address().to_string());
  co_return status;
}

StreamClient::Task<absl::Status> StreamClient::FetchOver(StreamConnection& connection, Pending& pending,
                                                         bool& answered) {
  const FetchAsk ask = MakeAsk(pending.fetch.ref, pending.fetch.endpoint.token, UniqueId());
  absl::Status status = co_await connection.Write(std::as_bytes(std::span(&ask, 1)), kAskPatience);
  if (!status.ok()) co_return status;
  std::array<std::byte, sizeof(FetchAnswer)> header{};
  status = co_await connection.Read(header);
  if (!status.ok()) co_return status;
  answered = true;
  const auto answer = ReadFetchAnswer(header.data(), header.size());
  if (!answer || answer->request != ask.request)
    co_return absl::DataLossError(absl::StrCat(connection.peer(), " gives an answer that was not asked for"));
  if (answer->code != 0) {
    status = co_await ReadRefusal(connection, *answer);
    co_return status;
  }
  const std::span<std::byte> destination = pending.fetch.destination;
  if (answer->length != destination.size())
    co_return absl::DataLossError(absl::StrCat(connection.peer(), " sends ", answer->length,
                                               " bytes of a tensor of ", destination.size()));
  status = co_await connection.Read(destination);
  co_return status;
}

StreamClient::Task<absl::Status> StreamClient::ReadRefusal(StreamConnection& connection,
                                                           const FetchAnswer& answer) {
  if (answer.length > kLongestRefusal)
    co_return absl::DataLossError(
        absl::StrCat(connection.peer(), " refuses with a text of ", answer.length, " bytes"));
  std::string text(answer.length, '\0');
  const absl::Status status = co_await connection.Read(std::as_writable_bytes(std::span(text)));
  if (!status.ok()) co_return status;
  co_return absl::Status(static_cast<absl::StatusCode>(answer.code),
                         absl::StrCat(connection.peer(), " refused: ", text));
}

StreamClient::Connection StreamClient::TakeIdle(Owner& owner) const {
  const auto current = credentials_ == nullptr ? nullptr : credentials_->Current();
  while (!owner.idle.empty()) {
    Connection newest = std::move(owner.idle.back());
    owner.idle.pop_back();
    newest->Wake();
    if (newest->credentials() == current) return newest;
    newest->Close();
  }
  return nullptr;
}

void StreamClient::GiveBack(const std::string& address, Connection connection) {
  StreamConnection* key = connection.get();
  owners_.at(address).idle.push_back(std::move(connection));
  key->Sleep([this, address, key] {
    const auto owner = owners_.find(address);
    if (owner == owners_.end()) return;
    owner->second.idle.remove_if([key](const Connection& idle) { return idle.get() == key; });
    StartNext(address);  // forgets the owner when this was its last
  });
}

void StreamClient::DropIdle(Owner& owner) {
  for (const Connection& idle : owner.idle) idle->Close();
  owner.idle.clear();
}

void StreamClient::Late(const Shared& pending) {
  if (!pending->fetch.done) return;
  const std::string& address = pending->fetch.endpoint.address;
  if (pending->connection != nullptr) pending->connection->Close();
  // What hangs once will hang others.
  if (const auto owner = owners_.find(address); owner != owners_.end()) DropIdle(owner->second);
  Finish(*pending,
         absl::DeadlineExceededError(absl::StrCat("no tensor from the host at ", address, " in time")));
}

// Tells the caller, once; the destination stays for as long as a connection may fill it.
void StreamClient::Finish(Pending& pending, absl::Status status) {
  pending.timer.cancel();
  const auto done = std::exchange(pending.fetch.done, nullptr);
  if (done) done(std::move(status));
  std::erase_if(all_, [&](const Shared& one) { return one.get() == &pending; });
}

void StreamClient::Stop() {
  stopped_ = true;
  const auto all = all_;
  for (const Shared& pending : all) {
    if (pending->connection != nullptr) pending->connection->Close();
    Finish(*pending, absl::CancelledError("fetching tensors of other hosts has ended here"));
  }
  for (auto& [address, owner] : owners_) {
    DropIdle(owner);
    owner.waiting.clear();
  }
}

}  // namespace troupe::transport
