#include "sim/workloads/sharing_updates.hpp"

#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cluster/function_sharing.hpp"
#include "proto/gpu_sharing.hpp"

namespace troupe::sim {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kBetween = milliseconds(350);

// The settings in turn: a part of the SMs, parts of the time, several instances, time that follows the load, none.
proto::GpuSharing SharingOf(std::uint64_t turn) {
  proto::GpuSharing sharing;
  switch (turn % 5) {
    case 0:
      sharing.set_sm_partition(24);
      sharing.set_max_instances(4);
      break;
    case 1:
      sharing.set_quota_request(30);
      sharing.set_quota_limit(80);
      break;
    case 2:
      sharing.set_sm_partition(50);
      sharing.set_quota_limit(60);
      break;
    case 3:
      sharing.set_sm_partition(24);
      sharing.add_automatic("quota_request");
      break;
    default:
      break;
  }
  return sharing;
}

}  // namespace

// It draws nothing, so that all else of a seed's schedule is drawn as without it.
void SharingUpdates::Loop() {
  load_.cluster().agenda().In(kBetween, [this] {
    if (load_.Over()) return;
    const auto turn = count_++;
    Update(absl::StrCat("f", turn % load_.plan().functions), SharingOf(turn / load_.plan().functions + turn));
    Loop();
  });
}

void SharingUpdates::Update(const std::string& function, const proto::GpuSharing& sharing) {
  proto::AdminRequest request;
  auto& update = *request.mutable_update_function();
  update.mutable_key()->set_name(function);
  update.mutable_key()->set_version("1");
  *update.mutable_sharing() = sharing;
  for (const auto& field : proto::kSharingFields) update.add_settings(std::string(field.name));
  const auto text = cluster::DescribeSharing(sharing);
  ++commands_;
  load_.cluster().operators().Admin(
      0, request, ClientLoad::kCommandTimeout, [this, function, text](const AdminResult& result) {
        --commands_;
        auto& known =
            known_.try_emplace(function, Known{.acknowledged = cluster::DescribeSharing({})}).first->second;
        const bool done = result.reply && result.reply->code() == 0;
        load_.cluster().Note(absl::StrCat("operator: update ", function, " to ", text, ": ",
                                          done           ? "done"
                                          : result.reply ? result.reply->message()
                                                         : "no answer"));
        if (done) known.acknowledged = misremembers_ ? "something else" : text;
        if (!done && result.sent) known.unsure.insert(text);
      });
}

std::vector<std::string> SharingUpdates::Check(const proto::AdminReply& listed) const {
  std::vector<std::string> lines;
  for (const auto& function : listed.functions()) {
    const auto known = known_.find(function.record().key().name());
    if (known == known_.end()) continue;
    const auto has = cluster::DescribeSharing(proto::Declarations(function.record().sharing()));
    if (has == known->second.acknowledged || known->second.unsure.contains(has)) continue;
    lines.push_back(
        absl::StrCat("function '", known->first, "' has ", has, ", and ", known->second.acknowledged,
                     " was acknowledged last; not answered: ", absl::StrJoin(known->second.unsure, "; ")));
  }
  return lines;
}

}  // namespace troupe::sim
