// FAKE MODEL REPOSITORY: objects and host copies in a table, answers at once, for tests. Keeps the contract
// of ModelRepository; the next operations can be made to fail.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/seams/model_repository.hpp"
#include "base/units.hpp"

namespace troupe::actors {

// What is wrong with the ranges of objects that a fake repository reads for others, or loads; shared with the test, and
// by several repositories.
struct FakeRanges {
  // One range in so many is read with a wrong first byte; 0: every range is read rightly.
  std::uint64_t spoil_every = 0;
  bool trust = false;         // the repository does not compare an object with its digest
  std::uint64_t lie = 0;      // the repository overstates each object's size by so many bytes
  std::uint64_t reads = 0;    // ranges read so far
  std::uint64_t spoiled = 0;  // of them with a wrong byte
};

class FakeModelRepository final : public ModelRepository {
 public:
  // The digest of a stage's model.
  [[nodiscard]] static std::string StageDigest(const std::string& model_digest, std::uint32_t number,
                                               std::uint32_t count);
  // What Import answers for an ONNX digest. Models are divided as an importer divides them, by their size alone.
  void AddModel(const std::string& onnx_digest, proto::FunctionRecord record);
  // An object, under the digest of its bytes.
  void Put(const std::string& bytes);
  // The next adoption that needs this object finds it damaged and sets it aside.
  void Damage(const std::string& object) { damaged_.insert(object); }
  void UseRanges(std::shared_ptr<FakeRanges> ranges) { ranges_ = std::move(ranges); }
  // The objects whose bytes are not those that their digest names.
  [[nodiscard]] std::vector<std::string> WrongObjects() const;
  // The host is started again: what is on its disk is there still.
  void LoseRegion() { adopted_.clear(); }
  [[nodiscard]] std::size_t host_copies() const { return adopted_.size(); }
  [[nodiscard]] Bytes host_bytes() const;

  void Receive(const std::string& upload, std::uint64_t offset, std::string data, bool last,
               const std::string& digest, Done<std::uint64_t> done) override;
  void Abandon(const std::string& upload) override { receiving_.erase(upload); }
  // The disk answers no writer from now on, until FinishReceiving.
  void HoldReceiving() { hold_receiving_ = true; }
  void FinishReceiving();
  // The next so many chunks of uploads are not answered by the disk.
  void FailUploads(int count) { failing_uploads_ = count; }
  [[nodiscard]] std::size_t unfinished() const { return receiving_.size(); }
  void Upload(proto::UploadChunk chunk, Done<proto::UploadReply> done) override;
  void Import(const ModelFile& file, const std::string& client, Done<proto::FunctionRecord> done) override;
  [[nodiscard]] std::vector<proto::ImportStatus> Imports(const std::string& onnx_digest) const override;
  // Imports wait from now on, until FinishImports answers them in their order.
  void HoldImports() { hold_imports_ = true; }
  void FinishImports();
  void Keep(const proto::TensorRef& ref, Done<std::string> done) override;
  void Read(const proto::FetchObject& part, Done<proto::FetchReply> done) override;
  void ReadReceived(const std::string& upload, std::uint64_t total, const proto::FetchObject& part,
                    Done<proto::FetchReply> done) override;
  void Release(std::uint64_t release) override;
  void Digest(const proto::DigestRange& range, Done<proto::RangeDigest> done) override;
  void Load(const proto::TensorRef& ref, const std::string& sha256, Duration timeout,
            Done<std::string> done) override;
  [[nodiscard]] bool Has(const std::string& digest) const override { return objects_.contains(digest); }
  void Collect(std::set<std::string> kept, Duration unused_for, Done<Bytes> done) override;
  [[nodiscard]] std::vector<std::string> ObjectsOf(const proto::FunctionRecord& function) const override {
    return {function.weights_digest(), function.model_digest()};
  }
  void Adopt(const proto::FunctionRecord& function, const std::string& key,
             Done<proto::HostCopy> done) override;
  void Disown(const std::string& model_digest, const std::string& key) override {
    adopted_.erase({model_digest, key});
  }
  // The client of each import that is held, in their order.
  [[nodiscard]] std::vector<std::string> HeldClients() const;
  // Models with a copy for this isolation key.
  [[nodiscard]] std::size_t CopiesOf(const std::string& key) const;

 private:
  struct HeldImport {
    ModelFile file;
    std::string client;
    Done<proto::FunctionRecord> done;
  };
  // A range of an object of `total` bytes, of which these have come.
  void ReadOf(const std::string& bytes, std::uint64_t total, const proto::FetchObject& part,
              const Done<proto::FetchReply>& done);
  void Answer(const ModelFile& file, const Done<proto::FunctionRecord>& done);
  // What the import of this stage comes to.
  proto::FunctionRecord StageOf(const proto::FunctionRecord& whole, const proto::StageWish& wish);

  bool hold_imports_ = false;
  bool hold_receiving_ = false;
  std::vector<std::function<void()>> held_answers_;  // to writers
  std::vector<HeldImport> held_imports_;
  std::map<std::string, std::string> objects_;
  // Put or read since the last Collect, which leaves them: the fake has no clock.
  std::set<std::string> recent_;
  std::map<std::string, std::string> receiving_;
  int failing_uploads_ = 0;
  std::map<std::string, proto::FunctionRecord> models_;
  std::map<std::pair<std::string, std::string>, Bytes> adopted_;  // by digest and isolation key
  std::set<std::string> damaged_;
  std::shared_ptr<FakeRanges> ranges_ = std::make_shared<FakeRanges>();
};

}  // namespace troupe::actors
