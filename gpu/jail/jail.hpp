// JAIL: what a process gives up before it reads what a stranger wrote. It ends with the process.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/sanitizer.hpp"
#include "base/units.hpp"
#include "gpu/jail/filter.hpp"

namespace troupe::gpu {

struct JailLimits {
  Bytes memory = GiB(4);  // its own
  Bytes mapped{};         // address space for files beyond that, whose pages are the kernel's to drop
  Duration time = std::chrono::seconds(60);  // processor time; at least a second
  Bytes file_size = GiB(16);                 // of each file written
  int open_files = 64;                       // beyond the highest descriptor that is open
};

// A sanitizer maps most of the address space, reads /proc/self and starts a tracing process at exit, all of
// which a jail forbids. Programs built with one keep only the limits and no_new_privs.
inline constexpr bool kJailRelaxed = kSanitized;

// What the kernel did not grant, as words for one sentence.
struct JailReport {
  std::vector<std::string> missing;  // without these the jail does not hold
  std::vector<std::string> lacking;  // second walls; another one stands in their place
  [[nodiscard]] bool holds() const { return missing.empty(); }
  // "a filter of system calls (Function not implemented)"; empty when nothing is missing.
  [[nodiscard]] std::string Missing() const;
  [[nodiscard]] std::string Lacking() const;
};

// Closes every descriptor but the standard three, so that nothing of the parent's is inherited. First in
// main.
void CloseInherited();

// For a process that does nothing but compute on descriptors that it has opened already: it can open no
// path, reach no process and no network, start no thread. Started by root it also gets a user of its own.
// Memory beyond the limits fails to be allocated, processor time and file size send SIGXCPU and SIGXFSZ, a
// forbidden system call ends the process with SIGSYS. Call once, before any other thread exists. Internal
// when the limits cannot be set.
[[nodiscard]] absl::StatusOr<JailReport> EnterImportJail(const JailLimits& limits);

// For the worker of a virtual GPU: memory, threads, and Unix sockets in `folder`; no other program, no other
// process, no network. It keeps its user, by whom its daemon knows it. Call before any other thread exists.
[[nodiscard]] absl::StatusOr<JailReport> EnterWorkerJail(const std::string& folder,
                                                         const std::vector<std::string>& readable);

// For the worker of a real GPU, whose driver opens files, loads libraries and speaks ioctls that no list can
// name: first, before the driver is opened, its capabilities go; then, when it is, every thread gets a list
// of what is forbidden.
[[nodiscard]] absl::Status GiveUpCapabilities();
[[nodiscard]] absl::StatusOr<JailReport> EnterDriverJail();

}  // namespace troupe::gpu
