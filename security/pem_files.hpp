// PEM FILES: certificates, keys and revocation lists, read from files with errors that name the file and what
// to do, and written so that a reader never sees half of one.
#pragma once

#include <sys/stat.h>

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "security/openssl_pointers.hpp"

namespace troupe::security {

inline constexpr std::size_t kMaxPemBytes = 1 << 20;

// What tells that a file is another one than before. Equal stamps: the same file, not written since.
struct FileStamp {
  dev_t device = 0;
  ino_t inode = 0;
  off_t size = 0;
  timespec modified{};
  timespec changed{};
  friend bool operator==(const FileStamp& a, const FileStamp& b) {
    return a.device == b.device && a.inode == b.inode && a.size == b.size &&
           a.modified.tv_sec == b.modified.tv_sec && a.modified.tv_nsec == b.modified.tv_nsec &&
           a.changed.tv_sec == b.changed.tv_sec && a.changed.tv_nsec == b.changed.tv_nsec;
  }
};
// A file that is not there has the stamp of zeros.
[[nodiscard]] FileStamp StampOf(const std::string& path);

enum class Secrecy { kPublic, kSecret };
// The bytes of a file, 1 MiB at most. A secret file that its group or others may read is refused.
[[nodiscard]] absl::StatusOr<std::string> ReadSmallFile(const std::string& path, Secrecy secrecy);

// `source` names the file in errors.
[[nodiscard]] absl::StatusOr<std::vector<X509Ptr>> ParseCertificates(std::string_view pem,
                                                                     std::string_view source);
[[nodiscard]] absl::StatusOr<KeyPtr> ParseKey(std::string_view pem, std::string_view source);
[[nodiscard]] absl::StatusOr<std::vector<CrlPtr>> ParseRevocations(std::string_view pem,
                                                                   std::string_view source);

// Refuses when `path` exists.
[[nodiscard]] absl::Status WriteNewFile(const std::string& path, std::string_view bytes, mode_t mode);
// In place of what is there: a reader sees the old bytes or the new ones.
[[nodiscard]] absl::Status ReplaceFile(const std::string& path, std::string_view bytes, mode_t mode);

}  // namespace troupe::security
