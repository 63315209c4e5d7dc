// IDEMPOTENCY TABLE: requests that carry a key of the client's. While the first with a key runs, others with
// the same key and body wait for its answer; an answer that went well is kept for a while and given again. In
// memory, of one gateway, bounded. Threads: any. Time is given.
//
//   a key:  absent -> running      its first request
//           running -> kept        the request was answered well
//           running -> absent      the request failed, or its answer is too large to keep: the requests that
//                                  waited get that answer, a later one runs again
//           kept -> absent         after the time `kept`, or for want of room
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "base/units.hpp"
#include "gateway/http_message.hpp"

namespace troupe::gateway {

struct IdempotencyLimits {
  Duration kept = std::chrono::seconds(60);  // an answer, from when it was given
  std::size_t max_keys = 10000;              // running and kept
  Bytes max_bytes = MiB(64);                 // of all kept answers
  Bytes max_answer = MiB(4);                 // a longer one is not kept
  std::size_t max_waiting = 64;              // requests for one key that runs
};

class IdempotencyTable {
 public:
  // An answer with its bytes in one piece, so that it can be given again.
  struct Answer {
    int code = 200;
    std::string_view content_type = "application/json";
    std::string headers;
    std::string body;
  };
  using AnswerPtr = std::shared_ptr<const Answer>;
  using Waiter = std::function<void(AnswerPtr)>;
  enum class Verdict {
    kRun,        // it is the first: Finish or Forget it
    kWait,       // `waiter` is called when the first is answered
    kKept,       // `answer` is there
    kOtherBody,  // the key was used for another request
    kFull,       // too many run, or wait for this one
  };
  struct Decision {
    Verdict verdict = Verdict::kRun;
    std::uint64_t run = 0;     // with kRun and kWait: names it
    std::uint64_t waiter = 0;  // with kWait: names it for Leave
    AnswerPtr answer{};
  };

  explicit IdempotencyTable(IdempotencyLimits limits = {}) : limits_(limits) {}

  // `fingerprint`: of the function and all of the body. A `waiter` that is kept is called once, or dropped
  // when it leaves.
  Decision Begin(const std::string& key, const std::string& fingerprint, Time now, Waiter waiter);
  // The first request is answered. The requests that wait for it are answered too, on this thread, outside
  // the table's lock.
  void Finish(const std::string& key, std::uint64_t run, const AnswerPtr& answer, Time now);
  // The first request's client has gone. True when no other request waits for it: it is forgotten, and need
  // not run.
  bool Abandon(const std::string& key, std::uint64_t run);
  // The client of a waiting request has gone: its Waiter is dropped here, unless it is being called.
  void Leave(const std::string& key, std::uint64_t waiter);

  [[nodiscard]] std::size_t size() const;
  [[nodiscard]] Bytes bytes() const;  // of kept answers

 private:
  struct Entry {
    std::string fingerprint;
    std::uint64_t run = 0;
    AnswerPtr answer;                         // null: it runs
    std::map<std::uint64_t, Waiter> waiters;  // in the order in which they came
  };
  struct Kept {
    Time until{};
    std::string key;
    std::uint64_t run = 0;
  };
  void Expire(Time now);
  void DropOldest();

  const IdempotencyLimits limits_;
  mutable std::mutex mutex_;
  std::map<std::string, Entry> entries_;  // guarded by mutex_, as all below
  std::deque<Kept> kept_;                 // oldest first
  Bytes bytes_;
  std::uint64_t next_number_ = 1;  // of runs and of waiters
};

// What one request has of the table: it runs as the first with its key, or waits for the first one's answer.
// A request without a key has nothing of it.
class IdempotencyClaim {
 public:
  explicit IdempotencyClaim(IdempotencyTable& table) : table_(table) {}

  // At most once; as IdempotencyTable::Begin.
  IdempotencyTable::Decision Begin(std::string key, const std::string& fingerprint, Time now,
                                   IdempotencyTable::Waiter waiter);
  // The request is the first with its key: others may wait for its answer.
  [[nodiscard]] bool runs() const { return run_ != 0; }
  void Finish(const IdempotencyTable::AnswerPtr& answer, Time now) { table_.Finish(key_, run_, answer, now); }
  // The client has gone. True when its request need not run, if it does.
  [[nodiscard]] bool Abandon();

 private:
  IdempotencyTable& table_;
  std::string key_;
  std::uint64_t run_ = 0;     // 0: it does not run as the first
  bool waits_ = false;        // or has been answered instead of running
  std::uint64_t waiter_ = 0;  // as which it waits; 0: it does not
};

// OK for a key that a client may choose: 1 to 128 printable characters of ASCII without spaces.
[[nodiscard]] absl::Status CheckIdempotencyKey(std::string_view key);

}  // namespace troupe::gateway
