// VERSION HISTORY: what one operator after the other asked of the versions of one function and heard, and which parts of the
// requests that name no version each of them may have had at each moment. Follows what docs/declarative.md says of
// weights, and knows nothing of the manager. What was never answered may be done at any time from then on, or never.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/units.hpp"

namespace troupe::sim {

// Percent by version. All zero: the newest version answers.
using VersionParts = std::map<std::uint32_t, std::uint32_t>;
[[nodiscard]] std::string DescribeParts(const VersionParts& parts);

struct VersionOp {
  // kLook: asks how it is, when nothing that was asked before is under way any more.
  enum class Kind { kDeploy, kRemove, kCanary, kPromote, kRollBack, kParts, kFollow, kLook };
  enum class Result { kDone, kRefused, kUnknown };
  Kind kind = Kind::kLook;
  std::uint32_t version = 0;  // 0: promotes the canary
  std::uint32_t percent = 0;  // of a canary
  VersionParts parts{};       // of kParts
  Result result = Result::kUnknown;
  Time invoked{};
  Time returned = Time::max();
  std::optional<VersionParts> shown{};  // of all versions that there are, by an answer that says so
};
[[nodiscard]] std::string ToString(const VersionOp& op);

class VersionHistory {
 public:
  // Each began when the one before it was answered, or was given up. Begins without any version.
  explicit VersionHistory(const std::vector<VersionOp>& ops);
  // Why no history explains the answers; empty: some does.
  [[nodiscard]] const std::string& broken() const { return broken_; }
  // What the versions may have had at some moment from `from` to `to`: those with a part only, 100 together.
  [[nodiscard]] std::set<VersionParts> Between(Time from, Time to) const;
  // They had these parts all the time, and nothing was changed meanwhile; `phase` names the time between two changes.
  struct Certain {
    std::size_t phase = 0;
    VersionParts parts{};
  };
  [[nodiscard]] std::optional<Certain> CertainBetween(Time from, Time to) const;

 private:
  struct Split {
    VersionParts weights{};
    std::uint32_t stable = 0, former = 0;  // 0: none
    auto operator<=>(const Split&) const = default;
  };
  struct Possible {
    Split split{};
    std::set<std::size_t> pending{};  // numbers of operations without an answer that are not done yet
    auto operator<=>(const Possible&) const = default;
  };
  struct Phase {
    Time from{};
    std::set<VersionParts> parts{};
  };
  using AllPossible = std::set<Possible>;
  // What may become of it; empty: it is refused.
  static std::vector<Split> Outcomes(const VersionOp& op, const Split& split);
  static std::vector<Split> Canary(const VersionOp& op, Split split);
  static std::vector<Split> Promote(const VersionOp& op, Split split);
  static std::vector<Split> RollBack(Split split);
  static std::vector<Split> Parts(const VersionOp& op, const Split& split);
  static std::vector<Split> Remove(const VersionOp& op, Split split);
  static std::uint32_t CanaryOf(const Split& split);
  static std::uint32_t Answering(const Split& split);
  static Split WithStable(Split split, std::uint32_t version);
  [[nodiscard]] AllPossible WithPending(AllPossible all) const;
  [[nodiscard]] AllPossible After(std::size_t number, const AllPossible& before) const;
  static std::set<VersionParts> PartsOf(const AllPossible& all);
  // Of those that overlap: the first, and the one behind the last.
  [[nodiscard]] std::pair<std::size_t, std::size_t> Overlapping(Time from, Time to) const;

  const std::vector<VersionOp> ops_;
  std::vector<Phase> phases_;
  std::string broken_;
};

}  // namespace troupe::sim
