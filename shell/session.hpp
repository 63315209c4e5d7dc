// SESSION: one conversation with the cluster. Holds the client (made when first needed) and how answers are
// shown. A call runs on a thread of its own, so that progress is drawn and Ctrl-C is heard meanwhile; an
// interrupted call is left behind with its client, and the next one connects anew. One thread, except inside
// of a call.
#pragma once

#include <google/protobuf/message.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "actors/admin_client.hpp"
#include "shell/console.hpp"
#include "shell/text/text.hpp"

namespace troupe::shell {

struct GlobalOptions {
  std::string manager = "127.0.0.1:7400";
  std::string tls_dir = {};  // of the caller's certificate; empty: none
  bool insecure_network = false;
  bool json = false;
  bool no_color = false;
  std::optional<Duration> timeout;  // absent: what suits the request
};

using ClientFactory =
    std::function<absl::StatusOr<std::unique_ptr<actors::AdminClient>>(actors::AdminClient::Options)>;

class Session {
 public:
  Session(Console& console, ClientFactory factory) : console_(console), factory_(std::move(factory)) {}

  // Of the command that comes next. Another manager means another client.
  void Configure(const GlobalOptions& options);
  [[nodiscard]] const GlobalOptions& options() const { return options_; }
  [[nodiscard]] bool json() const { return options_.json; }
  [[nodiscard]] Console& console() { return console_; }
  [[nodiscard]] std::ostream& out() { return console_.out(); }
  [[nodiscard]] Style style() const;

  static constexpr Duration kOrdinary = std::chrono::seconds(10);
  // `doing` is shown after a second: "importing, adopting". `usual` bounds the call unless the user gave
  // --timeout.
  absl::StatusOr<proto::AdminReply> Ask(proto::AdminRequest request, std::string_view doing = "asking",
                                        Duration usual = kOrdinary);
  // The same; on a terminal, `watch` asks meanwhile, on a thread of its own, what is being done. An empty
  // answer leaves the text as it was.
  using Watch = std::function<std::string(actors::AdminClient&)>;
  absl::StatusOr<proto::AdminReply> AskWatched(proto::AdminRequest request, std::string_view doing,
                                               Duration usual, Watch watch);
  absl::StatusOr<std::string> Upload(std::shared_ptr<const actors::UploadSource> source,
                                     std::string_view doing);
  absl::StatusOr<proto::InferReply> Infer(proto::InferRequest request, Duration timeout);

  // The whole message as JSON with every field, under the names of the .proto files.
  void PrintJson(const google::protobuf::Message& message);
  // A call was interrupted and its thread still runs: leave by _Exit, not by destroying what it uses.
  [[nodiscard]] bool abandoned() const { return abandoned_; }

 private:
  absl::StatusOr<std::shared_ptr<actors::AdminClient>> Client();
  template <class T>
  absl::StatusOr<T> Await(std::string_view doing, const std::shared_ptr<std::atomic<std::uint64_t>>& sent,
                          std::uint64_t total, std::function<absl::StatusOr<T>(actors::AdminClient&)> call,
                          const Watch& watch = nullptr);
  [[nodiscard]] absl::Status Explain(const absl::Status& status) const;

  Console& console_;
  ClientFactory factory_;
  GlobalOptions options_;
  std::shared_ptr<actors::AdminClient> client_;
  bool abandoned_ = false;
};

}  // namespace troupe::shell
