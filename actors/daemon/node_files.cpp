#include "actors/daemon/node_files.hpp"

#include <spdlog/spdlog.h>

#include <memory>
#include <utility>

#include "actors/daemon/usage_file.hpp"
#include "actors/node/message_file.hpp"

namespace troupe::actors {

namespace {

template <class Message>
using FilePtr = std::shared_ptr<MessageFile<Message>>;

template <class Message>
FilePtr<Message> Keep(const std::string& path, WorkPool& pool, const std::string& what,
                      const std::string& loss, Message& found) {
  auto file = std::make_shared<MessageFile<Message>>(
      path, pool,
      [what](const absl::Status& status) {
        spdlog::warn("{} not kept, which is tried again: {}", what, std::string(status.message()));
      },
      loss);
  auto read = file->Load();
  if (read.ok()) {
    found = *std::move(read);
  } else if (!absl::IsNotFound(read.status())) {
    spdlog::warn("{}", std::string(read.status().message()));
  }
  return file;
}

}  // namespace

void KeepNodeFiles(const std::string& data, const std::string& run, WorkPool& pool, NodeOptions& options) {
  const auto profiles = Keep(data + "/profiles", pool, "profiles of models",
                             "what it knew of the models will be learned anew", options.profiles);
  const auto adopted =
      Keep(data + "/adopted", pool, "adopted functions",
           "what was adopted here will be known when the manager is heard", options.remembered);
  options.save_profiles = [profiles](proto::NodeProfiles newest, NodeOptions::Saved saved) {
    profiles->Save(std::move(newest), std::move(saved));
  };
  options.save_adopted = [adopted](proto::ClusterUpdate newest, NodeOptions::Saved saved) {
    adopted->Save(std::move(newest), std::move(saved));
  };
  const std::string ledger = data + "/usage";
  auto kept = LoadUsage(ledger);
  if (!kept.warning.empty()) spdlog::warn("{}", kept.warning);
  options.usage = std::move(kept.usage);
  options.usage_is_new = kept.is_new;
  options.metering = FileMeterAccess(ledger, run, pool);
  spdlog::info("found on disk: {} functions that were adopted, profiles of {} models",
               options.remembered.functions_size(), options.profiles.models_size());
}

}  // namespace troupe::actors
