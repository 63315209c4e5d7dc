// REQUEST INDEX: the requests of one router, and how they are found: by number, call, function and expiry.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "cluster/requests/request_entry.hpp"

namespace troupe::cluster {

class RequestIndex {
 public:
  [[nodiscard]] bool HasCall(const CallId& call) const { return call.call != 0 && calls_.contains(call); }
  RequestEntry& Add(RequestEntry entry) {
    const auto& request = entry.request;
    const auto sequence = request.sequence;
    if (request.call.call != 0) calls_.emplace(request.call, sequence);
    expiries_.emplace(entry.expiry, sequence);
    functions_[{request.function, request.version}].insert(sequence);
    return requests_.emplace(sequence, std::move(entry)).first->second;
  }
  void Erase(const RequestEntry& entry) {
    const auto& request = entry.request;
    const auto sequence = request.sequence;
    expiries_.erase({entry.expiry, sequence});
    if (request.call.call != 0) calls_.erase(request.call);
    const auto function = functions_.find({request.function, request.version});
    function->second.erase(sequence);
    if (function->second.empty()) functions_.erase(function);
    requests_.erase(sequence);
  }
  // Null: there is none.
  [[nodiscard]] RequestEntry* Find(std::uint64_t sequence) {
    const auto it = requests_.find(sequence);
    return it == requests_.end() ? nullptr : &it->second;
  }
  [[nodiscard]] RequestEntry* Find(const CallId& call) {
    const auto it = calls_.find(call);
    return it == calls_.end() ? nullptr : Find(it->second);
  }
  [[nodiscard]] RequestEntry& At(std::uint64_t sequence) { return requests_.at(sequence); }
  [[nodiscard]] bool Contains(std::uint64_t sequence) const { return requests_.contains(sequence); }
  [[nodiscard]] std::set<std::uint64_t> OfFunction(const std::string& function,
                                                   const std::string& version) const {
    const auto it = functions_.find({function, version});
    return it == functions_.end() ? std::set<std::uint64_t>() : it->second;
  }
  // How many requests of the function wait here, since no node has taken them.
  [[nodiscard]] std::uint64_t WaitingOf(const std::string& function, const std::string& version) const {
    const auto it = functions_.find({function, version});
    if (it == functions_.end()) return 0;
    return static_cast<std::uint64_t>(std::ranges::count_if(it->second, [&](std::uint64_t sequence) {
      return requests_.at(sequence).place != RequestPlace::kSent;
    }));
  }
  // The request that expires first; null: there is none.
  [[nodiscard]] RequestEntry* FirstToExpire() {
    return expiries_.empty() ? nullptr : &requests_.at(expiries_.begin()->second);
  }
  [[nodiscard]] Time NextExpiry() const { return expiries_.empty() ? Time::max() : expiries_.begin()->first; }
  [[nodiscard]] std::size_t size() const { return requests_.size(); }
  [[nodiscard]] std::map<std::uint64_t, RequestEntry>& all() { return requests_; }
  [[nodiscard]] const std::map<std::uint64_t, RequestEntry>& all() const { return requests_; }

 private:
  std::map<std::uint64_t, RequestEntry> requests_;
  std::map<CallId, std::uint64_t> calls_;
  std::map<std::pair<std::string, std::string>, std::set<std::uint64_t>> functions_;  // by name and version
  std::set<std::pair<Time, std::uint64_t>> expiries_;
};

}  // namespace troupe::cluster
