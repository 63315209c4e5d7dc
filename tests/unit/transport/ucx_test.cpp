#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>

#include "tests/unit/transport/test_support.hpp"
#include "transport/liveness.hpp"
#include "transport/remote_channel.hpp"
#include "transport/ucx_core.hpp"
#include "transport/ucx_endpoint.hpp"
#include "transport/ucx_wire.hpp"

namespace troupe::transport {
namespace {

UcxEndpoint::Options Loopback() {
  return {"127.0.0.1:0", "tcp,self", 8};
}

// Serves slice n as n bytes of value n % 251; slice 13 is refused.
absl::StatusOr<PinnedBytes> Serve(const proto::ArenaRef& ref) {
  if (ref.slice() == 13) return absl::NotFoundError("no slice 13 here");
  auto bytes =
      std::make_shared<std::vector<std::byte>>(ref.length(), static_cast<std::byte>(ref.slice() % 251));
  return PinnedBytes{*bytes, bytes};
}

std::unique_ptr<UcxEndpoint> StartEndpoint(SliceSource source = Serve) {
  auto endpoint = UcxEndpoint::Start(Loopback(), std::move(source));
  EXPECT_TRUE(endpoint.ok()) << endpoint.status();
  return *std::move(endpoint);
}

proto::ArenaRef RefAt(const std::string& endpoint, std::uint64_t slice, std::uint64_t length) {
  proto::ArenaRef ref;
  ref.set_endpoint(endpoint);
  ref.set_slice(slice);
  ref.set_length(length);
  return ref;
}

// A fetch that can be waited for.
class Waiter {
 public:
  Waiter(UcxEndpoint& endpoint, const proto::ArenaRef& ref, Duration timeout = kLong)
      : bytes_(std::make_shared<std::vector<std::byte>>(ref.length())) {
    endpoint.Fetch(ref, *bytes_, bytes_, timeout, [state = state_](absl::Status status) {
      const std::lock_guard lock(state->mutex);
      EXPECT_FALSE(state->done) << "told twice";
      state->done = true;
      state->status = std::move(status);
      state->changed.notify_all();
    });
  }
  absl::Status Wait() {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [&] { return state_->done; });
    return state_->status;
  }
  bool AllAre(std::uint64_t slice) const {
    for (const std::byte byte : *bytes_) {
      if (byte != static_cast<std::byte>(slice % 251)) return false;
    }
    return true;
  }
  // While it is being filled: a race, and meant to be one.
  [[nodiscard]] __attribute__((no_sanitize_thread)) std::byte ByteAt(std::size_t place) const {
    return *static_cast<volatile std::byte*>(bytes_->data() + place);
  }
  [[nodiscard]] bool Released() const { return bytes_.use_count() == 1; }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    absl::Status status;
  };
  std::shared_ptr<std::vector<std::byte>> bytes_;
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

TEST(UcxEndpoint, FetchesEverySize) {
  auto owner = StartEndpoint();
  auto reader = StartEndpoint();
  for (const std::uint64_t size : {0ULL, 1ULL, 1000ULL, 8192ULL, 70'000ULL, 1'000'000ULL, 20'000'000ULL}) {
    Waiter fetch(*reader, RefAt(owner->address(), size % 7 + 20, size));
    ASSERT_TRUE(fetch.Wait().ok()) << fetch.Wait() << " at " << size;
    EXPECT_TRUE(fetch.AllAre(size % 7 + 20));
  }
}

TEST(UcxEndpoint, FetchesManyAtOnceAndBothWays) {
  auto first = StartEndpoint();
  auto second = StartEndpoint();
  for (int round = 0; round < 20; ++round) {
    std::vector<std::pair<std::uint64_t, Waiter>> fetches;
    for (std::uint64_t i = 0; i < 8; ++i) {
      fetches.emplace_back(i + 30, Waiter(*first, RefAt(second->address(), i + 30, 50'000 * i)));
      fetches.emplace_back(i + 60, Waiter(*second, RefAt(first->address(), i + 60, 30'000 * i)));
    }
    for (auto& [slice, fetch] : fetches) {
      ASSERT_TRUE(fetch.Wait().ok()) << fetch.Wait();
      EXPECT_TRUE(fetch.AllAre(slice));
    }
  }
}

TEST(UcxEndpoint, ARefusalArrivesWithItsReason) {
  auto owner = StartEndpoint();
  auto reader = StartEndpoint();
  const absl::Status status = Waiter(*reader, RefAt(owner->address(), 13, 100)).Wait();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_NE(status.message().find("no slice 13 here"), std::string::npos) << status;
  EXPECT_TRUE(Waiter(*reader, RefAt(owner->address(), 14, 100)).Wait().ok());
}

TEST(UcxEndpoint, AnAnswerOfAnotherSizeIsDataLoss) {
  auto owner = StartEndpoint([](const proto::ArenaRef& ref) {
    proto::ArenaRef longer = ref;
    longer.set_length(ref.length() + 1);
    return Serve(longer);
  });
  auto reader = StartEndpoint();
  EXPECT_TRUE(absl::IsDataLoss(Waiter(*reader, RefAt(owner->address(), 20, 100)).Wait()));
  EXPECT_TRUE(absl::IsDataLoss(Waiter(*reader, RefAt(owner->address(), 20, 3'000'000)).Wait()));
}

TEST(UcxEndpoint, RefusesBadAddressesAndBoundsWhatIsPending) {
  auto reader = StartEndpoint();
  EXPECT_TRUE(absl::IsFailedPrecondition(Waiter(*reader, RefAt("", 1, 1)).Wait()));
  for (const char* bad : {"nonsense", "127.0.0.1:", "127.0.0.1:99999", ":80", "host.name:80", "[::1:80"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(Waiter(*reader, RefAt(bad, 1, 1)).Wait())) << bad;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(UcxEndpoint::Start({"nowhere", "tcp,self", 8}, Serve).status()));
  EXPECT_FALSE(UcxEndpoint::Start({"127.0.0.1:0", "carrier-pigeon", 8}, Serve).ok());
}

TEST(UcxEndpoint, AReaderThatDoesNotKnowTheTokenGetsNothingAndIsCounted) {
  std::atomic<int> asked = 0;
  auto owner = StartEndpoint([&](const proto::ArenaRef& ref) {
    ++asked;
    return Serve(ref);
  });
  auto reader = StartEndpoint();
  const auto right = owner->address();
  const auto at = right.substr(0, right.find('/') + 1);
  EXPECT_EQ(right.size(), at.size() + 64);
  auto almost = right;
  almost.back() = almost.back() == '0' ? '1' : '0';
  const auto of_another = at + reader->address().substr(reader->address().find('/') + 1);
  for (const auto& wrong : {almost, of_another, at + std::string(64, '0')})
    EXPECT_TRUE(absl::IsNotFound(Waiter(*reader, RefAt(wrong, 20, 1000)).Wait())) << wrong;
  EXPECT_EQ(owner->strangers(), 3U);
  for (const auto& none :
       {at, at + "0", right + "0", right.substr(0, right.find('/')), at + std::string(64, 'x')})
    EXPECT_TRUE(absl::IsInvalidArgument(Waiter(*reader, RefAt(none, 20, 1000)).Wait())) << none;
  EXPECT_EQ(asked, 0);
  EXPECT_TRUE(Waiter(*reader, RefAt(right, 20, 1000)).Wait().ok());
}

TEST(UcxEndpoint, NobodyAtTheAddressIsUnavailable) {
  auto reader = StartEndpoint();
  const std::string gone = StartEndpoint()->address();
  const absl::Status status = Waiter(*reader, RefAt(gone, 20, 100)).Wait();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

// A host of its own, to be stopped and killed. It serves as Serve does and prints its address.
class OtherHost {
 public:
  OtherHost() {
    std::array<int, 2> pipes{};
    EXPECT_EQ(pipe2(pipes.data(), O_CLOEXEC), 0);
    SpawnOptions options;
    options.arguments = {"/proc/self/exe", "--gtest_filter=UcxOtherHost.DISABLED_Serves",
                         "--gtest_also_run_disabled_tests"};
    options.environment = {{"TROUPE_TEST_ADDRESS_FD", "3"}};
    options.descriptors = {{pipes[1], 3}};
    const UniqueFd quiet(open("/dev/null", O_WRONLY | O_CLOEXEC));
    options.log = quiet.get();
    process_ = *SpawnProcess(options);
    close(pipes[1]);
    std::array<char, 128> text{};
    const ssize_t got = read(pipes[0], text.data(), text.size());
    address_ = std::string(text.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
    close(pipes[0]);
  }
  OtherHost(const OtherHost&) = delete;
  OtherHost& operator=(const OtherHost&) = delete;
  ~OtherHost() { Kill(); }
  void Kill() {
    process_.Signal(SIGKILL).IgnoreError();
    process_.Wait(kLong).status().IgnoreError();
  }
  void Freeze() {
    EXPECT_TRUE(process_.Signal(SIGSTOP).ok());
    int status = 0;  // the signal is on its way only: wait until it stands still
    EXPECT_EQ(waitpid(process_.pid(), &status, WUNTRACED), process_.pid());
    EXPECT_TRUE(WIFSTOPPED(status));
  }
  [[nodiscard]] const std::string& address() const { return address_; }

 private:
  ProcessHandle process_;
  std::string address_;
};

// The body of the other process; never run by itself.
TEST(UcxOtherHost, DISABLED_Serves) {
  const char* report = std::getenv("TROUPE_TEST_ADDRESS_FD");
  ASSERT_NE(report, nullptr);
  auto endpoint = StartEndpoint();
  ASSERT_EQ(write(std::atoi(report), endpoint->address().data(), endpoint->address().size()),
            static_cast<ssize_t>(endpoint->address().size()));
  for (;;) pause();
}

TEST(UcxEndpoint, AKilledPeerFailsWhatIsPendingAndTheNextOneServes) {
  auto reader = StartEndpoint();
  for (int life = 0; life < 3; ++life) {
    OtherHost other;
    ASSERT_TRUE(Waiter(*reader, RefAt(other.address(), 20, 2'000'000)).Wait().ok());
    other.Freeze();  // so that the fetches are certainly pending
    std::vector<Waiter> fetches;
    for (std::uint64_t i = 0; i < 4; ++i)
      fetches.emplace_back(*reader, RefAt(other.address(), 20, 1'000'000 * i));
    other.Kill();
    for (Waiter& fetch : fetches) {
      const absl::Status status = fetch.Wait();
      EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    }
  }
}

TEST(UcxEndpoint, AHungPeerTimesOut) {
  auto reader = StartEndpoint();
  OtherHost other;
  ASSERT_TRUE(Waiter(*reader, RefAt(other.address(), 20, 100)).Wait().ok());
  other.Freeze();
  const absl::Status status =
      Waiter(*reader, RefAt(other.address(), 20, 100), std::chrono::milliseconds(20)).Wait();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
}

TEST(UcxEndpoint, KilledInMidTransferLeavesNothingHeld) {
  auto reader = StartEndpoint();
  for (std::size_t life = 0; life < 4; ++life) {
    constexpr std::size_t kSize = 200'000'000;
    OtherHost other;
    ASSERT_TRUE(Waiter(*reader, RefAt(other.address(), 20, 100)).Wait().ok());
    Waiter fetch(*reader, RefAt(other.address(), 20, kSize));
    while (fetch.ByteAt(life * kSize / 8) != std::byte{20}) std::this_thread::yield();
    other.Kill();
    const absl::Status status = fetch.Wait();
    EXPECT_TRUE(status.ok() || absl::IsUnavailable(status)) << status;
    while (!fetch.Released()) std::this_thread::yield();
  }
}

TEST(UcxEndpoint, EndsWithFetchesPending) {
  OtherHost other;
  auto reader = StartEndpoint();
  ASSERT_TRUE(Waiter(*reader, RefAt(other.address(), 20, 100)).Wait().ok());
  other.Freeze();
  Waiter fetch(*reader, RefAt(other.address(), 20, 5'000'000));
  reader.reset();
  EXPECT_TRUE(absl::IsCancelled(fetch.Wait()));
  EXPECT_TRUE(fetch.Released());
}

TEST(UcxEndpoint, PendingFetchesAreBounded) {
  OtherHost other;
  auto reader = StartEndpoint();
  other.Freeze();
  std::vector<Waiter> fetches;
  for (int i = 0; i < 8; ++i) fetches.emplace_back(*reader, RefAt(other.address(), 20, 100));
  EXPECT_TRUE(absl::IsResourceExhausted(Waiter(*reader, RefAt(other.address(), 20, 100)).Wait()));
  reader.reset();
  for (Waiter& fetch : fetches) EXPECT_TRUE(absl::IsCancelled(fetch.Wait()));
}

// Another program that speaks UCX: it connects, and sends what it wants.
class Stranger {
 public:
  explicit Stranger(const std::string& address) {
    const auto target = *ParseAddress(ParseUcxAddress(address)->address);
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR |
                        UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
    params.sockaddr.addr = reinterpret_cast<const sockaddr*>(&target);
    params.sockaddr.addrlen = AddressLength(target);
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler = {
        [](void* stranger, ucp_ep_h, ucs_status_t) { static_cast<Stranger*>(stranger)->closed_ = true; },
        this};
    EXPECT_EQ(ucp_ep_create(core_->worker(), &params, &endpoint_), UCS_OK);
  }
  ~Stranger() {
    core_->Close(endpoint_, [] {});
    while (core_->closing()) core_->Progress();
  }
  void Say(const std::string& header) {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_AM_SEND_FLAG_REPLY;
    void* request = ucp_am_send_nbx(endpoint_, kAskId, header.data(), header.size(), nullptr, 0, &param);
    while (UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS) core_->Progress();
    if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
  }
  void AwaitClosed() {
    while (!closed_) core_->Progress();
  }

 private:
  std::unique_ptr<UcxCore> core_ = *UcxCore::Make("tcp,self", "lo");
  ucp_ep_h endpoint_ = nullptr;
  bool closed_ = false;
};

TEST(UcxServer, AStrangersHeaderClosesItsConnectionAndIsCounted) {
  auto options = Loopback();
  options.refusals = std::make_shared<SocketRefusals>();
  const auto server = *UcxEndpoint::Start(options, Serve);
  UcxAsk ask{kUcxMagic, kUcxVersion + 1, 1, 2, 3, 4, 5, {}};
  const std::string other_version(reinterpret_cast<const char*>(&ask), sizeof ask);
  for (const std::string& header : {other_version, other_version.substr(1), std::string(200, 'x')}) {
    Stranger stranger(server->address());
    stranger.Say(header);
    stranger.AwaitClosed();
  }
  EXPECT_EQ(options.refusals->count(SocketRefusal::kBrokenMessage), 3u);
  const auto client = StartEndpoint();
  Waiter fetched(*client, RefAt(server->address(), 7, 1000));
  EXPECT_TRUE(fetched.Wait().ok());
}

TEST(UcxServer, ConnectionsThatAskNothingAreFewAndShort) {
  auto options = Loopback();
  options.refusals = std::make_shared<SocketRefusals>();
  const auto server = *UcxEndpoint::Start(options, Serve);
  Stranger silent(server->address());
  silent.AwaitClosed();
  EXPECT_EQ(options.refusals->count(SocketRefusal::kSilent), 1u);
}

// The addresses at which this process listens with TCP over IPv4, as the kernel writes them.
std::set<std::string> ListeningAddresses() {
  std::set<std::string> own;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    own.insert(std::filesystem::read_symlink(entry.path(), ignored).string());
  }
  std::ifstream table("/proc/self/net/tcp");
  std::set<std::string> addresses;
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    std::string slot, local, remote, state, queues, timer, retransmits, uid, timeout, inode;
    words >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> uid >> timeout >> inode;
    if (state == "0A" && own.contains("socket:[" + inode + "]"))
      addresses.insert(local.substr(0, local.find(':')));
  }
  return addresses;
}

TEST(UcxServer, OfALoopbackAddressListensNowhereElse) {
  auto options = Loopback();
  options.only_interface_of_bind = true;
  const auto server = *UcxEndpoint::Start(options, Serve);
  EXPECT_EQ(ListeningAddresses(), std::set<std::string>{"0100007F"});
}

TEST(UcxCore, FindsTheInterfaceOfAnAddress) {
  EXPECT_EQ(InterfaceOf(*ParseAddress("127.0.0.1:1")), "lo");
  EXPECT_EQ(InterfaceOf(*ParseAddress("127.9.8.7:1")), "lo");
  EXPECT_EQ(InterfaceOf(*ParseAddress("0.0.0.0:1")), "");
}

}  // namespace
}  // namespace troupe::transport
