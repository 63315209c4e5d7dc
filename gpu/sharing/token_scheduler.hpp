// TOKEN SCHEDULER: which runs may compute on a GPU now, on which SMs, and which of them goes first
// (FaST-GShare, 001, section 3.3.2, by the policy of the `sharing` slot).
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "base/share_ladder.hpp"
#include "base/units.hpp"
#include "gpu/sharing/quota_window.hpp"
#include "gpu/sharing/sharing_policy.hpp"
#include "proto/function.pb.h"

namespace troupe::gpu {

struct SharingOptions {
  std::string name = std::string(kDefaultSharing);
  SharingPolicy policy{};
  std::uint32_t concurrency = 1;  // runs with neither a share nor a quota that compute at a time
  Duration window = std::chrono::seconds(1);
};

// For each run, in this order: Join when it comes; Begin when it is launched; between the groups of its launch
// any number of Charge, and of Pause and Resume in turn; End; Leave when it is answered. A run that never
// begins leaves all the same. What a function declares is as its latest run says. Pure.
class TokenScheduler {
 public:
  // `ladder`: the shares that there are of the GPU's SMs.
  TokenScheduler(const SharingOptions& options, ShareLadder ladder);

  // `function` "": of no function, without a quota.
  void Join(const std::string& function, const proto::GpuSharing& sharing, Time now);
  void Leave(const std::string& function, Time now);

  // Smaller goes first: by what a function lacks of its request, then (as the caller orders them) all others.
  struct Rank {
    Duration lacks{};  // negative, or zero
    auto operator<=>(const Rank&) const = default;
  };
  [[nodiscard]] Rank RankOf(const std::string& function, Time now) const;
  // All ranks are equal.
  [[nodiscard]] bool RanksEqual() const { return !policy_.quotas || with_quota_ == 0; }
  // It has time left in this window, and fewer runs that compute than instances.
  [[nodiscard]] bool MayBegin(const std::string& function, Time now) const;
  // The SMs that a run of the function computes on, which is to have so many percent of them (0: all, beside
  // others without a share, or alone when the function has a quota); nothing while there is no room for it.
  [[nodiscard]] std::optional<SmShare> Begin(const std::string& function, std::uint32_t sm_partition);
  // Its launch had the GPU for so long since it began, or was charged last. False when it has to pause before
  // its next group: its window's time is used up.
  bool Charge(const std::string& function, Duration used, Time now);
  // Its window's time is not used up.
  [[nodiscard]] bool HasTime(const std::string& function, Time now) const;
  // Gives the SMs back, and takes the same again: false while others have them.
  void Pause(const SmShare& share);
  [[nodiscard]] bool Resume(const SmShare& share);
  // `share`: nothing for a run that has paused.
  void End(const std::string& function, const std::optional<SmShare>& share);

  // What the runs of other workers have of the same GPU, and what the runs here have.
  void SetOthers(const SharesTaken& others) { shares_.SetOthers(others); }
  [[nodiscard]] SharesTaken taken() const { return shares_.taken(); }
  // Whether launches of the function are to ask between their groups.
  [[nodiscard]] bool Metered(const std::string& function) const;
  // When a function without time has time again.
  [[nodiscard]] Time NextWindow(Time now) const { return window_.Next(now); }
  [[nodiscard]] const QuotaWindow& window() const { return window_; }
  // Nothing of the GPU is taken, and no run is known.
  [[nodiscard]] bool idle() const { return functions_.empty() && shares_.idle(); }

 private:
  struct Function {
    proto::GpuSharing sharing;
    std::uint32_t runs = 0;       // that have joined
    std::uint32_t computing = 0;  // that have begun, paused ones too
  };
  [[nodiscard]] std::uint32_t MostOf(const Function& function) const;
  [[nodiscard]] bool IsAlone(const Function& function) const;
  // Whose time is counted: the function's own, or that of all without a quota together.
  [[nodiscard]] const std::string& AccountOf(const std::string& function) const;

  const SharingPolicy policy_;
  const std::uint32_t concurrency_;
  QuotaWindow window_;
  ShareGate shares_;
  absl::flat_hash_map<std::string, Function> functions_;
  std::uint32_t with_quota_ = 0;  // of functions_
  std::string owner_;             // with one_function: the function that has the GPU; "": none has
};

}  // namespace troupe::gpu
