#include "shell/session.hpp"

#include <google/protobuf/util/json_util.h>

#include <condition_variable>
#include <cstdlib>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "base/status.hpp"
#include "base/wire_status.hpp"
#include "shell/exit_code.hpp"
#include "shell/progress.hpp"
#include "shell/text/cat.hpp"

namespace troupe::shell {

namespace {

// Asks twice a second until it is destroyed, which waits for the question that is under way.
class Watcher {
 public:
  Watcher(std::shared_ptr<actors::AdminClient> client, Session::Watch watch)
      : client_(std::move(client)), watch_(std::move(watch)), thread_([this] { Run(); }) {}
  ~Watcher() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;
  // What is new since the last call; empty: nothing.
  std::string Take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(text_, {});
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, std::chrono::milliseconds(500), [this] { return stopping_; })) {
      lock.unlock();
      auto text = watch_(*client_);
      lock.lock();
      text_ = std::move(text);
    }
  }

  const std::shared_ptr<actors::AdminClient> client_;
  const Session::Watch watch_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::string text_;       // guarded by mutex_
  bool stopping_ = false;  // guarded by mutex_
  std::thread thread_;     // last: it uses all of the above
};

}  // namespace

void Session::Configure(const GlobalOptions& options) {
  if (options.manager != options_.manager || options.tls_dir != options_.tls_dir) client_.reset();
  options_ = options;
}

Style Session::style() const {
  const char* term = std::getenv("TERM");
  const bool dumb = term != nullptr && std::string_view(term) == "dumb";
  return Style(console_.out_is_terminal() && !options_.no_color && !dumb &&
               std::getenv("NO_COLOR") == nullptr);
}

absl::StatusOr<std::shared_ptr<actors::AdminClient>> Session::Client() {
  if (client_ == nullptr) {
    actors::AdminClient::Options options;
    options.manager = options_.manager;
    options.tls_dir = options_.tls_dir;
    options.insecure_network = options_.insecure_network;
    options.timeout = kOrdinary;
    TROUPE_ASSIGN_OR_RETURN(client_, factory_(options));
  }
  return client_;
}

template <class T>
absl::StatusOr<T> Session::Await(std::string_view doing,
                                 const std::shared_ptr<std::atomic<std::uint64_t>>& sent, std::uint64_t total,
                                 std::function<absl::StatusOr<T>(actors::AdminClient&)> call,
                                 const Watch& watch) {
  TROUPE_ASSIGN_OR_RETURN(auto client, Client());
  std::packaged_task<absl::StatusOr<T>()> task([client, call = std::move(call)] { return call(*client); });
  auto answer = task.get_future();
  std::optional<Watcher> watcher;
  if (watch && console_.err_is_terminal()) watcher.emplace(client, watch);
  client.reset();
  std::thread caller(std::move(task));

  Progress progress(console_, std::string(doing), total);
  while (answer.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready) {
    if (console_.interrupted()) {
      caller.detach();
      client_.reset();
      abandoned_ = true;
      return InterruptedError();
    }
    if (watcher)
      if (auto text = watcher->Take(); !text.empty()) progress.Say(std::move(text));
    progress.Update(sent ? sent->load() : 0);
  }
  caller.join();
  progress.Finish();
  auto result = answer.get();
  if (!result.ok()) return Explain(result.status());
  return result;
}

absl::StatusOr<proto::AdminReply> Session::Ask(proto::AdminRequest request, std::string_view doing,
                                               Duration usual) {
  return AskWatched(std::move(request), doing, usual, nullptr);
}

absl::StatusOr<proto::AdminReply> Session::AskWatched(proto::AdminRequest request, std::string_view doing,
                                                      Duration usual, Watch watch) {
  const Duration timeout = options_.timeout.value_or(usual);
  auto answer = Await<proto::AdminReply>(
      doing, nullptr, 0,
      [request = std::move(request),
       timeout](actors::AdminClient& client) -> absl::StatusOr<proto::AdminReply> {
        TROUPE_ASSIGN_OR_RETURN(auto reply, client.Ask(request, timeout));
        if (reply.code() != 0) return StatusIn(reply);
        return reply;
      },
      watch);
  // A name, a model or a workflow that the cluster could not take as it is: it did nothing.
  if (absl::IsInvalidArgument(answer.status())) return AsUsageError(answer.status());
  return answer;
}

absl::StatusOr<std::string> Session::Upload(std::shared_ptr<const actors::UploadSource> source,
                                            std::string_view doing) {
  auto sent = std::make_shared<std::atomic<std::uint64_t>>(0);
  const std::uint64_t total = source->size();
  const Duration find = options_.timeout.value_or(Duration::zero());
  return Await<std::string>(doing, sent, total,
                            [source = std::move(source), sent, find](actors::AdminClient& client) {
                              return client.Upload(
                                  source, [sent](std::uint64_t count) { sent->store(count); }, find);
                            });
}

absl::StatusOr<proto::InferReply> Session::Infer(proto::InferRequest request, Duration timeout) {
  return Await<proto::InferReply>("running", nullptr, 0,
                                  [request = std::move(request), timeout](
                                      actors::AdminClient& client) -> absl::StatusOr<proto::InferReply> {
                                    TROUPE_ASSIGN_OR_RETURN(auto reply, client.Infer(request, timeout));
                                    if (reply.code() != 0) return StatusIn(reply);
                                    return reply;
                                  });
}

void Session::PrintJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(message, &text, options).ok()) text = "{}\n";
  out() << text;
}

absl::Status Session::Explain(const absl::Status& status) const {
  // Only what names the manager's address is about reaching it; a node that is away has its own words.
  if (!absl::IsUnavailable(status) || !absl::StrContains(status.message(), options_.manager)) return status;
  return absl::UnavailableError(
      Cat(status.message(), " Name another address with --manager HOST:PORT or TROUPE_MANAGER"));
}

}  // namespace troupe::shell
