// The attempts of an intruder inside a jail, each by name.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace troupe::gpu::test {

// The descriptor of an import's output, which is above those that a test inherits from its parent.
inline constexpr int kOutput = 200;

// What the attempts use; it is made outside, before the jail.
struct Outside {
  pid_t parent = 0;
  std::string folder;         // a folder that the parent may write
  std::string abstract_name;  // the name of a listening Unix socket, without its leading zero
  int pidfd = -1;             // the parent's pidfd, as if it were inherited
  long* secret = nullptr;     // a word of the parent's memory
};

struct Escape {
  std::string name;
  std::function<bool(const Outside&)> got_through;
};

// The attempts that neither an import nor a worker may succeed in.
[[nodiscard]] std::vector<Escape> Escapes();
// The attempts that a worker may make in its own folder, and an import may not.
[[nodiscard]] std::vector<Escape> ImportEscapes();

}  // namespace troupe::gpu::test
