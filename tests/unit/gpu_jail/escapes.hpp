// What an intruder would try from inside a jail, each by name.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace troupe::gpu::test {

// The descriptor of an import's output: beyond those that a test has from the process that started it.
inline constexpr int kOutput = 200;

// Made outside, before the jail.
struct Outside {
  pid_t parent = 0;
  std::string folder;         // may be written by the parent
  std::string abstract_name;  // of a Unix socket that listens, without its leading zero
  int pidfd = -1;             // the parent's, as if it were inherited
  long* secret = nullptr;     // a word of the parent's memory
};

struct Escape {
  std::string name;
  std::function<bool(const Outside&)> got_through;
};

// No import and no worker may do any of these.
[[nodiscard]] std::vector<Escape> Escapes();
// What a worker may do in its own folder, and an import may not.
[[nodiscard]] std::vector<Escape> ImportEscapes();

}  // namespace troupe::gpu::test
