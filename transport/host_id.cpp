#include "transport/host_id.hpp"

#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>

#include "base/check.hpp"

namespace troupe::transport {
namespace {

std::string ReadHostId() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::array<char, 64> space{};
  const ssize_t length = readlink("/proc/self/ns/mnt", space.data(), space.size() - 1);
  // "mnt:[4026531841]" becomes "4026531841". Without /proc nothing is shared with anybody: an identity of our
  // own.
  std::string view(space.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
  if (boot.empty() || view.size() < 7) return "unknown-" + std::to_string(UniqueId());
  return boot + "/" + view.substr(5, view.size() - 6);
}

}  // namespace

const std::string& HostId() {
  static const std::string id = ReadHostId();
  return id;
}

std::uint64_t UniqueId() {
  std::uint64_t id = 0;
  while (id == 0) {
    const ssize_t got = getrandom(&id, sizeof(id), 0);
    TROUPE_CHECK(got == sizeof(id) || (got < 0 && errno == EINTR), "the kernel gives random numbers");
  }
  return id;
}

}  // namespace troupe::transport
