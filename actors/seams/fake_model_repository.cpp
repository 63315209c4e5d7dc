#include "actors/seams/fake_model_repository.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/digest.hpp"
#include "base/wire_status.hpp"

namespace troupe::actors {

namespace {

std::string NameOf(const std::string& model_digest, std::uint32_t number, std::uint32_t count) {
  return absl::StrCat(model_digest, " ", number, " of ", count);
}

}  // namespace

std::string FakeModelRepository::StageDigest(const std::string& model_digest, std::uint32_t number,
                                             std::uint32_t count) {
  return Sha256Hex("model " + NameOf(model_digest, number, count));
}

void FakeModelRepository::AddModel(const std::string& onnx_digest, proto::FunctionRecord record) {
  // Objects of the sizes that the record promises are not needed: their names are what the actors follow.
  objects_.try_emplace(record.model_digest(), "model");
  objects_.try_emplace(record.weights_digest(), "weights");
  record.set_onnx_digest(onnx_digest);
  models_[onnx_digest] = std::move(record);
}

void FakeModelRepository::Put(const std::string& bytes) {
  objects_[Sha256Hex(bytes)] = bytes;
  recent_.insert(Sha256Hex(bytes));
}

Bytes FakeModelRepository::host_bytes() const {
  Bytes sum;
  for (const auto& [digest, bytes] : adopted_) sum += bytes;
  return sum;
}

void FakeModelRepository::Receive(const std::string& upload, std::uint64_t offset, std::string data,
                                  bool last, const std::string& digest, Done<std::uint64_t> done) {
  auto& bytes = receiving_[upload];
  if (offset == 0) bytes.clear();  // begun anew
  if (offset != bytes.size()) return done(absl::InvalidArgumentError("a gap in what is received"));
  bytes += data;
  const auto size = bytes.size();
  if (last) {
    const auto whole = std::move(bytes);
    receiving_.erase(upload);
    if (const auto found = Sha256Hex(whole); found != digest && !ranges_->trust)
      return done(absl::DataLossError(absl::StrCat("what was received is ", found, ", not ", digest)));
    objects_[digest] = whole;
    recent_.insert(digest);
  }
  if (!hold_receiving_) return done(size);
  held_answers_.push_back([done = std::move(done), size] { done(size); });
}

void FakeModelRepository::FinishReceiving() {
  hold_receiving_ = false;
  for (const auto& answer : std::exchange(held_answers_, {})) answer();
}

void FakeModelRepository::Upload(proto::UploadChunk chunk, Done<proto::UploadReply> done) {
  if (failing_uploads_ > 0) {
    --failing_uploads_;
    return done(absl::UnavailableError("the disk does not answer"));
  }
  proto::UploadReply reply;
  const auto name = absl::StrCat(chunk.client(), " ", chunk.digest());
  const auto begun = receiving_.find(name);
  const std::uint64_t at = begun == receiving_.end() ? 0 : begun->second.size();
  reply.set_received(at);
  if (const auto whole = objects_.find(chunk.digest()); whole != objects_.end()) {
    reply.set_received(whole->second.size());
    reply.set_complete(true);
  } else if (chunk.wish() == proto::UploadChunk::DROP) {
    receiving_.erase(name);
  } else if (chunk.wish() == proto::UploadChunk::ASK) {
    if (begun == receiving_.end()) SetStatus(absl::NotFoundError("nothing of this upload has come"), reply);
  } else if (chunk.offset() != at) {
    SetStatus(absl::OutOfRangeError(absl::StrCat("the upload is at byte ", at)), reply);
  } else {
    const auto size = at + chunk.data().size();
    Receive(name, chunk.offset(), std::move(*chunk.mutable_data()), chunk.last(), chunk.digest(),
            [&](const absl::StatusOr<std::uint64_t>& received) { SetStatus(received.status(), reply); });
    reply.set_received(size);
    reply.set_complete(chunk.last() && reply.code() == 0);
  }
  done(std::move(reply));
}

// What it answers is the same in each precision.
void FakeModelRepository::Import(const ModelFile& file, const std::string& client,
                                 Done<proto::FunctionRecord> done) {
  if (!hold_imports_) return Answer(file, done);
  held_imports_.push_back({file, client, std::move(done)});
}

std::vector<proto::ImportStatus> FakeModelRepository::Imports(const std::string& onnx_digest) const {
  std::vector<proto::ImportStatus> found;
  for (std::size_t i = 0; i < held_imports_.size(); ++i) {
    if (!onnx_digest.empty() && held_imports_[i].file.onnx_digest != onnx_digest) continue;
    auto& status = found.emplace_back();
    status.set_onnx_digest(held_imports_[i].file.onnx_digest);
    status.set_stage("waiting");
    status.set_ahead(static_cast<std::uint32_t>(i));
  }
  return found;
}

std::vector<std::string> FakeModelRepository::HeldClients() const {
  std::vector<std::string> clients;
  for (const auto& held : held_imports_) clients.push_back(held.client);
  return clients;
}

void FakeModelRepository::FinishImports() {
  hold_imports_ = false;
  for (auto& held : std::exchange(held_imports_, {})) Answer(held.file, held.done);
}

void FakeModelRepository::Answer(const ModelFile& file, const Done<proto::FunctionRecord>& done) {
  const auto it = models_.find(file.onnx_digest);
  if (it == models_.end()) return done(absl::NotFoundError("this ONNX file was not received"));
  const auto& bounds = file.stages.bounds;
  const bool divided = bounds.any() && Bytes(it->second.weights_bytes()) > bounds.above;
  const auto record = divided ? StageOf(it->second, file.stages) : it->second;
  recent_.insert({record.model_digest(), record.weights_digest(), file.onnx_digest});
  done(record);
}

proto::FunctionRecord FakeModelRepository::StageOf(const proto::FunctionRecord& whole,
                                                   const proto::StageWish& wish) {
  const auto most = wish.bounds.most.count();
  const auto count = static_cast<std::uint32_t>((whole.weights_bytes() + most - 1) / most);
  auto record = whole;
  auto& stage = *record.mutable_stage();
  stage.set_number(wish.number);
  stage.set_count(count);
  // As fake workers answer: each input comes back as an output, "out_" and its name.
  const auto after = [](std::uint32_t stages, const std::string& input) {
    std::string name = input;
    for (std::uint32_t i = 0; i < stages; ++i) name.insert(0, "out_");
    return name;
  };
  for (int i = 0; i < whole.inputs_size(); ++i) {
    const auto& input = whole.inputs(i).name();
    record.mutable_inputs(i)->set_name(after(wish.number - 1, input));
    record.mutable_outputs(i)->set_name(after(wish.number, input));
    stage.add_model_outputs(after(count, input));
  }
  const auto name = NameOf(whole.model_digest(), wish.number, count);
  for (const char* part : {"model ", "weights "}) Put(part + name);
  record.set_model_digest(StageDigest(whole.model_digest(), wish.number, count));
  record.set_weights_digest(Sha256Hex("weights " + name));
  record.set_weights_bytes(whole.weights_bytes() / count);
  return record;
}

void FakeModelRepository::Keep(const proto::TensorRef& ref, Done<std::string> done) {
  const auto digest = Sha256Hex(ref.inlined());
  objects_[digest] = ref.inlined();
  recent_.insert(digest);
  done(digest);
}

void FakeModelRepository::Collect(std::set<std::string> kept, Duration, Done<Bytes> done) {
  std::uint64_t removed = 0;
  std::erase_if(objects_, [&](const auto& object) {
    if (kept.contains(object.first) || recent_.contains(object.first)) return false;
    removed += object.second.size();
    return true;
  });
  recent_.clear();
  done(Bytes(removed));
}

void FakeModelRepository::Read(const proto::FetchObject& part, Done<proto::FetchReply> done) {
  const auto it = objects_.find(part.digest());
  if (it == objects_.end()) return done(absl::NotFoundError(absl::StrCat("no object ", part.digest())));
  if (part.offset() > it->second.size()) return done(absl::OutOfRangeError("behind the end of the object"));
  ReadOf(it->second, it->second.size(), part, done);
}

void FakeModelRepository::ReadReceived(const std::string& upload, std::uint64_t total,
                                       const proto::FetchObject& part, Done<proto::FetchReply> done) {
  const auto it = receiving_.find(upload);
  if (it == receiving_.end() || part.offset() + part.length() > it->second.size())
    return done(absl::NotFoundError(absl::StrCat("these bytes of upload '", upload, "' have not come")));
  ReadOf(it->second, total, part, done);
}

void FakeModelRepository::ReadOf(const std::string& whole, std::uint64_t total,
                                 const proto::FetchObject& part, const Done<proto::FetchReply>& done) {
  proto::FetchReply reply;
  reply.set_total(total + ranges_->lie);
  auto bytes = whole.substr(part.offset(), part.length());
  if (ranges_->spoil_every != 0 && ++ranges_->reads % ranges_->spoil_every == 0 && !bytes.empty()) {
    bytes.front() = static_cast<char>(bytes.front() ^ 1);
    ++ranges_->spoiled;
  }
  reply.mutable_data()->set_inlined(std::move(bytes));
  done(std::move(reply));
}

void FakeModelRepository::Digest(const proto::DigestRange& range, Done<proto::RangeDigest> done) {
  const auto it = objects_.find(range.digest());
  if (it == objects_.end()) return done(absl::NotFoundError(absl::StrCat("no object ", range.digest())));
  if (range.offset() > it->second.size()) return done(absl::OutOfRangeError("behind the end of the object"));
  proto::RangeDigest reply;
  reply.set_total(it->second.size());
  reply.set_sha256(Sha256Hex(it->second.substr(range.offset(), range.length())));
  done(std::move(reply));
}

void FakeModelRepository::Release(std::uint64_t) {}

void FakeModelRepository::Load(const proto::TensorRef& ref, const std::string& sha256, Duration,
                               Done<std::string> done) {
  if (!sha256.empty() && !ranges_->trust && Sha256Hex(ref.inlined()) != sha256)
    return done(absl::DataLossError("the bytes that came are not those of the model"));
  done(ref.inlined());
}

std::vector<std::string> FakeModelRepository::WrongObjects() const {
  std::vector<std::string> wrong;
  for (const auto& [digest, bytes] : objects_)
    if (Sha256Hex(bytes) != digest) wrong.push_back(digest);
  return wrong;
}

std::size_t FakeModelRepository::CopiesOf(const std::string& key) const {
  return static_cast<std::size_t>(std::count_if(adopted_.begin(), adopted_.end(),
                                                [&](const auto& copy) { return copy.first.second == key; }));
}

void FakeModelRepository::Adopt(const proto::FunctionRecord& function, const std::string& key,
                                Done<proto::HostCopy> done) {
  for (const auto& digest : ObjectsOf(function)) {
    if (!Has(digest)) return done(absl::NotFoundError(absl::StrCat("no object ", digest)));
    if (damaged_.erase(digest) == 0) continue;
    objects_.erase(digest);
    return done(absl::DataLossError(absl::StrCat("object ", digest, " is damaged")));
  }
  adopted_[{function.model_digest(), key}] = Bytes(function.model_bytes() + function.weights_bytes());
  proto::HostCopy copy;
  copy.set_digest("packed-" + function.model_digest());
  copy.mutable_model()->set_length(function.model_bytes());
  copy.mutable_weights()->set_length(function.weights_bytes());
  done(std::move(copy));
}

}  // namespace troupe::actors
