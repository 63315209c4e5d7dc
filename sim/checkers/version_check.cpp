#include "sim/checkers/version_check.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace troupe::sim {

namespace {

constexpr std::int64_t kHundred = 100;

// Requests that a gateway dealt out one after the other, while nothing changed.
struct Row {
  VersionHistory::Certain known{};
  std::vector<std::uint32_t> versions{};  // 0: its client was not told which one it had, if it had one at all
};

class Versions {
 public:
  Versions(const RequestLedger& ledger, const std::vector<VersionOp>& ops, const VersionRules& rules)
      : ledger_(ledger), rules_(rules), history_(ops) {}

  std::vector<std::string> Check(const std::vector<VersionSent>& sent) {
    if (!history_.broken().empty()) return {history_.broken()};
    std::map<std::pair<std::string, std::uint64_t>, Row> rows;  // by gateway and its life
    for (std::size_t i = 0; i < ledger_.all().size(); ++i) {
      const RequestRecord& request = ledger_.all()[i];
      if (request.function != rules_.function || request.answers == 0) continue;
      CheckServed(i + 1, request);
      if (request.version.empty()) Add(request, rows[{request.gateway, request.life}]);
    }
    for (auto& [gateway, row] : rows) End(gateway.first, row);
    CheckSent(sent);
    return std::move(broken_);
  }

 private:
  [[nodiscard]] static std::uint32_t VersionOf(const RequestRecord& request) {
    std::uint32_t version = 0;
    return absl::SimpleAtoi(request.served_by, &version) ? version : 0;
  }

  void CheckServed(std::size_t number, const RequestRecord& request) {
    if (request.code != absl::StatusCode::kOk) return;
    const auto version = VersionOf(request);
    if (!request.version.empty() && request.version != request.served_by)
      broken_.push_back(absl::StrCat("request ", number, " names version ", request.version,
                                     " and was served by version '", request.served_by, "'"));
    if (!request.version.empty()) return;
    const auto all = history_.Between(KnownUntil(rules_.requests, request), request.answered);
    if (std::ranges::any_of(all, [&](const VersionParts& parts) { return parts.contains(version); })) return;
    broken_.push_back(absl::StrCat("request ", number, " at ", request.gateway, ", asked at ",
                                   FormatDuration(request.asked.time_since_epoch()),
                                   ", was served by version '", request.served_by,
                                   "', which had no part of the requests; possible were ",
                                   absl::StrJoin(all, "; ", [](std::string* out, const VersionParts& parts) {
                                     absl::StrAppend(out, "(", DescribeParts(parts), ")");
                                   })));
  }

  void Add(const RequestRecord& request, Row& row) {
    const auto known = history_.CertainBetween(KnownUntil(rules_.requests, request), request.answered);
    if (!known || known->phase != row.known.phase) End(request.gateway, row);
    if (!known) return;
    row.known = *known;
    row.versions.push_back(VersionOf(request));
  }

  // One that its client knows nothing of may have had any version, or none.
  void End(const std::string& gateway, Row& row) {
    const auto versions = std::exchange(row.versions, {});
    for (const auto& [version, percent] : row.known.parts) {
      for (std::size_t first = 0; first < versions.size(); ++first) {
        std::int64_t count = 0, told = 0, untold = 0;
        for (auto i = first; i < versions.size(); ++i) {
          ++(versions[i] == 0 ? untold : told);
          count += versions[i] == version ? 1 : 0;
          const bool few = (count + untold + 1) * kHundred <= told * percent;
          const bool many = (count - 1) * kHundred >= (told + untold) * percent;
          if (few || many) return Uneven(gateway, version, percent, count, told + untold);
        }
      }
    }
  }

  void Uneven(const std::string& gateway, std::uint32_t version, std::uint32_t percent, std::int64_t count,
              std::int64_t of) {
    broken_.push_back(absl::StrCat("of ", of, " requests in a row at ", gateway, " version ", version,
                                   " got ", count, ", and its part was ", percent, " % all the time"));
  }

  void CheckSent(const std::vector<VersionSent>& sent) {
    std::map<std::string, std::string> versions;  // by question
    for (const VersionSent& request : sent) {
      const auto& first = versions.try_emplace(request.question, request.version).first->second;
      if (first != request.version)
        broken_.push_back(absl::StrCat("'", request.question, "' was sent to version ", first,
                                       " and then to version ", request.version));
      const auto model = rules_.models.find(request.version);
      if (model == rules_.models.end() || model->second != request.model)
        broken_.push_back(absl::StrCat("'", request.question, "' was sent to version ", request.version,
                                       " with another version's model"));
    }
    for (const RequestRecord& request : ledger_.all()) {
      if (request.function != rules_.function || request.served_by.empty()) continue;
      const auto it = versions.find(request.question);
      if (it != versions.end() && it->second != request.served_by)
        broken_.push_back(absl::StrCat("'", request.question, "' was sent to version ", it->second,
                                       ", and its answer names version ", request.served_by));
    }
  }

  const RequestLedger& ledger_;
  const VersionRules& rules_;
  const VersionHistory history_;
  std::vector<std::string> broken_;
};

}  // namespace

std::vector<std::string> CheckVersions(const RequestLedger& ledger, const std::vector<VersionOp>& ops,
                                       const std::vector<VersionSent>& sent, const VersionRules& rules) {
  return Versions(ledger, ops, rules).Check(sent);
}

}  // namespace troupe::sim
