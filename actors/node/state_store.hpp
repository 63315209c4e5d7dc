// STATE STORE: the images of device states at this node's host, of functions and of their sequences ("function" is either
// here): in memory while the state is on no GPU (and as its safe copy while it is), and one file each in the node's data
// directory.
//
//   a worker's answer -(Save: copied, then written)-> an image -(Keep)-> the image of its function -> Forget
//                                                                      -(Unload)-> in its file only -(Load)->
//
// What the directory holds is trusted only when its digest, its function and its shapes are right. Owned by
// the node controller, in whose thread everything happens but the copying and the writing, which the pool
// does.
#pragma once

#include <caf/local_actor.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "actors/core/continuations.hpp"
#include "actors/core/work_pool.hpp"
#include "base/units.hpp"
#include "node/events.hpp"
#include "proto/worker.pb.h"
#include "transport/local_channel.hpp"

namespace troupe::actors {

struct StateStoreOptions {
  // Where images lie, for workers to map them: apart from what requests use, so that neither starves the
  // other. Null: inside the messages, as far as they hold it.
  std::shared_ptr<transport::LocalChannel> channel;
  std::string directory;      // is there; "": in memory only
  WorkPool* pool = nullptr;   // null: at once, in the caller's thread
  Bytes capacity = MiB(256);  // of all images; node::StateRooms keeps to it
};

class StateStore {
 public:
  using Done = std::function<void(absl::StatusOr<node::ImagePtr>)>;
  explicit StateStore(StateStoreOptions options) : options_(std::move(options)) {}

  // Copies the image out of its worker's arena, and has it in its file when `done` is called. It is THE image
  // only once it is kept.
  void Save(caf::local_actor* self, proto::StateImage image, Done done);
  void Keep(const node::ImagePtr& image);
  // What the directory has. NotFound: nothing. DataLoss: something that cannot be it; it is set aside.
  void Load(caf::local_actor* self, const std::string& function, std::vector<proto::TensorSpec> specs,
            Done done);
  // The same of a function, and which of its sequences the directory has something of.
  using Listed = std::function<void(absl::StatusOr<node::ImagePtr>, std::vector<std::string> sequences)>;
  void LoadWithSequences(caf::local_actor* self, const std::string& function,
                         std::vector<proto::TensorSpec> specs, const Listed& done);
  // --- states that move ---
  static constexpr std::uint64_t kLongestPart = 64 << 10;
  // A part of the text of a file, as it is when what was asked before is done.
  using PartRead = std::function<void(proto::FetchReply)>;
  void Read(caf::local_actor* self, const proto::FetchImage& part, const PartRead& done);
  // The text of another node's file, durable as the file here when `done` is called. DataLoss: it is not the image that
  // it has to be, and nothing changes.
  using Imported = std::function<void(const absl::Status&)>;
  void Import(caf::local_actor* self, const std::string& function, std::vector<proto::TensorSpec> specs,
              std::string text, Imported done);

  // Null: there is none in memory.
  [[nodiscard]] node::ImagePtr Find(const std::string& function) const;
  // What was saved last is not kept: the file becomes THE image again, or goes when there is none. A file that was imported or
  // forgotten since stays as it is.
  void Restore(caf::local_actor* self, const std::string& function);
  // Its file has the image, which is not needed in memory now. Without a directory it stays there. What was asked for before
  // comes first: a file that is to be restored gets the image from memory.
  void Unload(caf::local_actor* self, const std::string& function);
  // The function is gone: its image and its file go.
  void Forget(caf::local_actor* self, const std::string& function);

  void Resume(const proto::Continue& message) { continuations_.Resume(message); }
  // At the actor's end.
  void Clear();

 private:
  [[nodiscard]] std::vector<std::string> SequencesInMemory(const std::string& function) const;
  using Job = std::function<absl::StatusOr<node::ImagePtr>()>;
  // Those of one function go one after another: two that write its file at once would be in each other's way,
  // and the older one must not come last. A null job restores the file. `done` may be null.
  void Do(caf::local_actor* self, const std::string& function, Job job, Done done);
  void Begin(caf::local_actor* self, const std::string& function);
  [[nodiscard]] Job RestoreJob(const std::string& function);

  const StateStoreOptions options_;
  // Of one actor's continuations every one has tickets of its own.
  static constexpr std::uint64_t kFirstTicket = std::uint64_t{1} << 62U;
  Continuations continuations_{kFirstTicket};
  std::map<std::string, node::ImagePtr> images_;
  // What the file of a function may have, and is not THE image; null: part of a write that failed.
  std::map<std::string, node::ImagePtr> unkept_;
  std::map<std::string, std::deque<std::pair<Job, Done>>> jobs_;  // by function; the first is under way
};

// Where the image of this function lies in `directory`.
[[nodiscard]] std::string StateFile(const std::string& directory, const std::string& function);

}  // namespace troupe::actors
