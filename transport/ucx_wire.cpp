#include "transport/ucx_wire.hpp"

#include <utility>

#include "absl/strings/escaping.h"

namespace troupe::transport {

namespace {

constexpr char kBetween = '/';

// -1 for what is not a digit.
int DigitOf(char text) {
  if (text >= '0' && text <= '9') return text - '0';
  return text >= 'a' && text <= 'f' ? text - 'a' + 10 : -1;
}

}  // namespace

std::string FormatUcxAddress(const UcxAddress& endpoint) {
  const std::string bytes(endpoint.token.begin(), endpoint.token.end());
  return endpoint.address + kBetween + absl::BytesToHexString(bytes);
}

absl::StatusOr<UcxAddress> ParseUcxAddress(const std::string& text) {
  const auto bad = absl::InvalidArgumentError("the endpoint of a tensor's owner is not 'ip:port/TOKEN'");
  UcxAddress endpoint;
  const auto between = text.rfind(kBetween);
  if (between == std::string::npos || text.size() - between - 1 != 2 * endpoint.token.size()) return bad;
  endpoint.address = text.substr(0, between);
  for (std::size_t i = 0; i < endpoint.token.size(); ++i) {
    const int high = DigitOf(text[between + 1 + 2 * i]), low = DigitOf(text[between + 2 + 2 * i]);
    if (high < 0 || low < 0) return bad;
    endpoint.token[i] = static_cast<unsigned char>(high * 16 + low);
  }
  return endpoint;
}

}  // namespace troupe::transport
