// Runs of workflows under virtual time: the front, the runs and the cluster manager are the production ones;
// the router is a script, so that a test sees and holds each step's call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/gateway/front.hpp"
#include "base/digest.hpp"
#include "base/wire_status.hpp"
#include "tests/actors/world.hpp"
#include "transport/fake_tensor_channel.hpp"

namespace troupe::actors {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using storage::Table;

constexpr char kFlow[] = R"(
name: flow
inputs:
  image: {type: FP32, shape: [-1, 4]}
steps:
  - {name: left, function: net-a, inputs: {x: image}}
  - {name: middle, function: net-b, inputs: {x: image}}
  - {name: right, function: net-c, inputs: {x: image}}
  - {name: last, function: join, inputs: {a: left.out_x, b: middle.out_x, c: right.out_x}}
outputs: {y: last.out_b}
)";
constexpr char kFan[] = R"(
name: fan
inputs:
  image: {type: FP32, shape: [-1, 4]}
steps:
  - {name: each, function: net-a, inputs: {x: image}, for_each: {input: x, dimension: 0}}
outputs: {y: each.out_x}
)";
constexpr char kThrice[] = R"(
name: thrice
inputs:
  image: {type: FP32, shape: [-1, 4]}
steps:
  - {name: only, function: join, inputs: {a: image, b: image, c: image}}
outputs: {y: only.out_a}
)";

// A call that the router has not answered yet.
struct HeldCall {
  std::uint64_t call;
  std::function<void()> answer;
  std::function<void()> cancel;
};

// A router that answers each call with the call's inputs, at once or when it is told to. It answers a
// cancelled call at once.
struct Script {
  std::vector<std::string> calls;
  std::vector<std::string> shapes;  // of the first input of each call
  std::vector<std::string> ids;     // of the calls, by which `troupe why` finds them
  std::map<std::string, absl::Status> failures;
  // By function: how many more calls fail; absent: every call does.
  std::map<std::string, int> failing;
  std::int64_t retry_after_ns = 0;  // of each failure
  bool advanced = false;            // each failure may have changed the function's state
  std::set<std::string> renaming;   // functions whose outputs are others than when workflows were submitted
  std::set<std::string> advancing;  // functions whose state each call advances
  // By function: inputs that its calls find lost, from the one with this number on (the first is 0).
  std::map<std::string, std::pair<std::size_t, std::set<std::string>>> losing;
  bool keep = false;               // outputs stay at a node, if the request wants them to
  std::vector<Time> times;         // of the calls
  std::vector<Duration> timeouts;  // of the calls
  bool hold = false;
  std::vector<HeldCall> held;
  std::size_t cancelled = 0;
};

std::string ShapeOf(const proto::TensorSpec& spec) {
  std::string text;
  for (const auto size : spec.shape()) text += (text.empty() ? "" : "x") + std::to_string(size);
  return text;
}

proto::InferReply Echo(const proto::InferRequest& request, Script& script) {
  proto::InferReply reply;
  const auto& name = request.function().name();
  *reply.mutable_function() = request.function();
  reply.mutable_function()->set_version("7");
  const auto left = script.failing.find(name);
  const bool fails = left == script.failing.end() || left->second-- > 0;
  if (const auto it = script.failures.find(name); fails && it != script.failures.end()) {
    reply.set_retry_after_ns(script.retry_after_ns);
    reply.set_state_advanced(script.advanced);
    reply.set_code(static_cast<int>(it->second.code()));
    reply.set_message(std::string(it->second.message()));
    return reply;
  }
  const auto before = std::ranges::count(script.calls, name) - 1;
  if (const auto it = script.losing.find(name);
      it != script.losing.end() && before >= static_cast<std::ptrdiff_t>(it->second.first)) {
    SetStatus(absl::DataLossError("inputs of '" + name + "' are lost"), reply);
    for (const auto& input : it->second.second) reply.add_lost_inputs(input);
    reply.set_state_advanced(script.advanced);
    return reply;
  }
  reply.set_state_advanced(script.advancing.contains(name));
  for (const auto& input : request.inputs()) {
    auto& output = *reply.add_outputs();
    output = input;
    output.mutable_spec()->set_name((script.renaming.contains(name) ? "new_" : "out_") + input.spec().name());
    if (!script.keep || std::ranges::count(request.keep(), output.spec().name()) == 0) continue;
    const auto length =
        input.data().has_kept() ? input.data().kept().length() : input.data().inlined().size();
    auto& kept = *output.mutable_data()->mutable_kept();
    kept.set_node("node-1");
    kept.set_number(script.calls.size());
    kept.set_length(length);
  }
  return reply;
}

RouterActor::behavior_type ScriptedRouter(RouterActor::pointer self, std::shared_ptr<Script> script) {
  return {
      [self, script](const proto::InferRequest& request) {
        auto promise = self->make_response_promise<proto::InferReply>();
        script->calls.push_back(request.function().name());
        script->ids.push_back(request.client_id());
        script->times.push_back(Now(self));
        script->timeouts.emplace_back(request.timeout_ns());
        script->shapes.push_back(ShapeOf(request.inputs(0).spec()));
        auto answer = [promise, request, raw = script.get()]() mutable {
          promise.deliver(Echo(request, *raw));
        };
        auto cancel = [promise]() mutable {
          proto::InferReply reply;
          reply.set_code(static_cast<int>(absl::StatusCode::kCancelled));
          reply.set_message("cancelled by its caller");
          promise.deliver(std::move(reply));
        };
        if (script->hold) {
          script->held.push_back({request.call(), answer, cancel});
        } else {
          answer();
        }
        return promise;
      },
      [script](const proto::CancelInfer& cancel) {
        const auto it = std::find_if(script->held.begin(), script->held.end(),
                                     [&](const HeldCall& held) { return held.call == cancel.call(); });
        if (it == script->held.end()) return;
        const auto held = *it;
        script->held.erase(it);
        ++script->cancelled;
        held.cancel();
      },
      [](const proto::ReleaseOutputs&) {},
      [](const proto::ExportTensors&) { return proto::ExportedTensors(); },
      // A promise can only be delivered inside its actor: a grant tells this router to answer the oldest
      // call.
      [script](const proto::CreditGrant&) {
        if (script->held.empty()) return;
        const auto held = script->held.front();
        script->held.erase(script->held.begin());
        held.answer();
      },
      [](const proto::ClusterUpdate&) {},
      [](const proto::MemberJoined&) {},
      [](const proto::DescribeMember&) { return proto::MemberReport(); },
  };
}

// A disk whose next syncs fail, although the bytes have been written to it.
class HalfSynced final : public storage::MetadataStore {
 public:
  void Commit(storage::Batch batch, CommitDone done) override {
    const bool runs = std::any_of(batch.mutations().begin(), batch.mutations().end(),
                                  [](const auto& mutation) { return mutation.table == Table::kRuns; });
    if (!runs || failing == 0) return inner->Commit(std::move(batch), std::move(done));
    --failing;
    inner->Commit(std::move(batch), [done = std::move(done)](const absl::Status& status) {
      done(status.ok() ? absl::UnavailableError("the sync failed") : status);
    });
  }
  absl::StatusOr<std::string> Get(Table table, std::string_view key) const override {
    return inner->Get(table, key);
  }
  absl::Status Scan(Table table, std::string_view prefix, const ScanCallback& callback) const override {
    return inner->Scan(table, prefix, callback);
  }
  storage::FakeMetadataStore* inner = nullptr;
  std::size_t failing = 0;  // commits that change runs
};

class Workflow : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"net-a", "net-b", "net-c"}) ASSERT_TRUE(world_.Deploy(name, MiB(1)).ok());
    ASSERT_TRUE(world_.Deploy("join", MiB(1), milliseconds(100), {"a", "b", "c"}).ok());
    proto::ClusterUpdate update;
    update.set_snapshot(true);
    update.set_revision(1);
    update.set_workflows_listed(true);
    static_cast<void>(view_->Apply(update));
    for (const char* yaml : {kFlow, kFan, kThrice}) Submit(yaml);
    view_->SetNodes(1);
    router_ = world_.system().spawn(ScriptedRouter, script_);
    Open(router_);
  }

  void TearDown() override {
    world_.store().Release();
    while (!script_->held.empty()) {
      caf::anon_send(router_, proto::CreditGrant());
      world_.Settle();
    }
    world_.Run(seconds(1));
    front_.reset();
    caf::anon_send_exit(router_, caf::exit_reason::user_shutdown);
    world_.Settle();
  }

  // The gateway's view has it at once.
  void Submit(const std::string& yaml) {
    proto::AdminRequest submit;
    submit.mutable_submit_workflow()->set_yaml(yaml);
    const auto submitted = world_.Ask(submit);
    ASSERT_TRUE(submitted.ok()) << submitted.status();
    proto::AdminRequest list;
    list.mutable_list_workflows();
    const auto listed = world_.Ask(list);
    ASSERT_TRUE(listed.ok()) << listed.status();
    proto::ClusterUpdate update;
    update.set_revision(++view_revision_);
    update.set_since(view_revision_ - 1);
    update.set_workflows_listed(true);
    for (const auto& record : listed->workflows()) *update.add_workflows() = record;
    ASSERT_TRUE(view_->Apply(update).applied);
  }
  // The gateway knows the functions of the workflows; these have a state, and these are unloaded.
  void ShowFunctions(const std::set<std::string>& with_state, const std::set<std::string>& unloaded = {}) {
    proto::ClusterUpdate update;
    update.set_revision(++view_revision_);
    update.set_since(view_revision_ - 1);
    for (const char* name : {"net-a", "net-b", "net-c", "join"}) {
      auto& function = *update.add_functions();
      function.mutable_key()->set_name(name);
      function.mutable_key()->set_version("1");
      function.set_loaded(!unloaded.contains(name));
      if (with_state.contains(name)) function.add_state();
    }
    ASSERT_TRUE(view_->Apply(update).applied);
  }
  // Also with the BOOL input `go`.
  static proto::InferRequest RequestWith(const std::string& workflow, const std::string& go) {
    auto request = RequestOf(workflow);
    auto& input = *request.add_inputs();
    input.mutable_spec()->set_name("go");
    input.mutable_spec()->set_type(proto::BOOL);
    input.mutable_spec()->add_shape(static_cast<std::int64_t>(go.size()));
    input.mutable_data()->set_inlined(go);
    return request;
  }
  // The ends of steps as the manager shows them: "left", "skipped middle: why", "failed right: why".
  std::vector<std::string> Ends(const std::string& run = ".gateway-1-ab-1") {
    proto::AdminRequest show;
    show.mutable_show_run()->set_run(run);
    const auto shown = world_.Ask(show);
    EXPECT_TRUE(shown.ok()) << shown.status();
    std::vector<std::string> ends;
    if (!shown.ok()) return ends;
    for (const auto& step : shown->runs(0).steps()) {
      const char* how = step.end() == proto::STEP_SKIPPED  ? "skipped "
                        : step.end() == proto::STEP_FAILED ? "failed "
                                                           : "";
      ends.push_back(how + step.step() + (step.message().empty() ? "" : ": " + step.message()));
      EXPECT_EQ(step.outputs().empty(), step.end() != proto::STEP_COMMITTED) << step.step();
    }
    std::sort(ends.begin(), ends.end());
    return ends;
  }
  std::vector<proto::RunRecord> Runs(const std::string& workflow) {
    proto::AdminRequest list;
    list.mutable_list_runs()->set_workflow(workflow);
    const auto listed = world_.Ask(list);
    EXPECT_TRUE(listed.ok()) << listed.status();
    return {listed->runs().begin(), listed->runs().end()};
  }
  std::string BytesOf(const std::string& output) {
    for (const auto& tensor : reply_->outputs())
      if (tensor.spec().name() == output) return tensor.data().inlined();
    return "absent";
  }

  void Open(const RouterActor& router) {
    FrontOptions options;
    options.gateway = "gateway-1";
    options.manager = "manager";
    options.incarnation = 0xab;
    options.view = view_;
    front_ = MakeFrontClient(world_.system(), std::move(options), router, world_.directory(), channel_);
    world_.Settle();
  }

  static proto::InferRequest RequestOf(const std::string& workflow, std::int64_t rows = 2) {
    proto::InferRequest request;
    request.mutable_function()->set_name(workflow);
    request.set_call(1);
    auto& input = *request.add_inputs();
    input.mutable_spec()->set_name("image");
    input.mutable_spec()->set_type(proto::FP32);
    input.mutable_spec()->add_shape(rows);
    input.mutable_spec()->add_shape(4);
    std::string bytes(static_cast<std::size_t>(rows) * 16, '\0');
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i % 251);
    input.mutable_data()->set_inlined(std::move(bytes));
    return request;
  }

  void Infer(proto::InferRequest request) {
    reply_.reset();
    front_->Infer(std::move(request), [this](proto::InferReply reply) { reply_ = std::move(reply); });
    world_.Run(milliseconds(100));
  }
  bool CompleteNext() {
    const bool more = world_.store().CompleteNext();
    world_.Run(milliseconds(100));
    return more;
  }
  void AnswerHeld(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_FALSE(script_->held.empty());
      caf::anon_send(router_, proto::CreditGrant());
      world_.Run(milliseconds(100));
    }
  }
  absl::Status CancelRun(const std::string& run = ".gateway-1-ab-1") {
    proto::AdminRequest cancel;
    cancel.mutable_cancel_run()->set_run(run);
    return world_.Ask(cancel).status();
  }
  // The run is asked for; its answer is not waited for.
  std::shared_ptr<std::optional<proto::AdminReply>> CancelLater(const std::string& run = ".gateway-1-ab-1") {
    auto reply = std::make_shared<std::optional<proto::AdminReply>>();
    proto::AdminRequest cancel;
    cancel.mutable_cancel_run()->set_run(run);
    world_.system().spawn([manager = world_.manager(), cancel, reply](caf::event_based_actor* self) {
      self->request(manager, caf::infinite, cancel).then([reply](proto::AdminReply& got) { *reply = got; });
    });
    world_.Run(milliseconds(10));
    return reply;
  }
  proto::NodeLoad LoadOfNode() {
    proto::NodeLoad load;
    world_.system().spawn([node = world_.node("node-1").controller, &load](caf::event_based_actor* self) {
      self->request(node, caf::infinite, proto::DescribeMember())
          .then([&load](const proto::MemberReport& report) { load = report.load(); });
    });
    world_.Settle();
    return load;
  }
  // The front and its runs end without a message. Another front of the same incarnation numbers its runs from
  // one again.
  void Orphan() {
    front_.reset();
    world_.Settle();
    Open(router_);
    script_->held.clear();
  }
  absl::StatusOr<proto::RunRecord> Stored(const std::string& run = ".gateway-1-ab-1") {
    return storage::GetMessage<proto::RunRecord>(world_.store(), Table::kRuns, run);
  }
  // From now on the manager's disk may fail in this way.
  void UseHalfSynced() {
    world_.StopManager();
    half_.inner = &world_.store();
    world_.UseStore(half_);
    world_.StartManager();
    world_.Run(seconds(1));
  }
  proto::CommitStep StoredStep(const std::string& step) {
    auto stored =
        storage::GetMessage<proto::CommitStep>(world_.store(), Table::kSteps, ".gateway-1-ab-1/" + step);
    EXPECT_TRUE(stored.ok()) << stored.status();
    return stored.ok() ? *std::move(stored) : proto::CommitStep();
  }
  // The step's outputs are blobs that no longer exist, and the run has no gateway.
  void LoseResult(const std::string& step) {
    Orphan();
    world_.StopManager();
    auto stored = StoredStep(step);
    for (auto& output : *stored.mutable_outputs()) output.set_blob(Sha256Hex("lost"));
    storage::Batch batch;
    batch.Put(Table::kSteps, ".gateway-1-ab-1/" + step, stored);
    ASSERT_TRUE(storage::CommitAndWait(world_.store(), std::move(batch)).ok());
    world_.StartManager();
    world_.Run(seconds(1));
    script_->calls.clear();
  }
  std::size_t CountEvents(const std::string& kind) {
    proto::AdminRequest request;
    request.mutable_list_events();
    const auto reply = world_.Ask(request);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return static_cast<std::size_t>(std::count_if(reply->events().begin(), reply->events().end(),
                                                  [&](const auto& event) { return event.kind() == kind; }));
  }
  std::vector<std::string> StoredSteps() {
    std::vector<std::string> keys;
    EXPECT_TRUE(storage::ScanMessages<proto::CommitStep>(
                    world_.store(), Table::kSteps, "",
                    [&](std::string_view, const proto::CommitStep& step) { keys.push_back(step.step()); })
                    .ok());
    return keys;
  }

  std::shared_ptr<Script> script_ = std::make_shared<Script>();
  std::shared_ptr<ViewCell> view_ = std::make_shared<ViewCell>();
  HalfSynced half_;
  World world_{1, 1};
  transport::FakeTensorChannel channel_{world_.memory(), KiB(200)};
  RouterActor router_;
  std::unique_ptr<FrontClient> front_;
  std::optional<proto::InferReply> reply_;
  std::uint64_t view_revision_ = 1;
};

using Calls = std::vector<std::string>;

TEST_F(Workflow, ThreeParallelStepsAndAJoinAreAnsweredByRealNodes) {
  front_.reset();
  Open(world_.router());
  const auto request = RequestOf("flow");
  Infer(request);
  world_.Run(seconds(2));
  ASSERT_TRUE(reply_.has_value());
  ASSERT_EQ(reply_->code(), 0) << reply_->message();
  ASSERT_EQ(reply_->outputs_size(), 1);
  EXPECT_EQ(reply_->outputs(0).spec().name(), "y");
  EXPECT_EQ(ShapeOf(reply_->outputs(0).spec()), "2x4");
  EXPECT_EQ(reply_->outputs(0).data().inlined(), request.inputs(0).data().inlined());
  EXPECT_EQ(reply_->function().name(), "flow");
  EXPECT_EQ(world_.node("node-1").workers[0]->runs, 4u);
  EXPECT_EQ(Stored()->state(), proto::RUN_SUCCEEDED);
  EXPECT_GT(Stored()->finished_unix_ns(), 0);
}

TEST_F(Workflow, AStepIsDurableBeforeTheNextBeginsAndTheEndBeforeTheAnswer) {
  world_.store().Hold();
  Infer(RequestOf("flow"));
  EXPECT_EQ(world_.store().held(), 1u);
  EXPECT_TRUE(script_->calls.empty()) << "the run itself is not durable yet";
  ASSERT_TRUE(CompleteNext());
  EXPECT_EQ(script_->calls, (Calls{"net-a", "net-b", "net-c"})) << "the three steps do not run side by side";
  EXPECT_EQ(world_.store().held(), 3u);
  ASSERT_TRUE(CompleteNext());
  ASSERT_TRUE(CompleteNext());
  EXPECT_EQ(script_->calls.size(), 3u) << "one of its inputs is not durable";
  ASSERT_TRUE(CompleteNext());
  EXPECT_EQ(script_->calls.back(), "join");
  EXPECT_EQ(script_->calls.size(), 4u);
  EXPECT_EQ(StoredSteps(), (Calls{"left", "middle", "right"}));
  ASSERT_TRUE(CompleteNext());
  EXPECT_FALSE(reply_.has_value()) << "the end is not durable yet";
  EXPECT_EQ(Stored()->state(), proto::RUN_RUNNING);
  ASSERT_TRUE(CompleteNext());
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), 0) << reply_->message();
  EXPECT_EQ(Stored()->state(), proto::RUN_SUCCEEDED);
}

// The disk is waited for twice, whatever the number of steps: for the start and for the end.
TEST_F(Workflow, BehindAShortStepTheRunGoesOnWhileTheDiskWrites) {
  ShowFunctions({});
  auto request = RequestOf("flow");
  request.set_run_key("mine");
  world_.store().Hold();
  Infer(request);
  EXPECT_TRUE(script_->calls.empty()) << "the run itself is not durable yet";
  ASSERT_TRUE(CompleteNext());
  EXPECT_EQ(script_->calls, (Calls{"net-a", "net-b", "net-c", "join"}));
  EXPECT_TRUE(StoredSteps().empty());
  EXPECT_FALSE(reply_.has_value());
  while (world_.store().held() > 1) ASSERT_TRUE(CompleteNext());
  EXPECT_EQ(StoredSteps(), (Calls{"last", "left", "middle", "right"}));
  EXPECT_FALSE(reply_.has_value()) << "the end is not durable yet";
  ASSERT_TRUE(CompleteNext());
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), 0) << reply_->message();
  EXPECT_EQ(Stored("mine")->state(), proto::RUN_SUCCEEDED);
}

// No other request can name a run without a key: its first steps begin while the disk writes its start.
TEST_F(Workflow, ARunWithoutAKeyBeginsWhileTheDiskWritesItsStart) {
  ShowFunctions({});
  world_.store().Hold();
  Infer(RequestOf("flow"));
  EXPECT_EQ(world_.store().held(), 1u) << "its start";
  EXPECT_EQ(script_->calls, (Calls{"net-a", "net-b", "net-c"}));
  ASSERT_TRUE(CompleteNext());
  EXPECT_EQ(script_->calls.back(), "join");
  while (world_.store().held() > 1) ASSERT_TRUE(CompleteNext());
  EXPECT_FALSE(reply_.has_value()) << "the end is not durable yet";
  ASSERT_TRUE(CompleteNext());
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), 0) << reply_->message();
}

TEST_F(Workflow, AStepWithAStateWaitsForTheStartOfARunWithoutAKey) {
  ShowFunctions({"net-b"});
  world_.store().Hold();
  Infer(RequestOf("flow"));
  EXPECT_EQ(script_->calls, (Calls{"net-a", "net-c"}));
  ASSERT_TRUE(CompleteNext());
  EXPECT_EQ(script_->calls, (Calls{"net-a", "net-c", "net-b"}));
  world_.store().Release();
  world_.Run(milliseconds(100));
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), 0) << reply_->message();
}

TEST_F(Workflow, WhatBeganBeforeAStartThatTheDiskRefusesIsCancelled) {
  ShowFunctions({"net-b"});
  script_->hold = true;
  world_.store().Hold();
  Infer(RequestOf("flow"));
  EXPECT_EQ(script_->held.size(), 2u);
  world_.store().FailNext(absl::ResourceExhaustedError("no space left on the device"), 1);
  world_.store().Release();
  world_.Run(milliseconds(100));
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), static_cast<int>(absl::StatusCode::kResourceExhausted)) << reply_->message();
  EXPECT_EQ(script_->cancelled, 2u);
  EXPECT_EQ(script_->calls, (Calls{"net-a", "net-c"})) << "a state would have advanced";
}

TEST_F(Workflow, ARunWithoutAKeyWhoseManagerGoesAwayBeforeItsStartEndsOnce) {
  ShowFunctions({});
  script_->hold = true;
  world_.store().Hold();
  Infer(RequestOf("flow"));
  AnswerHeld(3);
  world_.StopManager();
  world_.store().Release();
  world_.Run(milliseconds(500));
  EXPECT_FALSE(reply_.has_value());
  EXPECT_EQ(script_->calls.size(), 3u) << "what reads them waits for the log";
  world_.StartManager();
  script_->hold = false;
  world_.Run(seconds(3));
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), 0) << reply_->message();
  EXPECT_EQ(std::ranges::count(script_->calls, "join"), 1);
}

TEST_F(Workflow, AStepWhoseFunctionHasAStateIsWaitedFor) {
  ShowFunctions({"net-b"});
  auto request = RequestOf("flow");
  request.set_run_key("mine");
  world_.store().Hold();
  Infer(request);
  ASSERT_TRUE(CompleteNext());
  EXPECT_EQ(script_->calls, (Calls{"net-a", "net-b", "net-c"}));
  while (world_.store().held() > 0) ASSERT_TRUE(CompleteNext());
  EXPECT_EQ(script_->calls.back(), "join");
}

// The next step has begun by then: it counts for nothing.
TEST_F(Workflow, AShortStepThatCannotBeStoredFailsTheRun) {
  ShowFunctions({});
  script_->hold = true;
  world_.store().Hold();
  Infer(RequestOf("flow"));
  ASSERT_TRUE(CompleteNext());
  AnswerHeld(3);
  EXPECT_EQ(script_->calls.back(), "join");
  world_.store().FailNext(absl::ResourceExhaustedError("no space left on the device"), 1);
  world_.store().Release();
  world_.Run(milliseconds(100));
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), static_cast<int>(absl::StatusCode::kResourceExhausted)) << reply_->message();
  EXPECT_EQ(script_->cancelled, 1u) << "the join";
  world_.Run(seconds(5));
  EXPECT_EQ(Stored()->state(), proto::RUN_FAILED);
}

// The disk refuses a step and takes a later step that read it: the run computes both again.
TEST_F(Workflow, AStepThatReadWhatCannotBeStoredRunsAgain) {
  ShowFunctions({});
  auto request = RequestOf("flow");
  request.set_run_key("mine");
  world_.store().Hold();
  Infer(request);
  ASSERT_TRUE(CompleteNext());
  world_.store().FailNext(absl::ResourceExhaustedError("no space left on the device"), 1);
  while (world_.store().held() > 1) ASSERT_TRUE(CompleteNext());
  EXPECT_EQ(StoredSteps(), (Calls{"last", "middle", "right"}));
  world_.store().FailNext(absl::ResourceExhaustedError("no space left on the device"), 1);
  world_.store().Release();
  world_.Run(seconds(5));
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), static_cast<int>(absl::StatusCode::kResourceExhausted)) << reply_->message();
  ASSERT_EQ(Stored("mine")->state(), proto::RUN_FAILED);
  script_->calls.clear();
  Infer(request);
  world_.Run(seconds(1));
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), 0) << reply_->message();
  EXPECT_EQ(script_->calls, (Calls{"net-a", "join"}));
  EXPECT_EQ(StoredSteps(), (Calls{"last", "left", "middle", "right"}));
}

// A gateway dies before the disk has all steps of its run: the next gateway runs the missing steps again.
TEST_F(Workflow, StepsThatTheDiskHasNotGotRunAgain) {
  ShowFunctions({});
  auto request = RequestOf("flow");
  request.set_run_key("mine");
  world_.store().Hold();
  Infer(request);
  ASSERT_TRUE(CompleteNext());
  ASSERT_TRUE(CompleteNext());
  EXPECT_EQ(StoredSteps(), Calls{"left"});
  const auto before = script_->calls.size();
  Orphan();
  world_.store().FailNext(absl::UnavailableError("the machine is gone"), 4);
  world_.store().Release();
  world_.Run(milliseconds(100));
  EXPECT_EQ(StoredSteps(), Calls{"left"});
  Open(router_);
  Infer(request);
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), 0) << reply_->message();
  EXPECT_EQ(script_->calls.size() - before, 3u) << "of 'middle', 'right' and 'last'";
  EXPECT_EQ(Stored("mine")->state(), proto::RUN_SUCCEEDED);
}

TEST_F(Workflow, AForEachCallsOncePerSliceAndPutsTheAnswersTogether) {
  const auto request = RequestOf("fan", 3);
  Infer(request);
  ASSERT_TRUE(reply_.has_value());
  ASSERT_EQ(reply_->code(), 0) << reply_->message();
  EXPECT_EQ(script_->calls, (Calls{"net-a", "net-a", "net-a"}));
  EXPECT_EQ(script_->shapes, (Calls{"1x4", "1x4", "1x4"}));
  EXPECT_EQ(ShapeOf(reply_->outputs(0).spec()), "3x4");
  EXPECT_EQ(reply_->outputs(0).data().inlined(), request.inputs(0).data().inlined());
  EXPECT_EQ(StoredSteps(), Calls{"each"}) << "the calls of a step are one step";
}

TEST_F(Workflow, AnEmptyBatchMakesNoCallAndGivesAnEmptyOutput) {
  Infer(RequestOf("fan", 0));
  ASSERT_TRUE(reply_.has_value());
  ASSERT_EQ(reply_->code(), 0) << reply_->message();
  EXPECT_TRUE(script_->calls.empty());
  ASSERT_EQ(reply_->outputs_size(), 1);
  EXPECT_EQ(reply_->outputs(0).spec().name(), "y");
  EXPECT_EQ(ShapeOf(reply_->outputs(0).spec()), "0x4");
  EXPECT_EQ(reply_->outputs(0).spec().type(), proto::FP32);
  EXPECT_EQ(StoredSteps(), Calls{"each"});
}

TEST_F(Workflow, AFailingStepFailsTheRunByItsName) {
  script_->failures["net-b"] = absl::InvalidArgumentError("no such shape");
  Infer(RequestOf("flow"));
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(reply_->message(), "step 'middle': function 'net-b' version 7 refuses the call: no such shape");
  EXPECT_EQ(script_->calls.size(), 3u) << "the join began, or a call was tried again";
  EXPECT_EQ(Stored()->state(), proto::RUN_FAILED);
  EXPECT_EQ(Stored()->message(), "step 'middle': function 'net-b' version 7 refuses the call: no such shape");
  EXPECT_EQ(Stored()->code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
}

TEST_F(Workflow, ACallThatFailsForAPassingReasonIsMadeAgain) {
  for (const auto& failure : {absl::UnavailableError("its worker died"), absl::ResourceExhaustedError("full"),
                              absl::AbortedError("it changed hands")}) {
    script_->calls.clear();
    script_->failures["net-b"] = failure;
    script_->failing["net-b"] = 3;
    Infer(RequestOf("flow"));
    world_.Run(seconds(2));
    ASSERT_TRUE(reply_.has_value()) << failure;
    EXPECT_EQ(reply_->code(), 0) << reply_->message();
    EXPECT_EQ(std::count(script_->calls.begin(), script_->calls.end(), "net-b"), 4);
    EXPECT_EQ(script_->calls.size(), 7u) << "the other steps are called once";
  }
}

TEST_F(Workflow, PausesBetweenCallsGrowAndAreNeverShorterThanTheRefusalSays) {
  script_->failures["join"] = absl::UnavailableError("its worker died");
  script_->failing["join"] = 5;
  Infer(RequestOf("thrice"));
  world_.Run(seconds(10));
  ASSERT_TRUE(reply_.has_value());
  ASSERT_EQ(reply_->code(), 0) << reply_->message();
  ASSERT_EQ(script_->times.size(), 6u);
  for (std::size_t i = 1; i < script_->times.size(); ++i) {
    const auto pause = script_->times[i] - script_->times[i - 1];
    EXPECT_GE(pause, milliseconds(25) * (1 << (i - 1))) << i;
    EXPECT_LE(pause, milliseconds(51) * (1 << (i - 1))) << i;
  }
  script_->times.clear();
  script_->retry_after_ns = Duration(seconds(3)).count();
  script_->failing["join"] = 1;
  Infer(RequestOf("thrice"));
  world_.Run(seconds(4));
  ASSERT_EQ(script_->times.size(), 2u);
  EXPECT_GE(script_->times[1] - script_->times[0], seconds(3));
}

TEST_F(Workflow, OfAForEachOnlyTheSliceThatFailedIsCalledAgain) {
  script_->failures["net-a"] = absl::UnavailableError("its worker died");
  script_->failing["net-a"] = 1;
  const auto request = RequestOf("fan", 3);
  Infer(request);
  world_.Run(seconds(1));
  ASSERT_TRUE(reply_.has_value());
  ASSERT_EQ(reply_->code(), 0) << reply_->message();
  EXPECT_EQ(script_->calls.size(), 4u);
  EXPECT_EQ(reply_->outputs(0).data().inlined(), request.inputs(0).data().inlined())
      << "the outputs are not in the order of the inputs";
}

TEST_F(Workflow, WhenTheRunsTimeoutPassesTheLastErrorIsTold) {
  script_->failures["join"] = absl::UnavailableError("its worker died");
  auto request = RequestOf("thrice");
  request.set_timeout_ns(Duration(seconds(2)).count());
  Infer(request);
  world_.Run(seconds(3));
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), static_cast<int>(absl::StatusCode::kDeadlineExceeded));
  EXPECT_NE(reply_->message().find("UNAVAILABLE: its worker died"), std::string::npos) << reply_->message();
  EXPECT_GT(script_->calls.size(), 4u);
  EXPECT_EQ(Stored()->code(), static_cast<int>(absl::StatusCode::kDeadlineExceeded));
  const auto calls = script_->calls.size();
  world_.Run(seconds(20));
  EXPECT_EQ(script_->calls.size(), calls) << "the run is over";
}

TEST_F(Workflow, ACallThatMayHaveAdvancedAStateIsNeverMadeAgain) {
  script_->failures["join"] = absl::UnavailableError("its node was lost");
  script_->advanced = true;
  auto request = RequestOf("thrice");
  request.set_run_key("mine");
  for (int i = 0; i < 2; ++i) {
    Infer(request);
    world_.Run(seconds(2));
    ASSERT_TRUE(reply_.has_value());
    EXPECT_EQ(reply_->code(), static_cast<int>(absl::StatusCode::kInternal)) << reply_->message();
    EXPECT_NE(reply_->message().find("may have advanced"), std::string::npos) << reply_->message();
    EXPECT_NE(reply_->message().find("its node was lost"), std::string::npos) << reply_->message();
  }
  EXPECT_EQ(script_->calls, Calls{"join"}) << "the second submission with the key called the function again";
}

TEST_F(Workflow, AStepThatLosesItsInputAgainAndAgainEndsTheRun) {
  script_->keep = true;
  script_->losing["join"] = {0, {"a"}};
  Infer(RequestOf("flow"));
  world_.Run(seconds(1));
  ASSERT_TRUE(reply_.has_value()) << "the run hangs";
  EXPECT_EQ(reply_->code(), static_cast<int>(absl::StatusCode::kDataLoss)) << reply_->message();
  EXPECT_NE(reply_->message().find("step 'left' was lost again after it had been computed anew 16 times"),
            std::string::npos)
      << reply_->message();
  EXPECT_EQ(std::ranges::count(script_->calls, "net-a"), 17);
  EXPECT_EQ(Stored()->state(), proto::RUN_FAILED);
}

TEST_F(Workflow, AStepWhoseStateMayHaveAdvancedIsNotRunAgainWhenItsInputsAreLost) {
  ShowFunctions({"join"});
  script_->keep = true;
  script_->advanced = true;
  script_->losing["join"] = {0, {"a"}};
  Infer(RequestOf("flow"));
  world_.Run(seconds(1));
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), static_cast<int>(absl::StatusCode::kInternal)) << reply_->message();
  EXPECT_NE(reply_->message().find("may have advanced"), std::string::npos) << reply_->message();
  EXPECT_EQ(std::ranges::count(script_->calls, "join"), 1);
}

TEST_F(Workflow, ACallOfAStepThatAdvancedAStateIsNotMadeAgainForTheInputsOfAnotherCall) {
  Submit(R"(
name: rows
inputs: {image: {type: FP32, shape: [-1, 4]}}
steps:
  - {name: first, function: net-a, inputs: {x: image}}
  - {name: each, function: net-b, inputs: {x: first.out_x}, for_each: {input: x, dimension: 0, at_once: 1}}
outputs: {y: each.out_x}
)");
  ShowFunctions({"net-b"});
  script_->keep = true;
  script_->advancing = {"net-b"};
  script_->losing["net-b"] = {1, {"x"}};
  Infer(RequestOf("rows"));
  world_.Run(seconds(1));
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), static_cast<int>(absl::StatusCode::kInternal)) << reply_->message();
  EXPECT_EQ(std::ranges::count(script_->calls, "net-b"), 2);
}

TEST_F(Workflow, ACancelledRunDoesNotWaitToCallAgain) {
  script_->failures["join"] = absl::UnavailableError("its worker died");
  script_->retry_after_ns = Duration(seconds(30)).count();
  Infer(RequestOf("thrice"));
  ASSERT_FALSE(reply_.has_value());
  EXPECT_TRUE(CancelRun().ok());
  world_.Run(milliseconds(100));
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), static_cast<int>(absl::StatusCode::kCancelled));
  world_.Run(seconds(40));
  EXPECT_EQ(script_->calls.size(), 1u);
  EXPECT_EQ(Stored()->state(), proto::RUN_CANCELLED);
}

TEST_F(Workflow, AFailureForGoodEndsTheCallsThatWaitBesideIt) {
  script_->failures["net-a"] = absl::UnavailableError("its worker died");
  script_->failures["net-b"] = absl::InvalidArgumentError("no such shape");
  script_->retry_after_ns = Duration(seconds(20)).count();
  Infer(RequestOf("flow"));
  ASSERT_TRUE(reply_.has_value()) << "the run waits for the pause";
  EXPECT_EQ(reply_->message(), "step 'middle': function 'net-b' version 7 refuses the call: no such shape");
}

TEST_F(Workflow, AKeyWhoseRunFailedForAPassingReasonGoesOnBehindItsCommittedSteps) {
  script_->failures["join"] = absl::UnavailableError("its worker died");
  auto request = RequestOf("flow");
  request.set_run_key("mine");
  request.set_timeout_ns(Duration(seconds(2)).count());
  Infer(request);
  world_.Run(seconds(3));
  ASSERT_TRUE(reply_.has_value());
  ASSERT_EQ(reply_->code(), static_cast<int>(absl::StatusCode::kDeadlineExceeded)) << reply_->message();
  ASSERT_EQ(Stored("mine")->state(), proto::RUN_FAILED);
  // A manager that reads its disk again knows it, too.
  world_.StopManager();
  world_.StartManager();
  world_.Run(seconds(1));
  script_->failures.clear();
  script_->calls.clear();
  Infer(request);
  world_.Run(seconds(1));
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), 0) << reply_->message();
  EXPECT_EQ(script_->calls, Calls{"join"}) << "what is committed is not run again";
  EXPECT_EQ(Stored("mine")->state(), proto::RUN_SUCCEEDED);
  EXPECT_EQ(Stored("mine")->claim(), 1u);
  EXPECT_EQ(Stored("mine")->code(), 0);
  EXPECT_EQ(CountEvents("run-reopened"), 1u);
  script_->calls.clear();
  Infer(request);
  EXPECT_EQ(reply_->code(), 0) << reply_->message();
  EXPECT_TRUE(script_->calls.empty());
}

TEST_F(Workflow, TwoSubmissionsOfAKeyReopenItsRunOnce) {
  script_->failures["join"] = absl::UnavailableError("its worker died");
  auto request = RequestOf("thrice");
  request.set_run_key("mine");
  request.set_timeout_ns(Duration(milliseconds(500)).count());
  Infer(request);
  world_.Run(seconds(1));
  ASSERT_EQ(Stored("mine")->state(), proto::RUN_FAILED);
  script_->failures.clear();
  script_->calls.clear();
  world_.store().Hold();
  std::vector<proto::InferReply> replies;
  for (int i = 0; i < 2; ++i)
    front_->Infer(request, [&replies](proto::InferReply reply) { replies.push_back(std::move(reply)); });
  world_.Run(milliseconds(100));
  EXPECT_EQ(world_.store().held(), 1u) << "there is more than one claim";
  world_.store().Release();
  world_.Run(seconds(1));
  ASSERT_EQ(replies.size(), 2u);
  for (const auto& reply : replies) EXPECT_EQ(reply.code(), 0) << reply.message();
  EXPECT_EQ(script_->calls, Calls{"join"});
}

TEST_F(Workflow, AKeyWhoseRunFailedForGoodAnswersTheKeptErrorWithItsOwnCode) {
  script_->failures["join"] = absl::InvalidArgumentError("no such shape");
  auto request = RequestOf("thrice");
  request.set_run_key("mine");
  for (int i = 0; i < 2; ++i) {
    Infer(request);
    ASSERT_TRUE(reply_.has_value());
    EXPECT_EQ(reply_->code(), static_cast<int>(absl::StatusCode::kInvalidArgument)) << reply_->message();
    EXPECT_EQ(reply_->message(), "step 'only': function 'join' version 7 refuses the call: no such shape");
  }
  EXPECT_EQ(script_->calls, Calls{"join"});
}

// A version that was deployed after the workflow was submitted.
TEST_F(Workflow, AFunctionThatGivesAnOutputNoLongerWhichIsReadFailsItsStep) {
  script_->renaming = {"net-b"};
  Infer(RequestOf("flow"));
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), static_cast<int>(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(
      reply_->message(),
      "step 'middle': function 'net-b' version 7 gave no output 'out_x', which the workflow reads; its "
      "outputs are: new_x; submit the workflow anew for this version, or name a version that fits in the step");
  EXPECT_EQ(Stored()->state(), proto::RUN_FAILED);
}

TEST_F(Workflow, AFunctionThatIsUnloadedIsNotWaitedFor) {
  ShowFunctions({}, {"net-b"});
  Infer(RequestOf("flow"));
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), static_cast<int>(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(
      reply_->message(),
      "step 'middle': function 'net-b' version 1 is unloaded; serve it again with: troupe function load net-b, "
      "or POST /v2/repository/models/net-b/load");
  EXPECT_EQ(std::ranges::count(script_->calls, "net-b"), 0);
}

TEST_F(Workflow, AFunctionThatIsUnloadedBetweenTwoTriesIsNotWaitedFor) {
  ShowFunctions({});
  script_->failures["join"] = absl::UnavailableError("an outage");
  Infer(RequestOf("thrice"));
  EXPECT_FALSE(reply_.has_value()) << "an outage passes";
  const auto calls = script_->calls;
  ShowFunctions({}, {"join"});
  world_.Run(seconds(1));
  ASSERT_TRUE(reply_.has_value());
  EXPECT_THAT(reply_->message(), testing::HasSubstr("function 'join' version 1 is unloaded"));
  EXPECT_EQ(script_->calls, calls);
}

TEST_F(Workflow, IsNoFunctionThatCouldBeLoaded) {
  proto::AdminRequest request;
  request.mutable_load()->mutable_key()->set_name("flow");
  for (const bool load : {true, false}) {
    request.mutable_load()->set_load(load);
    const auto refused = world_.Ask(request).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    EXPECT_EQ(
        refused.message(),
        "'flow' is a workflow, which is served while it is submitted and needs no loading; load or unload what "
        "it calls: join, net-a, net-b, net-c");
  }
  request.mutable_load()->mutable_key()->set_name("absent");
  EXPECT_TRUE(absl::IsNotFound(world_.Ask(request).status()));
}

TEST_F(Workflow, ADeploymentWarnsOfTheWorkflowsThatItDoesNotFit) {
  proto::AdminRequest deploy;
  deploy.mutable_deploy()->set_name("net-b");
  deploy.mutable_deploy()->set_onnx_digest(world_.MakeModel("net-b", MiB(1)));
  const auto fits = world_.Ask(deploy, seconds(10));
  ASSERT_TRUE(fits.ok()) << fits.status();
  EXPECT_EQ(fits->message(), "");
  deploy.mutable_deploy()->set_onnx_digest(world_.MakeModel("net-b", MiB(1), {"xx"}));
  const auto warned = world_.Ask(deploy, seconds(10));
  ASSERT_TRUE(warned.ok()) << warned.status();
  EXPECT_EQ(
      warned->message(),
      "warning: calls without a version get version 3 now, and these workflows do not fit it: workflow 'flow' has 3 "
      "errors: line 7: step 'middle' lacks input 'xx' (FP32 [-1,4]) of function 'net-b'; line 7: step 'middle': "
      "function 'net-b' has no input 'x'; its inputs are: xx; line 9: 'middle.out_x': function 'net-b' has no output "
      "'out_x'; its outputs are: out_xx; submit them anew, or name a version that fits in their steps");
}

TEST_F(Workflow, AFailingStepCancelsTheCallsBesideIt) {
  script_->hold = true;
  Infer(RequestOf("flow"));
  script_->failures["net-a"] = absl::InvalidArgumentError("no such shape");
  AnswerHeld(1);
  EXPECT_EQ(script_->cancelled, 2u) << "the calls that no run waits for were not cancelled";
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->message(), "step 'left': function 'net-a' version 7 refuses the call: no such shape")
      << "the message tells of the cancellations that followed";
  EXPECT_EQ(Stored()->state(), proto::RUN_FAILED);
}

TEST_F(Workflow, ACancelledRunCancelsItsCallsAndBeginsNothingNew) {
  script_->hold = true;
  Infer(RequestOf("flow"));
  AnswerHeld(1);
  front_->Cancel(1);
  world_.Run(milliseconds(100));
  EXPECT_EQ(script_->cancelled, 2u);
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), static_cast<int>(absl::StatusCode::kCancelled));
  EXPECT_EQ(script_->calls.size(), 3u);
  EXPECT_EQ(Stored()->state(), proto::RUN_CANCELLED);
}

TEST_F(Workflow, ACancellationBeforeTheStartIsDurableStillEndsTheRun) {
  world_.store().Hold();
  Infer(RequestOf("flow"));
  front_->Cancel(1);
  world_.Run(milliseconds(100));
  world_.store().Release();
  world_.Run(milliseconds(100));
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), static_cast<int>(absl::StatusCode::kCancelled));
  EXPECT_EQ(Stored()->state(), proto::RUN_CANCELLED) << "the log has no run that never ends";
  EXPECT_TRUE(script_->calls.empty());
}

TEST_F(Workflow, AnOperatorsCancellationEndsTheCallsUnderWayAtOnce) {
  script_->hold = true;
  Infer(RequestOf("flow"));
  ASSERT_TRUE(CancelRun().ok());
  world_.Run(milliseconds(100));
  EXPECT_EQ(script_->cancelled, 3u);
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), static_cast<int>(absl::StatusCode::kCancelled));
  EXPECT_NE(reply_->message().find("cancelled"), std::string::npos) << reply_->message();
  EXPECT_TRUE(StoredSteps().empty());
  EXPECT_EQ(Stored()->state(), proto::RUN_CANCELLED);
  EXPECT_EQ(Stored()->message(), "cancelled by an operator");
  EXPECT_TRUE(CancelRun().ok()) << "cancelling a cancelled run is an error";
  EXPECT_TRUE(absl::IsNotFound(CancelRun("no-such-run")));
}

TEST_F(Workflow, ACancellationGoesDownToTheQueueOfTheGpu) {
  front_.reset();
  Open(world_.router());
  front_->Infer(RequestOf("flow"), [this](proto::InferReply reply) { reply_ = std::move(reply); });
  world_.Run(milliseconds(1));
  const auto before = LoadOfNode();
  EXPECT_EQ(before.running(), 2u);
  EXPECT_EQ(before.queued(), 1u);
  ASSERT_TRUE(CancelRun().ok());
  world_.Run(milliseconds(100));
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), static_cast<int>(absl::StatusCode::kCancelled)) << reply_->message();
  const auto after = LoadOfNode();
  EXPECT_EQ(after.queued() + after.running(), 0u);
  EXPECT_EQ(world_.node("node-1").workers[0]->runs, 0u) << "a GPU computed for the cancelled run";
}

TEST_F(Workflow, ACancellationThatComesWhileTheEndIsStoredFindsTheRunEnded) {
  world_.store().Hold();
  Infer(RequestOf("fan", 1));
  ASSERT_TRUE(CompleteNext());  // commits the start
  ASSERT_TRUE(CompleteNext());  // commits the step
  ASSERT_EQ(world_.store().held(), 1u) << "only the run's own end waits for the disk";
  const auto cancelled = CancelLater();
  EXPECT_EQ(world_.store().held(), 1u) << "the cancellation does not wait for its turn";
  ASSERT_TRUE(CompleteNext());
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), 0) << reply_->message();
  EXPECT_EQ(Stored()->state(), proto::RUN_SUCCEEDED);
  ASSERT_TRUE(cancelled->has_value());
  EXPECT_EQ((*cancelled)->code(), static_cast<int>(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(world_.store().held(), 0u);
}

TEST_F(Workflow, AnEndThatComesWhileTheCancellationIsStoredIsACancelledOne) {
  world_.store().Hold();
  Infer(RequestOf("fan", 1));
  ASSERT_TRUE(CompleteNext());  // commits the start
  const auto cancelled = CancelLater();
  ASSERT_EQ(world_.store().held(), 2u) << "the step and the cancellation wait for the disk";
  ASSERT_TRUE(CompleteNext());
  EXPECT_FALSE(reply_.has_value());
  ASSERT_TRUE(CompleteNext());
  EXPECT_EQ(world_.store().held(), 0u) << "the run got a second end";
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), static_cast<int>(absl::StatusCode::kCancelled)) << reply_->message();
  EXPECT_EQ(Stored()->state(), proto::RUN_CANCELLED);
  ASSERT_TRUE(cancelled->has_value());
  EXPECT_EQ((*cancelled)->code(), 0);
}

TEST_F(Workflow, AStepThatCannotBeStoredFailsTheRunAndLosesNothingAcknowledged) {
  world_.store().Hold();
  Infer(RequestOf("flow"));
  ASSERT_TRUE(CompleteNext());  // commits the start
  ASSERT_TRUE(CompleteNext());  // commits the step 'left'
  world_.store().FailNext(absl::ResourceExhaustedError("no space left on the device"), 3);
  ASSERT_TRUE(CompleteNext());  // the disk refuses the step 'middle'
  world_.store().Release();     // the disk refuses the step 'right' and the run's end
  world_.Run(milliseconds(100));
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), static_cast<int>(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(reply_->message(), "step 'middle': no space left on the device");
  EXPECT_EQ(script_->calls.size(), 3u) << "the join never began";
  EXPECT_EQ(StoredSteps(), Calls{"left"}) << "an acknowledged step is lost";
  EXPECT_EQ(Stored()->state(), proto::RUN_RUNNING) << "the run's end did not fit on the disk either";
  world_.Run(seconds(5));
  EXPECT_EQ(Stored()->state(), proto::RUN_FAILED) << "there is room again";
  EXPECT_EQ(Stored()->message(), "step 'middle': no space left on the device");
  EXPECT_EQ(StoredSteps(), Calls{"left"});
}

TEST_F(Workflow, ARunWhoseEndCannotBeStoredHasNotSucceeded) {
  world_.store().Hold();
  Infer(RequestOf("fan", 1));
  ASSERT_TRUE(CompleteNext());  // commits the start
  ASSERT_TRUE(CompleteNext());  // commits the step
  world_.store().FailNext(absl::ResourceExhaustedError("no space left on the device"));
  world_.store().Release();
  world_.Run(milliseconds(100));
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), static_cast<int>(absl::StatusCode::kResourceExhausted));
  world_.Run(seconds(5));
  EXPECT_EQ(Stored()->state(), proto::RUN_FAILED) << "the record does not say what the client was told";
  EXPECT_EQ(StoredSteps(), Calls{"each"});
}

TEST_F(Workflow, ASubmissionThatComesAgainGoesOnBehindItsCommittedSteps) {
  const auto request = RequestOf("flow");
  script_->hold = true;
  Infer(request);
  AnswerHeld(2);
  EXPECT_EQ(StoredSteps(), (Calls{"left", "middle"}));
  // The gateway dies with the run. The client submits the run again, at another gateway or after the restart.
  Orphan();
  script_->hold = false;
  script_->calls.clear();
  Infer(request);
  ASSERT_TRUE(reply_.has_value());
  ASSERT_EQ(reply_->code(), 0) << reply_->message();
  EXPECT_EQ(script_->calls, (Calls{"net-c", "join"})) << "more than the rest of the run was computed";
  EXPECT_EQ(reply_->outputs(0).data().inlined(), request.inputs(0).data().inlined());
  EXPECT_EQ(Stored()->state(), proto::RUN_SUCCEEDED);
  // A third submission is answered with the outcome of the run.
  Orphan();
  script_->calls.clear();
  Infer(request);
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), 0) << reply_->message();
  EXPECT_EQ(reply_->outputs(0).data().inlined(), request.inputs(0).data().inlined());
  EXPECT_TRUE(script_->calls.empty());
}

TEST_F(Workflow, AKeyedRunGoesOnWithTheVersionWithWhichItBegan) {
  auto request = RequestOf("flow");
  request.set_run_key("mine");
  script_->hold = true;
  Infer(request);
  AnswerHeld(2);
  Orphan();
  auto second = std::string(kFlow);
  second.replace(second.find("net-a"), 5, "net-c");
  Submit(second);
  script_->hold = false;
  script_->calls.clear();
  for (int again = 0; again < 2; ++again) {  // it goes on, and then its outcome is told
    Infer(request);
    ASSERT_TRUE(reply_.has_value());
    ASSERT_EQ(reply_->code(), 0) << reply_->message();
    EXPECT_EQ(reply_->function().version(), "1");
    EXPECT_EQ(script_->calls, (Calls{"net-c", "join"}));
  }
  request.mutable_function()->set_version("1");
  Infer(request);
  EXPECT_EQ(reply_->code(), 0) << reply_->message();
  request.mutable_function()->set_version("2");
  Infer(request);
  EXPECT_EQ(reply_->code(), static_cast<int>(absl::StatusCode::kAlreadyExists)) << reply_->message();
  EXPECT_NE(reply_->message().find("begun with version 1"), std::string::npos) << reply_->message();
  request.set_run_key("other");
  Infer(request);
  EXPECT_EQ(reply_->code(), 0) << reply_->message();
  EXPECT_EQ(reply_->function().version(), "2");
}

TEST_F(Workflow, AStepWhoseCommittedResultIsLostIsRunAgainAndCounted) {
  const auto request = RequestOf("flow");
  script_->hold = true;
  Infer(request);
  AnswerHeld(2);
  ASSERT_EQ(StoredSteps(), (Calls{"left", "middle"}));
  LoseResult("left");
  script_->hold = false;
  Infer(request);
  ASSERT_TRUE(reply_.has_value());
  ASSERT_EQ(reply_->code(), 0) << reply_->message();
  EXPECT_EQ(reply_->outputs(0).data().inlined(), request.inputs(0).data().inlined());
  EXPECT_EQ(script_->calls, (Calls{"net-a", "net-c", "join"})) << "a committed step was run again";
  EXPECT_EQ(StoredStep("left").recomputed(), 1u);
  EXPECT_EQ(StoredStep("left").outputs(0).inlined(), request.inputs(0).data().inlined());
  EXPECT_EQ(StoredStep("middle").recomputed(), 0u);
  EXPECT_EQ(CountEvents("step-recomputed"), 1u);
  proto::AdminRequest status;
  status.mutable_cluster_status();
  EXPECT_EQ(world_.Ask(status)->status().steps_recomputed(), 1u);
}

TEST_F(Workflow, AStepWhoseResultIsLostAgainAndAgainIsRunSixteenTimesMoreAtMost) {
  const auto request = RequestOf("flow");
  script_->hold = true;
  Infer(request);
  AnswerHeld(3);
  for (std::uint32_t again = 1; again <= 16; ++again) {
    LoseResult("left");
    Infer(request);
    EXPECT_EQ(script_->calls, Calls{"net-a"});
    AnswerHeld(1);
    EXPECT_EQ(StoredStep("left").recomputed(), again);
    EXPECT_FALSE(reply_.has_value()) << "the last step is under way";
  }
  LoseResult("left");
  Infer(request);
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), static_cast<int>(absl::StatusCode::kDataLoss));
  EXPECT_NE(reply_->message().find("computed anew 16 times"), std::string::npos) << reply_->message();
  EXPECT_TRUE(script_->calls.empty());
  EXPECT_EQ(Stored()->state(), proto::RUN_FAILED);
}

TEST_F(Workflow, AKeyWhoseFirstSubmissionIsOnItsWayToTheDiskTakesNoOtherInputs) {
  std::vector<std::optional<proto::InferReply>> replies(3);
  const auto submit = [&](std::size_t number, std::int64_t rows) {
    auto request = RequestOf("flow", rows);
    request.set_run_key("mine");
    request.set_call(0);
    front_->Infer(std::move(request),
                  [&replies, number](proto::InferReply reply) { replies[number] = std::move(reply); });
    world_.Run(milliseconds(100));
  };
  world_.store().Hold();
  submit(0, 2);
  submit(1, 3);
  submit(2, 2);
  ASSERT_TRUE(replies[1].has_value()) << "the second submission was not refused at once";
  EXPECT_EQ(replies[1]->code(), static_cast<int>(absl::StatusCode::kAlreadyExists)) << replies[1]->message();
  EXPECT_EQ(world_.store().held(), 1u);
  // The disk is full: no run has begun, and the key is free.
  world_.store().FailNext(absl::ResourceExhaustedError("no space left on the device"));
  world_.store().Release();
  world_.Run(milliseconds(100));
  for (const std::size_t number : {0, 2}) {
    ASSERT_TRUE(replies[number].has_value());
    EXPECT_EQ(replies[number]->code(), static_cast<int>(absl::StatusCode::kResourceExhausted));
  }
  submit(1, 3);
  EXPECT_EQ(replies[1]->code(), 0) << replies[1]->message();
  EXPECT_EQ(script_->calls.size(), 4u);
}

// Else a client that knows how runs without a key are named could keep the next one from beginning.
TEST_F(Workflow, AKeyFromOutsideIsNeverTheNameOfARunWithoutOne) {
  for (const std::string key : {"gateway-1-ab-1", ".gateway-1-ab-1"}) {
    auto taken = RequestOf("flow", 3);
    taken.set_run_key(key);
    Infer(std::move(taken));
    ASSERT_TRUE(reply_.has_value());
    const bool own = key[0] == '.';
    EXPECT_EQ(reply_->code(), own ? static_cast<int>(absl::StatusCode::kInvalidArgument) : 0) << key;
    EXPECT_EQ(reply_->message().find("choose a key that begins") != std::string::npos, own)
        << reply_->message();
  }
  Infer(RequestOf("flow"));
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), 0) << reply_->message();
  EXPECT_EQ(Stored()->state(), proto::RUN_SUCCEEDED);
}

TEST_F(Workflow, AStartThatWasToldFailedDoesNotBeginByItselfThoughItLiesOnTheDisk) {
  UseHalfSynced();
  half_.failing = 1;
  Infer(RequestOf("flow"));
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), static_cast<int>(absl::StatusCode::kUnavailable)) << reply_->message();
  ASSERT_TRUE(Stored().ok()) << "the test is of a run whose record is there";
  world_.store().FailNext(absl::UnavailableError("the disk is still broken"));
  world_.Run(milliseconds(1500));
  EXPECT_TRUE(Stored().ok()) << "the removal of the record failed";
  world_.Run(seconds(1));
  EXPECT_TRUE(absl::IsNotFound(Stored().status())) << "the removal was not tried again";
  world_.StopManager();
  world_.StartManager();
  world_.Run(seconds(5));
  EXPECT_TRUE(script_->calls.empty());
}

TEST_F(Workflow, AStartThatFailedAndComesAgainBeforeItWasTakenBackIsOneRun) {
  UseHalfSynced();
  half_.failing = 1;
  auto request = RequestOf("flow");
  request.set_run_key("mine");
  Infer(request);
  ASSERT_TRUE(reply_.has_value());
  EXPECT_NE(reply_->code(), 0);
  Infer(request);
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), 0) << reply_->message();
  world_.Run(seconds(3));
  ASSERT_TRUE(Stored("mine").ok()) << "an acknowledged run was taken back";
  EXPECT_EQ(Stored("mine")->state(), proto::RUN_SUCCEEDED);
  EXPECT_EQ(script_->calls.size(), 4u);
}

TEST_F(Workflow, ASubmissionOfACancelledRunIsCancelled) {
  script_->hold = true;
  Infer(RequestOf("flow"));
  ASSERT_TRUE(CancelRun().ok());
  world_.Run(milliseconds(100));
  Orphan();
  script_->calls.clear();
  Infer(RequestOf("flow"));
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), static_cast<int>(absl::StatusCode::kCancelled));
  EXPECT_TRUE(script_->calls.empty());
}

TEST_F(Workflow, BadInputsAreToldWhatWasExpected) {
  auto missing = RequestOf("flow");
  missing.clear_inputs();
  auto type = RequestOf("flow");
  type.mutable_inputs(0)->mutable_spec()->set_type(proto::INT64);
  auto shape = RequestOf("flow");
  shape.mutable_inputs(0)->mutable_spec()->set_shape(1, 5);
  auto surplus = RequestOf("flow");
  *surplus.add_inputs() = surplus.inputs(0);
  surplus.mutable_inputs(1)->mutable_spec()->set_name("other");
  for (const auto& [request, said] :
       {std::pair(missing, "needs the input 'image' (FP32[-1,4])"),
        std::pair(type, "is INT64[2,4]; expected FP32[-1,4]"),
        std::pair(shape, "is FP32[2,5]; expected FP32[-1,4]"), std::pair(surplus, "has 1 inputs; 2 were")}) {
    Infer(request);
    ASSERT_TRUE(reply_.has_value());
    EXPECT_EQ(reply_->code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
    EXPECT_NE(reply_->message().find(said), std::string::npos) << reply_->message();
  }
  EXPECT_TRUE(script_->calls.empty());
  EXPECT_TRUE(absl::IsNotFound(Stored().status())) << "no run was begun";
}

TEST_F(Workflow, WithoutAManagerARunIsRefusedAndFunctionsGoOn) {
  world_.StopManager();
  world_.Run(milliseconds(10));
  Infer(RequestOf("flow"));
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), static_cast<int>(absl::StatusCode::kUnavailable));
  // Calls as a shell makes them; front_client_test.cpp tests the calls of HTTP threads.
  reply_.reset();
  world_.system().spawn([this](caf::event_based_actor* self) {
    self->request(front_->actor(), caf::infinite, RequestOf("net-a")).then([this](proto::InferReply& reply) {
      reply_ = std::move(reply);
    });
  });
  world_.Run(milliseconds(100));
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), 0) << reply_->message();
}

TEST_F(Workflow, WhatARunPutIntoTheArenaIsFreedAgain) {
  const auto request = RequestOf("fan", 5000);  // more slices than a fan-out may have
  Infer(request);
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(channel_.used(), Bytes(0));
  // Two of its three tensors of 80 kB fit into the channel.
  // Other requests might free their slices, so the call is made again as long as there is time.
  auto thrice = RequestOf("thrice", 5000);
  thrice.set_timeout_ns(Duration(milliseconds(500)).count());
  Infer(std::move(thrice));
  EXPECT_FALSE(reply_.has_value());
  EXPECT_EQ(channel_.used(), Bytes(0)) << "nothing is held between two tries";
  world_.Run(milliseconds(500));
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), static_cast<int>(absl::StatusCode::kDeadlineExceeded)) << reply_->message();
  EXPECT_NE(reply_->message().find("RESOURCE_EXHAUSTED"), std::string::npos) << reply_->message();
  EXPECT_TRUE(script_->calls.empty());
  EXPECT_EQ(channel_.used(), Bytes(0)) << "the tensors that were stored before the refusal were not freed";
}

TEST_F(Workflow, StartingTheSameRunTwiceGivesOneRun) {
  proto::StartRun start;
  start.set_run("mine");
  start.set_workflow("flow");
  const auto first = world_.Ask<proto::RunReply>(start);
  ASSERT_TRUE(first.ok()) << first.status();
  proto::CommitStep step;
  step.set_run("mine");
  step.set_step("left");
  ASSERT_TRUE(world_.Ask<proto::RunReply>(step).ok());
  const auto again = world_.Ask<proto::RunReply>(start);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->run().start().unix_ns(), first->run().start().unix_ns());
  ASSERT_EQ(again->run().steps_size(), 1) << "the run does not go on where it was";
  EXPECT_EQ(again->workflow().spec().name(), "flow");
  start.set_workflow("fan");
  EXPECT_TRUE(absl::IsAlreadyExists(world_.Ask<proto::RunReply>(start).status()));
  start.set_workflow("nothing");
  start.set_run("other");
  EXPECT_TRUE(absl::IsNotFound(world_.Ask<proto::RunReply>(start).status()));
  EXPECT_TRUE(absl::IsNotFound(Stored("other").status()));
}

// What a shell sends is not trusted: the step would cut a slice that is not there.
TEST_F(Workflow, AnInputWhoseBytesAreNotThoseOfItsShapeIsRefused) {
  auto request = RequestOf("fan", 3);
  request.mutable_inputs(0)->mutable_spec()->set_shape(0, 5);
  Infer(request);
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), static_cast<int>(absl::StatusCode::kInvalidArgument)) << reply_->message();
  EXPECT_THAT(reply_->message(), testing::HasSubstr("bytes"));
}

TEST_F(Workflow, ATimeoutBeyondAllTimesIsTheLongest) {
  auto request = RequestOf("flow");
  request.set_timeout_ns(std::numeric_limits<std::int64_t>::max());
  Infer(request);
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), 0) << reply_->message();
}

// A client that asks again with the key gets the run's outcome; and no memory is held for the run.
TEST_F(Workflow, ARunWithAKeyBeginsAlthoughItsClientWentAwayWhileItsInputsCame) {
  auto request = RequestOf("flow", 4100);
  const auto bytes = request.inputs(0).data().inlined();
  const auto ref = channel_.Put(std::as_bytes(std::span(bytes)), "image");
  ASSERT_TRUE(ref.ok());
  ASSERT_TRUE(ref->has_arena());
  *request.mutable_inputs(0)->mutable_data() = *ref;
  request.set_run_key("key-1");
  const auto before = world_.system().registry().running();
  front_->Infer(std::move(request), [this](proto::InferReply reply) { reply_ = std::move(reply); });
  front_->Cancel(1);
  world_.Run(seconds(120));
  ASSERT_TRUE(reply_.has_value());
  EXPECT_THAT(reply_->message(), testing::HasSubstr("the run goes on"));
  const auto stored = Stored("key-1");
  ASSERT_TRUE(stored.ok()) << stored.status();
  // The run succeeds or fails; three copies of its input are more than this channel holds.
  EXPECT_NE(stored->state(), proto::RUN_RUNNING) << stored->message();
  EXPECT_EQ(world_.system().registry().running(), before);
}

// The adoption fails after the function was removed: nothing is left that could be taken back.
TEST_F(Workflow, AFunctionThatIsRemovedWhileItIsAdoptedIsNotRemovedAgain) {
  proto::AdminRequest request;
  request.mutable_deploy()->set_name("late");
  request.mutable_deploy()->set_onnx_digest(world_.MakeModel("late", MiB(1)));
  auto reply = std::make_shared<std::optional<proto::AdminReply>>();
  world_.system().spawn([manager = world_.manager(), request, reply](caf::event_based_actor* self) {
    self->request(manager, caf::infinite, request).then([reply](proto::AdminReply& got) { *reply = got; });
  });
  world_.Run(milliseconds(20));
  proto::AdminRequest remove;
  remove.mutable_remove()->mutable_key()->set_name("late");
  const auto removed = world_.Ask(remove, milliseconds(10));
  ASSERT_TRUE(removed.ok()) << removed.status();
  ASSERT_FALSE(reply->has_value()) << "the model is still being adopted";
  proto::DisownModel disown;  // stands for a node that cannot serve the model
  disown.set_model_digest(World::ModelDigest("late"));
  caf::anon_send(world_.node("node-1").controller, disown);
  world_.Run(seconds(1));
  ASSERT_TRUE(reply->has_value());
  EXPECT_NE((*reply)->code(), 0);
  EXPECT_TRUE(absl::IsNotFound(world_.Ask(remove, milliseconds(10)).status())) << "the manager died";
}

constexpr char kGated[] = R"(
name: gated
inputs:
  image: {type: FP32, shape: [-1, 4]}
  go: {type: BOOL, shape: [-1]}
steps:
  - {name: first, function: net-a, inputs: {x: image}}
  - {name: maybe, function: net-b, inputs: {x: first.out_x}, when: go}
  - {name: behind, function: net-c, inputs: {x: maybe.out_x}}
  - {name: last, function: join, inputs: {a: image, b: [behind.out_x, first.out_x], c: image}}
outputs: {y: last.out_b, maybe: maybe.out_x, either: [maybe.out_x, image]}
)";

TEST_F(Workflow, AStepRunsIfItsConditionIsNotZero) {
  Submit(kGated);
  const auto request = RequestWith("gated", "\x01");
  Infer(request);
  ASSERT_TRUE(reply_.has_value());
  ASSERT_EQ(reply_->code(), 0) << reply_->message();
  EXPECT_EQ(script_->calls, (Calls{"net-a", "net-b", "net-c", "join"}));
  EXPECT_EQ(reply_->outputs_size(), 3);
  EXPECT_EQ(Ends(), (Calls{"behind", "first", "last", "maybe"}));
}

TEST_F(Workflow, AStepWhoseConditionIsZeroNeverRunsNorDoesWhatReadsIt) {
  Submit(kGated);
  const auto request = RequestWith("gated", std::string(1, '\0'));
  Infer(request);
  ASSERT_TRUE(reply_.has_value());
  ASSERT_EQ(reply_->code(), 0) << reply_->message();
  EXPECT_EQ(script_->calls, (Calls{"net-a", "join"}));
  EXPECT_EQ(BytesOf("y"), request.inputs(0).data().inlined()) << "the other value";
  EXPECT_EQ(BytesOf("maybe"), "absent");
  EXPECT_EQ(BytesOf("either"), request.inputs(0).data().inlined());
  EXPECT_EQ(Ends(),
            (Calls{"first", "last", "skipped behind: its input 'x' is absent: step 'maybe' was skipped",
                   "skipped maybe: its 'when', go, is 0"}));
  EXPECT_EQ(Stored()->state(), proto::RUN_SUCCEEDED);
}

TEST_F(Workflow, ASkippedStepIsDurableBeforeWhatReadsItIsDecided) {
  Submit(kGated);
  world_.store().Hold();
  Infer(RequestWith("gated", std::string(1, '\0')));
  ASSERT_TRUE(CompleteNext());
  EXPECT_EQ(script_->calls, Calls{"net-a"});
  EXPECT_EQ(world_.store().held(), 2u) << "that one step was skipped, and the outputs of another";
  ASSERT_TRUE(CompleteNext());
  ASSERT_TRUE(CompleteNext());
  EXPECT_EQ(StoredSteps(), (Calls{"first", "maybe"}));
  EXPECT_EQ(script_->calls, Calls{"net-a"}) << "the last step may still read the step behind it";
  ASSERT_TRUE(CompleteNext());
  EXPECT_EQ(StoredSteps(), (Calls{"behind", "first", "maybe"}));
  EXPECT_EQ(script_->calls, (Calls{"net-a", "join"}));
}

TEST_F(Workflow, ARunThatGoesOnElsewhereKeepsWhatWasSkipped) {
  Submit(kGated);
  const auto request = RequestWith("gated", std::string(1, '\0'));
  script_->hold = true;
  Infer(request);
  EXPECT_EQ(StoredSteps(), (Calls{"behind", "maybe"}));
  Orphan();
  script_->hold = false;
  script_->calls.clear();
  Infer(request);
  ASSERT_TRUE(reply_.has_value());
  ASSERT_EQ(reply_->code(), 0) << reply_->message();
  EXPECT_EQ(script_->calls, (Calls{"net-a", "join"}));
  EXPECT_EQ(BytesOf("maybe"), "absent");
  // The run has ended: a third submission hears the same.
  Orphan();
  script_->calls.clear();
  Infer(request);
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), 0) << reply_->message();
  EXPECT_TRUE(script_->calls.empty());
  EXPECT_EQ(reply_->outputs_size(), 2);
}

TEST_F(Workflow, AConditionWithSeveralElementsFailsTheRunByItsName) {
  Submit(kGated);
  Infer(RequestWith("gated", "ab"));
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(reply_->message(),
            "step 'maybe': 'when' reads 'go', which is BOOL [2]; a condition has exactly one element");
  EXPECT_EQ(Stored()->state(), proto::RUN_FAILED);
}

constexpr char kStandIn[] = R"(
name: stand-in
inputs:
  image: {type: FP32, shape: [-1, 4]}
steps:
  - {name: large, function: net-a, inputs: {x: image}, retries: 1, on_error: {step: small}}
  - {name: small, function: net-b, inputs: {x: image}}
  - {name: last, function: net-c, inputs: {x: large.out_x}}
outputs: {y: last.out_x, large: large.out_x}
)";

TEST_F(Workflow, AStepThatStandsInDoesNotRunWhileNothingFails) {
  Submit(kStandIn);
  Infer(RequestOf("stand-in"));
  ASSERT_TRUE(reply_.has_value());
  ASSERT_EQ(reply_->code(), 0) << reply_->message();
  EXPECT_EQ(script_->calls, (Calls{"net-a", "net-c"}));
  EXPECT_EQ(Ends(),
            (Calls{"large", "last", "skipped small: step 'large', for which it stands in, did not fail"}));
}

TEST_F(Workflow, AStepThatFailedForGoodIsStoodInForAndItsFailureIsKept) {
  Submit(kStandIn);
  script_->failures["net-a"] = absl::NotFoundError("no such model");
  const auto request = RequestOf("stand-in");
  Infer(request);
  ASSERT_TRUE(reply_.has_value());
  ASSERT_EQ(reply_->code(), 0) << reply_->message();
  EXPECT_EQ(script_->calls, (Calls{"net-a", "net-b", "net-c"}));
  EXPECT_EQ(BytesOf("y"), request.inputs(0).data().inlined());
  EXPECT_EQ(BytesOf("large"), request.inputs(0).data().inlined()) << "the output of what stands in";
  EXPECT_EQ(Ends(), (Calls{"failed large: no such model", "last", "small"}));
  EXPECT_EQ(StoredStep("large").code(), static_cast<int>(absl::StatusCode::kNotFound));
  EXPECT_EQ(Stored()->state(), proto::RUN_SUCCEEDED);
}

TEST_F(Workflow, RetriesOfAStepAreLimited) {
  Submit(kStandIn);
  script_->failures["net-a"] = absl::UnavailableError("its worker died");
  Infer(RequestOf("stand-in"));
  world_.Run(seconds(5));
  ASSERT_TRUE(reply_.has_value());
  ASSERT_EQ(reply_->code(), 0) << reply_->message();
  EXPECT_EQ(script_->calls, (Calls{"net-a", "net-a", "net-b", "net-c"}));
  EXPECT_TRUE(
      Ends()[0].starts_with("failed large: its worker died; 'retries' of the step allows 1; before it,"))
      << Ends()[0];
  // Within the limit it does not fail.
  script_->failing["net-a"] = 1;
  script_->calls.clear();
  Infer(RequestOf("stand-in"));
  world_.Run(seconds(5));
  EXPECT_EQ(script_->calls, (Calls{"net-a", "net-a", "net-c"}));
}

TEST_F(Workflow, AFailureThatIsDurableIsNotTriedAgainElsewhere) {
  Submit(kStandIn);
  script_->failures["net-a"] = absl::NotFoundError("no such model");
  script_->hold = true;
  Infer(RequestOf("stand-in"));
  AnswerHeld(1);
  EXPECT_EQ(script_->calls, (Calls{"net-a", "net-b"}));
  EXPECT_EQ(Ends(), Calls{"failed large: no such model"});
  Orphan();
  script_->hold = false;
  script_->failures.clear();
  script_->calls.clear();
  Infer(RequestOf("stand-in"));
  ASSERT_TRUE(reply_.has_value());
  ASSERT_EQ(reply_->code(), 0) << reply_->message();
  EXPECT_EQ(script_->calls, (Calls{"net-b", "net-c"}));
}

TEST_F(Workflow, WhatStandsInMayFailToo) {
  Submit(kStandIn);
  script_->failures["net-a"] = absl::NotFoundError("no such model");
  script_->failures["net-b"] = absl::InternalError("nor this");
  Infer(RequestOf("stand-in"));
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), static_cast<int>(absl::StatusCode::kInternal));
  EXPECT_EQ(reply_->message(), "step 'small': nor this");
  EXPECT_EQ(Ends(), Calls{"failed large: no such model"});
}

TEST_F(Workflow, AValueStandsInForAStepThatFailed) {
  Submit(R"(
name: value
inputs:
  image: {type: FP32, shape: [-1, 4]}
steps:
  - {name: only, function: net-a, inputs: {x: image}, on_error: {values: {out_x: image}}}
outputs: {y: only.out_x}
)");
  script_->failures["net-a"] = absl::NotFoundError("no such model");
  const auto request = RequestOf("value");
  Infer(request);
  ASSERT_TRUE(reply_.has_value());
  ASSERT_EQ(reply_->code(), 0) << reply_->message();
  EXPECT_EQ(BytesOf("y"), request.inputs(0).data().inlined());
  EXPECT_EQ(Ends(), Calls{"failed only: no such model"});
}

TEST_F(Workflow, TheTimeOfARunIsSplitOverItsSteps) {
  Submit(kStandIn);
  auto request = RequestOf("stand-in");
  request.set_timeout_ns(Duration(seconds(30)).count());
  Infer(request);
  ASSERT_EQ(script_->timeouts.size(), 2u);
  EXPECT_EQ(script_->timeouts[0], seconds(10)) << "large, small, last";
  EXPECT_GT(script_->timeouts[1], seconds(29)) << "what the others left";
}

constexpr char kEach[] = R"(
name: each
inputs:
  image: {type: FP32, shape: [-1, 4]}
steps:
  - {name: each, function: net-a, inputs: {x: image}, for_each: {input: x, dimension: 0, most: 5, at_once: 2}}
outputs: {y: each.out_x}
)";

TEST_F(Workflow, SoManyCallsOfAForEachAreUnderWayAtATimeAsItSays) {
  Submit(kEach);
  script_->hold = true;
  const auto request = RequestOf("each", 5);
  Infer(request);
  EXPECT_EQ(script_->calls.size(), 2u);
  AnswerHeld(1);
  EXPECT_EQ(script_->calls.size(), 3u);
  EXPECT_EQ(script_->held.size(), 2u);
  AnswerHeld(3);
  EXPECT_EQ(script_->calls.size(), 5u);
  EXPECT_EQ(script_->held.size(), 1u);
  AnswerHeld(1);
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(BytesOf("y"), request.inputs(0).data().inlined());
}

TEST_F(Workflow, AForEachOfTooManyElementsIsRefusedBeforeAnyCall) {
  Submit(kEach);
  Infer(RequestOf("each", 6));
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(
      reply_->message(),
      "step 'each': tensor 'x' of shape [6,4] would be 6 calls, one for each element along dimension 0; the step "
      "makes at most 5 calls ('most' of its for_each)");
  EXPECT_TRUE(script_->calls.empty());
}

TEST_F(Workflow, AfterAFailureAForEachBeginsNoMoreCalls) {
  Submit(kEach);
  script_->hold = true;
  script_->failures["net-a"] = absl::NotFoundError("gone");
  Infer(RequestOf("each", 5));
  AnswerHeld(1);
  EXPECT_EQ(script_->calls.size(), 2u);
  AnswerHeld(1);
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), static_cast<int>(absl::StatusCode::kNotFound));
  EXPECT_EQ(script_->calls.size(), 2u);
}

TEST_F(Workflow, ACancelledForEachBeginsNoMoreCalls) {
  Submit(kEach);
  script_->hold = true;
  Infer(RequestOf("each", 5));
  ASSERT_TRUE(CancelRun().ok());
  world_.Run(milliseconds(100));
  EXPECT_EQ(script_->cancelled, 2u);
  EXPECT_EQ(script_->calls.size(), 2u);
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), static_cast<int>(absl::StatusCode::kCancelled));
}

constexpr char kInner[] = R"(
name: inner
inputs:
  image: {type: FP32, shape: [-1, 4]}
steps:
  - {name: one, function: net-a, inputs: {x: image}}
  - {name: two, function: net-b, inputs: {x: one.out_x}}
outputs: {z: two.out_x}
)";
constexpr char kOuter[] = R"(
name: outer
inputs:
  image: {type: FP32, shape: [-1, 4]}
steps:
  - {name: nested, workflow: inner, inputs: {image: image}}
  - {name: last, function: net-c, inputs: {x: nested.z}}
outputs: {y: last.out_x}
)";

TEST_F(Workflow, TheRequestsOfStepsAreFoundByTheirRun) {
  Submit(kInner);
  Submit(kOuter);
  Submit(kEach);
  auto request = RequestOf("outer");
  request.set_client_id("order-7");
  Infer(request);
  world_.Run(seconds(1));
  EXPECT_EQ(script_->ids, (Calls{"order-7/nested/one", "order-7/nested/two", "order-7/last"}));
  script_->ids.clear();
  auto keyed = RequestOf("each", 2);
  keyed.set_run_key("night");
  keyed.set_client_id("order-8");
  Infer(keyed);
  EXPECT_EQ(script_->ids, (Calls{"night/each/0", "night/each/1"})) << "`troupe run list` names it so";
  script_->ids.clear();
  Infer(RequestOf("each", 1));
  EXPECT_EQ(script_->ids, Calls{Runs("each").back().start().run() + "/each/0"});
}

TEST_F(Workflow, AStepThatCallsAWorkflowIsARunOfItsOwn) {
  Submit(kInner);
  Submit(kOuter);
  const auto request = RequestOf("outer");
  Infer(request);
  world_.Run(seconds(1));
  ASSERT_TRUE(reply_.has_value());
  ASSERT_EQ(reply_->code(), 0) << reply_->message();
  EXPECT_EQ(script_->calls, (Calls{"net-a", "net-b", "net-c"}));
  EXPECT_EQ(BytesOf("y"), request.inputs(0).data().inlined());
  EXPECT_EQ(Ends(), (Calls{"last", "nested"}));
  const auto runs = Runs("inner");
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].state(), proto::RUN_SUCCEEDED);
  EXPECT_EQ(runs[0].start().parent(), ".gateway-1-ab-1");
  EXPECT_EQ(runs[0].start().parent_step(), "nested");
  EXPECT_EQ(Ends(runs[0].start().run()), (Calls{"one", "two"}));
}

TEST_F(Workflow, ARunThatGoesOnElsewhereFindsTheRunsInsideIt) {
  Submit(kInner);
  Submit(kOuter);
  script_->hold = true;
  Infer(RequestOf("outer"));
  world_.Run(seconds(1));
  AnswerHeld(1);
  ASSERT_EQ(script_->calls, (Calls{"net-a", "net-b"}));
  Orphan();
  // A newer version does not matter to a run that has begun.
  Submit(R"(
name: inner
inputs:
  image: {type: FP32, shape: [-1, 4]}
steps:
  - {name: other, function: net-a, inputs: {x: image}}
outputs: {z: other.out_x}
)");
  script_->hold = false;
  script_->calls.clear();
  Infer(RequestOf("outer"));
  world_.Run(seconds(5));
  ASSERT_TRUE(reply_.has_value());
  ASSERT_EQ(reply_->code(), 0) << reply_->message();
  EXPECT_EQ(script_->calls, (Calls{"net-b", "net-c"})) << "the first step of the inner run is committed";
  EXPECT_EQ(Runs("inner").size(), 1u);
}

TEST_F(Workflow, ACancelledRunCancelsTheRunsInsideIt) {
  Submit(kInner);
  Submit(kOuter);
  script_->hold = true;
  Infer(RequestOf("outer"));
  world_.Run(seconds(1));
  ASSERT_EQ(script_->calls, Calls{"net-a"});
  ASSERT_TRUE(CancelRun().ok());
  world_.Run(seconds(1));
  EXPECT_EQ(script_->cancelled, 1u) << "down to the call of the inner run's step";
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(reply_->code(), static_cast<int>(absl::StatusCode::kCancelled));
  ASSERT_EQ(Runs("inner").size(), 1u);
  EXPECT_EQ(Runs("inner")[0].state(), proto::RUN_CANCELLED);
}

TEST_F(Workflow, AnInnerRunThatFailsFailsItsStepForWhichAnotherMayStandIn) {
  Submit(kInner);
  Submit(R"(
name: safe
inputs:
  image: {type: FP32, shape: [-1, 4]}
steps:
  - {name: nested, workflow: inner, inputs: {image: image}, on_error: {values: {z: image}}}
outputs: {y: nested.z}
)");
  script_->failures["net-b"] = absl::NotFoundError("no such model");
  const auto request = RequestOf("safe");
  Infer(request);
  world_.Run(seconds(1));
  ASSERT_TRUE(reply_.has_value());
  ASSERT_EQ(reply_->code(), 0) << reply_->message();
  EXPECT_EQ(BytesOf("y"), request.inputs(0).data().inlined());
  EXPECT_EQ(Ends(), Calls{"failed nested: workflow 'inner': step 'two': no such model"});
  EXPECT_EQ(Runs("inner")[0].state(), proto::RUN_FAILED);
}

TEST_F(Workflow, AForEachOfAWorkflowIsOneRunForEachElement) {
  Submit(kInner);
  Submit(R"(
name: many
inputs:
  image: {type: FP32, shape: [-1, 4]}
steps:
  - {name: nested, workflow: inner, inputs: {image: image}, for_each: {input: image, dimension: 0}}
outputs: {y: nested.z}
)");
  const auto request = RequestOf("many", 3);
  Infer(request);
  world_.Run(seconds(1));
  ASSERT_TRUE(reply_.has_value());
  ASSERT_EQ(reply_->code(), 0) << reply_->message();
  EXPECT_EQ(BytesOf("y"), request.inputs(0).data().inlined());
  EXPECT_EQ(Runs("inner").size(), 3u);
}

}  // namespace
}  // namespace troupe::actors
