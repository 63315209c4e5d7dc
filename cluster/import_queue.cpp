#include "cluster/import_queue.hpp"

#include <algorithm>
#include <limits>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"

namespace troupe::cluster {

absl::Status ImportQueue::CheckClient(const std::string& name, const Client* client, Bytes size) const {
  const std::size_t files = client == nullptr ? 0 : client->files;
  const Bytes bytes = client == nullptr ? Bytes() : client->bytes;
  if (files >= limits_.client_files)
    return absl::ResourceExhaustedError(
        absl::StrCat("'", name, "' has ", files, " files that wait for their import, and ",
                     limits_.client_files, " are allowed for one client; try again when some are done"));
  if (files > 0 && bytes + size > limits_.client_bytes)
    return absl::ResourceExhaustedError(absl::StrCat(
        "the files of '", name, "' that wait for their import have ", FormatBytes(bytes),
        ", and with this one ", "of ", FormatBytes(size), " they exceed the ",
        FormatBytes(limits_.client_bytes), " that are allowed for one client; try again when some are done"));
  return absl::OkStatus();
}

absl::StatusOr<ImportQueue::Admitted> ImportQueue::Add(const std::string& client, Bytes size, Time now) {
  const auto known = clients_.find(client);
  TROUPE_RETURN_IF_ERROR(CheckClient(client, known == clients_.end() ? nullptr : &known->second, size));
  const std::size_t files = known == clients_.end() ? 0 : known->second.files;
  Admitted admitted;
  while (!waiting_.empty() && (waiting_.size() >= limits_.files || bytes_ + size > limits_.bytes)) {
    const auto most = std::max_element(clients_.begin(), clients_.end(), [](const auto& a, const auto& b) {
      return a.second.files < b.second.files;
    });
    if (most->second.files <= files + 1)
      return absl::ResourceExhaustedError(
          absl::StrCat(waiting_.size(), " files of ", FormatBytes(bytes_),
                       " wait for their import, which is all that the queue takes; try again later"));
    auto newest = std::prev(waiting_.end());
    while (newest->second.client != most->first) --newest;
    admitted.dropped.push_back(newest->first);
    Unqueue(newest);
  }
  auto [entry, fresh] = clients_.try_emplace(client);
  // A client that comes, or comes back, has no credit from the time when it asked for nothing.
  if (entry->second.files == 0) entry->second.turns = std::max(entry->second.turns, FewestTurns());
  admitted.ticket = next_++;
  waiting_.emplace(admitted.ticket, File{client, size, now});
  ++entry->second.files;
  entry->second.bytes += size;
  bytes_ += size;
  return admitted;
}

bool ImportQueue::MayBegin(const File& file, const Client& client) const {
  if (running_.size() >= limits_.jobs) return false;
  if (limits_.jobs < 2 || running_.size() + 1 < limits_.jobs) return true;
  return file.size <= limits_.small && client.running == 0;
}

bool ImportQueue::Before(const std::pair<const Ticket, File>& a, const std::pair<const Ticket, File>& b,
                         Time now) const {
  const auto rank = [&](const std::pair<const Ticket, File>& entry) {
    const Client& client = clients_.at(entry.second.client);
    const bool patient = now - entry.second.asked <= limits_.patience;
    // Among those that have waited too long the first come is first, whatever its size.
    const std::uint64_t size = patient ? entry.second.size.count() : 0;
    return std::tuple(client.running, client.turns, patient, size, entry.first);
  };
  return rank(a) < rank(b);
}

std::map<ImportQueue::Ticket, ImportQueue::File>::const_iterator ImportQueue::Next(Time now, bool any) const {
  auto best = waiting_.end();
  for (auto it = waiting_.begin(); it != waiting_.end(); ++it)
    if ((any || MayBegin(it->second, clients_.at(it->second.client))) &&
        (best == waiting_.end() || Before(*it, *best, now)))
      best = it;
  return best;
}

std::optional<ImportQueue::Ticket> ImportQueue::Begin(Time now) {
  const auto next = Next(now, false);
  if (next == waiting_.end()) return std::nullopt;
  const Ticket ticket = next->first;
  const std::string name = next->second.client;
  Unqueue(next);
  Client& client = clients_.at(name);
  ++client.turns;
  ++client.running;
  running_.emplace(ticket, name);
  ForgetIdleClients();
  return ticket;
}

void ImportQueue::End(Ticket ticket) {
  if (const auto file = waiting_.find(ticket); file != waiting_.end()) Unqueue(file);
  if (const auto run = running_.find(ticket); run != running_.end()) {
    --clients_.at(run->second).running;
    running_.erase(run);
  }
  ForgetIdleClients();
}

// Plays the queue forward on a copy: one importer after the other becomes free, in the order of tickets.
std::vector<ImportQueue::Ticket> ImportQueue::Order(Time now) const {
  ImportQueue future = *this;
  std::vector<Ticket> order;
  while (!future.waiting_.empty()) {
    if (const auto begun = future.Begin(now)) {
      order.push_back(*begun);
    } else {
      future.End(future.running_.begin()->first);
    }
  }
  return order;
}

void ImportQueue::Unqueue(std::map<Ticket, File>::const_iterator file) {
  Client& client = clients_.at(file->second.client);
  --client.files;
  client.bytes -= file->second.size;
  bytes_ -= file->second.size;
  waiting_.erase(file);
}

std::uint64_t ImportQueue::FewestTurns() const {
  std::uint64_t fewest = std::numeric_limits<std::uint64_t>::max();
  for (const auto& [name, client] : clients_)
    if (client.files > 0) fewest = std::min(fewest, client.turns);
  return fewest == std::numeric_limits<std::uint64_t>::max() ? 0 : fewest;
}

// A client that waits for nothing is remembered only for the turns that it has had more than those that wait.
void ImportQueue::ForgetIdleClients() {
  const std::uint64_t fewest = FewestTurns();
  const bool none_waits = waiting_.empty();
  std::erase_if(clients_, [&](const auto& entry) {
    const Client& client = entry.second;
    return client.files == 0 && client.running == 0 && (none_waits || client.turns <= fewest);
  });
}

}  // namespace troupe::cluster
