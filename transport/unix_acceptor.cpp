#include "transport/unix_acceptor.hpp"

#include "base/status.hpp"

namespace troupe::transport {

absl::StatusOr<UnixAcceptor> UnixAcceptor::Listen(const std::string& path,
                                                  std::shared_ptr<SocketRefusals> refusals) {
  TROUPE_ASSIGN_OR_RETURN(UnixListener listener, UnixListener::Listen(path));
  if (refusals == nullptr) refusals = std::make_shared<SocketRefusals>();
  return UnixAcceptor(std::move(listener), std::move(refusals));
}

std::optional<UnixConnection> UnixAcceptor::Accept(Time now) {
  absl::StatusOr<UnixConnection> connection = listener_.Accept(Duration::zero());
  if (connection.ok()) return *std::move(connection);
  if (absl::IsPermissionDenied(connection.status())) refusals_->Count(SocketRefusal::kOtherUser);
  if (absl::IsResourceExhausted(connection.status())) {
    refusals_->Count(SocketRefusal::kNoDescriptors);
    resumes_ = now + kPause;
  }
  return std::nullopt;
}

}  // namespace troupe::transport
