#include "transport/ucx_server.hpp"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::transport {

UcxServer::~UcxServer() {
  StopListening();
}

void UcxServer::StopListening() {
  if (listener_ != nullptr) ucp_listener_destroy(listener_);
  listener_ = nullptr;
}

absl::Status UcxServer::Listen(const std::string& bind) {
  absl::StatusOr<sockaddr_storage> address = ParseAddress(bind);
  if (!address.ok()) return address.status();
  ucp_listener_params_t params{};
  params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  params.sockaddr.addr = reinterpret_cast<const sockaddr*>(&*address);
  params.sockaddr.addrlen = AddressLength(*address);
  params.conn_handler = {OnConnect, this};
  ucs_status_t status = ucp_listener_create(core_.worker(), &params, &listener_);
  if (status != UCS_OK)
    return UcxStatus(status, absl::StrCat("listening at ", bind, " for tensors of other hosts"));
  ucp_listener_attr_t attributes{};
  attributes.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
  status = ucp_listener_query(listener_, &attributes);
  if (status != UCS_OK) return UcxStatus(status, "asking UCX which port it listens on");
  address_ = FormatAddress(attributes.sockaddr);
  return core_.Handle(kAskId, OnAsk, this);
}

void UcxServer::OnConnect(ucp_conn_request_h request, void* context) {
  auto* server = static_cast<UcxServer*>(context);
  if (server->peers_.size() >= kPeers) {
    server->refusals_->Count(SocketRefusal::kCrowdedOut);
    ucp_listener_reject(server->listener_, request);
    return;
  }
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_CONN_REQUEST | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.conn_request = request;
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {OnError, server};
  ucp_ep_h peer = nullptr;
  if (ucp_ep_create(server->core_.worker(), &params, &peer) != UCS_OK) return;
  server->CrowdOut();
  const Time now = SteadyNow();
  server->peers_.insert_or_assign(peer, Peer{now});
  server->silent_.emplace_back(now, peer);
}

// An endpoint's address may be another one's by now: the time tells.
void UcxServer::DropAsked() {
  std::erase_if(silent_, [this](const auto& entry) {
    const auto found = peers_.find(entry.second);
    return found == peers_.end() || found->second.asked || found->second.failed ||
           found->second.since != entry.first;
  });
}

void UcxServer::CrowdOut() {
  if (silent_.size() < kSilent) return;
  DropAsked();
  if (silent_.size() >= kSilent) Refuse(silent_.front().second, SocketRefusal::kCrowdedOut);
}

void UcxServer::EndSilent(Time now) {
  if (silent_.empty() || now - silent_.front().first < kFirstAsk) return;
  DropAsked();
  for (const auto& [since, peer] : silent_)
    if (now - since >= kFirstAsk) Refuse(peer, SocketRefusal::kSilent);
}

void UcxServer::Refuse(ucp_ep_h peer, SocketRefusal reason) {
  refusals_->Count(reason);
  Fail(peer);
}

void UcxServer::OnError(void* context, ucp_ep_h peer, ucs_status_t /*status*/) {
  static_cast<UcxServer*>(context)->Fail(peer);
}

void UcxServer::Fail(ucp_ep_h peer) {
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return;
  found->second.failed = true;
  any_failed_ = true;
}

ucs_status_t UcxServer::OnAsk(void* context, const void* header, std::size_t header_length, void* /*data*/,
                              std::size_t /*length*/, const ucp_am_recv_param_t* param) {
  auto* server = static_cast<UcxServer*>(context);
  const bool can_reply = (param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0;
  const auto peer = can_reply ? server->peers_.find(param->reply_ep) : server->peers_.end();
  if (peer == server->peers_.end() || peer->second.failed) return UCS_OK;
  if (const auto ask = ReadFetchAsk(header, header_length)) {
    peer->second.asked = peer->second.asked || SameToken(ask->token, server->token_);
    server->Answer(param->reply_ep, *ask);
  } else {
    server->Refuse(param->reply_ep, SocketRefusal::kBrokenMessage);  // another version, or no Troupe at all
  }
  return UCS_OK;  // an ask has no data worth receiving
}

absl::Status UcxServer::CheckToken(const EndpointToken& told) {
  if (SameToken(told, token_)) return absl::OkStatus();
  strangers_.fetch_add(1);
  return absl::NotFoundError(
      "the reader does not know the token of this process: it was not told of the tensor");
}

absl::StatusOr<PinnedBytes> UcxServer::Find(const FetchAsk& ask) {
  TROUPE_RETURN_IF_ERROR(CheckToken(ask.token));
  return source_(RefOf(ask));
}

void UcxServer::Answer(ucp_ep_h peer, const FetchAsk& ask) {
  // Beyond twice the bound even refusals would pile up at a peer that reads nothing.
  if (sends_.size() >= 2 * kSends) return Fail(peer);
  absl::StatusOr<PinnedBytes> pinned = sends_.size() < kSends
                                           ? Find(ask)
                                           : absl::ResourceExhaustedError(absl::StrCat(
                                                 kSends, " tensors are being sent already; ask again later"));
  sends_.push_back(std::make_unique<Send>());
  Send& send = *sends_.back();
  send.server = this;
  send.peer = peer;
  send.place = std::prev(sends_.end());
  send.deadline = SteadyNow() + kPatience;
  const auto code = static_cast<std::int32_t>(pinned.status().code());
  if (pinned.ok()) {
    send.pinned = *std::move(pinned);
  } else {
    send.refusal = std::string(pinned.status().message().substr(0, kLongestRefusal));
    send.pinned.bytes = std::as_bytes(std::span(send.refusal));
  }
  send.header = {kFetchMagic, code, ask.request, send.pinned.bytes.size()};
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = OnSent;
  param.user_data = &send;
  void* request = ucp_am_send_nbx(peer, kAnswerId, &send.header, sizeof(send.header),
                                  send.pinned.bytes.data(), send.pinned.bytes.size(), &param);
  if (UCS_PTR_IS_PTR(request)) return;
  if (UCS_PTR_IS_ERR(request)) Fail(peer);
  sends_.erase(send.place);
}

void UcxServer::OnSent(void* request, ucs_status_t status, void* context) {
  auto* send = static_cast<Send*>(context);
  UcxServer* server = send->server;
  if (status != UCS_OK) server->Fail(send->peer);
  ucp_request_free(request);
  server->sends_.erase(send->place);
}

void UcxServer::Step(Time now) {
  for (const auto& send : sends_) {
    if (send->deadline > now) continue;
    send->deadline = Time::max();  // its connection goes, once
    Fail(send->peer);
  }
  EndSilent(now);
  if (!any_failed_) return;
  any_failed_ = false;
  for (auto peer = peers_.begin(); peer != peers_.end();) {
    if (!peer->second.failed) {
      ++peer;
      continue;
    }
    const ucp_ep_h failed = peer->first;
    peer = peers_.erase(peer);
    core_.Close(failed, [this, failed] { Forget(failed); });
  }
}

// Nothing reads the bytes of its answers any more, whether UCX says so of each or not.
void UcxServer::Forget(ucp_ep_h peer) {
  for (const auto& send : sends_) {
    if (send->peer != peer) continue;
    send->peer = nullptr;  // the next connection may get the same address
    send->deadline = Time::max();
    send->pinned.pin.reset();
  }
}

Time UcxServer::next_deadline() const {
  Time next = Time::max();
  for (const auto& send : sends_) next = std::min(next, send->deadline);
  if (!silent_.empty()) next = std::min(next, silent_.front().first + kFirstAsk);
  return next;
}

void UcxServer::Stop() {
  for (const auto& [peer, failed] : peers_) {
    core_.Close(peer, [this, gone = peer] { Forget(gone); });
  }
  peers_.clear();
}

}  // namespace troupe::transport
