#include "sim/workloads/operators.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/substitute.h"
#include "base/check.hpp"

namespace troupe::sim {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Kind = RegistryOp::Kind;
using Result = RegistryOp::Result;

constexpr std::uint32_t kOperatorTries = 3;
constexpr Duration kTryAgain = seconds(1);  // what was cut is connected again by then
constexpr char kChain[] = R"(
name: chain
inputs:
  x: {type: FP32, shape: [-1, 4]}
steps:
  - {name: first, function: f0, inputs: {x: x}}
  - {name: second, function: $0, inputs: {x: first.out_x}}
  - {name: third, function: s0, inputs: {x: second.out_x}}
outputs: {y: third.out_x}
)";
// The second step runs if the client says so; of a function without state its calls are one for each row, and the third one
// reads what they gave as one input.
constexpr char kConditionalChain[] = R"(
name: chain
inputs:
  x: {type: FP32, shape: [-1, 4]}
  go: {type: BOOL, shape: [1]}
steps:
  - {name: first, function: f0, inputs: {x: x}}
  - {name: second, function: $0, inputs: {x: first.out_x}, when: go$1}
  - {name: third, function: s0, inputs: {x: [second.out_x, first.out_x]}}
outputs: {y: third.out_x}
)";

// What the stateful function's runs leave for the next one.
proto::StateTensor CountTensor() {
  proto::StateTensor state;
  state.set_input("s");
  state.set_output("t");
  return state;
}

proto::FunctionKey KeyOf(const std::string& key) {
  const std::vector<std::string> parts = absl::StrSplit(key, '/');
  proto::FunctionKey out;
  out.set_name(parts.at(0));
  out.set_version(parts.at(1));
  return out;
}

Result ResultOf(Kind kind, const AdminResult& result) {
  if (!result.reply) return Result::kUnknown;
  const auto code = static_cast<absl::StatusCode>(result.reply->code());
  if (code == absl::StatusCode::kOk) return Result::kDone;
  const auto refusal = kind == Kind::kDeploy ? absl::StatusCode::kAlreadyExists : absl::StatusCode::kNotFound;
  return code == refusal ? Result::kRefused : Result::kUnknown;
}

// A model in stages is there when all of its stages are; with some of them alone it is what no operator has deployed.
std::set<std::string> KeysIn(const proto::AdminReply& reply) {
  std::set<std::string> keys;
  std::map<std::string, std::uint32_t> stages;  // of each model, by key
  for (const auto& function : reply.functions()) {
    const auto& record = function.record();
    const auto key = absl::StrCat(CalledBy(record), "/", record.key().version());
    if (record.stage().count() == 0 || ++stages[key] == record.stage().count()) keys.insert(key);
  }
  for (const auto& [key, count] : stages)
    if (!keys.contains(key)) keys.insert(absl::StrCat(key, " in part"));
  return keys;
}

}  // namespace

const std::string& CalledBy(const proto::FunctionRecord& function) {
  return function.stage().count() > 0 ? function.stage().workflow() : function.key().name();
}

void Operators::MakeModels() {
  const auto make = [this](const std::string& name) {
    onnx_[name] = cluster().world().MakeModel(name, MiB(200 + 60 * onnx_.size() % 240));
  };
  for (std::uint32_t i = 0; i < load_.plan().functions; ++i) make(absl::StrCat("f", i));
  for (int i = 0; i < ClientLoad::kChurnNames; ++i) make(absl::StrCat("c", i));
  if (load_.plan().stages)
    onnx_[ClientLoad::kStaged] =
        cluster().world().MakeModel(ClientLoad::kStaged, Bytes(ChaosNodes::kGpuMemory.count() / 2 * 3));
  const auto shared = cluster().world().MakeModel("s0", MiB(150), {"x"}, {CountTensor()});
  for (const auto& name : load_.StatefulNames()) onnx_[name] = shared;
  if (load_.plan().long_runs)
    onnx_[ClientLoad::kLong] = cluster().world().MakeModel(ClientLoad::kLong, MiB(120));
  if (load_.plan().quota > 0)
    onnx_[ClientLoad::kQuota] = cluster().world().MakeModel(ClientLoad::kQuota, MiB(110));
  if (load_.plan().canaries > 0) {
    onnx_[ClientLoad::kCanaries] = cluster().world().MakeModel(ClientLoad::kCanaries, MiB(100));
    other_models_[absl::StrCat(ClientLoad::kCanaries, "/2")] =
        cluster().world().MakeModel(ClientLoad::kSecondModel, MiB(130));
  }
  if (load_.plan().redeployments > 0)
    onnx_[ClientLoad::kAnew] =
        load_.plan().AnewShares()
            ? shared
            : cluster().world().MakeModel(ClientLoad::kAnew, MiB(140), {"x"}, {CountTensor()});
  if (load_.plan().AnewHasBare()) onnx_[ClientLoad::kBare] = onnx_.at(ClientLoad::kAnew);
}

void Operators::Prepare() {
  MakeModels();
  for (std::uint32_t i = 0; i < load_.plan().functions; ++i)
    Change(0, Kind::kDeploy, absl::StrCat("f", i, "/1"), 1, [] {});
  if (load_.plan().long_runs) Change(0, Kind::kDeploy, absl::StrCat(ClientLoad::kLong, "/1"), 1, [] {});
  if (load_.plan().quota > 0) Change(0, Kind::kDeploy, absl::StrCat(ClientLoad::kQuota, "/1"), 1, [] {});
  for (const auto& name : load_.StatefulNames()) Change(0, Kind::kDeploy, absl::StrCat(name, "/1"), 1, [] {});
  if (load_.plan().AnewHasBare()) Change(0, Kind::kDeploy, absl::StrCat(ClientLoad::kBare, "/1"), 1, [] {});
  if (load_.plan().redeployments > 0)
    Change(0, Kind::kDeploy, absl::StrCat(ClientLoad::kAnew, "/1"), 1, [] {});
  TROUPE_CHECK(cluster().agenda().RunUntil([this] { return Idle(); }, seconds(10)), "it was deployed");
  proto::AdminRequest submit;
  // Where functions share their state's model, a run calls two of them.
  const std::string second = load_.plan().stateful > 1 ? "s1" : "f1";
  submit.mutable_submit_workflow()->set_yaml(
      absl::Substitute(load_.plan().conditions ? kConditionalChain : kChain, second,
                       second == "f1" ? ", for_each: {input: x, dimension: 0}" : ""));
  bool submitted = false;
  Command(0, submit, [&](const AdminResult& result) {
    submitted = result.reply.has_value() && result.reply->code() == 0;
  });
  TROUPE_CHECK(cluster().agenda().RunUntil([&] { return submitted; }, seconds(10)), "it was submitted");
  cluster().step_watch().Know(ClientLoad::kWorkflow, {{"first", "f0"}, {"second", second}, {"third", "s0"}});
  if (load_.plan().conditions) cluster().step_watch().Expect(second, &ClientLoad::Goes);
  cluster().agenda().RunTo(cluster().world().Now() + milliseconds(500));
}

std::vector<std::string> Operators::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, onnx] : onnx_) names.push_back(name);
  return names;
}

std::vector<ModelUser> Operators::ModelUsers() const {
  std::vector<ModelUser> users;
  for (const auto& name : Names()) users.push_back({World::WorkerDigest(load_.ModelOf(name)), name});
  if (load_.plan().canaries > 0)
    users.push_back({World::WorkerDigest(ClientLoad::kSecondModel), ClientLoad::kCanaries});
  const std::uint32_t stages = load_.plan().stages ? 2 * load_.cluster().shape().runtimes : 0;
  for (std::uint32_t number = 1; number <= stages; ++number)
    users.push_back({World::WorkerDigestOfStage(ClientLoad::kStaged, number, stages),
                     absl::StrCat(ClientLoad::kStaged, ".", number)});
  return users;
}

void Operators::Command(std::size_t of, const proto::AdminRequest& request, Listed done) {
  ++commands_;
  cluster().operators().Admin(of, request, ClientLoad::kCommandTimeout,
                              [this, done = std::move(done)](const AdminResult& result) {
                                --commands_;
                                done(result);
                              });
}

std::size_t Operators::Record(Kind kind, const std::string& key) {
  history_.push_back(
      {.kind = kind, .key = key, .result = Result::kUnknown, .invoked = cluster().world().Now()});
  return history_.size() - 1;
}

void Operators::Change(std::size_t of, Kind kind, const std::string& key, std::uint32_t tries,
                       const std::function<void()>& then) {
  Once(of, kind, key, [this, of, kind, key, tries, then](const AdminResult& result) {
    const bool lost = result.sent && !result.reply;
    if (!lost || tries <= 1 || load_.Over()) return then();
    Change(of, kind, key, tries - 1, then);  // it may be done twice
  });
}

proto::AdminRequest Operators::DeploymentOf(const std::string& key) const {
  proto::AdminRequest request;
  auto& deploy = *request.mutable_deploy();
  deploy.set_name(KeyOf(key).name());
  deploy.set_version(KeyOf(key).version());
  const auto other = other_models_.find(key);
  deploy.set_onnx_digest(other == other_models_.end() ? onnx_.at(deploy.name()) : other->second);
  deploy.mutable_slo()->set_deadline_ns(Duration(milliseconds(100)).count());
  // A manager that has no node yet does not know how large GPUs are.
  if (load_.plan().stages && deploy.name() == ClientLoad::kStaged)
    deploy.set_stage_memory(ChaosNodes::kGpuMemory.count() / load_.cluster().shape().runtimes / 4 * 3);
  if (deploy.name() == ClientLoad::kQuota) deploy.mutable_sharing()->set_quota_limit(load_.plan().quota);
  if (deploy.name() == ClientLoad::kLong) deploy.set_run_limit_ns(ClientLoad::kRunLimit.count());
  if (load_.StatefulNames().contains(deploy.name()) || deploy.name() == ClientLoad::kAnew) {
    *deploy.add_state() = CountTensor();
    deploy.set_state_replicas(load_.cluster().shape().copies);
  }
  return request;
}

void Operators::Once(std::size_t of, Kind kind, const std::string& key, Listed done) {
  proto::AdminRequest request;
  if (kind == Kind::kDeploy)
    request = DeploymentOf(key);
  else if (kind == Kind::kRemove)
    *request.mutable_remove()->mutable_key() = KeyOf(key);
  else
    *request.mutable_show_function()->mutable_key() = KeyOf(key);
  const auto op = Record(kind, key);
  Command(of, request, [this, op, done = std::move(done)](const AdminResult& result) {
    Changed(op, result);
    done(result);
  });
}

// What the answer says of it. A deployment that failed may have been there, and is taken back then.
void Operators::Changed(std::size_t index, const AdminResult& result) {
  const auto now = cluster().world().Now();
  auto& op = history_[index];
  if (!result.sent) {
    op.result = Result::kUnknown;  // not done: as a look that was not answered
    op.kind = Kind::kShow;
    return;
  }
  op.result = ResultOf(op.kind, result);
  if (op.result != Result::kUnknown) op.returned = now;
  if (op.kind == Kind::kShow && op.result == Result::kDone && !KeysIn(*result.reply).contains(op.key))
    op.result = Result::kRefused;
  cluster().Note(absl::StrCat("operator: ", ToString(op),
                              result.reply ? absl::StrCat(" ", result.reply->message()) : ""));
  if (op.kind == Kind::kDeploy && op.result == Result::kUnknown)
    history_.push_back({.kind = Kind::kRemove, .key = op.key, .invoked = op.invoked});
}

void Operators::ChurnLoops() {
  for (std::size_t of = 0; of < cluster().shape().operators; ++of) ChurnLoop(of);
}

void Operators::ChurnLoop(std::size_t of) {
  cluster().agenda().In(load_.Pause(milliseconds(150)), [this, of] {
    if (load_.Over()) return;
    const auto key = absl::StrCat("c", load_.Below(ClientLoad::kChurnNames), "/",
                                  1 + load_.Below(ClientLoad::kChurnVersions));
    const auto again = [this, of] { ChurnLoop(of); };
    const auto choice = load_.Below(20);
    if (choice < 8) {
      // Now and then by two operators who do not know of each other.
      if (choice == 0) Change(1 - of, Kind::kDeploy, key, 1, [] {});
      return Change(of, Kind::kDeploy, key, kOperatorTries, again);
    }
    if (choice < 14) return Change(of, Kind::kRemove, key, kOperatorTries, again);
    if (choice < 17) return Change(of, Kind::kShow, key, 1, again);
    List([again](const AdminResult&) { again(); });
  });
}

void Operators::List(Listed done) {
  proto::AdminRequest request;
  request.mutable_list_functions();
  const auto op = Record(Kind::kList, "");
  Command(0, request, [this, op, done = std::move(done)](const AdminResult& result) {
    if (result.reply && result.reply->code() == 0) {
      history_[op].result = Result::kDone;
      history_[op].returned = cluster().world().Now();
      history_[op].listed = KeysIn(*result.reply);
    }
    cluster().Note(absl::StrCat("operator: ", ToString(history_[op])));
    if (done) done(result);
  });
}

void Operators::CancelLoop() {
  cluster().agenda().In(load_.Pause(seconds(1)), [this] {
    if (load_.Over()) return;
    proto::AdminRequest list;
    list.mutable_list_runs();
    Command(0, list, [this](const AdminResult& result) {
      CancelLoop();
      if (!result.reply) return;
      for (const auto& run : result.reply->runs()) {
        if (run.state() != proto::RUN_RUNNING) continue;
        proto::AdminRequest cancel;
        cancel.mutable_cancel_run()->set_run(run.start().run());
        return Command(0, cancel, [this, name = run.start().run()](const AdminResult& cancelled) {
          if (!cancelled.reply || cancelled.reply->code() != 0) return;
          cluster().Note(absl::StrCat("operator: cancelled run ", name));
          cancelled_runs_.insert(name);
        });
      }
    });
  });
}

void Operators::DrainLoop() {
  cluster().agenda().In(load_.Pause(seconds(1)), [this] {
    if (load_.Over()) return;
    const auto nodes = cluster().shape().NodeNames();
    const auto& node = nodes[load_.Below(nodes.size())];
    const bool drain = !draining_.contains(node);
    drain ? static_cast<void>(draining_.insert(node)) : static_cast<void>(draining_.erase(node));
    SetDrain(node, drain, 1);
    DrainLoop();
  });
}

void Operators::Undrain() {
  for (const auto& node : cluster().shape().NodeNames()) SetDrain(node, false, kOperatorTries);
  draining_.clear();
}

void Operators::SetDrain(const std::string& node, bool drain, std::uint32_t tries) {
  proto::AdminRequest request;
  request.mutable_drain()->set_name(node);
  request.mutable_drain()->set_drain(drain);
  Command(1, request, [this, node, drain, tries](const AdminResult& result) {
    const bool done = result.reply && result.reply->code() == 0;
    cluster().Note(absl::StrCat("operator: ", drain ? "drain " : "take back ", node, ": ",
                                done           ? "done"
                                : result.reply ? result.reply->message()
                                               : "no answer"));
    if (!done && tries > 1)
      cluster().agenda().In(kTryAgain, [this, node, drain, tries] { SetDrain(node, drain, tries - 1); });
  });
}

}  // namespace troupe::sim
