// IMPORT QUEUE: which uploaded file is imported next. Pure: the caller gives the time and runs the imports.
//
// The order. Clients take turns: the client with the fewest running imports is served, and of those the one
// that has had the fewest turns, so that a client with a hundred files is one turn ahead of another at most.
// Between clients with equally many turns, and between the files of one client, the smaller file goes first.
// A file that has waited longer than Limits::patience goes before every file of its client that has not, and
// before the files of clients with equally many turns; so a large file is delayed and never starved.
//
// The kept importer. With two importers or more the last free one takes only a file of at most
// Limits::small bytes, and only of a client that has no import running. So neither large files nor one client
// hold all importers.
//
// The bounds. Files that wait are bounded in count and bytes, for each client and for all. A client at its
// own bound is refused alone. At the bound of all, a client below its even share is admitted, and the newest
// file of the client with the most waiting files is dropped for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.hpp"

namespace troupe::cluster {

class ImportQueue {
 public:
  using Ticket = std::uint64_t;
  struct Limits {
    std::size_t jobs = 2;  // imports that run at the same time; 1 at least
    Bytes small = MiB(16);
    Duration patience = std::chrono::seconds(60);
    std::size_t client_files = 64;
    Bytes client_bytes = GiB(8);
    std::size_t files = 256;
    Bytes bytes = GiB(64);
  };
  explicit ImportQueue(Limits limits) : limits_(limits) {}

  struct Admitted {
    Ticket ticket = 0;
    std::vector<Ticket> dropped;  // files of other clients that made room; they wait no longer
  };
  // RESOURCE_EXHAUSTED, with the bound that was met, when the client has to wait with this file.
  [[nodiscard]] absl::StatusOr<Admitted> Add(const std::string& client, Bytes size, Time now);
  // The next file to import, which runs from now on until End; empty when none may begin.
  [[nodiscard]] std::optional<Ticket> Begin(Time now);
  // Its import ended, or it is wanted no longer. Unknown tickets are ignored.
  void End(Ticket ticket);
  // The files that wait, in the order in which they begin if none is added and the running ones end in turn.
  // Costs the square of their number.
  [[nodiscard]] std::vector<Ticket> Order(Time now) const;

  [[nodiscard]] std::size_t waiting() const { return waiting_.size(); }
  [[nodiscard]] std::size_t running() const { return running_.size(); }

 private:
  struct File {
    std::string client;
    Bytes size;
    Time asked;
  };
  struct Client {
    std::uint64_t turns = 0;
    std::size_t running = 0;
    std::size_t files = 0;  // that wait
    Bytes bytes;
  };
  [[nodiscard]] bool MayBegin(const File& file, const Client& client) const;
  [[nodiscard]] bool Before(const std::pair<const Ticket, File>& a, const std::pair<const Ticket, File>& b,
                            Time now) const;
  // Of the files that may begin now, or (`any`) of all that wait.
  [[nodiscard]] std::map<Ticket, File>::const_iterator Next(Time now, bool any) const;
  [[nodiscard]] absl::Status CheckClient(const std::string& name, const Client* client, Bytes size) const;
  void Unqueue(std::map<Ticket, File>::const_iterator file);
  // Fewest turns of the clients that wait: what a client that comes begins with.
  [[nodiscard]] std::uint64_t FewestTurns() const;
  void ForgetIdleClients();

  Limits limits_;
  Ticket next_ = 1;
  std::map<Ticket, File> waiting_;
  std::map<Ticket, std::string> running_;  // ticket -> client
  std::map<std::string, Client> clients_;
  Bytes bytes_;  // of all that wait
};

}  // namespace troupe::cluster
