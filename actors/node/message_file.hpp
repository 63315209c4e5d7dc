// MESSAGE FILE: one message that a node keeps on its disk and replaces as a whole: what it learned of its
// models, what it has adopted. Laid out as docs/storage-format.md says: a SHA-256 in hexadecimal, a newline,
// the message. The node role makes it and shares it with the node controller, which hands it the newest.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "actors/core/work_pool.hpp"
#include "base/status.hpp"

namespace troupe::actors {

// The bytes in a text of this layout; DataLoss: the text is damaged.
[[nodiscard]] absl::StatusOr<std::string> WithoutDigest(const std::string& text);
// A text of this layout.
[[nodiscard]] std::string Digested(const std::string& bytes);
// A file of this layout, at most 64 MiB. Both block. NotFound when there is none.
[[nodiscard]] absl::StatusOr<std::string> ReadDigested(const std::string& path);
[[nodiscard]] absl::Status WriteDigested(const std::string& path, const std::string& bytes);

// The bytes inside; threads: any.
class DigestedFile {
 public:
  // Hears how a save has ended.
  using Saved = std::function<void(absl::Status)>;
  // The directory of `path` is there. `on_error` hears, on a thread of `pool`, of saves that failed. `loss`
  // ends the sentence that tells of damage: what follows from it.
  DigestedFile(std::string path, WorkPool& pool, std::function<void(const absl::Status&)> on_error,
               std::string loss);

  // Blocks: for the start. NotFound when there is none yet; DataLoss when it is damaged.
  [[nodiscard]] absl::StatusOr<std::string> Load() const;
  [[nodiscard]] absl::Status Damaged() const;
  // Returns at once; `bytes` is called on a thread of the pool. One save at a time; of the saves that come
  // meanwhile only the newest is written. `saved` hears, on a thread of the pool or at once, how the save ended
  // that wrote these bytes or newer ones.
  void Save(std::function<std::string()> bytes, Saved saved);

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the save under way, which may outlive this object
  WorkPool& pool_;
};

template <class Message>
class MessageFile {
 public:
  MessageFile(std::string path, WorkPool& pool, std::function<void(const absl::Status&)> on_error,
              std::string loss)
      : file_(std::move(path), pool, std::move(on_error), std::move(loss)) {}

  // As DigestedFile.
  [[nodiscard]] absl::StatusOr<Message> Load() const {
    TROUPE_ASSIGN_OR_RETURN(const std::string bytes, file_.Load());
    Message message;
    if (!message.ParseFromString(bytes)) return file_.Damaged();
    return message;
  }
  void Save(Message message, DigestedFile::Saved saved) {
    file_.Save([shared = std::make_shared<const Message>(
                    std::move(message))] { return shared->SerializeAsString(); },
               std::move(saved));
  }

 private:
  DigestedFile file_;
};

}  // namespace troupe::actors
