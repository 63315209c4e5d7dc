// STORED MODEL REPOSITORY: the production form of ModelRepository: objects on disk, imports in a child
// process, host copies in the node's region, bytes by TensorChannel; all of it on a pool of threads. A
// manager has no host region.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "actors/core/job_lines.hpp"
#include "actors/core/work_pool.hpp"
#include "actors/seams/host_copies.hpp"
#include "actors/seams/kept_uploads.hpp"
#include "actors/seams/model_importer.hpp"
#include "actors/seams/model_repository.hpp"
#include "actors/seams/offered_parts.hpp"
#include "actors/seams/queued_imports.hpp"
#include "actors/seams/range_digests.hpp"
#include "actors/seams/upload_table.hpp"
#include "gpu/import/import_runner.hpp"
#include "storage/host_segments.hpp"
#include "storage/model_repository.hpp"
#include "transport/tensor_channel.hpp"

namespace troupe::actors {

class StoredModelRepository final : public ModelRepository {
 public:
  struct Options {
    std::string import_program;  // path of troupe-import
    std::string work_directory;  // for uploads and imports; emptied at start
    gpu::ImportLimits import;
    std::string pack_target;  // what this node's devices want; empty: canonical models only
    Duration load_timeout = std::chrono::seconds(10);
    std::size_t threads = 2;
    std::size_t uploads = 64;  // objects that are received at the same time
    KeptUploads::Limits kept_uploads = {};
    std::size_t imports = 1024;  // whose results are remembered
    cluster::ImportQueue::Limits import_queue;
  };
  // `objects` and `channel` outlive it; `host` may be null (a manager).
  StoredModelRepository(Options options, storage::ModelRepository& objects, storage::HostSegments* host,
                        transport::TensorChannel& channel);
  ~StoredModelRepository() override;

  void Receive(const std::string& upload, std::uint64_t offset, std::string data, bool last,
               const std::string& digest, Done<std::uint64_t> done) override;
  void Abandon(const std::string& upload) override;
  void Upload(proto::UploadChunk chunk, Done<proto::UploadReply> done) override;
  void Import(const ModelFile& file, const std::string& client, Done<proto::FunctionRecord> done) override;
  [[nodiscard]] std::vector<proto::ImportStatus> Imports(const std::string& onnx_digest) const override;
  [[nodiscard]] ImportCounts import_counts() const { return imports_.counts(); }
  void Keep(const proto::TensorRef& ref, Done<std::string> done) override;
  void Read(const proto::FetchObject& part, Done<proto::FetchReply> done) override;
  void ReadReceived(const std::string& upload, std::uint64_t total, const proto::FetchObject& part,
                    Done<proto::FetchReply> done) override;
  void Release(std::uint64_t release) override { offered_.Release(release); }
  void Digest(const proto::DigestRange& range, Done<proto::RangeDigest> done) override;
  void Load(const proto::TensorRef& ref, const std::string& sha256, Duration timeout,
            Done<std::string> done) override;
  [[nodiscard]] bool Has(const std::string& digest) const override { return objects_.Has(digest); }
  void Collect(std::set<std::string> kept, Duration unused_for, Done<Bytes> done) override;
  [[nodiscard]] std::vector<std::string> ObjectsOf(const proto::FunctionRecord& function) const override;
  void Adopt(const proto::FunctionRecord& function, const std::string& key,
             Done<proto::HostCopy> done) override;
  void Disown(const std::string& model_digest, const std::string& key) override;

  // What a worker of this isolation key maps; without a key, a region without room.
  absl::StatusOr<storage::HostSegments::RegionPtr> RegionOf(bool without_key, const std::string& key) {
    return host_.RegionOf(without_key, key);
  }
  [[nodiscard]] storage::HostRepository::Usage host_usage() const { return host_.usage(); }
  // Bytes of objects that were offered to other processes, since the start.
  [[nodiscard]] std::uint64_t sent() const { return offered_.bytes(); }

 private:
  // Of 256 GiB of models, in ranges of 4 MiB.
  static constexpr std::size_t kRangeDigests = 1u << 16;

  struct Names {
    std::string model;
    std::string weights;
  };
  template <class T>
  void OnPool(Done<T> done, std::function<absl::StatusOr<T>()> job);
  absl::StatusOr<proto::FetchReply> ReadNow(const proto::FetchObject& part);
  [[nodiscard]] Names NamesOf(const proto::FunctionRecord& function) const;

  const Options options_;
  storage::ModelRepository& objects_;
  transport::TensorChannel& channel_;
  UploadTable uploads_;
  KeptUploads kept_uploads_;
  ModelImporter importer_;
  HostCopies host_;
  RangeDigests range_digests_{kRangeDigests};
  OfferedParts offered_;
  QueuedImports imports_;  // after all that its threads use
  // Last: its threads use all of the above. What the channel has loaded after this has gone is not waited for.
  std::shared_ptr<WorkPool> pool_;
  JobLines parts_{*pool_};  // of uploads
};

}  // namespace troupe::actors
