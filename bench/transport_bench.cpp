// What each step of transport costs: a ring's record and round trip, a slice, a fetch on this host and from
// another one.
#include <benchmark/benchmark.h>

#include <filesystem>
#include <functional>
#include <memory>
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
  LocalChannel::Options Options(const std::string& name) const {
    return {name, path + "/" + name, MiB(256), {path}, "", name + "-host"};
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
BENCHMARK_CAPTURE(RemoteFetch, tls, Stream(TestCredentials()))
    ->Arg(70'000)
    ->Arg(1 << 20)
    ->Arg(16 << 20)
    ->UseRealTime();

}  // namespace
}  // namespace troupe::transport

BENCHMARK_MAIN();
