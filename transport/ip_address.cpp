#include "transport/ip_address.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <array>
#include <charconv>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"

namespace troupe::transport {

absl::StatusOr<sockaddr_storage> ParseAddress(const std::string& text) {
  const absl::Status bad =
      absl::InvalidArgumentError(absl::StrCat("address '", text, "': must be 'ip:port' or '[ipv6]:port'"));
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return bad;
  std::uint16_t port = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data() + colon + 1, end, port);
  if (parsed.ec != std::errc() || parsed.ptr != end) return bad;
  sockaddr_storage address{};
  std::string ip = text.substr(0, colon);
  if (ip.front() == '[' && ip.back() == ']') {
    auto* six = reinterpret_cast<sockaddr_in6*>(&address);
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(port);
    if (inet_pton(AF_INET6, ip.substr(1, ip.size() - 2).c_str(), &six->sin6_addr) != 1) return bad;
  } else {
    auto* four = reinterpret_cast<sockaddr_in*>(&address);
    four->sin_family = AF_INET;
    four->sin_port = htons(port);
    if (inet_pton(AF_INET, ip.c_str(), &four->sin_addr) != 1) return bad;
  }
  return address;
}

std::string InterfaceOf(const sockaddr_storage& address) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(all, freeifaddrs);
  // The whole of 127.0.0.0/8 belongs to the interface of 127.0.0.1.
  const auto same = [&](const sockaddr* candidate) {
    if (candidate == nullptr || candidate->sa_family != address.ss_family) return false;
    if (candidate->sa_family == AF_INET) {
      const auto is = ntohl(reinterpret_cast<const sockaddr_in*>(candidate)->sin_addr.s_addr);
      const auto wanted = ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr);
      return is == wanted || (is >> 24 == 127 && wanted >> 24 == 127);
    }
    if (candidate->sa_family != AF_INET6) return false;
    return std::memcmp(&reinterpret_cast<const sockaddr_in6*>(candidate)->sin6_addr,
                       &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, sizeof(in6_addr)) == 0;
  };
  for (const ifaddrs* entry = all; entry != nullptr; entry = entry->ifa_next)
    if (same(entry->ifa_addr)) return entry->ifa_name;
  return {};
}

socklen_t AddressLength(const sockaddr_storage& address) {
  return address.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

std::string FormatAddress(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.ss_family == AF_INET6) {
    const auto& six = reinterpret_cast<const sockaddr_in6&>(address);
    inet_ntop(AF_INET6, &six.sin6_addr, text.data(), text.size());
    return absl::StrCat("[", text.data(), "]:", ntohs(six.sin6_port));
  }
  const auto& four = reinterpret_cast<const sockaddr_in&>(address);
  inet_ntop(AF_INET, &four.sin_addr, text.data(), text.size());
  return absl::StrCat(text.data(), ":", ntohs(four.sin_port));
}

}  // namespace troupe::transport
