// What each step of transport costs: a ring's record and round trip, a slice, a fetch on this host and from
// another one, and how many bytes a second come from another host with several fetches under way and to several readers.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <semaphore>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/check.hpp"
#include "security/authority_folder.hpp"
#include "security/credentials.hpp"
#include "transport/local_channel.hpp"
#include "transport/remote_channel.hpp"
#include "transport/ring.hpp"
#include "transport/stream_endpoint.hpp"
#include "transport/ucx_endpoint.hpp"

namespace troupe::transport {
namespace {

constexpr Duration kLong = std::chrono::seconds(30);

void RingRecords(benchmark::State& state) {
  auto ring = *RingMemory::Create("bench", MiB(1));
  auto writer = *RingWriter::Attach(ring);
  auto reader = *RingReader::Attach(ring);
  const std::string payload(static_cast<std::size_t>(state.range(0)), 'x');
  RingRecord record;
  for (auto _ : state) {
    TROUPE_CHECK(*writer.TryWrite(1, 0, 1, std::as_bytes(std::span(payload))), "the ring has room");
    TROUPE_CHECK(*reader.TryRead(record), "the record is there");
    benchmark::DoNotOptimize(record.payload.data());
  }
}
BENCHMARK(RingRecords)->Arg(64)->Arg(1024)->Arg(16384);

void RingRoundTrip(benchmark::State& state) {
  auto there = *RingMemory::Create("bench", KiB(64));
  auto back = *RingMemory::Create("bench", KiB(64));
  std::jthread echo([&](const std::stop_token& stop) {
    auto reader = *RingReader::Attach(there);
    auto writer = *RingWriter::Attach(back);
    RingRecord record;
    while (!stop.stop_requested()) {
      if (!reader.Wait(std::chrono::milliseconds(50))) continue;
      while (*reader.TryRead(record)) {
        TROUPE_CHECK(*writer.TryWrite(1, 0, 1, std::as_bytes(std::span(record.payload))),
                     "the ring has room");
      }
    }
  });
  auto writer = *RingWriter::Attach(there);
  auto reader = *RingReader::Attach(back);
  const std::string payload(200, 'x');
  RingRecord record;
  for (auto _ : state) {
    TROUPE_CHECK(*writer.TryWrite(1, 0, 1, std::as_bytes(std::span(payload))), "the ring has room");
    while (!*reader.TryRead(record)) reader.Wait(kLong);
  }
}
BENCHMARK(RingRoundTrip)->UseRealTime();

struct Folder {
  explicit Folder(const std::string& name = "")
      : path(std::filesystem::temp_directory_path() / ("troupe-transport-bench" + name)) {
    std::filesystem::remove_all(path);  // left by a run that was ended
    std::filesystem::create_directories(path);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  LocalChannel::Options Options(const std::string& name, Bytes capacity = MiB(256)) const {
    return {name, path + "/" + name, capacity, {path}, "", name + "-host"};
  }
  const std::string path;
};

void LocalFetch(benchmark::State& state) {
  const Folder folder;
  LocalChannel::Options options = folder.Options("reader");
  options.host = "owner-host";
  auto owner = *LocalChannel::Create(folder.Options("owner"));
  auto reader = *LocalChannel::Create(options);
  auto ref = owner->Reserve(MiB(1))->Commit();
  for (auto _ : state) benchmark::DoNotOptimize(reader->Fetch(ref)->bytes().data());
}
BENCHMARK(LocalFetch);

void ReserveAndRelease(benchmark::State& state) {
  const Folder folder;
  auto owner = *LocalChannel::Create(folder.Options("owner"));
  for (auto _ : state)
    TROUPE_CHECK(owner->Release(owner->Reserve(MiB(1))->Commit()).ok(), "it was just committed");
}
BENCHMARK(ReserveAndRelease);

using Start = std::function<absl::StatusOr<std::unique_ptr<RemoteEndpoint>>(SliceSource)>;

void RemoteFetch(benchmark::State& state, const Start& start) {
  const Folder folder;
  auto owner = *RemoteChannel::Create({folder.Options("owner"), start});
  auto reader = *RemoteChannel::Create({folder.Options("reader"), start});
  const std::vector<std::byte> bytes(static_cast<std::size_t>(state.range(0)), std::byte{1});
  auto ref = *owner->Put(bytes, "bench");
  for (auto _ : state) TROUPE_CHECK(reader->Fetch(ref, kLong).ok(), "the other host answers");
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

// Fetches of one tensor into the arenas of several readers, `window` of each reader under way at a time.
class ManyFetches {
 public:
  ManyFetches(const Start& start, std::size_t bytes, std::size_t readers, std::size_t window)
      : window_(window), owner_(*RemoteChannel::Create({folder_.Options("owner", Room(bytes, 1)), start})) {
    for (std::size_t i = 0; i < readers; ++i) {
      const auto name = "reader-" + std::to_string(i);
      auto channel = *RemoteChannel::Create({folder_.Options(name, Room(bytes, window)), start});
      readers_.push_back(std::make_unique<Reader>(std::move(channel), static_cast<std::ptrdiff_t>(window)));
    }
    ref_ = *owner_->Put(std::vector<std::byte>(bytes, std::byte{1}), "bench");
  }
  // Returns when all of them have come.
  void Run(std::size_t fetches_each) {
    for (std::size_t i = 0; i < fetches_each; ++i)
      for (const auto& reader : readers_) Fetch(*reader);
    for (const auto& reader : readers_) {
      for (std::size_t i = 0; i < window_; ++i) reader->free.acquire();
      reader->free.release(static_cast<std::ptrdiff_t>(window_));
    }
  }

 private:
  struct Reader {
    Reader(std::unique_ptr<RemoteChannel> made, std::ptrdiff_t window)
        : channel(std::move(made)), free(window) {}
    const std::unique_ptr<RemoteChannel> channel;
    std::counting_semaphore<> free;  // fetches that may begin
  };
  void Fetch(Reader& reader) {
    reader.free.acquire();
    reader.channel->FetchAsync(ref_, kLong, [&reader](absl::StatusOr<TensorData> data) {
      TROUPE_CHECK(data.ok(), "the other host answers");
      data = absl::CancelledError("it was read");  // its place is free before the next fetch begins
      reader.free.release();
    });
  }
  static Bytes Room(std::size_t bytes, std::size_t count) { return Bytes(bytes * count) + MiB(1); }
  const std::size_t window_;
  const Folder folder_;
  const std::unique_ptr<RemoteChannel> owner_;
  std::vector<std::unique_ptr<Reader>> readers_;
  proto::TensorRef ref_;
};

void RemoteRate(benchmark::State& state, const Start& start) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const auto readers = static_cast<std::size_t>(state.range(1));
  ManyFetches fetches(start, bytes, readers, static_cast<std::size_t>(state.range(2)));
  const std::size_t each = std::max<std::size_t>(1, (std::size_t{256} << 20U) / bytes / readers);
  fetches.Run(1);  // connects
  for (auto _ : state) fetches.Run(each);
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * each * readers * bytes));
}

Start Ucx() {
  return [](SliceSource source) {
    return UcxEndpoint::Start({"127.0.0.1:0", "tcp,self", 16}, std::move(source));
  };
}
Start Stream(std::shared_ptr<security::Credentials> credentials) {
  return [credentials = std::move(credentials)](SliceSource source) {
    StreamEndpoint::Options options;
    options.credentials = credentials;
    return StreamEndpoint::Start(std::move(options), std::move(source));
  };
}
std::shared_ptr<security::Credentials> MakeCredentials() {
  static const Folder folder("-tls");
  const absl::Time now = absl::Now();
  TROUPE_CHECK(security::AuthorityFolder::Init(folder.path + "/ca", "bench", now, absl::Hours(24)).ok(),
               "the authority is made");
  auto authority = *security::AuthorityFolder::Open(folder.path + "/ca");
  const std::string files = folder.path + "/node";
  TROUPE_CHECK(
      authority.Issue({{security::Role::kNode}, "bench", {"127.0.0.1"}, now, now + absl::Hours(1)}, files)
          .ok(),
      "the certificate is made");
  return *security::Credentials::Load(security::CredentialFiles::InFolder(files));
}
std::shared_ptr<security::Credentials> TestCredentials() {
  static const auto credentials = MakeCredentials();
  return credentials;
}

BENCHMARK_CAPTURE(RemoteFetch, ucx, Ucx())->Arg(70'000)->Arg(1 << 20)->Arg(16 << 20)->UseRealTime();
BENCHMARK_CAPTURE(RemoteFetch, stream, Stream(nullptr))
    ->Arg(70'000)
    ->Arg(1 << 20)
    ->Arg(16 << 20)
    ->UseRealTime();
// Bytes, readers, fetches of each reader that are under way.
void Rates(benchmark::internal::Benchmark* bench) {
  bench->Args({70'000, 1, 16})->Args({1 << 20, 1, 8})->Args({16 << 20, 1, 4})->Args({256 << 20, 1, 1});
  bench->Args({16 << 20, 4, 1})->UseRealTime();
}
BENCHMARK_CAPTURE(RemoteRate, ucx, Ucx())->Apply(Rates);
BENCHMARK_CAPTURE(RemoteRate, stream, Stream(nullptr))->Apply(Rates);
BENCHMARK_CAPTURE(RemoteFetch, tls, Stream(TestCredentials()))
    ->Arg(70'000)
    ->Arg(1 << 20)
    ->Arg(16 << 20)
    ->UseRealTime();

}  // namespace
}  // namespace troupe::transport

BENCHMARK_MAIN();
