#include "actors/gateway/run_tensors.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/workflow_schedule.hpp"

namespace troupe::actors {

using transport::TensorData;

namespace {

// Answers once all parts have; the first failure is the answer.
template <class T>
class TensorGathering {
 public:
  TensorGathering(T result, RunTensors::Done<T> done) : result_(std::move(result)), done_(std::move(done)) {}
  T& result() { return result_; }
  void Open() { ++open_; }
  void Close(const absl::Status& status) {
    status_.Update(status);
    if (--open_ > 0) return;
    if (!status_.ok()) return done_(status_);
    done_(std::move(result_));
  }

 private:
  T result_;
  RunTensors::Done<T> done_;
  absl::Status status_;
  std::size_t open_ = 1;
};

// Of a kept tensor: with its worker or its node its bytes are gone.
absl::Status LostOr(const absl::Status& status) {
  const bool lost = absl::IsNotFound(status) || absl::IsUnavailable(status);
  return lost ? absl::DataLossError(status.message()) : status;
}

}  // namespace

void RunTensors::Read(const proto::TensorRef& ref, Done<std::string> done) {
  if (ref.has_inlined()) return done(ref.inlined());
  channel_.FetchAsync(
      ref, limits_.timeout,
      continuations_.Make<TensorData>(self_, [done = std::move(done)](absl::StatusOr<TensorData> data) {
        if (!data.ok()) return done(data.status());
        const auto bytes = data->bytes();
        done(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
      }));
}

void RunTensors::Fetch(const proto::Tensor& tensor, Done<RunValue> done) {
  Read(tensor.data(), [spec = tensor.spec(), done = std::move(done)](absl::StatusOr<std::string> bytes) {
    if (!bytes.ok()) return done(bytes.status());
    if (const auto status = cluster::CheckBytes(spec, bytes->size()); !status.ok()) return done(status);
    done(RunValue{spec, std::make_shared<const std::string>(*std::move(bytes))});
  });
}

void RunTensors::FetchParts(const RunValue& value, Done<RunValue> done) {
  auto joined = [name = value.spec.name(), done = std::move(done)](absl::StatusOr<Values> parts) {
    if (!parts.ok()) return done(parts.status());
    auto whole = JoinValues(*parts, 0);
    if (whole.ok()) whole->spec.set_name(name);
    done(std::move(whole));
  };
  auto gathering = std::make_shared<TensorGathering<Values>>(value.parts, std::move(joined));
  for (std::size_t i = 0; i < value.parts.size(); ++i) {
    if (!value.parts[i].IsKept()) continue;
    gathering->Open();
    FetchKept(value.parts[i], [gathering, i](absl::StatusOr<RunValue> part) {
      const auto status = part.status();
      if (status.ok()) gathering->result()[i] = *std::move(part);
      gathering->Close(status);
    });
  }
  gathering->Close(absl::OkStatus());
}

void RunTensors::FetchKept(const RunValue& value, Done<RunValue> done) {
  if (!value.parts.empty()) return FetchParts(value, std::move(done));
  proto::ExportTensors wish;
  *wish.add_tensors() = *value.kept;
  Call<proto::ExportedTensors>(
      self_, calls_, router_, limits_.timeout, std::move(wish),
      [this, value, done = std::move(done)](const absl::StatusOr<proto::ExportedTensors>& reply) {
        auto status = LostOr(StatusIn(reply));
        if (status.ok() && reply->places_size() != 1)
          status = absl::InternalError("no place of a kept tensor came");
        if (!status.ok()) return done(status);
        proto::Tensor tensor;
        *tensor.mutable_spec() = value.spec;
        *tensor.mutable_data() = reply->places(0);
        // It is kept at least until its bytes are here.
        Fetch(tensor, [done, holder = value.holder](absl::StatusOr<RunValue> bytes) {
          bytes.ok() ? done(std::move(bytes)) : done(LostOr(bytes.status()));
        });
      });
}

void RunTensors::Store(const Values& values, Done<Stored> done) {
  auto gathering = std::make_shared<TensorGathering<Stored>>(Stored(), std::move(done));
  for (const auto& value : values) *gathering->result().Add()->mutable_spec() = value.spec;
  for (std::size_t i = 0; i < values.size(); ++i) {
    auto* stored = gathering->result().Mutable(static_cast<int>(i));
    if (values[i].IsKept()) {
      *stored = KeptPlaceOf(values[i]);
      continue;
    }
    if (!limits_.logged) continue;
    if (values[i].bytes->size() <= limits_.inline_bytes) {
      stored->set_inlined(*values[i].bytes);
      continue;
    }
    gathering->Open();
    stored->set_blob_bytes(values[i].bytes->size());
    StoreBlob(values[i], [gathering, stored](const absl::StatusOr<std::string>& digest) {
      if (digest.ok()) stored->set_blob(*digest);
      gathering->Close(digest.status());
    });
  }
  gathering->Close(absl::OkStatus());
}

void RunTensors::StoreBlob(const RunValue& value, Done<std::string> done) {
  const auto ref = channel_.Put(std::as_bytes(std::span(*value.bytes)), value.spec.name());
  if (!ref.ok()) return done(ref.status());
  proto::StoreBlob blob;
  *blob.mutable_data()->mutable_spec() = value.spec;
  *blob.mutable_data()->mutable_data() = *ref;
  Call<proto::StoreBlobReply>(
      self_, calls_, manager_, limits_.timeout, std::move(blob),
      [this, place = *ref, done = std::move(done)](const absl::StatusOr<proto::StoreBlobReply>& reply) {
        static_cast<void>(channel_.Release(place));
        const auto status = StatusIn(reply);
        done(status.ok() ? absl::StatusOr<std::string>(reply->digest()) : status);
      });
}

void RunTensors::Load(const Stored& tensors, Done<Values> done) {
  auto gathering = std::make_shared<TensorGathering<Values>>(Values(tensors.size()), std::move(done));
  for (int i = 0; i < tensors.size(); ++i) {
    auto& value = gathering->result()[static_cast<std::size_t>(i)];
    value.spec = tensors[i].spec();
    if (tensors[i].has_kept()) {
      gathering->Open();
      gathering->Close(absl::NotFoundError(absl::StrCat("it was kept by node '", tensors[i].kept().node(),
                                                        "', for the gateway that had the run then")));
      continue;
    }
    if (!tensors[i].has_blob()) {
      value.bytes = std::make_shared<const std::string>(tensors[i].inlined());
      continue;
    }
    gathering->Open();
    LoadBlob(tensors[i].blob(), std::make_shared<std::string>(),
             [gathering, &value](absl::StatusOr<std::string> bytes) {
               const auto status = bytes.status();
               if (status.ok()) value.bytes = std::make_shared<const std::string>(*std::move(bytes));
               gathering->Close(status);
             });
  }
  gathering->Close(absl::OkStatus());
}

// Part after part: no message and no arena slice is larger than one.
void RunTensors::LoadBlob(const std::string& digest, std::shared_ptr<std::string> bytes,
                          Done<std::string> done) {
  proto::FetchObject part;
  part.set_digest(digest);
  part.set_offset(bytes->size());
  part.set_length(limits_.part_bytes);
  Call<proto::FetchReply>(
      self_, calls_, manager_, limits_.timeout, std::move(part),
      [this, digest, bytes, done = std::move(done)](const absl::StatusOr<proto::FetchReply>& reply) {
        if (const auto status = StatusIn(reply); !status.ok()) return done(status);
        Read(reply->data(), [this, digest, bytes, done, total = reply->total(),
                             release = reply->release()](absl::StatusOr<std::string> got) {
          if (release != 0 && manager_) {
            proto::ReleaseFetched message;
            message.set_release(release);
            self_->send(manager_, std::move(message));
          }
          if (!got.ok()) return done(got.status());
          bytes->append(*got);
          if (bytes->size() >= total) return done(std::move(*bytes));
          if (got->empty())
            return done(absl::DataLossError(
                absl::StrCat("blob ", digest, " ends after ", bytes->size(), " bytes of ", total)));
          LoadBlob(digest, bytes, done);
        });
      });
}

}  // namespace troupe::actors
