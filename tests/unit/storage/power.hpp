// POWER: a disk whose power can fail, for tests. It is a directory whose files are written as ever; what is
// synced below it is remembered, and Leave() makes what may lie there after a power failure. This program's
// fsync and fdatasync are replaced for it, RocksDB's calls of them too; while there is such a disk, the
// machine's own is not synced.
//
// The rules are those of a disk that keeps what it has confirmed, and of nothing more: of what a file's writer
// has not synced, each sector is there or not; of the names in a directory that is not synced, each new one
// is there or not, and each old one is still there or not.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "base/random.hpp"
#include "transport/memory_file.hpp"

namespace troupe::storage {

// So many of the next calls of fdatasync fail, as those of a dying disk do.
extern std::atomic<int> failing_syncs;

class Power {
 public:
  // `directory` is there, and empty. `at_sync` is called before each sync below it and after it, by the
  // thread that syncs, and not while it runs. There is one at a time.
  Power(std::string directory, std::function<void()> at_sync);
  ~Power();
  Power(const Power&) = delete;
  Power& operator=(const Power&) = delete;

  // Makes `to`, as the disk may be if the power fails now. `kept`: with what probability something that was not
  // synced is there; 1 is what a process that is killed leaves behind. For `at_sync`, or while nothing syncs.
  void Leave(const std::string& to, Random& random, double kept) const;

  // fsync and fdatasync; any thread.
  static int Sync(int fd, int (*sync)(int));

 private:
  struct Inode {
    transport::UniqueFd file;            // held, so that its number is not another file's
    std::string bytes;                   // of a file, as synced
    std::map<std::string, ino_t> names;  // of a directory, as synced
  };
  void Remember(int fd, const std::string& path);
  [[nodiscard]] std::map<std::string, ino_t> NamesNow(const std::string& path) const;
  void LeaveDirectory(const std::string& path, const std::string& to, Random& random, double kept) const;
  void LeaveFile(ino_t inode, const std::string& path, const std::string& to, Random& random,
                 double kept) const;

  const std::string directory_;
  const std::function<void()> at_sync_;
  std::recursive_mutex mutex_;  // at_sync_ may sync elsewhere
  std::map<ino_t, Inode> inodes_;
};

}  // namespace troupe::storage
