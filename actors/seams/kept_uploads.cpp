#include "actors/seams/kept_uploads.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/digest.hpp"
#include "base/status.hpp"
#include "base/wire_status.hpp"
#include "transport/steady_clock.hpp"

namespace troupe::actors {

namespace {

constexpr std::size_t kOwnerDigits = 16;

// So that no client finds another one's upload, and a restarted manager still knows whose it is.
std::string OwnerOf(const std::string& client) {
  return Sha256Hex(client).substr(0, kOwnerDigits);
}

absl::Status NothingCame(const std::string& digest) {
  return absl::NotFoundError(
      absl::StrCat("nothing has come of an upload of ", digest, ": begin it with offset 0"));
}

absl::Status AtAnotherByte(const std::string& digest, std::uint64_t at, std::uint64_t sent) {
  return absl::OutOfRangeError(absl::StrCat("the upload of ", digest, " is at byte ", at,
                                            ", and a part that begins at byte ", sent,
                                            " was sent: go on at byte ", at));
}

}  // namespace

KeptUploads::KeptUploads(storage::ModelRepository& objects, Limits limits)
    : objects_(objects), limits_(limits) {
  for (const auto& part : objects_.Parts()) {
    Upload& upload = uploads_[part.name];
    upload.owner = part.name.substr(0, kOwnerDigits);
    upload.size = part.size;
    upload.used = transport::SteadyNow() - part.idle;
  }
}

proto::UploadReply KeptUploads::Handle(const proto::UploadChunk& chunk) {
  proto::UploadReply reply;
  if (const auto valid = storage::CheckDigest(chunk.digest()); !valid.ok()) {
    SetStatus(valid, reply);
    return reply;
  }
  const auto name = absl::StrCat(OwnerOf(chunk.client()), "-", chunk.digest());
  if (chunk.wish() == proto::UploadChunk::DROP) {
    Drop(name);
    return objects_.Has(chunk.digest()) ? Ask(name, chunk.digest()) : reply;  // a whole file stays
  }
  if (chunk.wish() == proto::UploadChunk::ASK) return Ask(name, chunk.digest());
  if (chunk.wish() == proto::UploadChunk::APPEND) return Append(name, chunk);
  SetStatus(absl::UnimplementedError("this cluster manager does not know what is asked of the upload"),
            reply);
  return reply;
}

proto::UploadReply KeptUploads::Ask(const std::string& name, const std::string& digest) {
  proto::UploadReply reply;
  if (const auto whole = objects_.Open(digest); whole.ok()) {
    reply.set_received(whole->bytes.size());
    reply.set_complete(true);
    return reply;
  }
  const std::lock_guard lock(mutex_);
  if (const auto found = uploads_.find(name); found != uploads_.end()) {
    reply.set_received(found->second.size.count());
  } else {
    SetStatus(NothingCame(digest), reply);
  }
  return reply;
}

void KeptUploads::Drop(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = uploads_.find(name);
  if (found == uploads_.end()) return;
  if (found->second.busy) {
    found->second.doomed = true;
  } else {
    Erase(found);
  }
}

proto::UploadReply KeptUploads::Append(const std::string& name, const proto::UploadChunk& chunk) {
  if (objects_.Has(chunk.digest())) {
    Drop(name);
    return Ask(name, chunk.digest());
  }
  proto::UploadReply reply;
  Upload writing;
  {
    const std::lock_guard lock(mutex_);
    if (const auto begun = Begin(name, chunk, reply); !begun.ok()) {
      SetStatus(begun, reply);
      return reply;
    }
    writing.writer = std::move(uploads_.at(name).writer);
  }
  const auto written = Write(name, chunk, writing);
  reply.set_received(writing.size.count());
  reply.set_complete(written.ok() && chunk.last());
  if (!written.ok()) SetStatus(written, reply);
  const std::lock_guard lock(mutex_);
  const auto found = uploads_.find(name);  // a busy upload is never taken away
  if (writing.gone) return uploads_.erase(found), reply;
  if (found->second.doomed) return Erase(found), reply;
  found->second.busy = false;
  found->second.used = transport::SteadyNow();
  found->second.size = writing.size;
  found->second.writer = std::move(writing.writer);
  CloseStalest();
  return reply;
}

absl::Status KeptUploads::Begin(const std::string& name, const proto::UploadChunk& chunk,
                                proto::UploadReply& reply) {
  auto found = uploads_.find(name);
  const Bytes at = found == uploads_.end() ? Bytes() : found->second.size;
  reply.set_received(at.count());
  if (found != uploads_.end() && found->second.busy) {
    return absl::AbortedError(absl::StrCat("another part of the upload of ", chunk.digest(),
                                           " is being written: wait for the answer to each part"));
  }
  if (chunk.offset() != at.count()) return AtAnotherByte(chunk.digest(), at.count(), chunk.offset());
  TROUPE_RETURN_IF_ERROR(CheckRoom(name, chunk));
  if (found == uploads_.end()) {
    MakeRoom();
    found = uploads_.try_emplace(name).first;
    found->second.owner = OwnerOf(chunk.client());
  }
  found->second.busy = true;
  return absl::OkStatus();
}

absl::Status KeptUploads::CheckRoom(const std::string& name, const proto::UploadChunk& chunk) const {
  const auto owner = OwnerOf(chunk.client());
  std::size_t count = uploads_.contains(name) ? 0 : 1;
  Bytes bytes(chunk.data().size());
  for (const auto& [each, upload] : uploads_) {
    if (upload.owner != owner) continue;
    ++count;
    bytes += upload.size;
  }
  if (count > limits_.of_client) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "this client has ", limits_.of_client,
        " unfinished uploads, as many as one client may have: finish one, or drop one that is not needed"));
  }
  if (bytes > limits_.bytes_of_client) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the unfinished uploads of this client would have ", FormatBytes(bytes), ", and ",
        FormatBytes(limits_.bytes_of_client), " are the most: finish one, or drop one that is not needed"));
  }
  return absl::OkStatus();
}

absl::Status KeptUploads::Write(const std::string& name, const proto::UploadChunk& chunk, Upload& upload) {
  if (upload.writer == nullptr) {
    TROUPE_ASSIGN_OR_RETURN(upload.writer, objects_.Continue(name));
  }
  upload.size = upload.writer->size();
  // Bytes of a part that failed half-way, or that the machine lost when it went down.
  if (upload.size.count() != chunk.offset())
    return AtAnotherByte(chunk.digest(), upload.size.count(), chunk.offset());
  if (const auto appended = upload.writer->Append(std::as_bytes(std::span(chunk.data()))); !appended.ok()) {
    // How much of the part is in the file is read when it is opened anew.
    upload.writer.reset();
    if (auto again = objects_.Continue(name); again.ok()) upload.writer = *std::move(again);
    if (upload.writer != nullptr) upload.size = upload.writer->size();
    return appended;
  }
  upload.size = upload.writer->size();
  if (!chunk.last()) return absl::OkStatus();
  const auto committed = std::exchange(upload.writer, nullptr)->Commit(chunk.digest());
  upload.gone = true;
  if (committed.ok()) return absl::OkStatus();
  upload.size = Bytes();
  // The digest has its form, so the bytes are not the ones that it names.
  if (absl::IsInvalidArgument(committed.status())) {
    return absl::DataLossError(
        absl::StrCat("the upload of ", chunk.digest(), " is dropped: ", committed.status().message()));
  }
  return committed.status();
}

void KeptUploads::Erase(Uploads::iterator upload) {
  if (const auto removed = objects_.RemovePart(upload->first); !removed.ok())
    spdlog::warn("an unfinished upload stays on the disk: {}", std::string(removed.message()));
  uploads_.erase(upload);
}

void KeptUploads::MakeRoom() {
  while (uploads_.size() >= limits_.all) {
    auto stalest = uploads_.end();
    for (auto it = uploads_.begin(); it != uploads_.end(); ++it)
      if (!it->second.busy && (stalest == uploads_.end() || it->second.used < stalest->second.used))
        stalest = it;
    if (stalest == uploads_.end()) return;  // as many threads write as there may be uploads
    Erase(stalest);
  }
}

void KeptUploads::CloseStalest() {
  Upload* stalest = nullptr;
  std::size_t open = 0;
  for (auto& [name, upload] : uploads_) {
    if (upload.writer == nullptr) continue;
    ++open;
    if (stalest == nullptr || upload.used < stalest->used) stalest = &upload;
  }
  if (open > limits_.open) stalest->writer.reset();
}

void KeptUploads::Expire() {
  const std::lock_guard lock(mutex_);
  const Time now = transport::SteadyNow();
  for (auto it = uploads_.begin(); it != uploads_.end();) {
    const auto upload = it++;
    if (!upload->second.busy && now - upload->second.used >= limits_.idle) Erase(upload);
  }
}

}  // namespace troupe::actors
