#include "sim/workloads/redeployments.hpp"

#include "absl/strings/str_cat.h"

namespace troupe::sim {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::string AnewKey(const std::string& version) {
  return absl::StrCat(ClientLoad::kAnew, "/", version);
}

}  // namespace

void Redeployments::Begin() {
  ChangeLoop();
  AskLoop();
}

// Mostly a version goes and comes back at once; now and then it stays away, or another one comes beside it.
void Redeployments::ChangeLoop() {
  load_.cluster().agenda().In(Pause(milliseconds(500)), [this] {
    if (load_.Over()) return;
    const auto version = absl::StrCat(1 + random_.Below(2));
    random_.Below(4) == 0 ? Deploy(version) : Remove(version);
  });
}

void Redeployments::Remove(const std::string& version) {
  operators_.Once(operator_, RegistryOp::Kind::kRemove, AnewKey(version),
                  [this, version](const AdminResult& result) {
                    if (!result.reply) operator_ = 1 - operator_;
                    random_.Below(4) == 0 ? ChangeLoop() : Deploy(version);
                  });
}

void Redeployments::Deploy(const std::string& version) {
  operators_.Once(operator_, RegistryOp::Kind::kDeploy, AnewKey(version), [this](const AdminResult& result) {
    if (!result.reply) operator_ = 1 - operator_;
    ChangeLoop();
  });
}

void Redeployments::AskLoop() {
  load_.cluster().agenda().In(Pause(milliseconds(40)), [this] {
    if (load_.Over()) return;
    const auto gateway = random_.Below(load_.cluster().shape().gateways);
    const auto named = random_.Below(3) == 0 ? absl::StrCat(1 + random_.Below(2)) : "";
    requests_.Ask(gateway, ClientLoad::kAnew, named, random_.Below(2) == 0 ? milliseconds(500) : seconds(3));
    AskLoop();
  });
}

Duration Redeployments::Pause(Duration mean) {
  return Duration(static_cast<Duration::rep>(random_.Exponential(static_cast<double>(mean.count()))));
}

}  // namespace troupe::sim
