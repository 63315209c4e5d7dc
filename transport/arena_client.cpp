#include "transport/arena_client.hpp"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.hpp"
#include "transport/arena.hpp"
#include "transport/arena_wire.hpp"
#include "transport/steady_clock.hpp"
#include "transport/unix_socket.hpp"

namespace troupe::transport {

ArenaClient::ArenaClient(Options options) : options_(std::move(options)) {}

bool ArenaClient::Reachable(const proto::ArenaRef& ref) const {
  return ref.host() == options_.host && Permitted(ref.socket());
}

// Lexical on purpose: the file system is not asked, and a path with ".." is refused rather than resolved.
bool ArenaClient::Permitted(const std::string& socket) const {
  if (socket.empty() || socket.front() != '/') return false;
  if (absl::StrCat(socket, "/").find("/../") != std::string::npos) return false;
  if (options_.directories.empty()) return true;
  return std::any_of(options_.directories.begin(), options_.directories.end(), [&](std::string directory) {
    if (directory.empty() || directory.back() != '/') directory += '/';
    return socket.starts_with(directory) && socket.size() > directory.size();
  });
}

absl::Status ArenaClient::Check(const proto::ArenaRef& ref) const {
  if (ref.host() != options_.host) {
    return absl::FailedPreconditionError(absl::StrCat("tensor bytes lie on host '", ref.host(),
                                                      "', this is '", options_.host,
                                                      "': they must be fetched over the network"));
  }
  if (!Permitted(ref.socket())) {
    return absl::PermissionDeniedError(absl::StrCat("arena socket '", ref.socket(), "' lies outside of ",
                                                    absl::StrJoin(options_.directories, ", ")));
  }
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> ArenaClient::Ask(const proto::ArenaRef& ref) {
  TROUPE_RETURN_IF_ERROR(Check(ref));
  std::vector<std::uint64_t> known;
  return AskOwner({ref.socket(), ref.arena()}, known);
}

absl::StatusOr<ArenaClient::Resolved> ArenaClient::Resolve(const proto::ArenaRef& ref) {
  TROUPE_RETURN_IF_ERROR(Check(ref));
  TROUPE_ASSIGN_OR_RETURN(std::shared_ptr<const MemoryFile> memory, MapOf({ref.socket(), ref.arena()}));
  TROUPE_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, ResolveSlice(*memory, ref));
  return Resolved{bytes, std::move(memory)};
}

absl::StatusOr<std::shared_ptr<const MemoryFile>> ArenaClient::MapOf(const Key& key) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = entries_.find(key); found != entries_.end()) {
      found->second.used = ++clock_;
      return found->second.memory;
    }
  }
  // The lock is not held while the owner answers: a slow owner delays only the threads that wait for it. Two
  // threads may map the same arena; the second mapping is dropped.
  std::vector<std::uint64_t> known;
  const auto map = [&]() -> absl::StatusOr<std::shared_ptr<const MemoryFile>> {
    TROUPE_ASSIGN_OR_RETURN(UniqueFd descriptor, AskOwner(key, known));
    TROUPE_ASSIGN_OR_RETURN(MemoryFile mapped,
                            MemoryFile::Open(std::move(descriptor), MemoryFile::Access::kReadOnly));
    return std::make_shared<const MemoryFile>(std::move(mapped));
  };
  absl::StatusOr<std::shared_ptr<const MemoryFile>> memory = map();
  const std::lock_guard lock(mutex_);
  if (!known.empty()) {
    std::erase_if(entries_, [&](const auto& entry) {
      return entry.first.first == key.first &&
             std::count(known.begin(), known.end(), entry.first.second) == 0;
    });
  }
  if (!memory.ok()) return memory.status();
  const auto [place, fresh] = entries_.try_emplace(key, Entry{*memory, 0});
  place->second.used = ++clock_;
  std::shared_ptr<const MemoryFile> chosen = place->second.memory;
  while (entries_.size() > std::max<std::size_t>(options_.mappings, 1)) {
    entries_.erase(std::min_element(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
      return a.second.used < b.second.used;
    }));
  }
  return chosen;
}

absl::StatusOr<UniqueFd> ArenaClient::AskOwner(const Key& key, std::vector<std::uint64_t>& known) const {
  const auto& [socket, arena] = key;
  const Time deadline = SteadyNow() + options_.timeout;  // of the whole visit
  absl::StatusOr<UnixConnection> connection = ConnectUnix(socket, options_.timeout);
  if (!connection.ok()) {
    return absl::UnavailableError(
        absl::StrCat("the owner of arena ", arena, " cannot be reached: ", connection.status().message()));
  }
  const ArenaQuestion question{kArenaMagic, kArenaVersion, arena};
  const std::string_view bytes(reinterpret_cast<const char*>(&question), sizeof(question));
  TROUPE_RETURN_IF_ERROR(connection->Send(bytes, {}, deadline - SteadyNow()));
  TROUPE_ASSIGN_OR_RETURN(SocketMessage reply, connection->Receive(deadline - SteadyNow()));
  ArenaAnswer answer{};
  if (reply.bytes.size() == sizeof(answer)) std::memcpy(&answer, reply.bytes.data(), sizeof(answer));
  if (answer.magic != kArenaMagic || answer.count > ArenaServer::kArenas || reply.descriptors.size() > 1) {
    return absl::DataLossError(
        absl::StrCat("the process at ", socket, " is not an arena server of this version"));
  }
  known.assign(answer.known, answer.known + answer.count);
  if (reply.descriptors.empty()) {
    return absl::NotFoundError(
        absl::StrCat("the process at ", socket, " has no arena ", arena, " (any more)"));
  }
  return std::move(reply.descriptors[0]);
}

void ArenaClient::Forget(const std::string& socket) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [&](const auto& entry) { return entry.first.first == socket; });
}

std::size_t ArenaClient::mappings() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace troupe::transport
