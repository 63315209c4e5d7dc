#include "storage/rocks_logger.hpp"

#include <spdlog/spdlog.h>

#include <cstdarg>
#include <cstdio>

namespace troupe::storage {
namespace {

constexpr std::size_t kLongestLine = 1024;  // longer ones are cut

class RocksLogger final : public rocksdb::Logger {
 public:
  explicit RocksLogger(std::string directory)
      : Logger(rocksdb::InfoLogLevel::WARN_LEVEL), directory_(std::move(directory)) {}
  using Logger::Logv;
  void Logv(rocksdb::InfoLogLevel level, const char* format, va_list arguments) override {
    if (level < GetInfoLogLevel() || level == rocksdb::InfoLogLevel::HEADER_LEVEL) return;
    char line[kLongestLine];
    if (std::vsnprintf(line, sizeof line, format, arguments) < 0) return;
    spdlog::log(level == rocksdb::InfoLogLevel::WARN_LEVEL ? spdlog::level::warn : spdlog::level::err,
                "metadata in {}: {}", directory_, line);
  }

 private:
  rocksdb::Status CloseImpl() override { return rocksdb::Status::OK(); }
  const std::string directory_;
};

}  // namespace

std::shared_ptr<rocksdb::Logger> MakeRocksLogger(const std::string& directory) {
  return std::make_shared<RocksLogger>(directory);
}

}  // namespace troupe::storage
