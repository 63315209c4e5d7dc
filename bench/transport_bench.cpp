// What one step of transport costs: a ring's record and round trip, a slice, a fetch here and from another
// host.
#include <benchmark/benchmark.h>

#include <filesystem>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/check.hpp"
#include "transport/local_channel.hpp"
#include "transport/remote_channel.hpp"
#include "transport/ring.hpp"

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
  std::string path = std::filesystem::temp_directory_path() / "troupe-transport-bench";
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  LocalChannel::Options Options(const std::string& name) const {
    return {name, path + "/" + name, MiB(256), {path}, "", name + "-host"};
  }
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

void RemoteFetch(benchmark::State& state) {
  const Folder folder;
  const UcxEndpoint::Options ucx{"127.0.0.1:0", "tcp,self", 16};
  auto owner = *RemoteChannel::Create({folder.Options("owner"), ucx});
  auto reader = *RemoteChannel::Create({folder.Options("reader"), ucx});
  const std::vector<std::byte> bytes(static_cast<std::size_t>(state.range(0)), std::byte{1});
  auto ref = *owner->Put(bytes, "bench");
  for (auto _ : state) TROUPE_CHECK(reader->Fetch(ref, kLong).ok(), "the other host answers");
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(RemoteFetch)->Arg(70'000)->Arg(1 << 20)->Arg(16 << 20)->UseRealTime();

}  // namespace
}  // namespace troupe::transport

BENCHMARK_MAIN();
