#include "sim/checkers/state_check.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace troupe::sim {

namespace {

// Of one request: each of the nodes or workers that it may lose may have run it.
constexpr std::int64_t kMostRuns = 4;

// One computation that clients know of: a request, or all with one key at one life of a gateway.
struct Effect {
  std::size_t request = 0;  // its first answer's number
  Time asked{}, answered{};
  std::int64_t runs = 0;
};

std::string ToString(const Effect& effect) {
  return absl::StrCat("request ", effect.request, ", answered at ",
                      FormatDuration(effect.answered.time_since_epoch()), ", has count ", effect.runs);
}

class States {
 public:
  States(const RequestLedger& ledger, const StateRules& rules)
      : ledger_(ledger), rules_(rules), deployments_(rules.redeployed, rules.registry, rules.requests) {
    for (const RequestRecord& request : ledger.all())
      names_.push_back(deployments_.Has(request) ? deployments_.StateOf(request) : StateOf(request));
  }

  std::vector<std::string> Check() {
    auto states = rules_.functions;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      const RequestRecord& request = ledger_.all()[i];
      if (rules_.functions.contains(request.function) || (deployments_.Has(request) && !names_[i].empty()))
        states.insert(names_[i]);
    }
    for (const auto& state : states) CheckState(state);
    return std::move(broken_);
  }

 private:
  void CheckState(const std::string& state) {
    auto effects = EffectsOf(state);
    std::ranges::sort(effects, {}, &Effect::answered);
    // The first line says enough: what follows a state that was lost is wrong too.
    const auto before = broken_.size();
    for (std::size_t j = 1; j < effects.size(); ++j)
      for (std::size_t i = 0; i < j && broken_.size() == before; ++i) Compare(state, effects[i], effects[j]);
    for (const Effect& effect : effects)
      if (broken_.size() == before) CheckAsked(state, effect);
  }

  // No deployment goes on with the state of another one: what it counts was asked of it, though a request that comes again may
  // count again.
  void CheckAsked(const std::string& state, const Effect& effect) {
    const bool redeployed = deployments_.Has(ledger_.all()[effect.request - 1]);
    if (!redeployed && (!rules_.once || !rules_.lost.empty())) return;
    const auto asked = redeployed ? deployments_.AskedOf(state, ledger_, effect.answered, !rules_.once)
                                  : AskedBy(state, effect.answered);
    const auto most = rules_.once ? asked : asked * kMostRuns;
    if (effect.runs > most)
      broken_.push_back(
          absl::StrCat(state, ": ", ToString(effect), ", and only ", asked, " had been asked for"));
  }

  std::vector<Effect> EffectsOf(const std::string& state) {
    std::vector<Effect> effects;
    std::map<std::tuple<std::string, std::uint64_t, std::string>, std::size_t> keyed;
    for (std::size_t i = 0; i < ledger_.all().size(); ++i) {
      const RequestRecord& request = ledger_.all()[i];
      if (names_[i] != state || request.answers == 0) continue;
      const bool removed = deployments_.Has(request) && deployments_.RemovedMeanwhile(request);
      if (!removed && request.said.find("nothing was written back") != std::string::npos)
        broken_.push_back(absl::StrCat(state, ": request ", i + 1,
                                       " was refused, since its run's state was not there to be kept"));
      if (IsUnknown(request) && (!deployments_.Has(request) || HadBegun(state, request)))
        broken_.push_back(absl::StrCat(state, ": request ", i + 1, " was told '", request.said, "'"));
      if (request.code != absl::StatusCode::kOk) continue;
      const Effect effect{i + 1, request.asked, request.answered, request.runs};
      if (request.runs <= 0) broken_.push_back(absl::StrCat(state, ": ", ToString(effect)));
      if (!request.key.empty()) {
        const auto [it, first] =
            keyed.try_emplace({request.gateway, request.life, request.key}, effects.size());
        if (!first) {
          Join(state, request.key, effects[it->second], effect);
          continue;
        }
      }
      effects.push_back(effect);
    }
    return effects;
  }

  void Join(const std::string& state, const std::string& key, Effect& known, const Effect& more) {
    if (known.runs != more.runs)
      broken_.push_back(absl::StrCat(state, ": key '", key, "' was answered by two computations: ",
                                     ToString(known), "; ", ToString(more)));
    known.asked = std::min(known.asked, more.asked);
    known.answered = std::min(known.answered, more.answered);
  }

  // `first` was answered first.
  void Compare(const std::string& state, const Effect& first, const Effect& second) {
    if (LostBetween(std::min(first.asked, second.asked), second.answered)) return;
    if (first.runs == second.runs)
      broken_.push_back(absl::StrCat(state, ": two were computed on the same state: ", ToString(first), "; ",
                                     ToString(second)));
    if (first.answered < second.asked && first.runs > second.runs)
      broken_.push_back(
          absl::StrCat(state, ": what was acknowledged is lost: ", ToString(first), "; ", ToString(second)));
  }

  [[nodiscard]] bool LostBetween(Time from, Time to) const {
    return std::ranges::any_of(rules_.lost, [&](Time lost) { return lost >= from && lost <= to; });
  }
  // Its client goes on with a sequence only when it has heard that it began. The last request may have come twice.
  [[nodiscard]] bool IsUnknown(const RequestRecord& request) const {
    return request.code == absl::StatusCode::kInvalidArgument && (rules_.once || !request.ends) &&
           !LostBetween(Time::min(), request.answered);
  }
  // The deployment that answered this request had begun the request's sequence before.
  [[nodiscard]] bool HadBegun(const std::string& state, const RequestRecord& request) const {
    for (std::size_t i = 0; i < names_.size(); ++i) {
      const RequestRecord& other = ledger_.all()[i];
      const bool begun = other.starts && other.answers > 0 && other.code == absl::StatusCode::kOk;
      if (begun && names_[i] == state && other.answered <= request.asked) return true;
    }
    return false;
  }
  [[nodiscard]] std::int64_t AskedBy(const std::string& state, Time by) const {
    return std::ranges::count_if(ledger_.all(), [&](const RequestRecord& request) {
      if (StateOf(request) == state && WasRefused(request)) return false;
      const bool calls = rules_.functions.contains(state) && rules_.callers.contains(request.function);
      return request.asked <= by && (StateOf(request) == state || calls);
    });
  }

  const RequestLedger& ledger_;
  const StateRules& rules_;
  const Deployments deployments_;
  std::vector<std::string>
      names_;  // of the states that requests go on with, by request; empty: that is not known
  std::vector<std::string> broken_;
};

}  // namespace

std::vector<std::string> CheckStates(const RequestLedger& ledger, const StateRules& rules) {
  return States(ledger, rules).Check();
}

}  // namespace troupe::sim
