// The node controller: adoption, and plans made ahead.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "actors/node/node_controller_actor.hpp"
#include "base/wire_status.hpp"

namespace troupe::actors {

namespace {

void AnswerAdopt(std::vector<AdoptPromise> waiting, const std::string& digest, const absl::Status& status) {
  proto::AdoptModelReply reply;
  SetStatus(status, reply);
  reply.set_model_digest(node::DigestOf(digest));
  for (auto& promise : waiting) promise.deliver(reply);
}

// Beyond so many at a time a model counts as adopted as soon as it is in the host region: a node that takes
// over what another had would be seconds late with plans that mostly nobody needs yet. A request that comes
// before its plan has it made first.
constexpr std::size_t kPlansWaitedFor = 8;

bool Crowded(const HeldModels& models) {
  std::size_t coming = 0;
  models.ForEach([&](const std::string&, const HeldModel& model) { coming += !model.adopted; });
  return coming > kPlansWaitedFor;
}

}  // namespace

AdoptPromise NodeController::Adopt(proto::AdoptModel& adopt) {
  auto promise = make_response_promise<proto::AdoptModelReply>();
  // For those who call it without a workflow; copies for others are made when they come (OpenCopy).
  const auto digest =
      node::CopyName(adopt.function().model_digest(),
                     node::IsolationKey(adopt.function(), options_.isolation.mode, std::string()));
  remembered_.erase(digest);  // the manager wants it, too
  auto& model = models_.Hold(digest);
  if (model.adopted) {
    AnswerAdopt({promise}, digest, absl::OkStatus());
    return promise;
  }
  model.waiting.push_back(promise);
  if (model.waiting.size() > 1) return promise;
  model.function = adopt.function();
  const auto status = copies_.Want(digest, RegionBytesOf(model.function));
  status.ok() ? MoveCopies() : AdoptFailed(digest, status);
  return promise;
}

void NodeController::Placed(const std::string& digest) {
  const auto* model = models_.Find(digest);
  FindResident(digest, model->copy.digest());
  DescribeCopy(digest, Bytes(model->copy.weights().length()), Bytes(0));
  scheduler_.SetInRegion(digest, true);
  if (!model->adopted && Crowded(models_)) Adopted(digest);
  bool asked = false;
  for (node::GpuIndex gpu = 0; gpu < gpus_.size(); ++gpu) asked |= Prepare(gpu, digest);
  if (!asked) Adopted(digest);  // no worker is up: it prepares when it comes
}

void NodeController::DescribeCopy(const std::string& copy, Bytes weights, Bytes activation) {
  if (!scheduler_.Knows(copy)) served_.Add(copy);
  Handle(scheduler_.DescribeModel(copy, weights, activation));
}

void NodeController::FindResident(const std::string& digest, const std::string& packed) {
  for (node::GpuIndex gpu = 0; gpu < gpus_.size(); ++gpu) {
    if (!ServesCopy(gpu, digest)) continue;
    auto& residents = *gpus_[gpu].last.mutable_worker()->mutable_resident();
    const auto it = std::find_if(residents.begin(), residents.end(),
                                 [&](const auto& resident) { return resident.digest() == packed; });
    if (it == residents.end()) continue;
    ++residency_;
    scheduler_.FoundResident(gpu, {digest, Bytes(it->bytes())}, Now(this));
    RecoverStates(gpu, digest);
    residents.erase(it);  // true only until the scheduler decides otherwise
  }
}

bool NodeController::Prepare(node::GpuIndex gpu, const std::string& digest) {
  if (!ServesCopy(gpu, digest)) return false;
  gpus_[gpu].plans.Push(digest, !models_.Find(digest)->adopted);
  PrepareNext(gpu);
  return true;
}

void NodeController::PrepareNext(node::GpuIndex gpu) {
  auto& plans = gpus_[gpu].plans;
  const auto life = gpus_[gpu].last.incarnation();
  for (auto digest = plans.Next(); !digest.empty(); digest = plans.Next()) {
    const auto* model = models_.Find(digest);
    if (model == nullptr || !copies_.Usable(digest)) {
      plans.Done();  // it left meanwhile, and is prepared when it comes back
      continue;
    }
    OrderFor(digest, gpu, PrepareOrderFor(model->function, model->copy),
             [this, gpu, digest, life, held = model->life](const proto::WorkerOutcome& outcome) {
               const bool same = gpus_[gpu].last.incarnation() == life;
               if (same) gpus_[gpu].plans.Done();
               Prepared(gpu, digest, held, outcome);
               if (same && Up(gpu)) PrepareNext(gpu);
             });
    return;
  }
}

void NodeController::Prepared(node::GpuIndex gpu, const std::string& digest, std::uint64_t life,
                              const proto::WorkerOutcome& outcome) {
  auto* model = models_.Find(digest);
  if (model == nullptr || model->life != life) return;
  if (outcome.code() == 0) {
    model->prepared[gpu] = gpus_[gpu].last.incarnation();
    if (const auto sizes = CheckSizes(outcome.prepared()); sizes.ok()) {
      DescribeCopy(digest, Bytes(outcome.prepared().weights_bytes()),
                   Bytes(outcome.prepared().activation_bytes()));
    } else {
      Note("worker-sizes-refused",
           absl::StrCat(Label(gpu), ", model ", node::DigestOf(digest), ": ", sizes.message()));
    }
    return Adopted(digest);
  }
  if (model->adopted) return;
  // A worker that died while it prepared is no fault of the model.
  if (absl::IsUnavailable(StatusOf(outcome))) return Adopted(digest);
  AdoptFailed(digest, StatusOf(outcome));
}

void NodeController::ForgetPlans(node::GpuIndex gpu) {
  for (const auto& digest : gpus_[gpu].plans.Clear())
    if (models_.Find(digest) != nullptr) Adopted(digest);
}

void NodeController::Adopted(const std::string& digest) {
  auto* model = models_.Find(digest);
  if (!std::exchange(model->adopted, true)) AwaitTrial(digest);
  copies_.Adopted(digest);
  ArmSaveAdopted();
  GrantAll();  // before the deployment is answered: the next request finds routers that know
  AnswerAdopt(std::exchange(model->waiting, {}), digest, absl::OkStatus());
  Handle({});
}

void NodeController::AdoptFailed(const std::string& copy, const absl::Status& status) {
  auto waiting = std::exchange(models_.Find(copy)->waiting, {});
  DisownCopy(copy);
  AnswerAdopt(std::move(waiting), copy, status);
}

void NodeController::Disown(const std::string& digest) {
  for (const auto& copy : models_.CopiesOf(digest)) DisownCopy(copy);
}

void NodeController::DisownCopy(const std::string& copy) {
  if (models_.Find(copy) == nullptr) return;
  TellStatesStay(copy);
  auto waiting = models_.GiveUp(copy);
  if (scheduler_.Knows(copy)) {
    served_.Remove(copy);
    Handle(scheduler_.ForgetModel(copy));
  }
  AnswerAdopt(std::move(waiting), copy, absl::CancelledError("the model was disowned while it was adopted"));
  models_.Forget(copy);
  addresses_.Forget(copy);
  copies_.Unwant(copy);
  ArmSaveAdopted();
  MoveCopies();
}

}  // namespace troupe::actors
