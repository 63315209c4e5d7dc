#include "tests/unit/storage/power.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>
#include <utility>

#include "tests/unit/storage/files.hpp"

namespace troupe::storage {

namespace fs = std::filesystem;

std::atomic<int> failing_syncs = 0;

namespace {

constexpr std::size_t kSector = 512;
std::atomic<Power*> watched = nullptr;

std::string Path(int fd) {
  std::error_code gone;
  return fs::read_symlink("/proc/self/fd/" + std::to_string(fd), gone).string();
}

// What a file of those synced bytes may hold when it has come to hold `now`.
std::string Torn(const std::string& synced, const std::string& now, Random& random, double kept) {
  if (synced == now) return now;
  std::string left = synced;
  left.resize(random.Uniform() < kept ? now.size() : synced.size());
  for (std::size_t at = 0; at < std::min(left.size(), now.size()); at += kSector) {
    if (random.Uniform() >= kept) continue;
    const std::size_t length = std::min({kSector, left.size() - at, now.size() - at});
    left.replace(at, length, now, at, length);
  }
  return left;
}

}  // namespace

Power::Power(std::string directory, std::function<void()> at_sync)
    : directory_(std::move(directory)), at_sync_(std::move(at_sync)) {
  EXPECT_EQ(watched.exchange(this), nullptr);
}

Power::~Power() {
  watched = nullptr;
}

int Power::Sync(int fd, int (*sync)(int)) {
  Power* const power = watched;
  const std::string path = power == nullptr ? "" : Path(fd);
  if (power == nullptr) return sync(fd);
  if (!path.starts_with(power->directory_)) return 0;
  const std::lock_guard lock(power->mutex_);
  power->at_sync_();
  power->Remember(fd, path);
  power->at_sync_();
  return 0;
}

void Power::Remember(int fd, const std::string& path) {
  struct stat what {};
  ASSERT_EQ(::fstat(fd, &what), 0);
  Inode& inode = inodes_[what.st_ino];
  const std::string again = "/proc/self/fd/" + std::to_string(fd);
  if (!inode.file.valid()) inode.file = transport::UniqueFd(::open(again.c_str(), O_RDONLY | O_CLOEXEC));
  if (!S_ISDIR(what.st_mode)) {
    inode.bytes = ReadAll(again);
    return;
  }
  inode.names = NamesNow(path);
  const auto names = inode.names;
  for (const auto& [name, number] : names) {
    Inode& entry = inodes_[number];
    if (!entry.file.valid())
      entry.file = transport::UniqueFd(::open((path + "/" + name).c_str(), O_RDONLY | O_CLOEXEC));
  }
}

std::map<std::string, ino_t> Power::NamesNow(const std::string& path) const {
  std::map<std::string, ino_t> names;
  for (const auto& entry : fs::directory_iterator(path)) {
    struct stat what {};
    if (::lstat(entry.path().c_str(), &what) == 0) names[entry.path().filename().string()] = what.st_ino;
  }
  return names;
}

void Power::Leave(const std::string& to, Random& random, double kept) const {
  LeaveDirectory(directory_, to, random, kept);
}

void Power::LeaveDirectory(const std::string& path, const std::string& to, Random& random,
                           double kept) const {
  fs::create_directory(to);
  const auto now = NamesNow(path);
  std::map<std::string, ino_t> synced;
  struct stat what {};
  if (::stat(path.c_str(), &what) == 0 && inodes_.contains(what.st_ino))
    synced = inodes_.at(what.st_ino).names;
  std::set<std::string> names;
  for (const auto& [name, number] : now) names.insert(name);
  for (const auto& [name, number] : synced) names.insert(name);
  for (const auto& name : names) {
    const auto find = [&](const auto& in) { return in.contains(name) ? in.at(name) : ino_t{0}; };
    const ino_t inode = random.Uniform() < kept ? find(now) : find(synced);
    if (inode == 0) continue;
    const std::string from = path + "/" + name;
    if (inode == find(now) && fs::is_directory(from)) {
      LeaveDirectory(from, to + "/" + name, random, kept);
    } else {
      LeaveFile(inode, inode == find(now) ? from : "", to + "/" + name, random, kept);
    }
  }
}

// `path`: "" for a file that has this name no more.
void Power::LeaveFile(ino_t inode, const std::string& path, const std::string& to, Random& random,
                      double kept) const {
  const auto known = inodes_.find(inode);
  const std::string synced = known == inodes_.end() ? "" : known->second.bytes;
  const std::string held =
      known == inodes_.end() ? "" : "/proc/self/fd/" + std::to_string(known->second.file.get());
  WriteFile(to, Torn(synced, ReadAll(path.empty() ? held : path), random, kept));
}

}  // namespace troupe::storage

// These replace the C library's functions in this program.
extern "C" int fdatasync(int fd) {
  auto& failing = troupe::storage::failing_syncs;
  int left = failing.load();
  while (left > 0 && !failing.compare_exchange_weak(left, left - 1)) {
  }
  if (left <= 0) {
    return troupe::storage::Power::Sync(
        fd, [](int file) { return static_cast<int>(::syscall(SYS_fdatasync, file)); });
  }
  errno = EIO;
  return -1;
}
extern "C" int fsync(int fd) {
  return troupe::storage::Power::Sync(fd,
                                      [](int file) { return static_cast<int>(::syscall(SYS_fsync, file)); });
}
