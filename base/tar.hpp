// TAR: an archive of files one after the other, as `tar` and most libraries write it (POSIX.1-1988 and -2001, and GNU's long
// names). A model's weights are read where they lie in it: nothing is unpacked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace troupe {

inline constexpr std::uint64_t kTarBlock = 512;  // bytes

struct TarFile {
  std::string name;
  std::uint64_t offset = 0;  // of its bytes in the archive
  std::uint64_t size = 0;
};

// Whether the bytes begin with a header of a tar archive, whose sum agrees.
[[nodiscard]] bool IsTar(std::span<const std::byte> bytes);

// The regular files of an archive, in its order; directories and links are left out. The bytes may be hostile. InvalidArgument
// for what is damaged, ends early, or has more than `most` entries; Unimplemented for a sparse file, whose bytes do not lie
// there as they are.
[[nodiscard]] absl::StatusOr<std::vector<TarFile>> ListTar(std::span<const std::byte> archive,
                                                           std::size_t most);

// What stands before the bytes of a file: one block, or more for a name above 100 bytes or 8 GiB. No time, user or mode is
// written that differs from run to run. Behind the bytes follow zeros up to a whole block.
[[nodiscard]] std::string TarHeader(const std::string& name, std::uint64_t size);
[[nodiscard]] inline std::uint64_t TarPadding(std::uint64_t size) {
  return (kTarBlock - size % kTarBlock) % kTarBlock;
}
// What ends an archive.
[[nodiscard]] inline std::string TarEnd() {
  return std::string(2 * kTarBlock, '\0');
}

}  // namespace troupe
