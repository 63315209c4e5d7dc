// IP ADDRESSES with their ports, as text and as the system has them. Names are not looked up here.
#pragma once

#include <sys/socket.h>

#include <string>

#include "absl/status/statusor.h"

namespace troupe::transport {

// "1.2.3.4:56" or "[::1]:56". InvalidArgument for anything else.
absl::StatusOr<sockaddr_storage> ParseAddress(const std::string& text);
// How many bytes of it are in use.
[[nodiscard]] socklen_t AddressLength(const sockaddr_storage& address);
[[nodiscard]] std::string FormatAddress(const sockaddr_storage& address);
// The network interface that has this address; empty when none has it, as for 0.0.0.0.
[[nodiscard]] std::string InterfaceOf(const sockaddr_storage& address);

}  // namespace troupe::transport
