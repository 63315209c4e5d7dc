#include "node/models/models.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/wire_status.hpp"
#include "cluster/function_state.hpp"
#include "node/parts.hpp"

namespace troupe::node {

namespace {

// Beyond so many adoptions at a time a model counts as adopted as soon as it is in the host region. A node
// that takes over the models of another would else be seconds late with plans that mostly are not needed yet.
// A request that comes before its plan has the plan made first.
constexpr std::size_t kPlansWaitedFor = 8;

bool Crowded(const HeldModels& models) {
  std::size_t coming = 0;
  models.ForEach([&](const ModelNumber&, const HeldModel& model) { coming += !model.adopted; });
  return coming > kPlansWaitedFor;
}

}  // namespace

void Models::AnswerAll(const std::vector<Ask>& asks, const ModelNumber& copy, const absl::Status& status) {
  proto::AdoptModelReply reply;
  SetStatus(status, reply);
  reply.set_model_digest(copy->digest.text());
  for (const Ask ask : asks) parts_.out.Add(Answer<proto::AdoptModelReply>{ask, reply});
}

ModelNumber Models::CopyOf(const proto::FunctionRecord& function) const {
  const auto key = IsolationKey(function, parts_.settings.isolation.mode, std::string());
  return parts_.names.Model(CopyName(function.model_digest(), key));
}

void Models::On(const AdoptionAsked& event) {
  // This copy serves calls without a workflow; copies for other keys are made when their first request comes
  // (OpenCopy).
  const auto copy = CopyOf(event.function);
  // Since then another node may have become the home.
  if (event.replicas && event.epoch < parts_.membership.epoch())
    return AnswerAll({event.ask}, copy,
                     absl::FailedPreconditionError("the order is for an epoch of this node that is over"));
  parts_.remembered.Wanted(copy);
  event.function.state().empty() ? parts_.replication.AdoptingBare(event.function.model_digest(), event.epoch)
                                 : AdoptStates(event);
  auto& model = held_.Hold(copy);
  if (model.adopted) return AnswerAll({event.ask}, copy, absl::OkStatus());
  model.waiting.push_back(event.ask);
  if (model.waiting.size() > 1) return;
  model.function = event.function;
  const auto status = parts_.copies.Want(copy, model.function);
  status.ok() ? parts_.copies.Move() : AdoptFailed(copy, status);
}

// This node is the home of the states of the model's functions.
void Models::AdoptStates(const AdoptionAsked& event) {
  const auto& digest = event.function.model_digest();
  parts_.handovers.Adopting(digest);
  parts_.replica_images.Adopting(digest, event.replicas ? event.replicas->term() : 0);
  parts_.replication.Adopting(digest, event.replicas, event.epoch);
  parts_.states.BecomeHome(digest, event.epoch);
}

void Models::Placed(const ModelNumber& copy) {
  const auto* model = held_.Find(copy);
  FindResident(copy, model->copy.digest());
  Describe(copy, Bytes(model->copy.weights().length()), std::nullopt);
  parts_.scheduler.SetInRegion(copy, true);
  if (!model->adopted && Crowded(held_)) Adopted(copy);
  // Without a worker it is adopted now, and prepared when a worker comes.
  if (!parts_.preparation.AskAll(copy)) Adopted(copy);
}

void Models::Describe(const ModelNumber& copy, Bytes weights, std::optional<Bytes> activation) {
  if (!parts_.scheduler.Knows(copy)) parts_.routers.served().Add(copy);
  const auto consequences = parts_.scheduler.DescribeModel(copy, weights, activation);
  parts_.routers.CostChanged(copy);
  parts_.decisions.CarryOut(consequences);
}

// Workers that outlived an earlier daemon may hold the model already.
void Models::FindResident(const ModelNumber& copy, const std::string& packed) {
  for (GpuIndex gpu = 0; gpu < parts_.runtimes.size(); ++gpu) {
    if (!parts_.runtimes.Serves(gpu, copy)) continue;
    const auto bytes = parts_.runtimes.TakeOrphan(gpu, packed);
    if (!bytes) continue;
    parts_.routers.ResidencyChanged();
    parts_.scheduler.FoundResident(gpu, {copy, *bytes}, parts_.out.now());
    parts_.states.RecoverAll(gpu, copy);
  }
}

void Models::Adopted(const ModelNumber& copy) {
  auto* model = held_.Find(copy);
  if (!std::exchange(model->adopted, true)) parts_.trials.Await(copy);
  parts_.copies.Adopted(copy);
  parts_.remembered.SaveSoon();
  // Before the deployment is answered, so that the next request finds routers that know of it.
  parts_.routers.GrantAll();
  AnswerAll(std::exchange(model->waiting, {}), copy, absl::OkStatus());
  parts_.decisions.CarryOut({});
}

void Models::AdoptFailed(const ModelNumber& copy, const absl::Status& status) {
  const auto waiting = std::exchange(held_.Find(copy)->waiting, {});
  Disown(copy);
  AnswerAll(waiting, copy, status);
}

void Models::On(const ModelDisowned& event) {
  for (const auto& copy : held_.CopiesOf(parts_.names.FindDigest(event.digest))) Disown(copy);
}

void Models::Disown(const ModelNumber& copy) {
  if (held_.Find(copy) == nullptr) return;
  parts_.states.TellStay(copy);
  const auto waiting = held_.GiveUp(copy);
  parts_.preparation.GivenUp(copy);
  if (parts_.scheduler.Knows(copy)) {
    parts_.routers.served().Remove(copy);
    parts_.decisions.CarryOut(parts_.scheduler.ForgetModel(copy));
  }
  AnswerAll(waiting, copy, absl::CancelledError("the model was disowned while it was adopted"));
  if (held_.CopiesOf(copy->digest).empty()) parts_.states.LeaveHome(copy->digest.text());
  held_.Forget(copy);
  addresses_.Forget(copy);
  parts_.copies.Unwant(copy);
  parts_.remembered.SaveSoon();
  parts_.copies.Move();
}

// A new function's adoption may come before the news of it, and its first request before both.
const proto::FunctionRecord* Models::FunctionOf(const proto::SubmitRequest& request) const {
  const auto digest = DigestOf(request.model_digest());  // a trial names the copy
  const auto* function = parts_.membership.view().functions().Find(request.function());
  if (function != nullptr && function->model_digest() == digest) return function;
  return held_.FunctionOf(parts_.names.FindDigest(digest), request.function().name());
}

absl::StatusOr<ModelNumber> Models::CopyFor(const proto::SubmitRequest& request) {
  const auto* function = FunctionOf(request);
  if (function == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("this node has not heard of function '", request.function().name(), "' yet"));
  }
  // Its adoption came before its function record, which says where its state is.
  if (!function->state().empty()) {
    const auto* state = parts_.states.Find(request.function());
    if (state == nullptr || state->key.text() != cluster::StateKey(*function))
      return absl::NotFoundError(absl::StrCat("this node has not heard of the state of function '",
                                              request.function().name(), "' yet"));
  }
  // This node, or the router, has not heard yet that the function was removed and deployed again.
  if (request.deployed_unix_ns() != 0 && request.deployed_unix_ns() != function->deployed_unix_ns()) {
    return absl::NotFoundError(absl::StrCat("this node knows another deployment of function '",
                                            request.function().name(), "' version ",
                                            request.function().version()));
  }
  const auto key = IsolationKey(*function, parts_.settings.isolation.mode, request.workflow());
  auto copy = parts_.names.Model(CopyName(request.model_digest(), key));
  if (!parts_.scheduler.Knows(copy)) OpenCopy(copy, *function);
  return copy;
}

// The model is adopted for other keys: for this key it is on disk only, and comes when a request needs it.
void Models::OpenCopy(const ModelNumber& copy, const proto::FunctionRecord& function) {
  const auto* other = held_.AdoptedCopyOf(copy->digest);
  if (other == nullptr || held_.Find(copy) != nullptr) return;
  const Bytes weights(other->copy.weights().length());
  const std::string packed = other->copy.digest();
  auto& model = held_.Hold(copy);
  model.function = function;
  model.copy.set_digest(packed);
  if (!parts_.copies.Want(copy, function).ok()) {
    static_cast<void>(held_.GiveUp(copy));
    return held_.Forget(copy);
  }
  model.adopted = true;
  parts_.copies.Adopted(copy);
  FindResident(copy, packed);
  Describe(copy, weights, std::nullopt);
  parts_.scheduler.SetInRegion(copy, parts_.copies.Usable(copy));
}

void Models::BeginUse(const ModelNumber& copy, bool reads) {
  held_.BeginUse(copy);
  if (reads) parts_.copies.Read(copy);
}

void Models::EndUse(const ModelNumber& copy, bool reads) {
  if (reads) parts_.copies.Unread(copy);
  held_.EndUse(copy);
  held_.Forget(copy);
}

std::uint64_t Models::AddressOf(const ModelNumber& copy) {
  return addresses_.Of(copy, Bytes(held_.Find(copy)->copy.weights().length()));
}

}  // namespace troupe::node
