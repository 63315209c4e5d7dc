// A small disk for a test that fills it.
#pragma once

#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <string>

#include "tests/unit/storage/child_test.hpp"

namespace troupe::storage {

// Runs the child test `filter`, which finds a file system of `size` at `directory`; 77: this machine does not
// allow that.
inline int RunInSmallFileSystem(const std::string& filter, const std::string& directory,
                                const std::string& size) {
  return WaitForChild(StartChildTest(filter, directory, [&] {
    const int flags = ::geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER;
    return ::unshare(flags) == 0 && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           ::mount("tmpfs", directory.c_str(), "tmpfs", 0, ("size=" + size).c_str()) == 0;
  }));
}

}  // namespace troupe::storage
