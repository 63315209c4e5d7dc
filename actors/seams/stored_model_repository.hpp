// STORED MODEL REPOSITORY: the production form of ModelRepository: objects on disk, imports in a child
// process, host copies in the node's region, bytes by TensorChannel; all of it on a pool of threads. A
// manager has no host region.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/core/work_pool.hpp"
#include "actors/seams/model_repository.hpp"
#include "actors/seams/queued_imports.hpp"
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
    std::size_t uploads = 64;    // at the same time
    std::size_t imports = 1024;  // whose results are remembered
    cluster::ImportQueue::Limits import_queue;
  };
  // `objects` and `channel` outlive it; `host` may be null (a manager).
  StoredModelRepository(Options options, storage::ModelRepository& objects, storage::HostSegments* host,
                        transport::TensorChannel& channel);
  ~StoredModelRepository() override;

  void Receive(const std::string& upload, std::uint64_t offset, std::string data, bool last,
               const std::string& digest, Done<std::uint64_t> done) override;
  void Import(const std::string& onnx_digest, const std::string& client,
              Done<proto::FunctionRecord> done) override;
  [[nodiscard]] std::vector<proto::ImportStatus> Imports(const std::string& onnx_digest) const override;
  [[nodiscard]] ImportCounts import_counts() const { return imports_.counts(); }
  void Keep(const proto::TensorRef& ref, Done<std::string> done) override;
  void Read(const proto::FetchObject& part, Done<proto::FetchReply> done) override;
  void Release(std::uint64_t release) override;
  void Load(const proto::TensorRef& ref, Done<std::string> done) override;
  [[nodiscard]] bool Has(const std::string& digest) const override { return objects_.Has(digest); }
  void Collect(std::set<std::string> kept, Duration unused_for, Done<Bytes> done) override;
  [[nodiscard]] std::vector<std::string> ObjectsOf(const proto::FunctionRecord& function) const override;
  void Adopt(const proto::FunctionRecord& function, const std::string& key,
             Done<proto::HostCopy> done) override;
  void Disown(const std::string& model_digest, const std::string& key) override;

  // What a worker of this isolation key maps; without a key, a region without room.
  absl::StatusOr<storage::HostSegments::RegionPtr> RegionOf(bool without_key, const std::string& key);

  [[nodiscard]] storage::HostRepository::Usage host_usage() const;

 private:
  struct Upload {
    // Of the caller that made it busy.
    std::unique_ptr<storage::ObjectWriter> writer;
    std::uint64_t received = 0;
    // Guarded by mutex_.
    bool busy = false;       // a part is being written, by one thread
    std::uint64_t used = 0;  // order of the last use: the stalest goes when there are too many
  };
  struct Names {
    std::string model;
    std::string weights;
  };
  template <class T>
  void OnPool(Done<T> done, std::function<absl::StatusOr<T>()> job);
  absl::StatusOr<std::uint64_t> Append(const std::string& upload, std::uint64_t offset,
                                       const std::string& data, bool last, const std::string& digest);
  // Aborted while another part of it is being written; InvalidArgument when it is not at `offset`.
  absl::StatusOr<std::shared_ptr<Upload>> BeginPart(const std::string& name, std::uint64_t offset);
  void EndPart(const std::string& name, const std::shared_ptr<Upload>& upload, bool over);
  absl::StatusOr<std::uint64_t> Write(const std::string& name, Upload& upload, const std::string& data,
                                      bool last, const std::string& digest);
  absl::StatusOr<proto::FunctionRecord> ImportNow(const std::string& onnx_digest,
                                                  const gpu::OnImportProgress& on_progress);
  absl::StatusOr<proto::FunctionRecord> ImportAnew(const std::string& onnx_digest,
                                                   const gpu::OnImportProgress& on_progress);
  // What the same file came to before, if its objects are still there.
  [[nodiscard]] std::optional<proto::FunctionRecord> ImportedBefore(const std::string& onnx_digest) const;
  absl::Status StoreFolder(const std::string& folder, const std::string& digest, Names* names,
                           std::uint64_t* model_bytes, std::uint64_t* weights_bytes);
  absl::StatusOr<proto::FetchReply> ReadNow(const proto::FetchObject& part);
  absl::StatusOr<proto::HostCopy> AdoptNow(const proto::FunctionRecord& function, const std::string& key);
  void GiveBackNow();
  [[nodiscard]] Names NamesOf(const proto::FunctionRecord& function) const;

  const Options options_;
  storage::ModelRepository& objects_;
  storage::HostSegments* const host_;
  transport::TensorChannel& channel_;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Upload>> uploads_;  // guarded by mutex_
  std::uint64_t upload_clock_ = 0;                          // guarded by mutex_
  std::map<std::uint64_t, proto::TensorRef> unreleased_;    // guarded by mutex_
  std::uint64_t next_release_ = 1;                          // guarded by mutex_
  std::map<std::string, proto::FunctionRecord> imported_;   // by ONNX digest; guarded by mutex_
  // (canonical digest, isolation key) -> adopted digest; guarded by host_mutex_
  std::map<std::pair<std::string, std::string>, std::string> host_names_;
  mutable std::mutex host_mutex_;  // HostSegments wants one caller at a time
  std::atomic<std::uint64_t> next_folder_{1};
  QueuedImports imports_;  // after all that its threads use
  WorkPool pool_;          // last: its threads use all of the above
};

}  // namespace troupe::actors
