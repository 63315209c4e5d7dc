// What an arena server and its clients say to each other: one question, one answer, between processes of one
// build on one host.
#pragma once

#include <cstdint>

#include "transport/arena_server.hpp"

namespace troupe::transport {

inline constexpr std::uint32_t kArenaMagic = 0x7472'6172;  // "trar"
inline constexpr std::uint32_t kArenaVersion = 1;

struct ArenaQuestion {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint64_t arena;
};

// The descriptor comes with it when the arena is known. `known` lets the client drop mappings of arenas that
// are no more.
struct ArenaAnswer {
  std::uint32_t magic;
  std::uint32_t count;
  std::uint64_t known[ArenaServer::kArenas];
};

}  // namespace troupe::transport
