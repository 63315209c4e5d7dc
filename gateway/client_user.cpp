#include "gateway/client_user.hpp"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "gateway/text.hpp"

namespace troupe::gateway {

namespace {

// Users that this user namespace has no number for have this one in common: it does not name one of them.
constexpr uid_t kUnmappedUser = 65534;

struct Question {
  nlmsghdr header;
  inet_diag_req_v2 request;
};
struct Answer {
  nlmsghdr header;
  inet_diag_msg socket;
};

// Owns the socket of one question.
class DiagSocket {
 public:
  DiagSocket() : descriptor_(socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG)) {
    // The kernel answers inside the send; the limit is for a kernel that does not.
    const timeval limit{1, 0};
    if (descriptor_ >= 0) setsockopt(descriptor_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  }
  DiagSocket(const DiagSocket&) = delete;
  DiagSocket& operator=(const DiagSocket&) = delete;
  ~DiagSocket() {
    if (descriptor_ >= 0) close(descriptor_);
  }

  // The bytes of the answer, which go to `into`; -1 with errno.
  ssize_t Ask(const Question& question, std::array<std::byte, 4096>& into) {
    if (descriptor_ < 0) return -1;
    sockaddr_nl kernel{};
    kernel.nl_family = AF_NETLINK;
    if (sendto(descriptor_, &question, sizeof(question), 0, reinterpret_cast<const sockaddr*>(&kernel),
               sizeof(kernel)) != static_cast<ssize_t>(sizeof(question)))
      return -1;
    return recv(descriptor_, into.data(), into.size(), 0);
  }

 private:
  const int descriptor_;
};

// The connection as the client's end sees it: the remote end is the source.
Question QuestionOf(const TcpEnds& ends) {
  Question question{};
  question.header.nlmsg_len = sizeof(question);
  question.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  question.header.nlmsg_flags = NLM_F_REQUEST;
  question.request.sdiag_family = ends.is_v6 ? AF_INET6 : AF_INET;
  question.request.sdiag_protocol = IPPROTO_TCP;
  question.request.idiag_states = 1U << TCP_ESTABLISHED;
  inet_diag_sockid& id = question.request.id;
  id.idiag_sport = htons(ends.remote.port);
  id.idiag_dport = htons(ends.local.port);
  std::memcpy(id.idiag_src, ends.remote.address.data(), ends.remote.address.size());
  std::memcpy(id.idiag_dst, ends.local.address.data(), ends.local.address.size());
  id.idiag_cookie[0] = id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  return question;
}

absl::Status NotHere() {
  return absl::PermissionDeniedError(
      "shared memory is for clients on the gateway's own machine, and the kernel knows no established "
      "connection of this machine that ends at this client; send the tensor's bytes in the body instead");
}

absl::Status NotTold(int error) {
  return absl::UnavailableError(
      Cat("the kernel did not say which user this client runs as (sock_diag: ", std::string(strerror(error)),
          "), so its shared memory cannot be used; send the tensor's bytes in the body instead"));
}

}  // namespace

absl::StatusOr<uid_t> UserAtRemoteEnd(const TcpEnds& ends) {
  const Question question = QuestionOf(ends);
  std::array<std::byte, 4096> bytes;
  const ssize_t length = DiagSocket().Ask(question, bytes);
  if (length < 0) return NotTold(errno);
  Answer answer{};
  nlmsgerr refusal{};
  std::memcpy(&answer, bytes.data(), std::min(sizeof(answer), static_cast<std::size_t>(length)));
  if (answer.header.nlmsg_type == NLMSG_ERROR) {
    if (static_cast<std::size_t>(length) < sizeof(nlmsghdr) + sizeof(refusal)) return NotTold(EPROTO);
    std::memcpy(&refusal, bytes.data() + sizeof(nlmsghdr), sizeof(refusal));
    return refusal.error == -ENOENT ? NotHere() : NotTold(-refusal.error);
  }
  if (answer.header.nlmsg_type != SOCK_DIAG_BY_FAMILY || static_cast<std::size_t>(length) < sizeof(answer))
    return NotTold(EPROTO);
  const inet_diag_msg& found = answer.socket;
  const inet_diag_sockid& asked = question.request.id;
  const bool same = found.id.idiag_sport == asked.idiag_sport && found.id.idiag_dport == asked.idiag_dport &&
                    std::memcmp(found.id.idiag_src, asked.idiag_src, sizeof(asked.idiag_src)) == 0 &&
                    std::memcmp(found.id.idiag_dst, asked.idiag_dst, sizeof(asked.idiag_dst)) == 0;
  // A socket without an inode belongs to no process any more, and its user reads as 0.
  if (!same || found.idiag_state != TCP_ESTABLISHED || found.idiag_inode == 0) return NotHere();
  if (found.idiag_uid == kUnmappedUser) {
    return absl::PermissionDeniedError(
        "this client's user has no number of its own on the gateway's side (it reads as 65534), so its shared "
        "memory cannot be told from other users'; send the tensor's bytes in the body instead");
  }
  return found.idiag_uid;
}

absl::StatusOr<uid_t> ClientUser::Get() {
  const std::lock_guard lock(mutex_);
  if (!user_) {
    auto user = UserAtRemoteEnd(ends_);
    if (!user.ok()) return user.status();
    user_ = *user;
  }
  return *user_;
}

}  // namespace troupe::gateway
