// MODEL HOMES: which model has which GPU, for as long as the `binding` slot says.
#pragma once

#include <string>
#include <vector>

#include "node/scheduling/reservations.hpp"
#include "node/scheduling/scheduler_tables.hpp"

namespace troupe::node {

class ModelHomes {
 public:
  ModelHomes(SchedulerTables& tables, Reservations& reservations)
      : tables_(tables), reservations_(reservations) {}

  // Gives a model its GPU, the one with the fewest bytes of others; again when that GPU can never hold it.
  void Bind(ModelId model);
  // A request for the model came: false when it has no GPU, and none has room for it.
  [[nodiscard]] bool KeepRoom(ModelId model, Time now, std::vector<Eviction>& evictions);
  [[nodiscard]] static absl::Status NoRoomKept(const std::string& function, const ModelEntry& model);

 private:
  [[nodiscard]] bool FitsOn(ModelId model, std::uint32_t device) const;
  [[nodiscard]] FunctionBinding::Devices DevicesFor(ModelId model) const;

  SchedulerTables& tables_;
  Reservations& reservations_;
};

}  // namespace troupe::node
