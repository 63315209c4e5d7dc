#include "actors/daemon/slo_file.hpp"

#include <spdlog/spdlog.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/daemon/common.hpp"
#include "actors/node/message_file.hpp"
#include "proto/slo_counts.hpp"

namespace troupe::actors {

namespace {

std::uint64_t RequestsIn(const proto::KeptSlos& kept) {
  std::uint64_t requests = 0;
  for (const auto& function : kept.functions()) requests += proto::EndedCount(function.slo().total());
  return requests;
}

}  // namespace

SloFile::SloFile(const std::string& data, std::shared_ptr<SloRecorder> slos)
    : path_(absl::StrCat(data, "/slos")), slos_(std::move(slos)) {}

void SloFile::Load(Time now) {
  const auto bytes = ReadDigested(path_);
  if (absl::IsNotFound(bytes.status())) return;
  proto::KeptSlos kept;
  if (!bytes.ok() || !kept.ParseFromString(*bytes)) {
    return spdlog::warn("the counts of SLOs in '{}' cannot be read ({}); they begin anew", path_,
                        bytes.ok() ? "the file has another format" : std::string(bytes.status().message()));
  }
  slos_->Restore(kept, now, UnixNow());
  written_ = RequestsIn(kept);
}

void SloFile::Save(Time now, bool last) {
  if (now < next_ && !last) return;
  next_ = now + kEvery;
  const auto kept = slos_->Keep(now, UnixNow());
  const auto requests = RequestsIn(kept);
  if (requests == written_) return;
  const auto status = WriteDigested(path_, kept.SerializeAsString());
  if (status.ok()) written_ = requests;
  if (!status.ok() && !failed_)
    spdlog::warn("the counts of SLOs cannot be kept, and begin anew when the gateway is started again: {}",
                 std::string(status.message()));
  failed_ = !status.ok();
}

}  // namespace troupe::actors
