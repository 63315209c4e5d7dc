#include "cluster/records/objects.hpp"

#include "absl/strings/str_cat.h"
#include "cluster/parts.hpp"

namespace troupe::cluster {

void Objects::Start() {
  last_collected_ = parts_.out.now();
}

void Objects::Collect() {
  const auto now = parts_.out.now();
  if (now - last_collected_ < parts_.settings.collect_every) return;
  last_collected_ = now;
  parts_.out.Add(CollectObjects{parts_.catalogue.Objects(), parts_.settings.collect_unused_for});
}

void Objects::On(const ObjectsCollected& event) {
  const auto& removed = event.removed;
  if (!removed.ok()) {
    parts_.out.Tell("manager", "objects-kept", std::string(removed.status().message()));
  } else if (*removed > Bytes()) {
    parts_.out.Tell("manager", "objects-removed",
                    absl::StrCat(FormatBytes(*removed), " that no function and no run refers to any more"));
  }
}

}  // namespace troupe::cluster
