// A process reads the same status that another process answered with, whatever its code and message are.
#include "base/wire_status.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

struct FakeReply {
  [[nodiscard]] int code() const { return code_; }
  [[nodiscard]] const std::string& message() const { return message_; }
  void set_code(int code) { code_ = code; }
  void set_message(std::string message) { message_ = std::move(message); }
  int code_ = -1;
  std::string message_;
};

TEST(WireStatus, EveryCodeArrivesAsItWasSentWithAFullDiskToo) {
  for (int code = 0; code <= 16; ++code) {
    const absl::Status sent(static_cast<absl::StatusCode>(code), code == 0 ? "" : "why");
    FakeReply reply;
    SetStatus(sent, reply);
    EXPECT_EQ(StatusIn(reply), sent);
    EXPECT_EQ(reply.code() == 0, sent.ok());
    if (sent.ok()) continue;
    SetStatus(MarkDiskFull(sent), reply);
    EXPECT_TRUE(IsDiskFull(StatusIn(reply))) << sent;
    EXPECT_EQ(StatusIn(reply).code(), sent.code());
    EXPECT_EQ(StatusIn(reply).message(), "why");
  }
}

TEST(WireStatus, ACodeThatIsNotCanonicalIsAnUnknownError) {
  for (const int code : {17, -1, 999, kDiskFullCodes, kDiskFullCodes + 17, 1 << 30}) {
    FakeReply reply;
    reply.set_code(code);
    EXPECT_FALSE(StatusIn(reply).ok()) << code;
    EXPECT_EQ(StatusIn(reply).code(), absl::StatusCode::kUnknown) << code;
  }
}

}  // namespace
}  // namespace troupe
