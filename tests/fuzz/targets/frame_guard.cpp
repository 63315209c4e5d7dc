// The bytes of one connection between processes, as they reach the guard in front of CAF. First byte: which
// side accepted the connection (bit 0), and how large the pieces are in which the bytes come.
#include "actors/peers/frame_guard.hpp"

#include <algorithm>
#include <caf/node_id.hpp>
#include <caf/optional.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/check.hpp"

namespace {

using troupe::actors::FrameGuard;
using troupe::security::Role;
using troupe::security::Roles;

// The number of bytes that were taken before a frame was refused, or all of them.
struct Seen {
  bool ok = true;
  bool handshaken = false;
};

Seen SeeAll(FrameGuard::Side side, std::span<const char> bytes, std::size_t piece) {
  static const caf::node_id kOwn = *caf::make_node_id(1, std::string(40, 'a'));
  static constexpr Roles kEveryRole = {Role::kManager, Role::kGateway, Role::kNode, Role::kAdmin,
                                       Role::kReader};
  FrameGuard guard(side, kEveryRole, kOwn);
  Seen seen;
  while (seen.ok && !bytes.empty()) {
    const std::size_t size = std::min(piece, bytes.size());
    seen.ok = guard.See(bytes.first(size)).ok();
    bytes = bytes.subspan(size);
  }
  seen.handshaken = guard.handshaken();
  return seen;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto side = (data[0] & 1) != 0 ? FrameGuard::Side::kDialled : FrameGuard::Side::kAccepted;
  const std::span<const char> bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  const Seen whole = SeeAll(side, bytes, bytes.size() + 1);
  const Seen pieces = SeeAll(side, bytes, std::size_t{1} + data[0] / 2);
  TROUPE_CHECK(whole.ok == pieces.ok, "the verdict does not depend on the pieces");
  TROUPE_CHECK(!whole.ok || whole.handshaken == pieces.handshaken, "nor does the end of the handshake");
  return 0;
}
