// HTTP HEAD: what of a request's head the protocol looks at, and whether the head is sound. Only http_*.cpp
// see this header.
#pragma once

#include <boost/beast/http/fields.hpp>
#include <boost/beast/http/message.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "gateway/http_message.hpp"

namespace troupe::gateway {

using HttpHead = boost::beast::http::request_header<>;

// A line that begins with a space goes on with the one before it (obs-fold); two servers could read it
// differently. Beast would join the two.
[[nodiscard]] bool IsFolded(std::string_view head);

// Refuses what two servers could read differently, and what must not be there twice.
[[nodiscard]] std::optional<HttpResponse> CheckFields(const HttpHead& head);

// The views lie in `head` and in `client`, the client's address.
[[nodiscard]] HttpRequestHead ViewOf(const HttpHead& head, std::string_view client, bool is_loopback);

}  // namespace troupe::gateway
