// Between an address as text and as Boost has it. Only stream_*.cpp see this header.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <cstring>
#include <string>

#include "absl/status/statusor.h"
#include "base/status.hpp"
#include "transport/ip_address.hpp"

namespace troupe::transport {

inline absl::StatusOr<boost::asio::ip::tcp::endpoint> ToEndpoint(const std::string& text) {
  TROUPE_ASSIGN_OR_RETURN(const sockaddr_storage address, ParseAddress(text));
  boost::asio::ip::tcp::endpoint endpoint;
  std::memcpy(endpoint.data(), &address, AddressLength(address));
  endpoint.resize(AddressLength(address));
  return endpoint;
}

inline std::string ToText(const boost::asio::ip::tcp::endpoint& endpoint) {
  sockaddr_storage address{};
  std::memcpy(&address, endpoint.data(), endpoint.size());
  return FormatAddress(address);
}

}  // namespace troupe::transport
