#include "storage/zeroed_logs.hpp"

#include <fcntl.h>
#include <rocksdb/file_system.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "transport/memory_file.hpp"

namespace troupe::storage {
namespace {

using rocksdb::FileOptions;
using rocksdb::FSWritableFile;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

class ZeroedLog final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  // `zeros`: a second descriptor of the same file.
  ZeroedLog(std::unique_ptr<FSWritableFile> log, transport::UniqueFd zeros)
      : FSWritableFileOwnerWrapper(std::move(log)), zeros_(std::move(zeros)) {}

  // Before each write.
  void PrepareWrite(std::size_t offset, std::size_t length, const IOOptions&, IODebugContext*) override {
    const std::size_t end = offset + length;
    if (end <= zeroed_ || !zeros_.valid()) return;
    const std::size_t step = kLogStep.count();
    const std::size_t wanted = (end + step - 1) / step * step;
    // Nothing has to be there: on a full disk the log grows by its records alone, as far as it can.
    if (!Zero(std::max(zeroed_, offset), wanted)) zeros_.Reset();
    zeroed_ = wanted;
  }

  IOStatus Close(const IOOptions& options, IODebugContext* context) override {
    if (zeros_.valid()) {
      const auto size = static_cast<off_t>(GetFileSize(options, context));
      static_cast<void>(::ftruncate(zeros_.get(), size));
      zeros_.Reset();
    }
    return FSWritableFileOwnerWrapper::Close(options, context);
  }

 private:
  [[nodiscard]] bool Zero(std::size_t from, std::size_t to) const {
    static const std::string kZeros(kLogStep.count(), '\0');
    while (from < to) {
      const ssize_t written =
          ::pwrite(zeros_.get(), kZeros.data(), std::min(kZeros.size(), to - from), static_cast<off_t>(from));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return false;
      from += static_cast<std::size_t>(written);
    }
    return ::fdatasync(zeros_.get()) == 0;
  }

  transport::UniqueFd zeros_;  // none: zeros could not be written
  std::size_t zeroed_ = 0;
};

class FileSystem final : public rocksdb::FileSystemWrapper {
 public:
  FileSystem() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}
  const char* Name() const override { return "ZeroedLogs"; }
  IOStatus NewWritableFile(const std::string& path, const FileOptions& options,
                           std::unique_ptr<FSWritableFile>* file, IODebugContext* context) override {
    IOStatus made = FileSystemWrapper::NewWritableFile(path, options, file, context);
    if (!made.ok() || !std::string_view(path).ends_with(".log")) return made;
    transport::UniqueFd zeros(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    *file = std::make_unique<ZeroedLog>(std::move(*file), std::move(zeros));
    return made;
  }
};

}  // namespace

rocksdb::Env* ZeroedLogs() {
  static rocksdb::Env* const env = rocksdb::NewCompositeEnv(std::make_shared<FileSystem>()).release();
  return env;
}

}  // namespace troupe::storage
