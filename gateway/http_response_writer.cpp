#include "gateway/http_response_writer.hpp"

#include "gateway/http_error.hpp"
#include "gateway/text.hpp"

namespace troupe::gateway {

namespace asio = boost::asio;

namespace {
constexpr std::size_t kJoinedBody = 32 * 1024;  // a body up to this is copied behind its head: one write
}  // namespace

std::uint64_t LengthOf(const HttpResponse& response) {
  std::uint64_t length = response.body.size();
  for (const OutputBuffer& part : response.parts) length += part.bytes().size();
  return length;
}

std::vector<asio::const_buffer> HttpResponseWriter::Gather(const HttpResponse& response, HttpForm form,
                                                           std::string_view date) {
  head_.clear();
  Append(head_, "HTTP/1.1 ", response.code, " ", HttpReason(response.code), "\r\n");
  if (response.code != 204)
    Append(head_, "Content-Type: ", response.content_type, "\r\nContent-Length: ", LengthOf(response),
           "\r\n");
  Append(head_, date, response.headers, extra_headers_);
  if (form.close) {
    head_ += "Connection: close\r\n";
  } else if (form.version == 10) {
    head_ += "Connection: keep-alive\r\n";
  }
  head_ += "\r\n";
  std::vector<asio::const_buffer> buffers;
  if (form.head_only) {
    buffers.push_back(asio::buffer(head_));
    return buffers;
  }
  const bool joined = response.body.size() <= kJoinedBody;
  if (joined) head_ += response.body;
  buffers.push_back(asio::buffer(head_));
  if (!joined) buffers.push_back(asio::buffer(response.body));
  for (const OutputBuffer& part : response.parts) {
    if (!part.bytes().empty()) buffers.push_back(asio::buffer(part.bytes().data(), part.bytes().size()));
  }
  return buffers;
}

}  // namespace troupe::gateway
