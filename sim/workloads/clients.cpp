// The clients that ask for answers: functions and workflows. The operators are in operators.cpp.
#include "sim/workloads/clients.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace troupe::sim {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kRequestTimeouts[] = {milliseconds(300), seconds(1), seconds(2), seconds(4)};
constexpr Duration kSlack = milliseconds(100);
// A run is answered when its end is stored, or not: behind two commits that time out, at the latest.
constexpr Duration kRunSlack = seconds(25);
constexpr std::uint32_t kClientTries = 3;  // of one question, each a request of its own

proto::InferRequest RequestOf(const RequestRecord& record, std::uint64_t call) {
  proto::InferRequest request;
  request.mutable_function()->set_name(record.function);
  request.mutable_function()->set_version(record.version);
  request.set_timeout_ns(record.timeout.count());
  request.set_call(call);
  auto& input = *request.add_inputs();
  input.mutable_spec()->set_name("x");
  input.mutable_spec()->set_type(proto::FP32);
  input.mutable_spec()->add_shape(1);
  input.mutable_spec()->add_shape(4);
  input.mutable_data()->set_inlined(record.question);
  return request;
}

AnswerSeen SeenIn(const proto::InferReply& reply, bool again) {
  AnswerSeen seen{static_cast<absl::StatusCode>(reply.code()), reply.message(), -1, again};
  if (reply.code() != 0) return seen;
  seen.said = absl::StrCat(reply.outputs_size(), " outputs");
  for (const auto& output : reply.outputs()) {
    const auto& value = output.data().inlined();
    if (output.spec().name() != "runs") {
      seen.said = value;
    } else if (!absl::SimpleAtoi(value, &seen.runs)) {
      seen.said = absl::StrCat("a count '", value, "'");
    }
  }
  return seen;
}

}  // namespace

WorkloadPlan DrawWorkload(Random& random) {
  WorkloadPlan plan;
  plan.functions = 2 + static_cast<std::uint32_t>(random.Below(4));
  plan.rate = 15 + static_cast<double>(random.Below(40));
  plan.bursts = random.Below(2) == 0;
  plan.churn = random.Below(5) < 3;
  plan.workflows = random.Below(5) < 2;
  plan.drains = random.Below(3) == 0;
  plan.keys = random.Below(2) == 0;
  return plan;
}

WorkloadPlan WithSiblings(WorkloadPlan plan, std::uint64_t seed) {
  Random random(seed ^ 0x51b11465ULL);
  plan.stateful = 1 + static_cast<std::uint32_t>(random.Below(3));
  return plan;
}

WorkloadPlan WithLongRuns(WorkloadPlan plan, std::uint64_t seed) {
  plan.long_runs = Random(seed ^ 0x10a617eULL).Below(3) == 0;
  return plan;
}

std::string ToString(const WorkloadPlan& plan) {
  return absl::StrCat(plan.functions, " functions, ", plan.stateful, " with state, ",
                      plan.bursts ? "bursts" : "steady", " at ", plan.rate, "/s", plan.churn ? ", churn" : "",
                      plan.workflows ? ", workflows" : "", plan.drains ? ", drains" : "",
                      plan.keys ? ", keys" : "", plan.long_runs ? ", long runs" : "");
}

Clients::Clients(ChaosCluster& cluster, WorkloadPlan plan, Random random)
    : cluster_(cluster), plan_(plan), random_(random) {}

bool Clients::Over() const {
  return cluster_.world().Now() >= end_;
}

Duration Clients::Pause(Duration mean) {
  return Duration(static_cast<Duration::rep>(random_.Exponential(static_cast<double>(mean.count()))));
}

std::vector<std::string> Clients::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, onnx] : onnx_) names.push_back(name);
  return names;
}

std::set<std::string> Clients::StatefulNames() const {
  std::set<std::string> names;
  for (std::uint32_t i = 0; i < plan_.stateful; ++i) names.insert(absl::StrCat(kStateful, i));
  return names;
}

std::string Clients::AnyStateful() {
  return absl::StrCat(kStateful, plan_.stateful > 1 ? random_.Below(plan_.stateful) : 0);
}

void Clients::Begin() {
  end_ = cluster_.world().Now() + plan_.length;
  plan_.bursts ? Burst() : RequestLoop();
  if (plan_.churn)
    for (std::size_t of = 0; of < cluster_.shape().operators; ++of) ChurnLoop(of);
  if (plan_.workflows) {
    WorkflowLoop();
    CancelLoop();
  }
  if (plan_.drains) DrainLoop();
  if (plan_.keys) KeyLoop();
  if (plan_.long_runs) LongLoop();
}

// Rarely enough that others have most of a GPU, though each of these takes one up to its limit. It draws
// nothing: all others do what they would do without it.
void Clients::LongLoop() {
  cluster_.agenda().In(milliseconds(600), [this] {
    if (Over()) return;
    Ask(long_asked_++ % cluster_.shape().gateways, kLong, "", seconds(4));
    LongLoop();
  });
}

void Clients::RequestLoop() {
  const Duration mean(static_cast<Duration::rep>(1e9 / plan_.rate));
  cluster_.agenda().In(Pause(mean), [this] {
    if (Over()) return;
    AskAnything(kClientTries);
    RequestLoop();
  });
}

// As many requests as in a second and a half of a steady load, at once; then nothing for as long.
void Clients::Burst() {
  cluster_.agenda().In(milliseconds(1500), [this] {
    if (Over()) return;
    for (int i = 0; i < static_cast<int>(plan_.rate * 1.5); ++i) AskAnything(kClientTries);
    Burst();
  });
}

void Clients::AskAnything(std::uint32_t tries) {
  RequestRecord record;
  record.gateway = cluster_.shape().GatewayNames()[random_.Below(cluster_.shape().gateways)];
  if (plan_.churn && random_.Below(4) == 0) {
    record.function = absl::StrCat("c", random_.Below(kChurnNames));
    if (random_.Below(2) == 0) record.version = absl::StrCat(1 + random_.Below(kChurnVersions));
  } else if (random_.Below(plan_.stateful > 1 ? 2 : 6) == 0) {
    record.function = AnyStateful();
  } else {
    record.function = absl::StrCat("f", random_.Below(plan_.functions));
  }
  record.timeout = kRequestTimeouts[random_.Below(std::size(kRequestTimeouts))];
  const auto request = Send(std::move(record), tries);
  if (random_.Below(30) > 0) return;
  cluster_.agenda().In(Pause(milliseconds(20)), [this, request] {
    for (std::size_t i = 0; i < cluster_.shape().gateways; ++i) cluster_.Cancel(i, request);
  });
}

std::uint64_t Clients::Ask(std::size_t gateway, const std::string& function, const std::string& version,
                           Duration timeout) {
  RequestRecord record;
  record.gateway = cluster_.shape().GatewayNames().at(gateway);
  record.function = function;
  record.version = version;
  record.timeout = timeout;
  return Send(std::move(record), 1);
}

std::uint64_t Clients::Send(RequestRecord record, std::uint32_t tries) {
  const auto gateways = cluster_.shape().GatewayNames();
  const auto gateway =
      static_cast<std::size_t>(std::ranges::find(gateways, record.gateway) - gateways.begin());
  record.slack = record.run ? kRunSlack : kSlack;
  record.life = cluster_.LifeOf(gateway);
  // 16 bytes: a tensor of four floats, another one for each request; the same for those with one key.
  if (record.key.empty()) record.question = absl::StrFormat("question %7d", ledger_.all().size() + 1);
  record.asked = cluster_.world().Now();
  const auto request = ledger_.Asked(record);
  cluster_.Infer(
      gateway, RequestOf(record, request), record.key,
      [this, here = std::weak_ptr<bool>(here_), request, tries](const proto::InferReply& reply, bool again) {
        if (!here.expired()) Answered(request, SeenIn(reply, again), tries);
      });
  return request;
}

void Clients::Answered(std::uint64_t request, const AnswerSeen& answer, std::uint32_t tries) {
  const auto now = cluster_.world().Now();
  ledger_.Answered(request, now, answer);
  const auto& record = ledger_.all()[request - 1];
  cluster_.Note(absl::StrCat("request ", request, " for ", record.function,
                             record.key.empty() ? "" : absl::StrCat(" with key ", record.key), " at ",
                             record.gateway, ": ", absl::StatusCodeToString(answer.code), " ", answer.said,
                             answer.runs < 0 ? "" : absl::StrCat(", count ", answer.runs),
                             answer.again ? ", again" : ""));
  if (answer.code == absl::StatusCode::kOk) {
    ++served_;
    if (twice_ > 0 && --twice_ == 0) ledger_.Answered(request, now, answer);
  }
  bool again =
      answer.code == absl::StatusCode::kUnavailable || answer.code == absl::StatusCode::kResourceExhausted;
  // A client with a key may ask with it whatever happened.
  if (!record.key.empty()) again = answer.code != absl::StatusCode::kOk;
  if (again && tries > 1 && !Over()) AskAgain(request, tries - 1);
}

void Clients::AskAgain(std::uint64_t request, std::uint32_t tries) {
  cluster_.agenda().In(milliseconds(50) + Pause(milliseconds(50)), [this, request, tries] {
    const auto& before = ledger_.all()[request - 1];
    RequestRecord record;
    record.gateway = cluster_.shape().GatewayNames()[random_.Below(cluster_.shape().gateways)];
    record.function = before.function;
    record.version = before.version;
    record.timeout = before.timeout;
    record.question = before.question;
    record.key = before.key;
    record.run = before.run;
    Send(std::move(record), tries);
  });
}

}  // namespace troupe::sim
