#include "sim/checkers/request_ledger.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"

namespace troupe::sim {

namespace {

using Code = absl::StatusCode;

// What clients know of a function, from the calls that deployed and removed it.
class Presence {
 public:
  explicit Presence(const std::vector<RegistryOp>& registry) {
    for (const RegistryOp& op : registry) {
      if (op.kind != RegistryOp::Kind::kDeploy && op.kind != RegistryOp::Kind::kRemove) continue;
      if (op.result == RegistryOp::Result::kRefused) continue;
      changes_[op.key.substr(0, op.key.find('/'))].push_back(&op);
    }
  }

  // The function was there all the time from `from` to `to`: deployed before, and no removal begun. A request
  // for its newest version is one for that version once it is asked: then no version may have been removed.
  [[nodiscard]] bool There(const RequestRecord& request, Time from, Time to) const {
    const bool removed = Any(request, [&](const RegistryOp& op) {
      return op.kind == RegistryOp::Kind::kRemove && op.invoked <= to && op.returned >= from;
    });
    return !removed && Any(request, [&](const RegistryOp& op) {
      return op.kind == RegistryOp::Kind::kDeploy && op.result == RegistryOp::Result::kDone &&
             op.returned <= from && !Any(op.key, [&](const RegistryOp& other) {
               return other.kind == RegistryOp::Kind::kRemove && other.invoked <= to &&
                      other.returned >= op.invoked;
             });
    });
  }
  // No version was there at any time from `from` to `to`: each that was ever deployed had been removed
  // before, and was not begun to be deployed again.
  [[nodiscard]] bool Gone(const RequestRecord& request, Time from, Time to) const {
    return !Any(request, [&](const RegistryOp& op) {
      return op.kind == RegistryOp::Kind::kDeploy && op.invoked <= to && !RemovedBetween(op, from);
    });
  }

 private:
  // Whatever became of it, a removal that began after it had ended was done by `by`.
  [[nodiscard]] bool RemovedBetween(const RegistryOp& deploy, Time by) const {
    if (deploy.result != RegistryOp::Result::kDone) return false;
    return Any(deploy.key, [&](const RegistryOp& op) {
      return op.kind == RegistryOp::Kind::kRemove && op.result == RegistryOp::Result::kDone &&
             op.invoked >= deploy.returned && op.returned <= by;
    });
  }
  template <class Which>
  bool Any(const std::string& key, Which which) const {
    const auto it = changes_.find(key.substr(0, key.find('/')));
    return it != changes_.end() &&
           std::ranges::any_of(it->second, [&](const auto* op) { return op->key == key && which(*op); });
  }
  template <class Which>
  bool Any(const RequestRecord& request, Which which) const {
    const auto it = changes_.find(request.function);
    const auto key = absl::StrCat(request.function, "/", request.version);
    return it != changes_.end() && std::ranges::any_of(it->second, [&](const auto* op) {
             return (request.version.empty() || op->key == key) && which(*op);
           });
  }

  std::map<std::string, std::vector<const RegistryOp*>> changes_;  // by name
};

// Empty: nothing is wrong with it.
std::string WrongWith(const RequestRecord& request, const Presence& presence, const RequestRules& rules) {
  if (request.answers == 0) return "it has no answer";
  if (request.answers > 1) return absl::StrCat("it has ", request.answers, " answers");
  const Duration took = request.answered - request.asked;
  if (took > request.timeout + request.slack) return absl::StrCat("its answer took ", FormatDuration(took));
  switch (request.code) {
    case Code::kOk:
      if (request.said != request.question)
        return absl::StrCat("its answer is '", request.said, "', not '", request.question, "'");
      if (presence.Gone(request, KnownUntil(rules, request), request.answered))
        return "it was served after the function's removal had been acknowledged";
      return "";
    case Code::kNotFound:
      if (presence.There(request, KnownUntil(rules, request), request.answered))
        return absl::StrCat("it was told '", request.said, "' of a function that is deployed");
      return "";
    case Code::kResourceExhausted:
    case Code::kDeadlineExceeded:
    case Code::kCancelled:
    case Code::kUnavailable:
      return "";
    case Code::kInternal:
      if (request.run) return "";
      [[fallthrough]];
    default:
      if (request.code == Code::kInvalidArgument && !request.sequence.empty()) return "";  // state_check's
      return absl::StrCat("it failed as ", absl::StatusCodeToString(request.code), ": ", request.said);
  }
}

}  // namespace

Time KnownUntil(const RequestRules& rules, const RequestRecord& request) {
  Time known = request.asked - rules.propagation;
  for (bool more = true; more;) {
    more = false;
    for (const Silence& silence : rules.silences) {
      const Time before = silence.from - rules.propagation;
      if (silence.gateway != request.gateway || silence.from > request.answered || silence.to < known ||
          before >= known)
        continue;
      known = before;
      more = true;
    }
  }
  return known;
}

std::string StateOf(const RequestRecord& request) {
  return request.sequence.empty() ? request.function : absl::StrCat(request.function, "#", request.sequence);
}

bool WasRefused(const RequestRecord& request) {
  return request.answers > 0 &&
         (request.code == Code::kUnavailable || request.code == Code::kResourceExhausted);
}

std::uint64_t RequestLedger::Asked(RequestRecord record) {
  requests_.push_back(std::move(record));
  ++open_;
  return requests_.size();
}

void RequestLedger::Answered(std::uint64_t request, Time now, const AnswerSeen& answer) {
  TROUPE_CHECK(request > 0 && request <= requests_.size(), "an answer is to a request");
  auto& record = requests_[request - 1];
  if (++record.answers > 1) return;
  --open_;
  record.answered = now;
  record.code = answer.code;
  record.said = answer.said;
  record.runs = answer.runs;
  record.again = answer.again;
  record.served_by = answer.version;
}

std::vector<std::string> CheckRequests(const RequestLedger& ledger, const std::vector<RegistryOp>& registry,
                                       const RequestRules& rules) {
  const Presence presence(registry);
  std::vector<std::string> broken;
  for (std::size_t i = 0; i < ledger.all().size(); ++i) {
    const RequestRecord& request = ledger.all()[i];
    const auto wrong = WrongWith(request, presence, rules);
    if (wrong.empty()) continue;
    broken.push_back(absl::StrCat("request ", i + 1, " for ", request.function,
                                  request.version.empty() ? "" : absl::StrCat(" version ", request.version),
                                  " at ", request.gateway, ", asked at ",
                                  FormatDuration(request.asked.time_since_epoch()), ": ", wrong));
  }
  return broken;
}

}  // namespace troupe::sim
