#include "actors/seams/upload_table.hpp"

#include <algorithm>
#include <span>

#include "absl/strings/str_cat.h"
#include "base/status.hpp"

namespace troupe::actors {

absl::StatusOr<std::uint64_t> UploadTable::Append(const std::string& name, std::uint64_t offset,
                                                  const std::string& data, bool last,
                                                  const std::string& digest) {
  TROUPE_ASSIGN_OR_RETURN(const auto upload, BeginPart(name, offset));
  const auto size = Write(name, *upload, data, last, digest);
  // After an error it is unknown how much of the part is in the file: the upload begins again.
  EndPart(name, upload, last || !size.ok());
  return size;
}

absl::StatusOr<std::shared_ptr<UploadTable::Upload>> UploadTable::BeginPart(const std::string& name,
                                                                            std::uint64_t offset) {
  const std::lock_guard lock(mutex_);
  // A part at offset 0 starts a new upload with a new file. A thread that still writes a part of the earlier upload
  // goes on in the earlier file.
  if (offset == 0) uploads_[name] = std::make_shared<Upload>();
  const auto found = uploads_.find(name);
  if (found != uploads_.end() && found->second->busy) {
    return absl::AbortedError(absl::StrCat("upload '", name, "' was sent byte ", offset,
                                           " while the part before is being written: wait for the answer to",
                                           " each part, or begin again at 0"));
  }
  const auto received = found == uploads_.end() ? 0 : found->second->received;
  if (offset != received) {
    return absl::InvalidArgumentError(absl::StrCat("upload '", name, "' is at byte ", received, ", and byte ",
                                                   offset, " was sent: begin again at 0"));
  }
  auto upload = found->second;
  upload->busy = true;
  upload->used = ++clock_;
  if (uploads_.size() > most_) {
    uploads_.erase(std::min_element(uploads_.begin(), uploads_.end(), [](const auto& a, const auto& b) {
      return a.second->used < b.second->used;
    }));
  }
  return upload;
}

void UploadTable::EndPart(const std::string& name, const std::shared_ptr<Upload>& upload, bool over) {
  const std::lock_guard lock(mutex_);
  upload->busy = false;
  upload->readable = upload->received;
  const auto found = uploads_.find(name);
  if (over && found != uploads_.end() && found->second == upload) uploads_.erase(found);
}

void UploadTable::Abandon(const std::string& name) {
  std::shared_ptr<Upload> upload;  // goes without the lock, since that removes a file
  {
    const std::lock_guard lock(mutex_);
    if (auto node = uploads_.extract(name)) upload = std::move(node.mapped());
  }
}

absl::StatusOr<std::string> UploadTable::Read(const std::string& name, std::uint64_t offset,
                                              std::uint64_t length) {
  std::shared_ptr<const storage::AppendedBytes> appended;
  {
    const std::lock_guard lock(mutex_);
    const auto found = uploads_.find(name);
    if (found == uploads_.end() || found->second->appended == nullptr || offset > found->second->readable ||
        length > found->second->readable - offset)
      return absl::NotFoundError(
          absl::StrCat("bytes ", offset, " to ", offset + length, " of upload '", name, "' have not come"));
    appended = found->second->appended;
  }
  return appended->Read(Bytes(offset), Bytes(length));
}

absl::StatusOr<std::uint64_t> UploadTable::Write(const std::string& name, Upload& upload,
                                                 const std::string& data, bool last,
                                                 const std::string& digest) {
  if (upload.writer == nullptr) {
    TROUPE_ASSIGN_OR_RETURN(upload.writer, objects_.Create());
    TROUPE_ASSIGN_OR_RETURN(auto appended, upload.writer->Appended());
    const std::lock_guard lock(mutex_);
    upload.appended = std::move(appended);
  }
  TROUPE_RETURN_IF_ERROR(upload.writer->Append(std::as_bytes(std::span(data))));
  upload.received += data.size();
  if (!last) return upload.received;
  TROUPE_RETURN_IF_ERROR(storage::CheckDigest(digest));
  const auto stored = upload.writer->Commit(digest);
  // The digest has its form, so the bytes are not the ones it names.
  if (absl::IsInvalidArgument(stored.status()))
    return absl::DataLossError(absl::StrCat("upload '", name, "': ", stored.status().message()));
  TROUPE_RETURN_IF_ERROR(stored.status());
  return upload.received;
}

}  // namespace troupe::actors
