#include "transport/ucx_client.hpp"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "transport/host_id.hpp"

namespace troupe::transport {

absl::Status UcxClient::Start() {
  return core_.Handle(kAnswerId, OnAnswer, this);
}

absl::StatusOr<std::shared_ptr<UcxClient::Connection>> UcxClient::Connect(const std::string& address) {
  if (const auto found = connections_.find(address); found != connections_.end()) {
    if (found->second->failure.ok()) return found->second;
    return found->second->failure;
  }
  TROUPE_ASSIGN_OR_RETURN(const sockaddr_storage target, ParseAddress(address));
  auto connection = std::make_shared<Connection>();
  connection->client = this;
  connection->address = address;
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
  params.sockaddr.addr = reinterpret_cast<const sockaddr*>(&target);
  params.sockaddr.addrlen = AddressLength(target);
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {OnError, connection.get()};
  const ucs_status_t status = ucp_ep_create(core_.worker(), &params, &connection->endpoint);
  if (status != UCS_OK) return UcxStatus(status, absl::StrCat("connecting to ", address));
  connections_.emplace(address, connection);
  return connection;
}

void UcxClient::Fetch(UcxFetch fetch) {
  absl::StatusOr<std::shared_ptr<Connection>> connection = Connect(fetch.endpoint.address);
  if (!connection.ok()) return fetch.done(connection.status());
  auto pending = std::make_unique<Pending>();
  pending->client = this;
  pending->connection = *std::move(connection);
  pending->id = UniqueId();
  pending->ask = MakeAsk(fetch.ref, fetch.endpoint.token, pending->id);
  pending->fetch = std::move(fetch);
  Ask(*pending_.emplace(pending->id, std::move(pending)).first->second);
}

void UcxClient::Ask(Pending& pending) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.cb.send = OnAsked;
  param.user_data = &pending;
  param.flags = UCP_AM_SEND_FLAG_REPLY;
  void* request = ucp_am_send_nbx(pending.connection->endpoint, kAskId, &pending.ask, sizeof(pending.ask),
                                  nullptr, 0, &param);
  pending.asking = UCS_PTR_IS_PTR(request);
  if (UCS_PTR_IS_ERR(request)) {
    Finish(pending, UcxStatus(UCS_PTR_STATUS(request), absl::StrCat("asking ", pending.connection->address)));
  }
}

void UcxClient::OnAsked(void* request, ucs_status_t status, void* context) {
  auto* pending = static_cast<Pending*>(context);
  ucp_request_free(request);
  pending->asking = false;
  if (status != UCS_OK) {
    pending->client->Finish(*pending, absl::UnavailableError(absl::StrCat(
                                          "the host at ", pending->connection->address,
                                          " cannot be asked for a tensor: ", ucs_status_string(status))));
  } else {
    pending->client->EraseIfIdle(*pending);
  }
}

ucs_status_t UcxClient::OnAnswer(void* context, const void* header, std::size_t header_length, void* data,
                                 std::size_t length, const ucp_am_recv_param_t* param) {
  auto* client = static_cast<UcxClient*>(context);
  const auto said = ReadFetchAnswer(header, header_length);
  if (!said) return UCS_OK;
  const FetchAnswer& answer = *said;
  const auto found = client->pending_.find(answer.request);
  // Unknown: late, or hostile. UCX itself refuses rendezvous data without a receiver.
  if (found == client->pending_.end()) return UCS_OK;
  Pending& pending = *found->second;
  if (!pending.fetch.done || pending.receiving) return UCS_OK;
  const bool rendezvous = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  if (answer.code != 0) {
    std::string text = absl::StrCat("the host at ", pending.connection->address, " refused");
    if (!rendezvous) {
      absl::StrAppend(&text, ": ",
                      std::string(static_cast<const char*>(data), std::min(length, kLongestRefusal)));
    }
    client->Finish(pending, absl::Status(static_cast<absl::StatusCode>(answer.code), text));
    return UCS_OK;
  }
  return client->Receive(pending, data, length, rendezvous);
}

ucs_status_t UcxClient::Receive(Pending& pending, void* data, std::size_t length, bool rendezvous) {
  const std::span<std::byte> destination = pending.fetch.destination;
  if (length != destination.size()) {
    Finish(pending, absl::DataLossError(absl::StrCat("the host at ", pending.connection->address, " sends ",
                                                     length, " bytes of a tensor of ", destination.size())));
    return UCS_OK;
  }
  if (!rendezvous) {
    if (length > 0) std::memcpy(destination.data(), data, length);
    Finish(pending, absl::OkStatus());
    return UCS_OK;
  }
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.recv_am = OnReceived;
  param.user_data = &pending;
  void* request = ucp_am_recv_data_nbx(core_.worker(), data, destination.data(), length, &param);
  pending.receiving = UCS_PTR_IS_PTR(request);
  if (!pending.receiving) {
    Finish(pending, request == nullptr
                        ? absl::OkStatus()
                        : UcxStatus(UCS_PTR_STATUS(request),
                                    absl::StrCat("receiving from ", pending.connection->address)));
  }
  return UCS_INPROGRESS;
}

void UcxClient::OnReceived(void* request, ucs_status_t status, std::size_t /*length*/, void* context) {
  auto* pending = static_cast<Pending*>(context);
  ucp_request_free(request);
  pending->receiving = false;
  pending->client->Finish(*pending, status == UCS_OK
                                        ? absl::OkStatus()
                                        : absl::UnavailableError(absl::StrCat(
                                              "the host at ", pending->connection->address,
                                              " stopped sending a tensor: ", ucs_status_string(status))));
}

// Tells the caller, once; the record stays for as long as UCX holds a pointer to it.
void UcxClient::Finish(Pending& pending, const absl::Status& status) {
  const RemoteEndpoint::Done done = std::exchange(pending.fetch.done, nullptr);
  EraseIfIdle(pending);
  if (done) done(status);
}

void UcxClient::EraseIfIdle(Pending& pending) {
  if (!pending.fetch.done && !pending.receiving && !pending.asking) pending_.erase(pending.id);
}

void UcxClient::OnError(void* context, ucp_ep_h /*endpoint*/, ucs_status_t status) {
  auto* connection = static_cast<Connection*>(context);
  if (!connection->failure.ok()) return;
  connection->failure = absl::UnavailableError(absl::StrCat(
      "the connection to the host at ", connection->address, " broke: ", ucs_status_string(status)));
  connection->client->any_failed_ = true;
}

void UcxClient::Step(Time now) {
  std::vector<Pending*> late;
  for (const auto& [id, pending] : pending_) {
    if (pending->fetch.done && pending->fetch.deadline <= now) late.push_back(pending.get());
  }
  for (Pending* pending : late) {
    const absl::Status status = absl::DeadlineExceededError(
        absl::StrCat("no tensor from the host at ", pending->connection->address, " in time"));
    // Data on their way can only be stopped together with their connection.
    if (pending->receiving && pending->connection->failure.ok()) {
      pending->connection->failure = status;
      any_failed_ = true;
    }
    Finish(*pending, status);
  }
  if (any_failed_) CloseFailed();
}

void UcxClient::CloseFailed() {
  any_failed_ = false;
  for (auto entry = connections_.begin(); entry != connections_.end();) {
    const std::shared_ptr<Connection> connection = entry->second;
    if (connection->failure.ok()) {
      ++entry;
      continue;
    }
    entry = connections_.erase(entry);
    std::vector<Pending*> broken;
    for (const auto& [id, pending] : pending_) {
      if (pending->connection == connection) broken.push_back(pending.get());
    }
    const absl::Status failure = absl::UnavailableError(connection->failure.message());
    for (Pending* pending : broken) Finish(*pending, failure);
    core_.Close(connection->endpoint, [this, connection] {
      // The connection is gone, and so no peer can write to the destinations of its fetches. Should UCX not
      // complete a receive even now (of tag receives it is known), only its small record stays until the end.
      for (const auto& [id, pending] : pending_) {
        if (pending->connection == connection) pending->fetch.keeper.reset();
      }
    });
  }
}

Time UcxClient::next_deadline() const {
  Time next = Time::max();
  for (const auto& [id, pending] : pending_) {
    if (pending->fetch.done) next = std::min(next, pending->fetch.deadline);
  }
  return next;
}

void UcxClient::Stop() {
  std::vector<Pending*> all;
  for (const auto& [id, pending] : pending_) all.push_back(pending.get());
  for (Pending* pending : all)
    Finish(*pending, absl::CancelledError("fetching tensors of other hosts has ended here"));
  for (const auto& [address, connection] : connections_) {
    if (connection->failure.ok()) connection->failure = absl::CancelledError("ended here");
  }
  CloseFailed();
}

}  // namespace troupe::transport
