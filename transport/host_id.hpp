// Identities of this host and process that other processes compare.
#pragma once

#include <cstdint>
#include <string>

namespace troupe::transport {

// Equal in two processes that can reach each other's sockets and share memory: the boot id, and the file systems of
// `/` and `/run`. A container has others, and counts as another host; units of one host have the same ones, though
// each has a mount namespace of its own. Read once.
[[nodiscard]] const std::string& HostId();

// A number that no other call gives: identities of arenas, regions, worker generations. From the kernel's
// generator on purpose: two processes with one seed must not agree. Never zero. Nothing that is replayed may
// depend on it.
[[nodiscard]] std::uint64_t UniqueId();

}  // namespace troupe::transport
