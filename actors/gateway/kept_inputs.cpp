#include "actors/gateway/kept_inputs.hpp"

#include <cstdint>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/wire_status.hpp"

namespace troupe::actors {

namespace {

// By the node that is asked for them.
std::map<std::string, proto::ExportTensors> ExportsFor(const proto::SubmitRequest& request,
                                                       const std::string& node) {
  std::map<std::string, proto::ExportTensors> exports;
  for (const auto& input : request.inputs()) {
    if (!input.data().has_kept() || input.data().kept().node() == node) continue;
    *exports[input.data().kept().node()].add_tensors() = input.data().kept();
  }
  return exports;
}

// What `holder` has answered to `asked`: the request's inputs lie there now.
absl::Status PlaceExported(const std::string& holder, const proto::ExportTensors& asked,
                           const proto::ExportedTensors& answer, proto::SubmitRequest& request) {
  const auto status = StatusIn(answer);
  if (absl::IsNotFound(status)) return absl::DataLossError(status.message());
  if (!status.ok()) return status;
  if (answer.places_size() != asked.tensors_size())
    return absl::InternalError(absl::StrCat("node '", holder, "' was asked to export ", asked.tensors_size(),
                                            " tensors and answered about ", answer.places_size()));
  int next = 0;
  for (auto& input : *request.mutable_inputs()) {
    if (!input.data().has_kept() || input.data().kept().node() != holder) continue;
    const auto& place = answer.places(next++);
    if (!place.has_arena() || place.arena().length() != input.data().kept().length())
      return absl::InternalError(
          absl::StrCat("node '", holder, "' exported input '", input.spec().name(), "' with another length"));
    *input.mutable_data() = place;
  }
  return absl::OkStatus();
}

// The inputs that a node keeps which `lost` takes for lost.
template <typename Lost>
void AddLost(const proto::InferRequest& request, const Lost& lost, proto::InferReply& reply) {
  for (const auto& input : request.inputs())
    if (input.data().has_kept() && lost(input.data().kept().node()))
      reply.add_lost_inputs(input.spec().name());
}

}  // namespace

std::string HolderOf(const proto::InferRequest& request) {
  std::map<std::string, std::uint64_t> bytes;
  for (const auto& input : request.inputs())
    if (input.data().has_kept()) bytes[input.data().kept().node()] += input.data().kept().length();
  std::string holder;
  for (const auto& [node, count] : bytes)
    if (holder.empty() || count > bytes.at(holder)) holder = node;
  return holder;
}

void BringInputs(const std::shared_ptr<proto::SubmitRequest>& request, const std::string& node,
                 const std::function<void(const std::string&, proto::ExportTensors, ExportDone)>& ask,
                 const std::function<void(const absl::Status&, const std::string&)>& done) {
  struct Course {
    std::size_t open = 0;
    absl::Status failed;
    std::string holder;  // that has failed
  };
  const auto exports = ExportsFor(*request, node);
  if (exports.empty()) return done(absl::OkStatus(), "");
  auto course = std::make_shared<Course>(Course{.open = exports.size(), .failed = {}, .holder = {}});
  for (const auto& [holder, wish] : exports) {
    ask(holder, wish,
        [request, done, course, holder = holder,
         wish = wish](const absl::StatusOr<proto::ExportedTensors>& reply) {
          const auto status =
              PlaceExported(holder, wish, reply.ok() ? *reply : HolderAway(holder, reply.status()), *request);
          if (course->failed.ok() && !status.ok()) {
            course->failed = status;
            course->holder = holder;
          }
          if (--course->open == 0) done(course->failed, course->holder);
        });
  }
}

proto::ExportedTensors HolderAway(const std::string& holder, const absl::Status& why) {
  proto::ExportedTensors answer;
  SetStatus(absl::NotFoundError(
                absl::StrCat("node '", holder, "' has kept it, and does not give it: ", why.message())),
            answer);
  return answer;
}

void NameLost(const proto::InferRequest& request, const std::string& node, proto::InferReply& reply) {
  if (reply.code() != static_cast<int>(absl::StatusCode::kDataLoss) || reply.lost_inputs_size() > 0) return;
  AddLost(
      request, [&](const std::string& holder) { return holder != node; }, reply);
}

proto::InferReply LostInputs(const proto::InferRequest& request, const std::string& holder,
                             const absl::Status& why) {
  proto::InferReply reply;
  SetStatus(why, reply);
  if (!absl::IsDataLoss(why)) return reply;
  AddLost(
      request, [&](const std::string& node) { return node == holder; }, reply);
  return reply;
}

}  // namespace troupe::actors
