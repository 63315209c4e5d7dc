#include "actors/daemon/membership.hpp"

#include <spdlog/spdlog.h>

#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "storage/durable_file.hpp"

namespace troupe::actors {

namespace {

constexpr std::size_t kLongestId = 256;

}  // namespace

absl::Status TieToCluster(Common& common, bool keep, MemberOptions& options) {
  options.manager = common.manager;
  options.heartbeat = common.config.membership.heartbeat;
  options.on_event = [](const std::string& kind, const std::string& message) {
    const auto level = kind == "cluster-joined" ? spdlog::level::info
                       : kind == "join-refused" ? spdlog::level::err
                                                : spdlog::level::warn;
    spdlog::log(level, "{}: {}", kind, message);
  };
  if (!keep) return absl::OkStatus();
  const auto path = common.config.member.data + "/cluster";
  const auto text = storage::ReadSmallFile(path, kLongestId);
  if (!text.ok() && !absl::IsNotFound(text.status())) return text.status();
  if (text.ok()) options.cluster = std::string(absl::StripAsciiWhitespace(*text));
  options.keep_cluster = [&pool = common.pool, path](const std::string& cluster) {
    const auto posted = pool.Post([path, cluster] {
      const auto status = storage::ReplaceFile(path, absl::StrCat(cluster, "\n"));
      if (!status.ok()) spdlog::warn("the cluster's id is not kept: {}", std::string(status.message()));
    });
    if (!posted.ok()) spdlog::warn("the cluster's id is not kept: {}", std::string(posted.message()));
  };
  return absl::OkStatus();
}

}  // namespace troupe::actors
