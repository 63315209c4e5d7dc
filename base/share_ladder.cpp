#include "base/share_ladder.hpp"

#include <algorithm>
#include <cmath>

#include "base/check.hpp"

namespace troupe {

std::uint32_t NearestShare(std::span<const std::uint32_t> shares, std::uint32_t sms, std::uint32_t percent) {
  const double wish = static_cast<double>(sms) * percent / 100;
  std::uint32_t best = shares.empty() ? 0 : shares.front();
  for (const std::uint32_t share : shares)
    if (std::abs(share - wish) < std::abs(best - wish)) best = share;
  return best;
}

ShareLadder::ShareLadder(std::uint32_t sms, std::uint32_t unit, std::uint32_t units)
    : sms_(sms), unit_(unit), units_(units) {
  TROUPE_CHECK(std::uint64_t{unit} * units <= sms, "units are parts of the GPU");
  for (std::uint32_t count = 1; count <= units && count * unit < sms; ++count)
    shares_.push_back(count * unit);
  if (sms > 0) shares_.push_back(sms);
}

SmShare ShareLadder::For(std::uint32_t percent) const {
  if (percent == 0 || shares_.empty()) return {};
  const std::uint32_t sms = NearestShare(shares_, sms_, percent);
  if (sms == sms_) return {.begin = 0, .units = units_, .sms = sms, .of = sms_};
  return {.begin = 0, .units = sms / unit_, .sms = sms, .of = sms_};
}

std::vector<std::uint32_t> ShareLadder::Places(std::uint32_t units) const {
  std::vector<std::uint32_t> places;
  if (units == 0 || units > units_) return places;
  for (std::uint32_t begin = 0; begin + units <= units_; begin += units) places.push_back(begin);
  if (const std::uint32_t last = units_ - units; places.back() != last) places.push_back(last);
  return places;
}

void SharesTaken::Add(const SharesTaken& other) {
  units |= other.units;
  without_share += other.without_share;
  whole = whole || other.whole;
}

bool SharesTaken::Excludes(const SharesTaken& mine) const {
  const bool theirs_share = units != 0 || whole;
  const bool mine_share = mine.units != 0 || mine.whole;
  if ((mine.whole && theirs_share) || (whole && mine_share) || (units & mine.units) != 0) return true;
  return (mine.without_share > 0 && theirs_share) || (without_share > 0 && mine_share);
}

std::uint64_t ShareGate::BitOf(std::uint32_t unit) const {
  const std::uint32_t each = (ladder_.units() + SharesTaken::kMostUnits - 1) / SharesTaken::kMostUnits;
  return std::uint64_t{1} << (unit / each);
}

SharesTaken ShareGate::taken() const {
  SharesTaken taken{.without_share = without_share_, .whole = whole_};
  for (std::uint32_t unit = 0; unit < taken_.size(); ++unit)
    if (taken_[unit]) taken.units |= BitOf(unit);
  return taken;
}

bool ShareGate::Free(std::uint32_t begin, std::uint32_t units) const {
  for (std::uint32_t unit = begin; unit < begin + units; ++unit)
    if (taken_[unit] || (others_.units & BitOf(unit)) != 0) return false;
  return true;
}

// The longest row of units that would be left.
std::uint32_t ShareGate::LargestFreeWith(std::uint32_t begin, std::uint32_t units) const {
  std::uint32_t largest = 0;
  std::uint32_t row = 0;
  for (std::uint32_t unit = 0; unit < taken_.size(); ++unit) {
    const bool free = !taken_[unit] && (unit < begin || unit >= begin + units);
    row = free ? row + 1 : 0;
    largest = std::max(largest, row);
  }
  return largest;
}

bool ShareGate::Barred(const SmShare& share) const {
  const bool others_share = others_.units != 0 || others_.whole;
  if (share.sms == 0)
    return with_share_ > 0 || others_share ||
           without_share_ + others_.without_share + RunsOf(share) > concurrency_;
  return without_share_ + others_.without_share > 0 || whole_ || others_.whole ||
         (share.everywhere() && (with_share_ > 0 || others_share));
}

void ShareGate::Mark(const SmShare& share) {
  if (share.sms == 0) {
    without_share_ += RunsOf(share);
    return;
  }
  ++with_share_;
  if (share.everywhere()) {
    whole_ = true;
    return;
  }
  std::fill_n(taken_.begin() + share.begin, share.units, true);
}

std::optional<SmShare> ShareGate::Take(std::uint32_t percent) {
  SmShare share = ladder_.For(percent);
  if (Barred(share)) return std::nullopt;
  if (share.sms > 0 && !share.everywhere()) {
    std::optional<std::uint32_t> best;
    for (const std::uint32_t begin : ladder_.Places(share.units)) {
      if (!Free(begin, share.units)) continue;
      if (!best || LargestFreeWith(begin, share.units) > LargestFreeWith(*best, share.units)) best = begin;
    }
    if (!best) return std::nullopt;
    share.begin = *best;
  }
  Mark(share);
  return share;
}

std::optional<SmShare> ShareGate::TakeAlone() {
  const SmShare share{.alone = true};
  if (Barred(share)) return std::nullopt;
  Mark(share);
  return share;
}

bool ShareGate::TakeAgain(const SmShare& share) {
  if (Barred(share)) return false;
  if (share.sms > 0 && !share.everywhere() && !Free(share.begin, share.units)) return false;
  Mark(share);
  return true;
}

void ShareGate::Give(const SmShare& share) {
  if (share.sms == 0) {
    TROUPE_CHECK(without_share_ >= RunsOf(share), "what was not taken is not given back");
    without_share_ -= RunsOf(share);
    return;
  }
  TROUPE_CHECK(with_share_ > 0, "what was not taken is not given back");
  --with_share_;
  if (share.everywhere()) {
    whole_ = false;
    return;
  }
  std::fill_n(taken_.begin() + share.begin, share.units, false);
}

}  // namespace troupe
