#include "transport/fetch_wire.hpp"

#include <sys/random.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/status.hpp"

namespace troupe::transport {

namespace {

constexpr char kBetween = '/';

const char* NameOf(FetchProtocol protocol) {
  return protocol == FetchProtocol::kStream ? "stream" : "ucx";
}

// -1 for what is not a digit.
int DigitOf(char text) {
  if (text >= '0' && text <= '9') return text - '0';
  return text >= 'a' && text <= 'f' ? text - 'a' + 10 : -1;
}

}  // namespace

EndpointToken FreshToken() {
  EndpointToken token{};
  // One call gives as much as this whole, or fails.
  const ssize_t got = getrandom(token.data(), token.size(), 0);
  TROUPE_CHECK(got == static_cast<ssize_t>(token.size()), "the kernel gives random numbers");
  return token;
}

bool SameToken(const EndpointToken& a, const EndpointToken& b) {
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned>(a[i] ^ b[i]);
  return difference == 0;
}

std::string FormatEndpointAddress(const EndpointAddress& endpoint) {
  const std::string token(endpoint.token.begin(), endpoint.token.end());
  return absl::StrCat(NameOf(endpoint.protocol), "/", endpoint.address, "/", absl::BytesToHexString(token));
}

absl::StatusOr<EndpointAddress> ParseEndpointAddress(const std::string& text) {
  const auto bad =
      absl::InvalidArgumentError("the endpoint of a tensor's owner is not 'PROTOCOL/ip:port/TOKEN'");
  EndpointAddress endpoint;
  const auto first = text.find(kBetween), last = text.rfind(kBetween);
  if (first == last || text.size() - last - 1 != 2 * endpoint.token.size()) return bad;
  const auto protocol = std::string_view(text).substr(0, first);
  if (protocol == NameOf(FetchProtocol::kUcx)) {
    endpoint.protocol = FetchProtocol::kUcx;
  } else if (protocol != NameOf(FetchProtocol::kStream)) {
    return bad;
  }
  endpoint.address = text.substr(first + 1, last - first - 1);
  for (std::size_t i = 0; i < endpoint.token.size(); ++i) {
    const int high = DigitOf(text[last + 1 + 2 * i]), low = DigitOf(text[last + 2 + 2 * i]);
    if (high < 0 || low < 0) return bad;
    endpoint.token[i] = static_cast<unsigned char>(high * 16 + low);
  }
  return endpoint;
}

absl::StatusOr<EndpointAddress> EndpointOf(const proto::ArenaRef& ref, FetchProtocol protocol) {
  if (ref.endpoint().empty())
    return absl::FailedPreconditionError(
        absl::StrCat("a tensor of ", ref.length(), " bytes on host '", ref.host(),
                     "' has no network endpoint: its owner does not serve other hosts"));
  TROUPE_ASSIGN_OR_RETURN(auto endpoint, ParseEndpointAddress(ref.endpoint()));
  if (endpoint.protocol != protocol)
    return absl::FailedPreconditionError(absl::StrCat(
        "a tensor on host '", ref.host(), "' is served by '", NameOf(endpoint.protocol),
        "' and this daemon fetches by '", NameOf(protocol), "': give all daemons the same --tensor-network"));
  return endpoint;
}

FetchAsk MakeAsk(const proto::ArenaRef& ref, const EndpointToken& token, std::uint64_t request) {
  return {kFetchMagic, kFetchVersion, request, ref.arena(), ref.offset(), ref.length(), ref.slice(), token};
}

}  // namespace troupe::transport
