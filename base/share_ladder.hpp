// SHARES OF A GPU'S SMs: which there are, to which one a percentage is rounded, and which runs may compute
// beside each other. One code for virtual and real GPUs; pure.
//
// A GPU gives its SMs away in units of some SMs (8 on a Hopper), which are split off once; what is left over
// is part of the whole GPU only. A share is some adjacent units, or the whole.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace troupe {

// Where one run computes. Of no SMs: nowhere in particular, on the whole GPU beside others of that kind.
struct SmShare {
  std::uint32_t begin = 0;  // in units
  std::uint32_t units = 0;
  std::uint32_t sms = 0;
  std::uint32_t of = 0;  // the GPU's
  bool alone = false;    // of no SMs, and beside no other run
  [[nodiscard]] bool everywhere() const { return sms == of; }
  // Of all SMs; 1 when how many there are is not known.
  [[nodiscard]] double part() const { return everywhere() ? 1 : static_cast<double>(sms) / of; }
  friend bool operator==(const SmShare&, const SmShare&) = default;
};

// The one of `shares` (ascending, SMs) that is nearest to so many percent of `sms`, the smaller of two; 0
// when there are none.
[[nodiscard]] std::uint32_t NearestShare(std::span<const std::uint32_t> shares, std::uint32_t sms,
                                         std::uint32_t percent);

class ShareLadder {
 public:
  // The whole GPU and nothing else, of an unknown number of SMs.
  ShareLadder() = default;
  // `units` of `unit` SMs each, as part of `sms`. Without units: the whole GPU and nothing else.
  ShareLadder(std::uint32_t sms, std::uint32_t unit, std::uint32_t units);

  [[nodiscard]] std::uint32_t sms() const { return sms_; }
  [[nodiscard]] std::uint32_t unit() const { return unit_; }
  [[nodiscard]] std::uint32_t units() const { return units_; }
  // SMs of each share, ascending; the last is the whole.
  [[nodiscard]] const std::vector<std::uint32_t>& shares() const { return shares_; }
  // The share for so many percent; its place is yet to be found. 0 percent: of no SMs.
  [[nodiscard]] SmShare For(std::uint32_t percent) const;
  // Where a share of so many units may begin: next to others of its size, from either end. Few, since a real
  // GPU keeps something for each.
  [[nodiscard]] std::vector<std::uint32_t> Places(std::uint32_t units) const;

 private:
  std::uint32_t sms_ = 0;
  std::uint32_t unit_ = 0;
  std::uint32_t units_ = 0;
  std::vector<std::uint32_t> shares_;
};

// What is taken of a GPU's SMs.
struct SharesTaken {
  // A ladder with more units than these puts several of its own units into one of them.
  static constexpr std::uint32_t kMostUnits = 48;
  std::uint64_t units = 0;          // by bit
  std::uint32_t without_share = 0;  // runs
  bool whole = false;               // some run has all of it as its share
  [[nodiscard]] bool any() const { return units != 0 || without_share > 0 || whole; }
  void Add(const SharesTaken& other);
  // Whether runs that have `mine` cannot compute beside these.
  [[nodiscard]] bool Excludes(const SharesTaken& mine) const;
};

// SHARE GATE: runs with a share compute beside each other on SMs of their own, up to the whole GPU (FaST-
// GShare, section 3). A run without a share has the whole GPU: it computes beside `concurrency` - 1 others
// without a share, or alone, and never beside a run that has a share. The scheduler that starts the runs owns it.
class ShareGate {
 public:
  ShareGate(ShareLadder ladder, std::uint32_t concurrency)
      : ladder_(std::move(ladder)), concurrency_(concurrency), taken_(ladder_.units()) {}
  // Nothing: the run has to wait until others end. A caller that lets no later run pass this one starves
  // none.
  [[nodiscard]] std::optional<SmShare> Take(std::uint32_t percent);
  // For a run without a share that is to have the GPU for itself.
  [[nodiscard]] std::optional<SmShare> TakeAlone();
  // Gives back what Take gave; called once for each Take.
  void Give(const SmShare& share);
  // The very share that was given back; false while some of it is taken.
  [[nodiscard]] bool TakeAgain(const SmShare& share);
  // What runs of other processes have on the same GPU.
  void SetOthers(const SharesTaken& others) { others_ = others; }
  // What the runs here have.
  [[nodiscard]] SharesTaken taken() const;
  [[nodiscard]] const ShareLadder& ladder() const { return ladder_; }
  [[nodiscard]] bool idle() const { return with_share_ == 0 && without_share_ == 0; }

 private:
  [[nodiscard]] bool Free(std::uint32_t begin, std::uint32_t units) const;
  [[nodiscard]] std::uint32_t LargestFreeWith(std::uint32_t begin, std::uint32_t units) const;

  // How many of the runs without a share that compute at a time it stands for.
  [[nodiscard]] std::uint32_t RunsOf(const SmShare& share) const { return share.alone ? concurrency_ : 1; }
  // Whether a run with a share of so many units, or of no SMs, would find no room whatever its place.
  [[nodiscard]] bool Barred(const SmShare& share) const;
  void Mark(const SmShare& share);

  // The unit's bit in SharesTaken.
  [[nodiscard]] std::uint64_t BitOf(std::uint32_t unit) const;

  ShareLadder ladder_;
  std::uint32_t concurrency_;
  SharesTaken others_;
  std::vector<bool> taken_;          // units
  std::uint32_t with_share_ = 0;     // runs
  std::uint32_t without_share_ = 0;  // an alone one counts as `concurrency`
  bool whole_ = false;               // some run has all of it as its share
};

}  // namespace troupe
