// The node controller: host copies and plans.
#include <algorithm>

#include "actors/node/node_controller_actor.hpp"

namespace troupe::actors {

namespace {

void AnswerAdopt(std::vector<AdoptPromise> waiting, const std::string& digest, const absl::Status& status) {
  proto::AdoptModelReply reply;
  reply.set_code(static_cast<int>(status.code()));
  reply.set_message(std::string(status.message()));
  reply.set_model_digest(digest);
  for (auto& promise : waiting) promise.deliver(reply);
}

}  // namespace

AdoptPromise NodeController::Adopt(proto::AdoptModel& adopt) {
  auto promise = make_response_promise<proto::AdoptModelReply>();
  const auto digest = adopt.function().model_digest();
  auto& model = models_.Hold(digest);
  if (model.adopted) {
    AnswerAdopt({promise}, digest, absl::OkStatus());
    return promise;
  }
  model.waiting.push_back(promise);
  if (model.waiting.size() > 1) return promise;
  model.function = adopt.function();
  Call<proto::HostModel>(
      this, calls_, cache_, options_.adopt_timeout, std::move(adopt),
      [this, digest](absl::StatusOr<proto::HostModel> host) { Placed(digest, std::move(host)); });
  return promise;
}

void NodeController::Placed(const std::string& digest, absl::StatusOr<proto::HostModel> host) {
  auto* model = models_.Find(digest);
  if (model == nullptr) return;  // disowned meanwhile
  if (host.ok() && host->code() != 0) {
    host = absl::Status(static_cast<absl::StatusCode>(host->code()), host->message());
  }
  if (!host.ok()) return AdoptFailed(digest, host.status());
  model->copy = host->copy();
  FindResident(digest, host->copy().digest());
  Handle(scheduler_.DescribeModel(digest, Bytes(host->copy().weights().length()), Bytes(0)));
  bool asked = false;
  for (node::GpuIndex gpu = 0; gpu < gpus_.size(); ++gpu) asked |= Prepare(gpu, digest);
  if (!asked) Adopted(digest);  // no worker is up: it prepares when it comes
}

void NodeController::FindResident(const std::string& digest, const std::string& packed) {
  for (node::GpuIndex gpu = 0; gpu < gpus_.size(); ++gpu) {
    auto& residents = *gpus_[gpu].last.mutable_worker()->mutable_resident();
    const auto it = std::find_if(residents.begin(), residents.end(),
                                 [&](const auto& resident) { return resident.digest() == packed; });
    if (!Up(gpu) || it == residents.end()) continue;
    scheduler_.FoundResident(gpu, {digest, Bytes(it->bytes())}, Now(this));
    residents.erase(it);  // true only until the scheduler decides otherwise
  }
}

bool NodeController::Prepare(node::GpuIndex gpu, const std::string& digest) {
  if (!Up(gpu)) return false;
  const auto* model = models_.Find(digest);
  OrderFor(digest, gpu, PrepareOrderFor(model->function, model->copy),
           [this, digest](const proto::WorkerOutcome& outcome) { Prepared(digest, outcome); });
  return true;
}

void NodeController::Prepared(const std::string& digest, const proto::WorkerOutcome& outcome) {
  const auto* model = models_.Find(digest);
  if (model == nullptr) return;
  if (outcome.code() == 0) {
    Handle(scheduler_.DescribeModel(digest, Bytes(outcome.prepared().weights_bytes()),
                                    Bytes(outcome.prepared().activation_bytes())));
    return Adopted(digest);
  }
  if (model->adopted) return;
  // A worker that died while it prepared is no fault of the model.
  if (absl::IsUnavailable(StatusOf(outcome))) return Adopted(digest);
  AdoptFailed(digest, StatusOf(outcome));
}

void NodeController::Adopted(const std::string& digest) {
  auto* model = models_.Find(digest);
  model->adopted = true;
  GrantAll();  // before the deployment is answered: the next request finds routers that know
  AnswerAdopt(std::exchange(model->waiting, {}), digest, absl::OkStatus());
  Handle({});
}

void NodeController::AdoptFailed(const std::string& digest, const absl::Status& status) {
  auto waiting = std::exchange(models_.Find(digest)->waiting, {});
  Disown(digest);
  AnswerAdopt(std::move(waiting), digest, status);
}

void NodeController::Disown(const std::string& digest) {
  if (models_.Find(digest) == nullptr) return;
  auto waiting = models_.GiveUp(digest);
  if (scheduler_.Knows(digest)) Handle(scheduler_.ForgetModel(digest));
  AnswerAdopt(std::move(waiting), digest,
              absl::CancelledError("the model was disowned while it was adopted"));
  LetGo(digest);
}

void NodeController::LetGo(const std::string& digest) {
  if (!models_.Forget(digest)) return;
  proto::DisownModel disown;
  disown.set_model_digest(digest);
  send(cache_, std::move(disown));
}

}  // namespace troupe::actors
