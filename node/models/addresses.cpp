#include "node/models/addresses.hpp"

#include <algorithm>
#include <iterator>

namespace troupe::node {

namespace {

// FNV-1a: the same in every build, which std::hash need not be.
std::uint64_t HashOf(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace

std::uint64_t Addresses::Of(const ModelNumber& model, Bytes size) {
  if (const auto known = places_.find(model); known != places_.end()) return known->second.begin;
  const std::uint64_t length = AlignUp(std::max(size, Bytes(1)), kUnit).count();
  constexpr std::uint64_t kUnits = (kEnd - kBegin) / kUnit.count();
  if (length > kEnd - kBegin) return 0;
  std::uint64_t begin = kBegin + HashOf(model.text()) % kUnits * kUnit.count();
  // Each step passes one range that is taken, or begins at the front again, once.
  for (std::size_t tries = 0; tries <= taken_.size() + 1; ++tries) {
    if (length > kEnd - begin) begin = kBegin;
    const auto next = taken_.lower_bound(begin + length);
    if (next == taken_.begin() || std::prev(next)->second <= begin) {
      places_[model] = {begin, begin + length};
      taken_[begin] = begin + length;
      return begin;
    }
    begin = std::prev(next)->second;
  }
  return 0;
}

void Addresses::Forget(const ModelNumber& model) {
  const auto known = places_.find(model);
  if (known == places_.end()) return;
  taken_.erase(known->second.begin);
  places_.erase(known);
}

}  // namespace troupe::node
