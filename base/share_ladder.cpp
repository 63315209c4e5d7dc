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

bool ShareGate::Free(std::uint32_t begin, std::uint32_t units) const {
  return std::none_of(taken_.begin() + begin, taken_.begin() + begin + units,
                      [](bool taken) { return taken; });
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

std::optional<SmShare> ShareGate::Take(std::uint32_t percent) {
  SmShare share = ladder_.For(percent);
  if (share.sms == 0) {
    if (with_share_ > 0) return std::nullopt;
    ++without_share_;
    return share;
  }
  if (without_share_ > 0 || whole_) return std::nullopt;
  if (share.everywhere()) {
    if (with_share_ > 0) return std::nullopt;
    whole_ = true;
    ++with_share_;
    return share;
  }
  std::optional<std::uint32_t> best;
  for (const std::uint32_t begin : ladder_.Places(share.units)) {
    if (!Free(begin, share.units)) continue;
    if (!best || LargestFreeWith(begin, share.units) > LargestFreeWith(*best, share.units)) best = begin;
  }
  if (!best) return std::nullopt;
  share.begin = *best;
  std::fill_n(taken_.begin() + share.begin, share.units, true);
  ++with_share_;
  return share;
}

void ShareGate::Give(const SmShare& share) {
  if (share.sms == 0) {
    TROUPE_CHECK(without_share_ > 0, "what was not taken is not given back");
    --without_share_;
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
