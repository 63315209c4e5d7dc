#include "actors/daemon/usage_file.hpp"

#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/daemon/common.hpp"
#include "actors/node/message_file.hpp"
#include "gpu/worker/meter_folder.hpp"
#include "transport/host_id.hpp"

namespace troupe::actors {

namespace {

absl::StatusOr<proto::NodeUsage> ReadUsage(const std::string& path) {
  TROUPE_ASSIGN_OR_RETURN(const std::string bytes, ReadDigested(path));
  proto::NodeUsage usage;
  if (!usage.ParseFromString(bytes) || usage.ledger().empty())
    return absl::DataLossError("the file is not a usage ledger");
  return usage;
}

}  // namespace

KeptUsage LoadUsage(const std::string& path) {
  KeptUsage kept;
  auto read = ReadUsage(path);
  if (read.ok()) {
    kept.usage = *std::move(read);
    return kept;
  }
  kept.is_new = true;
  kept.usage.set_ledger(absl::StrCat(absl::Hex(transport::UniqueId(), absl::kZeroPad16)));
  if (absl::IsNotFound(read.status())) return kept;
  std::error_code ignored;
  std::filesystem::rename(path, path + ".damaged", ignored);
  kept.warning = absl::StrCat("the usage ledger '", path, "' cannot be read (", read.status().message(),
                              "); it is kept as '", path,
                              ".damaged', and what it had not told the manager is not charged");
  return kept;
}

MeterAccess FileMeterAccess(const std::string& path, const std::string& run, WorkPool& pool) {
  MeterAccess access;
  const auto folder = std::make_shared<const gpu::MeterFolder>(run);
  access.read = [folder, &pool](std::function<void(absl::StatusOr<MeterAccess::Pages>)> done) {
    const auto posted = pool.Post([folder, done] { done(folder->Read()); });
    if (!posted.ok()) done(posted);
  };
  access.drop = [folder, &pool](const std::string& page) {
    // A page that stays is found closed at the next reading, and dropped then.
    static_cast<void>(pool.Post([folder, page] { folder->Remove(page); }));
  };
  access.save = [path, &pool](proto::NodeUsage usage, std::function<void(absl::Status)> done) {
    const auto kept = std::make_shared<const proto::NodeUsage>(std::move(usage));
    const auto posted =
        pool.Post([path, kept, done] { done(WriteDigested(path, kept->SerializeAsString())); });
    if (!posted.ok()) done(posted);
  };
  access.unix_now = UnixNow;
  return access;
}

}  // namespace troupe::actors
