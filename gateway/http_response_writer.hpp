// HTTP RESPONSE WRITER: puts an answer into the form of HTTP/1.x: which lines stand before it, and what of it
// follows them. Only http_*.cpp see this header.
#pragma once

#include <boost/asio/buffer.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gateway/http_message.hpp"

namespace troupe::gateway {

// How the request wants its answer.
struct HttpForm {
  unsigned version = 11;   // of HTTP
  bool head_only = false;  // the request was HEAD
  bool close = false;      // nothing follows on this connection
};

// The bytes of all parts of the answer.
[[nodiscard]] std::uint64_t LengthOf(const HttpResponse& response);

// One connection's answers, one at a time.
class HttpResponseWriter {
 public:
  // Header lines of every answer to the request under way; each ends in "\r\n".
  void SetHeaders(std::string lines) { extra_headers_ = std::move(lines); }
  // What goes out. `date` is the line of the date. The buffers lie in `response` and in the writer, and are
  // valid until either changes.
  [[nodiscard]] std::vector<boost::asio::const_buffer> Gather(const HttpResponse& response, HttpForm form,
                                                              std::string_view date);

 private:
  std::string extra_headers_;
  std::string head_;  // keeps its memory from answer to answer
};

}  // namespace troupe::gateway
