#include "sim/workloads/request_clients.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/checkers/question.hpp"

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
  const auto rows = static_cast<std::int64_t>(record.question.size() / kRowBytes);
  *request.add_inputs() = World::InputX(rows, record.question);
  if (record.sequence.empty()) return request;
  request.mutable_sequence()->set_id(record.sequence);
  request.mutable_sequence()->set_start(record.starts);
  request.mutable_sequence()->set_end(record.ends);
  return request;
}

void AddCondition(bool goes, proto::InferRequest& request) {
  auto& input = *request.add_inputs();
  input.mutable_spec()->set_name(ClientLoad::kCondition);
  input.mutable_spec()->set_type(proto::BOOL);
  input.mutable_spec()->add_shape(1);
  input.mutable_data()->set_inlined(std::string(1, goes ? '\1' : '\0'));
}

AnswerSeen SeenIn(const proto::InferReply& reply, bool again) {
  AnswerSeen seen{static_cast<absl::StatusCode>(reply.code()), reply.message(), -1, again,
                  reply.function().version()};
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

void RequestClients::Begin() {
  load_.plan().bursts ? Burst() : RequestLoop();
}

// Rarely enough that others have most of a GPU, though each of these takes one up to its limit. It draws
// nothing: all others do what they would do without it.
void RequestClients::LongLoop() {
  cluster().agenda().In(milliseconds(600), [this] {
    if (load_.Over()) return;
    Ask(long_asked_++ % cluster().shape().gateways, ClientLoad::kLong, "", seconds(4));
    LongLoop();
  });
}

// Twice as many requests as its quota has time for: a run takes ten milliseconds.
void RequestClients::QuotaLoop() {
  cluster().agenda().In(milliseconds(500) / load_.plan().quota, [this] {
    if (load_.Over()) return;
    Ask(quota_asked_++ % cluster().shape().gateways, ClientLoad::kQuota, "", seconds(4));
    QuotaLoop();
  });
}

void RequestClients::RequestLoop() {
  const Duration mean(static_cast<Duration::rep>(1e9 / load_.plan().rate));
  cluster().agenda().In(load_.Pause(mean), [this] {
    if (load_.Over()) return;
    AskAnything(kClientTries);
    RequestLoop();
  });
}

// As many requests as in a second and a half of a steady load, at once; then nothing for as long.
void RequestClients::Burst() {
  cluster().agenda().In(milliseconds(1500), [this] {
    if (load_.Over()) return;
    for (int i = 0; i < static_cast<int>(load_.plan().rate * 1.5); ++i) AskAnything(kClientTries);
    Burst();
  });
}

void RequestClients::AskAnything(std::uint32_t tries) {
  RequestRecord record;
  record.gateway = load_.AnyGateway();
  if (load_.plan().churn && load_.Below(4) == 0) {
    record.function = absl::StrCat("c", load_.Below(ClientLoad::kChurnNames));
    if (load_.Below(2) == 0) record.version = absl::StrCat(1 + load_.Below(ClientLoad::kChurnVersions));
  } else if (load_.Below(load_.plan().stateful > 1 ? 2 : 6) == 0) {
    record.function = load_.AnyStateful();
  } else {
    record.function = absl::StrCat("f", load_.Below(load_.plan().functions));
  }
  record.timeout = kRequestTimeouts[load_.Below(std::size(kRequestTimeouts))];
  const auto request = Send(std::move(record), tries);
  if (load_.Below(30) > 0) return;
  cluster().agenda().In(load_.Pause(milliseconds(20)),
                        [this, request] { cluster().fronts().CancelAtAll(request); });
}

std::uint64_t RequestClients::Ask(std::size_t gateway, const std::string& function,
                                  const std::string& version, Duration timeout) {
  RequestRecord record;
  record.gateway = cluster().shape().GatewayNames().at(gateway);
  record.function = function;
  record.version = version;
  record.timeout = timeout;
  return Send(std::move(record), 1);
}

std::uint64_t RequestClients::Send(RequestRecord record, std::uint32_t tries) {
  const auto gateways = cluster().shape().GatewayNames();
  const auto gateway =
      static_cast<std::size_t>(std::ranges::find(gateways, record.gateway) - gateways.begin());
  record.slack = record.run ? kRunSlack : kSlack;
  record.life = cluster().fronts().LifeOf(gateway);
  // A row of four floats, another one for each request; the same for those with one key.
  if (record.key.empty()) record.question = absl::StrFormat("question %7d", ledger_.all().size() + 1);
  const bool conditional = record.function == ClientLoad::kWorkflow && load_.plan().conditions;
  // Its second step makes a call for each row, and the third one reads what all gave.
  if (conditional) record.question = TwoRows(FirstRow(record.question));
  record.asked = cluster().world().Now();
  const auto request = ledger_.Asked(record);
  auto message = RequestOf(record, request);
  if (conditional) AddCondition(ClientLoad::Goes(record.question), message);
  cluster().fronts().Infer(
      gateway, std::move(message), record.key,
      [this, here = std::weak_ptr<bool>(here_), request, tries](const proto::InferReply& reply, bool again) {
        if (!here.expired()) Answered(request, SeenIn(reply, again), tries);
      });
  return request;
}

void RequestClients::SendThen(RequestRecord record, std::function<void(const RequestRecord&)> then) {
  const auto request = Send(std::move(record), 1);
  then_[request] = std::move(then);
}

void RequestClients::Answered(std::uint64_t request, const AnswerSeen& answer, std::uint32_t tries) {
  const auto now = cluster().world().Now();
  ledger_.Answered(request, now, answer);
  const auto& record = ledger_.all()[request - 1];
  cluster().Note(absl::StrCat("request ", request, " for ", StateOf(record),
                              record.key.empty() ? "" : absl::StrCat(" with key ", record.key), " at ",
                              record.gateway, ": ", absl::StatusCodeToString(answer.code), " ", answer.said,
                              answer.runs < 0 ? "" : absl::StrCat(", count ", answer.runs),
                              answer.again ? ", again" : ""));
  if (const auto then = then_.extract(request); !then.empty()) then.mapped()(record);
  if (answer.code == absl::StatusCode::kOk) {
    ++served_;
    if (twice_ > 0 && --twice_ == 0) ledger_.Answered(request, now, answer);
  }
  bool again =
      answer.code == absl::StatusCode::kUnavailable || answer.code == absl::StatusCode::kResourceExhausted;
  // A client with a key may ask with it whatever happened.
  if (!record.key.empty()) again = answer.code != absl::StatusCode::kOk;
  if (again && tries > 1 && !load_.Over()) AskAgain(request, tries - 1);
}

void RequestClients::AskAgain(std::uint64_t request, std::uint32_t tries) {
  cluster().agenda().In(milliseconds(50) + load_.Pause(milliseconds(50)), [this, request, tries] {
    const auto& before = ledger_.all()[request - 1];
    RequestRecord record;
    record.gateway = load_.AnyGateway();
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
