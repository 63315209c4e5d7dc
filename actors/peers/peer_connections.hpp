// PEER CONNECTIONS: the connections between processes that this process has accepted: how many there are,
// which have not ended their handshake, and which were refused and why. Connections without a handshake are
// few and short, so that a stranger that only connects uses up nothing. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "actors/peers/write_bound.hpp"
#include "base/units.hpp"

namespace troupe::actors {

class PeerConnections {
 public:
  static constexpr std::size_t kUnfinished = 64;  // beyond it the oldest one is closed
  static constexpr std::size_t kAccepted = 2048;  // beyond it a new one is closed
  static constexpr Duration kHandshake = std::chrono::seconds(5);
  static constexpr Duration kBetweenLines = std::chrono::seconds(1);

  // An accepted connection for as long as it lives. Destroyed before its descriptor is closed.
  class Ticket {
   public:
    Ticket() = default;
    Ticket(Ticket&& other) noexcept;
    Ticket& operator=(Ticket&&) = delete;
    ~Ticket();
    // It has ended its handshake.
    void Finish();
    [[nodiscard]] bool valid() const { return owner_ != nullptr; }

   private:
    friend class PeerConnections;
    struct Waiting {
      int fd;
      Time since;
    };
    PeerConnections* owner_ = nullptr;
    bool finished_ = false;
    std::list<Waiting>::iterator place_;
  };

  // Takes one line for the log, at most one each second; on any thread. Before the first connection.
  void SetLog(std::function<void(const std::string&)> log) { log_ = std::move(log); }

  // An invalid ticket when there are too many: close the connection.
  Ticket Accept(int fd, const std::string& peer, Time now);
  // Shuts down the connections whose handshake takes too long; to be called about once a second.
  void Sweep(Time now);
  // `reason`: a word for the metric. `why`: for people.
  void Refuse(const std::string& reason, const std::string& peer, const std::string& why, Time now);

  [[nodiscard]] std::map<std::string, std::uint64_t> refused() const;  // by reason
  // The newest one, as one line; empty: there was none.
  [[nodiscard]] std::string last_refusal() const;
  [[nodiscard]] std::size_t accepted() const;
  [[nodiscard]] std::size_t unfinished() const;
  // What waits until the other ends of all connections read it.
  [[nodiscard]] const std::shared_ptr<UnwrittenBytes>& unwritten() const { return unwritten_; }

 private:
  void Count(const std::string& reason, const std::string& peer, const std::string& why, Time now);

  const std::shared_ptr<UnwrittenBytes> unwritten_ = std::make_shared<UnwrittenBytes>(0);
  std::function<void(const std::string&)> log_;
  mutable std::mutex mutex_;            // guards all below
  std::list<Ticket::Waiting> waiting_;  // oldest first
  std::size_t accepted_ = 0;
  std::map<std::string, std::uint64_t> refused_;
  std::string last_;
  Time logged_ = Time::min();
  std::uint64_t unlogged_ = 0;
};

}  // namespace troupe::actors
