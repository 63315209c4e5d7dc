#include "actors/gateway/shell_tensors.hpp"

#include <chrono>
#include <memory>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"
#include "base/wire_status.hpp"

namespace troupe::actors {

namespace {

constexpr Duration kBringLimit = std::chrono::seconds(10);

proto::InferReply Instead(const absl::Status& status) {
  proto::InferReply reply;
  SetStatus(status, reply);
  return reply;
}

// The outputs of one reply on their way; the last one to come answers.
struct ShellAnswer {
  proto::InferReply reply;
  std::function<void(proto::InferReply)> done;
  absl::Status status;
  std::size_t open = 1;

  void Close(const absl::Status& part) {
    status.Update(part);
    if (--open > 0) return;
    // The worker that held the outputs is gone with them: the same request again makes new ones.
    done(status.ok() ? std::move(reply)
                     : Instead(absl::UnavailableError(
                           absl::StrCat("the outputs were lost: ", status.message(), "; try again"))));
  }
};

}  // namespace

PlacedInputs::~PlacedInputs() {
  for (const auto& place : places_) static_cast<void>(channel_.Release(place));
}

absl::Status PlacedInputs::Place(proto::InferRequest& request) {
  for (auto& input : *request.mutable_inputs()) {
    const std::string& bytes = input.data().inlined();
    if (Bytes(bytes.size()) <= transport::kInlineLimit) continue;
    TROUPE_ASSIGN_OR_RETURN(auto place, channel_.Put(std::as_bytes(std::span(bytes)), input.spec().name()));
    places_.push_back(place);
    *input.mutable_data() = std::move(place);
  }
  return absl::OkStatus();
}

void BringOutputs(transport::TensorChannel& channel, proto::InferReply reply,
                  const std::function<FetchDone(FetchDone)>& inside,
                  std::function<void(proto::InferReply)> done) {
  Bytes size;
  for (const auto& output : reply.outputs()) size += transport::SizeOf(output.data());
  if (size > kMostShellOutputs) {
    return done(Instead(absl::FailedPreconditionError(absl::StrCat(
        "the outputs have ", FormatBytes(size), " together; an answer to a shell brings at most ",
        FormatBytes(kMostShellOutputs), ": send the request to a gateway's HTTP port"))));
  }
  auto answer = std::make_shared<ShellAnswer>(std::move(reply), std::move(done));
  for (int i = 0; i < answer->reply.outputs_size(); ++i) {
    const proto::TensorRef from = answer->reply.outputs(i).data();
    if (!from.has_arena()) continue;
    ++answer->open;
    channel.FetchAsync(
        from, kBringLimit, inside([answer, i](const absl::StatusOr<transport::TensorData>& data) {
          if (data.ok()) {
            const auto bytes = data->bytes();
            answer->reply.mutable_outputs(i)->mutable_data()->set_inlined(bytes.data(), bytes.size());
          }
          answer->Close(data.status());
        }));
  }
  answer->Close(absl::OkStatus());
}

}  // namespace troupe::actors
