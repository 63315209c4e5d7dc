#include "sim/checkers/registry_history.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.hpp"

namespace troupe::sim {

namespace {

using Kind = RegistryOp::Kind;
using Result = RegistryOp::Result;
constexpr std::size_t kMostKeys = 64;

// An operation over a registry that is a set of bits.
struct Op {
  const RegistryOp* told = nullptr;
  Kind kind = Kind::kShow;
  bool optional = false;  // unknown whether it was done
  std::uint64_t bits = 0;

  // Whether it could be next in this registry as it was answered.
  [[nodiscard]] bool Fits(std::uint64_t registry) const {
    const bool there = (registry & bits) == bits;
    if (kind == Kind::kList) return registry == bits;
    if (kind == Kind::kShow) return there == (told->result == Result::kDone);
    if (optional) return there == (kind == Kind::kRemove);  // else it changes nothing
    return there == ((kind == Kind::kDeploy) != (told->result == Result::kDone));
  }
  [[nodiscard]] bool Changes() const {
    return told->result != Result::kRefused && (kind == Kind::kDeploy || kind == Kind::kRemove);
  }
  [[nodiscard]] std::uint64_t After(std::uint64_t registry) const {
    if (!Changes()) return registry;
    return kind == Kind::kDeploy ? registry | bits : registry & ~bits;
  }
};

class Search {
 public:
  Search(const std::vector<RegistryOp>& history, std::size_t limit) : limit_(limit) {
    for (const RegistryOp& told : history) Add(told);
    std::ranges::stable_sort(ops_, {}, [](const Op& op) { return op.told->invoked; });
    done_.resize(ops_.size());
  }

  LinearizableVerdict Go() {
    if (From(0)) return {};
    if (seen_.size() >= limit_) return {Linearizable::kUndecided, "the search became too long"};
    return {Linearizable::kNo, absl::StrCat("no order explains ", deepest_op_, ", when the registry had [",
                                            deepest_registry_, "]")};
  }

 private:
  void Add(const RegistryOp& told) {
    const bool read = told.kind == Kind::kShow || told.kind == Kind::kList;
    if (read && told.result == Result::kUnknown) return;
    Op op{.told = &told, .kind = told.kind, .optional = told.result == Result::kUnknown, .bits = 0};
    if (told.kind != Kind::kList) op.bits = BitOf(told.key);
    for (const auto& key : told.listed) op.bits |= BitOf(key);
    ops_.push_back(op);
  }
  std::uint64_t BitOf(const std::string& key) {
    const auto bit = keys_.try_emplace(key, keys_.size()).first->second;
    TROUPE_CHECK(bit < kMostKeys, "a history has at most 64 keys");
    return 1ULL << bit;
  }

  // What is left can be put in order behind what is done.
  bool From(std::uint64_t registry) {
    const auto taken = TakeReads(registry);
    bool found = false;
    const auto first = FirstOpen();
    if (first == ops_.size()) {
      found = true;
    } else if (seen_.size() < limit_ && seen_.emplace(Key(first), registry).second) {
      found = Branch(registry, first);
      if (!found) Remember(registry);
    }
    for (const auto index : taken) done_[index] = false;
    return found;
  }

  bool Branch(std::uint64_t registry, std::size_t first) {
    const Time end = EarliestReturn(first);
    for (std::size_t i = first; i < ops_.size() && ops_[i].told->invoked <= end; ++i) {
      if (done_[i] || !ops_[i].Fits(registry)) continue;
      done_[i] = true;
      const bool found = From(ops_[i].After(registry));
      done_[i] = false;
      if (found) return true;
    }
    return false;
  }

  // What changes nothing and fits may as well come now: later orders lose nothing by it.
  std::vector<std::size_t> TakeReads(std::uint64_t registry) {
    std::vector<std::size_t> taken;
    for (bool more = true; more;) {  // each that is taken may let others come
      more = false;
      const auto first = FirstOpen();
      const Time end = EarliestReturn(first);
      for (std::size_t i = first; i < ops_.size() && ops_[i].told->invoked <= end; ++i) {
        if (done_[i] || ops_[i].Changes() || !ops_[i].Fits(registry)) continue;
        done_[i] = more = true;
        taken.push_back(i);
      }
    }
    return taken;
  }

  // Of what has to be done.
  [[nodiscard]] std::size_t FirstOpen() const {
    for (std::size_t i = 0; i < ops_.size(); ++i)
      if (!done_[i] && !ops_[i].optional) return FirstOptional(i);
    return ops_.size();
  }
  // Optional ones that came before may still be done.
  [[nodiscard]] std::size_t FirstOptional(std::size_t end) const {
    for (std::size_t i = 0; i < end; ++i)
      if (!done_[i]) return i;
    return end;
  }
  [[nodiscard]] Time EarliestReturn(std::size_t first) const {
    Time end = Time::max();
    for (std::size_t i = first; i < ops_.size() && ops_[i].told->invoked <= end; ++i)
      if (!done_[i] && !ops_[i].optional) end = std::min(end, ops_[i].told->returned);
    return end;
  }

  // Which operations are done: all before `first`, and these behind it.
  [[nodiscard]] std::string Key(std::size_t first) const {
    std::string key = std::to_string(first);
    for (std::size_t i = first; i < ops_.size(); ++i)
      if (done_[i]) absl::StrAppend(&key, ",", i);
    return key;
  }

  // The state in which most was explained, for people.
  void Remember(std::uint64_t registry) {
    const auto done = static_cast<std::size_t>(std::ranges::count(done_, true));
    if (done < deepest_ && !deepest_op_.empty()) return;
    deepest_ = done;
    std::vector<std::string> there;
    for (const auto& [key, bit] : keys_)
      if ((registry >> bit) & 1) there.push_back(key);
    deepest_registry_ = absl::StrJoin(there, " ");
    const Op* first = nullptr;
    for (std::size_t i = 0; i < ops_.size(); ++i)
      if (!done_[i] && !ops_[i].optional && (!first || ops_[i].told->returned < first->told->returned))
        first = &ops_[i];
    deepest_op_ = ToString(*first->told);
  }

  const std::size_t limit_;
  std::map<std::string, std::size_t> keys_;
  std::vector<Op> ops_;  // by invocation
  std::vector<bool> done_;
  std::set<std::pair<std::string, std::uint64_t>> seen_;
  std::size_t deepest_ = 0;
  std::string deepest_op_, deepest_registry_;
};

std::string At(Time time) {
  return time == Time::max() ? "..." : FormatDuration(time.time_since_epoch());
}

}  // namespace

std::string ToString(const RegistryOp& op) {
  static const char* const kKinds[] = {"deploy", "remove", "show", "list"};
  static const char* const kResults[] = {"done", "refused", "unknown"};
  std::string text =
      absl::StrCat(kKinds[static_cast<int>(op.kind)], " ", op.key, op.key.empty() ? "" : " ",
                   kResults[static_cast<int>(op.result)], " (", At(op.invoked), " to ", At(op.returned), ")");
  if (op.kind == Kind::kList) absl::StrAppend(&text, ": [", absl::StrJoin(op.listed, " "), "]");
  return text;
}

LinearizableVerdict CheckLinearizable(const std::vector<RegistryOp>& history, std::size_t limit) {
  return Search(history, limit).Go();
}

}  // namespace troupe::sim
