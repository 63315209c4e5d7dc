#include "gateway/upload_exchange.hpp"

#include <charconv>
#include <utility>

#include "base/digest.hpp"
#include "base/status.hpp"
#include "base/wire_status.hpp"
#include "gateway/http_error.hpp"
#include "gateway/http_exchanges.hpp"
#include "gateway/text.hpp"

namespace troupe::gateway {

namespace {

int CodeOfUpload(const absl::Status& status) {
  if (absl::IsOutOfRange(status)) return 409;  // the client's offset is not the cluster's
  if (absl::IsDataLoss(status)) return 422;    // the bytes are not those of the name
  return HttpCode(status);
}

void DescribeUpload(const std::string& digest, const proto::UploadReply& upload, HttpResponse& response) {
  Append(response.headers, "Upload-Offset: ", upload.received(),
         "\r\nUpload-Complete: ", upload.complete() ? "?1" : "?0",
         "\r\nUpload-Limit: max-append-size=", kMaxUploadPart.count(), "\r\nCache-Control: no-store\r\n");
  if (response.code == 200)
    response.body = Cat(R"({"digest":")", digest, R"(","received":)", upload.received(), R"(,"complete":)",
                        upload.complete() ? "true" : "false", "}");
}

HttpResponse UploadResponse(const std::string& digest, const absl::StatusOr<proto::UploadReply>& upload) {
  if (!upload.ok()) return ErrorResponse(upload.status());
  HttpResponse response;
  if (upload->code() != 0) {
    response = ErrorResponse(StatusIn(*upload));
    response.code = CodeOfUpload(StatusIn(*upload));
  }
  DescribeUpload(digest, *upload, response);
  return response;
}

AdminDone<proto::UploadReply> ReplyToUpload(const std::string& digest, HttpReply reply) {
  return [digest, reply = std::make_shared<HttpReply>(std::move(reply))](
             const absl::StatusOr<proto::UploadReply>& upload) {
    ReplyWith(*reply, UploadResponse(digest, upload));
  };
}

// Upload-Offset is an integer and Upload-Complete a boolean of RFC 9651 (structured fields).
absl::Status ReadUploadFields(const HttpRequestHead& head, UploadPart& part) {
  const auto* const end = head.upload_offset.data() + head.upload_offset.size();
  const auto [rest, error] = std::from_chars(head.upload_offset.data(), end, part.offset);
  if (error != std::errc() || rest != end) {
    return absl::InvalidArgumentError(Cat("the header Upload-Offset is '", head.upload_offset.substr(0, 40),
                                          "'; it says at which byte of the whole file the body begins"));
  }
  if (head.upload_complete != "?0" && head.upload_complete != "?1") {
    return absl::InvalidArgumentError(Cat("the header Upload-Complete is '",
                                          head.upload_complete.substr(0, 40),
                                          "'; it is ?1 when the body ends the file, else ?0"));
  }
  part.complete = head.upload_complete == "?1";
  return absl::OkStatus();
}

class AppendExchange final : public HttpExchange {
 public:
  AppendExchange(UploadPart part, ClusterAdmin& admin) : part_(std::move(part)), admin_(admin) {}
  [[nodiscard]] Bytes body_limit() const override { return kMaxUploadPart; }
  absl::StatusOr<std::span<std::byte>> NextSpan(std::uint64_t remaining) override {
    return body_.Next(remaining);
  }
  void Finish(HttpReply reply) override {
    part_.bytes = body_.Take();
    auto done = ReplyToUpload(part_.digest, std::move(reply));
    give_up_ = admin_.AppendUpload(std::move(part_), std::move(done));
  }
  // The server no longer counts the body's bytes, so the body must not be kept.
  void Abandon() override { give_up_(); }

 private:
  UploadPart part_;
  ClusterAdmin& admin_;
  TextBody body_;
  AdminGiveUp give_up_ = [] {};
};

}  // namespace

std::shared_ptr<HttpExchange> MakeUploadExchange(const std::string& digest, const HttpRequestHead& head,
                                                 const proto::Caller& caller, ClusterAdmin& admin) {
  if (!IsSha256Hex(digest)) {
    return Ready(ErrorResponse(400, Cat("'", digest.substr(0, 80),
                                        "' names no upload: its name is the SHA-256 of the whole file, 64 "
                                        "lower-case hexadecimal digits")));
  }
  UploadPart part;
  part.digest = digest;
  part.client = ClientOf(caller);
  if (head.method == "DELETE") {
    return std::make_shared<TextExchange>(
        kMaxControlBody, [&admin, part](const std::string&, HttpReply reply) {
          admin.DropUpload(part.digest, part.client, ReplyToUpload(part.digest, std::move(reply)));
        });
  }
  if (head.method != "PATCH") {
    return std::make_shared<TextExchange>(
        kMaxControlBody, [&admin, part](const std::string&, HttpReply reply) {
          admin.ShowUpload(part.digest, part.client, ReplyToUpload(part.digest, std::move(reply)));
        });
  }
  if (const auto read = ReadUploadFields(head, part); !read.ok()) return Ready(ErrorResponse(read));
  return std::make_shared<AppendExchange>(std::move(part), admin);
}

}  // namespace troupe::gateway
