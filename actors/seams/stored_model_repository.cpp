#include "actors/seams/stored_model_repository.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/digest.hpp"
#include "base/status.hpp"
#include "proto/pack_target.hpp"

namespace troupe::actors {

namespace {

constexpr std::uint64_t kMaxPart = 8u << 20;

// The bytes of an object that a question names.
template <class Question>
absl::StatusOr<std::span<const std::byte>> RangeOf(const storage::ObjectBytes& object,
                                                   const Question& question) {
  if (question.offset() > object.bytes.size()) {
    return absl::OutOfRangeError(absl::StrCat("object ", question.digest(), " has ", object.bytes.size(),
                                              " bytes; byte ", question.offset(), " was asked for"));
  }
  const auto rest = object.bytes.size() - question.offset();
  return object.bytes.subspan(question.offset(), std::min({question.length(), kMaxPart, rest}));
}

std::string DigestOf(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.Update(bytes);
  return hash.Finish();
}

// Another process of this host may write to what it sent: the copy is compared.
absl::StatusOr<std::string> Compared(std::span<const std::byte> bytes, const std::string& sha256) {
  std::string copy(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (sha256.empty()) return copy;
  if (const auto found = DigestOf(std::as_bytes(std::span(copy))); found != sha256) {
    return absl::DataLossError(absl::StrCat("the ", copy.size(), " bytes that came have digest ", found,
                                            ", and those of the model have ", sha256));
  }
  return copy;
}

}  // namespace

StoredModelRepository::StoredModelRepository(Options options, storage::ModelRepository& objects,
                                             storage::HostSegments* host, transport::TensorChannel& channel)
    : options_(std::move(options)),
      objects_(objects),
      channel_(channel),
      uploads_(objects, options_.uploads),
      kept_uploads_(objects, options_.kept_uploads),
      importer_({options_.import_program, options_.work_directory, options_.import, options_.imports},
                objects),
      host_(objects, host),
      offered_(channel),
      imports_(options_.import_queue,
               [this](const ModelFile& file, const gpu::OnImportProgress& on_progress) {
                 return importer_.Import(file, on_progress);
               }),
      pool_(std::make_shared<WorkPool>(options_.threads)) {}

StoredModelRepository::~StoredModelRepository() {
  pool_->Stop();
}

template <class T>
void StoredModelRepository::OnPool(Done<T> done, std::function<absl::StatusOr<T>()> job) {
  auto shared = std::make_shared<Done<T>>(std::move(done));
  const auto status = pool_->Post([shared, job = std::move(job)] { (*shared)(job()); });
  if (!status.ok()) (*shared)(status);
}

void StoredModelRepository::Receive(const std::string& upload, std::uint64_t offset, std::string data,
                                    bool last, const std::string& digest, Done<std::uint64_t> done) {
  OnPool<std::uint64_t>(std::move(done), [this, upload, offset, data = std::move(data), last, digest] {
    return uploads_.Append(upload, offset, data, last, digest);
  });
}

void StoredModelRepository::Abandon(const std::string& upload) {
  // Should the pool be full, the upload goes when there are too many.
  static_cast<void>(pool_->Post([this, upload] { uploads_.Abandon(upload); }));
}

void StoredModelRepository::Upload(proto::UploadChunk chunk, Done<proto::UploadReply> done) {
  auto shared = std::make_shared<Done<proto::UploadReply>>(std::move(done));
  const auto upload = absl::StrCat(chunk.digest(), " ", chunk.client());
  const auto posted = parts_.Post(
      upload, [this, shared, chunk = std::move(chunk)] { (*shared)(kept_uploads_.Handle(chunk)); });
  if (!posted.ok()) (*shared)(posted);
}

void StoredModelRepository::Import(const ModelFile& file, const std::string& client,
                                   Done<proto::FunctionRecord> done) {
  // What it came to before is looked up on the pool: that asks the disk.
  auto shared = std::make_shared<Done<proto::FunctionRecord>>(std::move(done));
  const auto posted = pool_->Post([this, file, client, shared] {
    if (auto before = importer_.Before(file)) return (*shared)(*std::move(before));
    Bytes size;
    {
      const auto object = objects_.Open(file.onnx_digest);
      if (!object.ok()) return (*shared)(object.status());
      size = Bytes(object->bytes.size());
    }
    imports_.Add(file, client, size, std::move(*shared));
  });
  if (!posted.ok()) (*shared)(posted);
}

std::vector<proto::ImportStatus> StoredModelRepository::Imports(const std::string& onnx_digest) const {
  return imports_.Describe(onnx_digest);
}

void StoredModelRepository::Keep(const proto::TensorRef& ref, Done<std::string> done) {
  OnPool<std::string>(std::move(done), [this, ref]() -> absl::StatusOr<std::string> {
    TROUPE_ASSIGN_OR_RETURN(const auto data, channel_.Fetch(ref, options_.load_timeout));
    return objects_.Put(data.bytes());
  });
}

void StoredModelRepository::Collect(std::set<std::string> kept, Duration unused_for, Done<Bytes> done) {
  OnPool<Bytes>(std::move(done), [this, kept = std::move(kept), unused_for]() -> absl::StatusOr<Bytes> {
    kept_uploads_.Expire();
    TROUPE_ASSIGN_OR_RETURN(const auto removed, objects_.Collect(kept, unused_for));
    Bytes sum;
    for (const auto& object : removed) sum += object.size;
    return sum;
  });
}

void StoredModelRepository::Read(const proto::FetchObject& part, Done<proto::FetchReply> done) {
  OnPool<proto::FetchReply>(std::move(done), [this, part] { return ReadNow(part); });
}

absl::StatusOr<proto::FetchReply> StoredModelRepository::ReadNow(const proto::FetchObject& part) {
  TROUPE_ASSIGN_OR_RETURN(const auto object, objects_.Open(part.digest()));
  TROUPE_ASSIGN_OR_RETURN(const auto bytes, RangeOf(object, part));
  return offered_.Offer(bytes, object.bytes.size(), part.digest());
}

void StoredModelRepository::ReadReceived(const std::string& upload, std::uint64_t total,
                                         const proto::FetchObject& part, Done<proto::FetchReply> done) {
  OnPool<proto::FetchReply>(std::move(done),
                            [this, upload, total, part]() -> absl::StatusOr<proto::FetchReply> {
                              const auto length = std::min(part.length(), kMaxPart);
                              const auto bytes = uploads_.Read(upload, part.offset(), length);
                              // Its last part may have come just now.
                              if (!bytes.ok())
                                return objects_.Has(part.digest()) ? ReadNow(part) : bytes.status();
                              return offered_.Offer(std::as_bytes(std::span(*bytes)), total, part.digest());
                            });
}

void StoredModelRepository::Digest(const proto::DigestRange& range, Done<proto::RangeDigest> done) {
  OnPool<proto::RangeDigest>(std::move(done), [this, range]() -> absl::StatusOr<proto::RangeDigest> {
    TROUPE_ASSIGN_OR_RETURN(const auto object, objects_.Open(range.digest()));
    TROUPE_ASSIGN_OR_RETURN(const auto bytes, RangeOf(object, range));
    proto::RangeDigest reply;
    reply.set_total(object.bytes.size());
    auto sha256 = range_digests_.Find(range.digest(), range.offset(), bytes.size());
    if (!sha256) {
      sha256 = DigestOf(bytes);
      range_digests_.Keep(range.digest(), range.offset(), bytes.size(), *sha256);
    }
    reply.set_sha256(*std::move(sha256));
    return reply;
  });
}

// The transfers run on the channel's thread, so that no thread of the pool waits for one of them.
void StoredModelRepository::Load(const proto::TensorRef& ref, const std::string& sha256, Duration timeout,
                                 Done<std::string> done) {
  const auto loaded = [pool = std::weak_ptr(pool_), sha256,
                       done = std::move(done)](absl::StatusOr<transport::TensorData> data) {
    if (!data.ok()) return done(data.status());
    const auto alive = pool.lock();
    if (alive == nullptr) return done(absl::CancelledError("this process ends"));
    const auto status =
        alive->Post([data = *std::move(data), sha256, done] { done(Compared(data.bytes(), sha256)); });
    if (!status.ok()) done(status);
  };
  // Of this host an arena that is seen for the first time has to be asked for, which may block.
  if (!channel_.Near(ref)) return channel_.FetchAsync(ref, timeout, loaded);
  const auto status =
      pool_->Post([this, ref, timeout, loaded] { channel_.FetchAsync(ref, timeout, loaded); });
  if (!status.ok()) loaded(status);
}

StoredModelRepository::Names StoredModelRepository::NamesOf(const proto::FunctionRecord& function) const {
  for (const auto& packed : function.packed())
    if (!options_.pack_target.empty() && proto::IsPackedFor(packed.target(), options_.pack_target))
      return {packed.model_digest(), packed.weights_digest()};
  return {function.model_digest(), function.weights_digest()};
}

std::vector<std::string> StoredModelRepository::ObjectsOf(const proto::FunctionRecord& function) const {
  const auto names = NamesOf(function);
  return {names.weights, names.model};
}

void StoredModelRepository::Adopt(const proto::FunctionRecord& function, const std::string& key,
                                  Done<proto::HostCopy> done) {
  OnPool<proto::HostCopy>(std::move(done), [this, function, key] {
    return host_.Adopt(function.model_digest(), NamesOf(function).model, key);
  });
}

void StoredModelRepository::Disown(const std::string& model_digest, const std::string& key) {
  if (!host_.Disown(model_digest, key)) return;
  // Should the pool be full, the next adoption gives it back.
  static_cast<void>(pool_->Post([this] { host_.GiveBack(); }));
}

}  // namespace troupe::actors
