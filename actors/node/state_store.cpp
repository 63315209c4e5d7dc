#include "actors/node/state_store.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/node/message_file.hpp"
#include "base/status.hpp"
#include "base/wire_status.hpp"
#include "cluster/function_state.hpp"
#include "proto/sequence_id.hpp"
#include "storage/durable_file.hpp"

namespace troupe::actors {

namespace {

using Channel = std::shared_ptr<transport::LocalChannel>;

// Of one image; an order has to fit its ring.
constexpr Bytes kInlined = KiB(128);
constexpr std::size_t kLargestFile = std::size_t{2} << 30U;

// One image. Its references are valid as long as it lives.
class KeptState {
 public:
  KeptState(proto::StateImage image, Channel channel)
      : image_(std::move(image)), channel_(std::move(channel)) {}
  ~KeptState() {
    if (channel_ == nullptr) return;
    for (const auto& tensor : image_.tensors()) static_cast<void>(channel_->Release(tensor.data()));
  }
  KeptState(const KeptState&) = delete;
  KeptState& operator=(const KeptState&) = delete;
  [[nodiscard]] const proto::StateImage& image() const { return image_; }

 private:
  const proto::StateImage image_;
  const Channel channel_;
};

node::ImagePtr Kept(proto::StateImage image, const Channel& channel) {
  const auto kept = std::make_shared<const KeptState>(std::move(image), channel);
  return {kept, &kept->image()};  // the last owner of the image frees its tensors
}

// What the bytes of a reference are, and what keeps them.
absl::StatusOr<transport::TensorData> Read(const Channel& channel, const proto::TensorRef& ref) {
  if (channel != nullptr && ref.has_arena()) return channel->Fetch(ref);
  return transport::InlineData(ref);
}

absl::StatusOr<proto::TensorRef> Put(transport::LocalChannel& channel, std::span<const std::byte> bytes,
                                     Bytes& inlined) {
  const Bytes size(bytes.size());
  const bool small = size <= transport::kInlineLimit && inlined + size <= kInlined;
  if (small) inlined += size;
  TROUPE_ASSIGN_OR_RETURN(auto room, small ? channel.Reserve(size) : channel.ReserveSlice(size));
  std::copy(bytes.begin(), bytes.end(), room.bytes().begin());
  return room.Commit();
}

absl::StatusOr<node::ImagePtr> Copy(const Channel& channel, const proto::StateImage& image) {
  proto::StateImage copy = image;
  for (auto& tensor : *copy.mutable_tensors()) tensor.clear_data();
  Bytes inlined;
  const auto kept = [&] { return Kept(std::move(copy), channel); };
  for (int i = 0; i < image.tensors_size(); ++i) {
    absl::Status failed;
    if (auto data = Read(channel, image.tensors(i).data()); !data.ok()) {
      failed = data.status();
    } else if (channel == nullptr) {
      *copy.mutable_tensors(i)->mutable_data() = image.tensors(i).data();
    } else {
      auto put = Put(*channel, data->bytes(), inlined);
      failed = put.status();
      if (put.ok()) *copy.mutable_tensors(i)->mutable_data() = *std::move(put);
    }
    if (failed.ok()) continue;
    static_cast<void>(kept());  // frees what was put
    return failed;
  }
  return kept();
}

// The text of its file.
absl::StatusOr<std::string> TextOf(const Channel& channel, const proto::StateImage& image) {
  proto::StateImage whole = image;
  for (auto& tensor : *whole.mutable_tensors()) {
    if (!tensor.data().has_arena()) continue;
    TROUPE_ASSIGN_OR_RETURN(const auto data, channel->Fetch(tensor.data()));
    const auto bytes = data.bytes();
    tensor.mutable_data()->set_inlined(bytes.data(), bytes.size());
  }
  return Digested(whole.SerializeAsString());
}

absl::Status Write(const std::string& path, const Channel& channel, const proto::StateImage& image) {
  TROUPE_ASSIGN_OR_RETURN(const auto text, TextOf(channel, image));
  return storage::ReplaceFile(path, text);
}

bool Same(const proto::TensorSpec& a, const proto::TensorSpec& b) {
  return a.name() == b.name() && a.type() == b.type() &&
         std::equal(a.shape().begin(), a.shape().end(), b.shape().begin(), b.shape().end());
}

// Why a file is not the image of this function; empty when it is.
std::string Wrong(const std::string& text, const std::string& function,
                  const std::vector<proto::TensorSpec>& specs, proto::StateImage& image) {
  const auto bytes = WithoutDigest(text);
  if (!bytes.ok() || !image.ParseFromString(*bytes)) return "is damaged";
  if (image.function() != function) return absl::StrCat("is of '", image.function(), "'");
  bool same = static_cast<std::size_t>(image.tensors_size()) == specs.size();
  for (std::size_t i = 0; same && i < specs.size(); ++i) {
    const proto::Tensor& tensor = image.tensors(static_cast<int>(i));
    same = Same(tensor.spec(), specs[i]) && tensor.data().has_inlined();
  }
  return same ? "" : "has other tensors than the function declares";
}

// The image of a file, where workers may map it.
absl::StatusOr<node::ImagePtr> Placed(proto::StateImage image, const Channel& channel) {
  if (channel == nullptr) return Kept(std::move(image), channel);
  Bytes inlined;
  for (auto& tensor : *image.mutable_tensors()) {
    const std::string whole = std::move(*tensor.mutable_data()->mutable_inlined());
    TROUPE_ASSIGN_OR_RETURN(*tensor.mutable_data(), Put(*channel, std::as_bytes(std::span(whole)), inlined));
  }
  return Kept(std::move(image), channel);
}

absl::StatusOr<node::ImagePtr> ReadFile(const std::string& path, const Channel& channel,
                                        const std::string& function,
                                        const std::vector<proto::TensorSpec>& specs) {
  std::error_code missing;
  const auto size = std::filesystem::file_size(path, missing);
  // The reader takes room for as much as it may find.
  TROUPE_ASSIGN_OR_RETURN(
      const std::string text,
      storage::ReadSmallFile(path, missing ? 0 : std::min<std::size_t>(size, kLargestFile)));
  proto::StateImage image;
  if (const std::string wrong = Wrong(text, function, specs, image); !wrong.empty()) {
    const std::string aside = absl::StrCat(path, ".damaged");
    static_cast<void>(std::rename(path.c_str(), aside.c_str()));
    return absl::DataLossError(absl::StrCat("'", path, "' ", wrong, "; it is kept as '", aside, "'"));
  }
  return Placed(std::move(image), channel);
}

// A part of the text of a file; what ends before it, gives less.
absl::StatusOr<proto::FetchReply> PartOf(const std::string& path, std::uint64_t offset,
                                         std::uint64_t length) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return absl::NotFoundError(absl::StrCat("there is no '", path, "'"));
  proto::FetchReply part;
  part.set_total(static_cast<std::uint64_t>(file.tellg()));
  std::string bytes(offset < part.total() ? std::min(length, part.total() - offset) : 0, '\0');
  file.seekg(static_cast<std::streamoff>(offset));
  if (!bytes.empty() && !file.read(bytes.data(), static_cast<std::streamsize>(bytes.size())))
    return absl::UnavailableError(absl::StrCat("cannot read '", path, "'"));
  part.mutable_data()->set_inlined(std::move(bytes));
  return part;
}

absl::StatusOr<proto::FetchReply> PartInMemory(const Channel& channel, const node::ImagePtr& image,
                                               const proto::FetchImage& wish) {
  if (image == nullptr) return absl::NotFoundError(absl::StrCat("there is no image of '", wish.image(), "'"));
  TROUPE_ASSIGN_OR_RETURN(const auto text, TextOf(channel, *image));
  proto::FetchReply part;
  part.set_total(text.size());
  part.mutable_data()->set_inlined(
      text.substr(std::min<std::uint64_t>(wish.offset(), text.size()), wish.length()));
  return part;
}

constexpr char kExtension[] = ".state";

// Names of functions have no '+'.
std::string NameOf(const std::string& function) {
  std::string name = function;
  for (char& c : name)
    if (c == '/' || c == '@') c = '+';
  return name;
}

// By name. Other files are none of ours, or were set aside.
absl::StatusOr<std::vector<std::string>> SequencesIn(const std::string& directory,
                                                     const std::string& function) {
  const std::string prefix = NameOf(cluster::SequencePrefix(function));
  std::vector<std::string> sequences;
  std::error_code failed;
  for (std::filesystem::directory_iterator at(directory, failed), end; !failed && at != end;
       at.increment(failed)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with(prefix) || !name.ends_with(kExtension)) continue;
    const auto id = name.substr(prefix.size(), name.size() - prefix.size() - std::strlen(kExtension));
    if (proto::IsSequenceId(id)) sequences.push_back(id);
  }
  if (failed)
    return absl::UnavailableError(absl::StrCat("cannot list '", directory, "': ", failed.message()));
  std::sort(sequences.begin(), sequences.end());
  return sequences;
}

}  // namespace

std::string StateFile(const std::string& directory, const std::string& function) {
  return absl::StrCat(directory, "/", NameOf(function), kExtension);
}

void StateStore::Do(caf::local_actor* self, const std::string& function, Job job, Done done) {
  auto& jobs = jobs_[function];
  jobs.emplace_back(std::move(job), std::move(done));
  if (jobs.size() == 1) Begin(self, function);
}

void StateStore::Begin(caf::local_actor* self, const std::string& function) {
  auto job = std::move(jobs_.at(function).front().first);
  if (job == nullptr) job = RestoreJob(function);
  const Done ended = [this, self, function](absl::StatusOr<node::ImagePtr> result) {
    const auto done = std::move(jobs_.at(function).front().second);
    if (done) done(std::move(result));  // may add more
    const auto jobs = jobs_.find(function);
    if (jobs == jobs_.end()) return;  // cleared
    jobs->second.pop_front();
    jobs->second.empty() ? static_cast<void>(jobs_.erase(jobs)) : Begin(self, function);
  };
  if (options_.pool == nullptr) return ended(job());
  const auto answer = continuations_.Make<node::ImagePtr>(self, ended);
  // A job that is refused is destroyed, and its continuation told so.
  static_cast<void>(options_.pool->Post([job = std::move(job), answer] { answer(job()); }));
}

void StateStore::Save(caf::local_actor* self, proto::StateImage image, Done done) {
  const std::string function = image.function();
  Do(
      self, function,
      [channel = options_.channel, directory = options_.directory,
       image = std::move(image)]() -> absl::StatusOr<node::ImagePtr> {
        TROUPE_ASSIGN_OR_RETURN(auto kept, Copy(channel, image));
        if (!directory.empty()) {
          TROUPE_RETURN_IF_ERROR(Write(StateFile(directory, image.function()), channel, *kept));
        }
        return kept;
      },
      [this, function, done = std::move(done)](absl::StatusOr<node::ImagePtr> kept) {
        unkept_[function] = kept.ok() ? *kept : nullptr;
        done(std::move(kept));
      });
}

void StateStore::Load(caf::local_actor* self, const std::string& function,
                      std::vector<proto::TensorSpec> specs, Done done) {
  if (options_.directory.empty()) {
    if (auto image = Find(function)) return done(std::move(image));  // that was unloaded
    return done(absl::NotFoundError("nothing is kept on disk"));
  }
  Do(
      self, function,
      [channel = options_.channel, path = StateFile(options_.directory, function), function,
       specs = std::move(specs)] { return ReadFile(path, channel, function, specs); },
      std::move(done));
}

std::vector<std::string> StateStore::SequencesInMemory(const std::string& function) const {
  const auto prefix = cluster::SequencePrefix(function);
  std::vector<std::string> sequences;
  for (auto at = images_.lower_bound(prefix); at != images_.end() && at->first.starts_with(prefix); ++at)
    sequences.push_back(at->first.substr(prefix.size()));
  return sequences;
}

void StateStore::LoadWithSequences(caf::local_actor* self, const std::string& function,
                                   std::vector<proto::TensorSpec> specs, const Listed& done) {
  if (options_.directory.empty()) {
    const auto sequences = SequencesInMemory(function);
    return Load(self, function, std::move(specs), [done, sequences](absl::StatusOr<node::ImagePtr> image) {
      done(std::move(image), sequences);
    });
  }
  auto found = std::make_shared<std::vector<std::string>>();
  Do(
      self, function,
      [channel = options_.channel, directory = options_.directory, function, specs = std::move(specs),
       found]() -> absl::StatusOr<node::ImagePtr> {
        TROUPE_ASSIGN_OR_RETURN(*found, SequencesIn(directory, function));
        return ReadFile(StateFile(directory, function), channel, function, specs);
      },
      [done, found](absl::StatusOr<node::ImagePtr> image) { done(std::move(image), *found); });
}

void StateStore::Read(caf::local_actor* self, const proto::FetchImage& part, const PartRead& done) {
  const auto answer = [done](absl::StatusOr<proto::FetchReply> reply) {
    proto::FetchReply failed;
    if (!reply.ok()) SetStatus(reply.status(), failed);
    done(reply.ok() ? *std::move(reply) : std::move(failed));
  };
  if (part.length() > kLongestPart) {
    return answer(absl::InvalidArgumentError(absl::StrCat(
        part.length(), " bytes of a state were asked for at once, and ", kLongestPart, " are the most")));
  }
  auto read = std::make_shared<absl::StatusOr<proto::FetchReply>>(absl::UnavailableError("it was not read"));
  const auto image = Find(part.image());
  // Behind the writes of it that were asked for before.
  Do(
      self, part.image(),
      [directory = options_.directory, channel = options_.channel, image, part,
       read]() -> absl::StatusOr<node::ImagePtr> {
        *read = directory.empty() ? PartInMemory(channel, image, part)
                                  : PartOf(StateFile(directory, part.image()), part.offset(), part.length());
        return image;
      },
      [answer, read](const absl::StatusOr<node::ImagePtr>& ended) {
        answer(ended.ok() ? std::move(*read) : ended.status());
      });
}

void StateStore::Import(caf::local_actor* self, const std::string& function,
                        std::vector<proto::TensorSpec> specs, std::string text, Imported done) {
  const bool in_memory = options_.directory.empty();
  Do(
      self, function,
      [channel = options_.channel, directory = options_.directory, function, specs = std::move(specs),
       text = std::move(text)]() -> absl::StatusOr<node::ImagePtr> {
        proto::StateImage image;
        if (const std::string wrong = Wrong(text, function, specs, image); !wrong.empty())
          return absl::DataLossError(absl::StrCat("what came of the state '", function, "' ", wrong));
        if (directory.empty()) return Placed(std::move(image), channel);
        TROUPE_RETURN_IF_ERROR(storage::ReplaceFile(StateFile(directory, function), text));
        return node::ImagePtr();
      },
      [this, function, in_memory, done = std::move(done)](absl::StatusOr<node::ImagePtr> image) {
        if (image.ok()) unkept_.erase(function);
        if (image.ok() && in_memory) images_[function] = *image;
        done(image.status());
      });
}

void StateStore::Unload(caf::local_actor* self, const std::string& function) {
  if (options_.directory.empty()) return;
  if (!jobs_.contains(function)) return static_cast<void>(images_.erase(function));
  const Job wait = [] { return node::ImagePtr(); };
  Do(self, function, wait, [this, function](const auto&) { images_.erase(function); });
}

void StateStore::Keep(const node::ImagePtr& image) {
  const auto saved = unkept_.find(image->function());
  if (saved != unkept_.end() && saved->second == image) unkept_.erase(saved);
  images_[image->function()] = image;
}

node::ImagePtr StateStore::Find(const std::string& function) const {
  const auto image = images_.find(function);
  return image == images_.end() ? nullptr : image->second;
}

void StateStore::Restore(caf::local_actor* self, const std::string& function) {
  if (!options_.directory.empty()) Do(self, function, nullptr, nullptr);
}

// Made when all saves before it are done, so that what was saved and kept, or imported, before it stays.
StateStore::Job StateStore::RestoreJob(const std::string& function) {
  if (unkept_.erase(function) == 0) return [] { return node::ImagePtr(); };
  return [path = StateFile(options_.directory, function), channel = options_.channel,
          image = Find(function)]() -> absl::StatusOr<node::ImagePtr> {
    if (image == nullptr) {
      static_cast<void>(std::remove(path.c_str()));
    } else {
      TROUPE_RETURN_IF_ERROR(Write(path, channel, *image));
    }
    return image;
  };
}

void StateStore::Forget(caf::local_actor* self, const std::string& function) {
  images_.erase(function);
  if (options_.directory.empty()) return;
  Do(
      self, function,
      [path = StateFile(options_.directory, function)] {
        static_cast<void>(std::remove(path.c_str()));
        return node::ImagePtr();
      },
      [this, function](const auto&) { unkept_.erase(function); });
}

void StateStore::Clear() {
  continuations_.Clear();
  jobs_.clear();
  images_.clear();
  unkept_.clear();
}

}  // namespace troupe::actors
