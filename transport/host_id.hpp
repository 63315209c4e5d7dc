// Identities of this host and process that other processes compare.
#pragma once

#include <cstdint>
#include <string>

namespace troupe::transport {

// Equal in two processes exactly when they can reach each other's sockets and share memory: the boot id and
// the mount namespace (a container that sees other files counts as another host). Read once.
[[nodiscard]] const std::string& HostId();

// A number that no other call gives: identities of arenas, regions, worker generations. From the kernel's
// generator on purpose: two processes with one seed must not agree. Never zero. Nothing that is replayed may
// depend on it.
[[nodiscard]] std::uint64_t UniqueId();

}  // namespace troupe::transport
