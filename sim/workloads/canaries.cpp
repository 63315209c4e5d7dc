#include "sim/workloads/canaries.hpp"

#include <array>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.hpp"

namespace troupe::sim {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Asked = VersionOp::Kind;
using Became = VersionOp::Result;

constexpr std::size_t kInARow = 100;      // requests that show each percent
constexpr std::size_t kInAShortRow = 20;  // at the other gateways

Became BecameOf(Asked kind, const AdminResult& result) {
  if (!result.reply) return Became::kUnknown;
  switch (static_cast<absl::StatusCode>(result.reply->code())) {
    case absl::StatusCode::kOk:
      return Became::kDone;
    case absl::StatusCode::kAlreadyExists:
      return kind == Asked::kDeploy ? Became::kRefused : Became::kUnknown;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:
      return kind == Asked::kDeploy ? Became::kUnknown : Became::kRefused;
    default:
      return Became::kUnknown;
  }
}

std::optional<VersionParts> PartsIn(const proto::AdminReply& reply) {
  VersionParts parts;
  for (const auto& function : reply.functions()) {
    const auto& record = function.record();
    std::uint32_t version = 0;
    if (record.key().name() == ClientLoad::kCanaries && absl::SimpleAtoi(record.key().version(), &version))
      parts[version] = record.share_percent();
  }
  return parts;
}

}  // namespace

std::map<std::string, std::string> Canaries::Models() {
  return {{"1", World::ModelDigest(ClientLoad::kCanaries)},
          {"2", World::ModelDigest(ClientLoad::kSecondModel)}};
}

void Canaries::Prepare() {
  cluster().version_watch().Know(ClientLoad::kCanaries);
  for (const std::uint32_t version : {1, 2}) {
    Do({.kind = Asked::kDeploy, .version = version}, [] {});
    TROUPE_CHECK(cluster().agenda().RunUntil([this] { return operators_.Idle(); }, seconds(10)),
                 "it was deployed");
  }
}

void Canaries::Begin() {
  ChangeLoop();
  AskLoop();
}

void Canaries::ChangeLoop() {
  cluster().agenda().In(Pause(milliseconds(250)), [this] {
    if (load_.Over()) return;
    Do(Drawn(), [this] { ChangeLoop(); });
  });
}

VersionOp Canaries::Drawn() {
  static constexpr std::array<std::uint32_t, 6> kPercents = {1, 10, 25, 50, 75, 99};
  static constexpr std::array<std::uint32_t, 3> kExact = {0, 70, 100};
  const auto version = 1 + static_cast<std::uint32_t>(random_.Below(2));
  const auto percent = kPercents[random_.Below(kPercents.size())];
  const auto first = kExact[random_.Below(kExact.size())];
  const auto choice = random_.Below(20);
  if (choice < 7) return {.kind = Asked::kCanary, .version = 2, .percent = percent};
  if (choice < 8) return {.kind = Asked::kCanary, .version = 1, .percent = percent};
  if (choice < 10) return {.kind = Asked::kPromote};
  if (choice < 11) return {.kind = Asked::kPromote, .version = version};
  if (choice < 14) return {.kind = Asked::kRollBack};
  if (choice < 16) return {.kind = Asked::kParts, .parts = {{1, first}, {2, 100 - first}}};
  if (choice < 17) return {.kind = Asked::kFollow};
  if (choice < 18) return {.kind = Asked::kRemove, .version = 2};
  return {.kind = Asked::kDeploy, .version = 2};
}

proto::AdminRequest Canaries::RequestOf(const VersionOp& op) {
  proto::AdminRequest request;
  if (op.kind == Asked::kLook) {
    request.mutable_list_functions();
    return request;
  }
  auto& split = *request.mutable_split_function();
  split.set_name(ClientLoad::kCanaries);
  switch (op.kind) {
    case Asked::kCanary:
      split.mutable_canary()->set_version(absl::StrCat(op.version));
      split.mutable_canary()->set_percent(op.percent);
      break;
    case Asked::kPromote:
      split.set_promote(op.version == 0 ? "" : absl::StrCat(op.version));
      break;
    case Asked::kRollBack:
      split.set_roll_back(true);
      break;
    default:
      split.mutable_shares();
  }
  for (const auto& [version, percent] : op.parts) {
    auto& share = *split.mutable_shares()->add_shares();
    share.set_version(absl::StrCat(version));
    share.set_percent(percent);
  }
  return request;
}

void Canaries::Do(VersionOp op, const std::function<void()>& then) {
  op.invoked = cluster().world().Now();
  const auto number = ops_.size();
  const auto done = [this, number, then](const AdminResult& result) {
    Answered(number, result);
    then();
  };
  ops_.push_back(op);
  if (op.kind == Asked::kDeploy || op.kind == Asked::kRemove) {
    const auto kind = op.kind == Asked::kDeploy ? RegistryOp::Kind::kDeploy : RegistryOp::Kind::kRemove;
    return operators_.Once(operator_, kind, absl::StrCat(ClientLoad::kCanaries, "/", op.version), done);
  }
  operators_.Command(operator_, RequestOf(op), done);
}

void Canaries::Answered(std::size_t number, const AdminResult& result) {
  auto& op = ops_[number];
  if (!result.reply) operator_ = 1 - operator_;
  if (!result.sent) {
    return ops_.pop_back();  // it was not done
  }
  op.result = BecameOf(op.kind, result);
  if (op.result != Became::kUnknown) op.returned = cluster().world().Now();
  if (op.result == Became::kDone && op.kind != Asked::kDeploy && op.kind != Asked::kRemove)
    op.shown = PartsIn(*result.reply);
  cluster().Note(absl::StrCat("operator: ", ToString(op),
                              result.reply ? absl::StrCat(" ", result.reply->message()) : ""));
}

void Canaries::Look() {
  Do({.kind = Asked::kLook}, [] {});
}

void Canaries::AskLoop() {
  cluster().agenda().In(Pause(milliseconds(40)), [this] {
    if (load_.Over()) return;
    const auto gateway = random_.Below(cluster().shape().gateways);
    const auto named = random_.Below(10) == 0 ? absl::StrCat(1 + random_.Below(2)) : "";
    requests_.Ask(gateway, ClientLoad::kCanaries, named, random_.Below(2) == 0 ? seconds(1) : seconds(4));
    AskLoop();
  });
}

std::vector<std::uint64_t> Canaries::AskInARow(Duration timeout) {
  std::vector<std::uint64_t> asked;
  const auto most = random_.Below(cluster().shape().gateways);
  for (std::size_t gateway = 0; gateway < cluster().shape().gateways; ++gateway)
    for (std::size_t i = 0; i < (gateway == most ? kInARow : kInAShortRow); ++i)
      asked.push_back(requests_.Ask(gateway, ClientLoad::kCanaries, "", timeout));
  return asked;
}

Duration Canaries::Pause(Duration mean) {
  return Duration(static_cast<Duration::rep>(random_.Exponential(static_cast<double>(mean.count()))));
}

}  // namespace troupe::sim
