// PRIVILEGES: the user, capabilities, namespaces and limits that a process gives up.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace troupe::gpu {

// A root's import runs as this user plus its process number, so that no two share one. Beyond what
// distributions and container managers hand out (systemd-nspawn ends at 1879048191).
inline constexpr std::uint32_t kFirstJailUser = 0x7e000000;

// Sees no network, no System V objects, no host names of others, and an empty folder as the root of the file
// system. Without root's rights this takes a user namespace, in which the process keeps its numbers.
// Unavailable: the kernel or a container refuses.
[[nodiscard]] absl::Status EnterEmptyNamespaces(bool user_namespace);

// Root becomes the user of kFirstJailUser, or 'nobody' in a container without that number; any other user
// stays. Unavailable: root remains root.
[[nodiscard]] absl::Status TakeOwnUser();

// No program started later can gain any. Does nothing where the process may not, which then has none to pass.
void DropBoundingSet();
// None effective, permitted, inheritable or ambient.
[[nodiscard]] absl::Status DropCapabilities();

// Not traceable and not dumpable by its own user's processes; programs started gain nothing.
[[nodiscard]] absl::Status ForbidNewPrivileges();

// `grace`: how far the hard limit lies beyond. Never raises one.
[[nodiscard]] absl::Status Limit(int resource, std::uint64_t value, const std::string& what,
                                 std::uint64_t grace = 0);

}  // namespace troupe::gpu
