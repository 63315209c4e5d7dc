#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
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

#include "security/authority_folder.hpp"
#include "security/credentials.hpp"
#include "tests/unit/transport/test_support.hpp"
#include "transport/fetch_wire.hpp"
#include "transport/liveness.hpp"
#include "transport/stream_endpoint.hpp"
#include "transport/ucx_core.hpp"
#include "transport/ucx_endpoint.hpp"

namespace troupe::transport {
namespace {

constexpr std::size_t kPending = 8;

UcxEndpoint::Options Loopback() {
  return {"127.0.0.1:0", "tcp,self", kPending};
}

// Certificates of one cluster, made once for all tests of this process and of the processes that it starts.
class Certificates {
 public:
  Certificates() {
    const char* inherited = std::getenv("TROUPE_TEST_CERTIFICATES");
    folder_ = inherited != nullptr ? inherited : (*directory_).path();
    if (inherited != nullptr) return;
    const absl::Time now = absl::Now();
    EXPECT_TRUE(security::AuthorityFolder::Init(folder_ + "/ca", "test", now, absl::Hours(24)).ok());
    Issue("node", security::Role::kNode);
    Issue("admin", security::Role::kAdmin);
    Issue("elsewhere", security::Role::kNode, "10.9.8.7");
  }
  void Issue(const std::string& name, security::Role role, const std::string& host = "127.0.0.1") {
    const absl::Time now = absl::Now();
    EXPECT_TRUE(
        Authority().Issue({{role}, name, {host}, now, now + absl::Hours(1)}, folder_ + "/" + name).ok());
  }
  // `at`: a directory of the test's own, for tests that change the files.
  [[nodiscard]] std::shared_ptr<security::Credentials> Of(const std::string& name) const {
    return *security::Credentials::Load(security::CredentialFiles::InFolder(folder_ + "/" + name));
  }
  void Revoke(const std::string& name) const {
    EXPECT_TRUE(Authority().Revoke(name, absl::Now()).ok());
    std::filesystem::copy_file(folder_ + "/ca/revoked.pem", folder_ + "/node/revoked.pem",
                               std::filesystem::copy_options::overwrite_existing);
  }
  [[nodiscard]] const std::string& folder() const { return folder_; }

 private:
  [[nodiscard]] security::AuthorityFolder Authority() const {
    return *security::AuthorityFolder::Open(folder_ + "/ca");
  }
  std::unique_ptr<TemporaryDirectory> directory_ = std::make_unique<TemporaryDirectory>();
  std::string folder_;
};
Certificates& TestCertificates() {
  static Certificates certificates;
  return certificates;
}

// Serves slice n as n bytes of value n % 251; slice 13 is refused.
absl::StatusOr<PinnedBytes> Serve(const proto::ArenaRef& ref) {
  if (ref.slice() == 13) return absl::NotFoundError("no slice 13 here");
  auto bytes =
      std::make_shared<std::vector<std::byte>>(ref.length(), static_cast<std::byte>(ref.slice() % 251));
  return PinnedBytes{*bytes, bytes};
}

enum class Kind { kUcx, kStream, kTls };
constexpr const char* kKinds[] = {"Ucx", "Stream", "Tls"};

absl::StatusOr<std::unique_ptr<RemoteEndpoint>> TryStart(Kind kind, SliceSource source = Serve,
                                                         const std::string& bind = "127.0.0.1:0") {
  if (kind == Kind::kUcx) return UcxEndpoint::Start({bind, "tcp,self", kPending}, std::move(source));
  StreamEndpoint::Options options;
  options.bind = bind;
  options.pending = kPending;
  if (kind == Kind::kTls) options.credentials = TestCertificates().Of("node");
  return StreamEndpoint::Start(std::move(options), std::move(source));
}
std::unique_ptr<RemoteEndpoint> StartOne(Kind kind, SliceSource source = Serve) {
  auto endpoint = TryStart(kind, std::move(source));
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

std::string AddressOf(Kind kind, const std::string& at) {
  const auto protocol = kind == Kind::kUcx ? FetchProtocol::kUcx : FetchProtocol::kStream;
  return FormatEndpointAddress({protocol, at, {}});
}

// A fetch that can be waited for.
class Waiter {
 public:
  Waiter(RemoteEndpoint& endpoint, const proto::ArenaRef& ref, Duration timeout = kLong)
      : bytes_(std::make_shared<std::vector<std::byte>>(ref.length())) {
    endpoint.Fetch(ref, *bytes_, bytes_, timeout, [state = state_](absl::Status status) {
      const std::lock_guard lock(state->mutex);
      EXPECT_FALSE(state->done) << "the end of a fetch was reported twice";
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
  // A byte that may be written at the same time: this race is intended.
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

// The contract of every form of a remote endpoint.
class RemoteEndpointTest : public testing::TestWithParam<Kind> {
 protected:
  static std::unique_ptr<RemoteEndpoint> Start(SliceSource source = Serve) {
    return StartOne(GetParam(), std::move(source));
  }
};
INSTANTIATE_TEST_SUITE_P(Over, RemoteEndpointTest, testing::Values(Kind::kUcx, Kind::kStream, Kind::kTls),
                         [](const auto& info) { return kKinds[static_cast<int>(info.param)]; });

TEST_P(RemoteEndpointTest, FetchesEverySize) {
  auto owner = Start();
  auto reader = Start();
  for (const std::uint64_t size : {0ULL, 1ULL, 1000ULL, 8192ULL, 70'000ULL, 1'000'000ULL, 20'000'000ULL}) {
    Waiter fetch(*reader, RefAt(owner->address(), size % 7 + 20, size));
    ASSERT_TRUE(fetch.Wait().ok()) << fetch.Wait() << " at " << size;
    EXPECT_TRUE(fetch.AllAre(size % 7 + 20));
  }
}

TEST_P(RemoteEndpointTest, FetchesManyAtOnceAndBothWays) {
  auto first = Start();
  auto second = Start();
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

TEST_P(RemoteEndpointTest, ARefusalArrivesWithItsReason) {
  auto owner = Start();
  auto reader = Start();
  const absl::Status status = Waiter(*reader, RefAt(owner->address(), 13, 100)).Wait();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_NE(status.message().find("no slice 13 here"), std::string::npos) << status;
  EXPECT_TRUE(Waiter(*reader, RefAt(owner->address(), 14, 100)).Wait().ok());
}

TEST_P(RemoteEndpointTest, AnAnswerOfAnotherSizeIsDataLoss) {
  auto owner = Start([](const proto::ArenaRef& ref) {
    proto::ArenaRef longer = ref;
    longer.set_length(ref.length() + 1);
    return Serve(longer);
  });
  auto reader = Start();
  EXPECT_TRUE(absl::IsDataLoss(Waiter(*reader, RefAt(owner->address(), 20, 100)).Wait()));
  EXPECT_TRUE(absl::IsDataLoss(Waiter(*reader, RefAt(owner->address(), 20, 3'000'000)).Wait()));
}

TEST_P(RemoteEndpointTest, RefusesBadAddresses) {
  auto reader = Start();
  EXPECT_TRUE(absl::IsFailedPrecondition(Waiter(*reader, RefAt("", 1, 1)).Wait()));
  for (const char* bad : {"nonsense", "127.0.0.1:", "127.0.0.1:99999", ":80", "host.name:80", "[::1:80"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(Waiter(*reader, RefAt(bad, 1, 1)).Wait())) << bad;
    const auto with_token = AddressOf(GetParam(), bad);
    EXPECT_TRUE(absl::IsInvalidArgument(Waiter(*reader, RefAt(with_token, 1, 1)).Wait())) << with_token;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(TryStart(GetParam(), Serve, "nowhere").status()));
}

TEST_P(RemoteEndpointTest, AnOwnerOfTheOtherProtocolIsNamed) {
  auto reader = Start();
  const Kind other = GetParam() == Kind::kUcx ? Kind::kStream : Kind::kUcx;
  const absl::Status status = Waiter(*reader, RefAt(AddressOf(other, "127.0.0.1:1"), 1, 1)).Wait();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_NE(status.message().find("--tensor-network"), std::string::npos) << status;
}

TEST_P(RemoteEndpointTest, AReaderThatDoesNotKnowTheTokenGetsNothingAndIsCounted) {
  std::atomic<int> asked = 0;
  auto owner = Start([&](const proto::ArenaRef& ref) {
    ++asked;
    return Serve(ref);
  });
  auto reader = Start();
  const auto right = owner->address();
  const auto at = right.substr(0, right.rfind('/') + 1);
  EXPECT_EQ(right.size(), at.size() + 64);
  auto almost = right;
  almost.back() = almost.back() == '0' ? '1' : '0';
  const auto of_another = at + reader->address().substr(reader->address().rfind('/') + 1);
  for (const auto& wrong : {almost, of_another, at + std::string(64, '0')})
    EXPECT_TRUE(absl::IsNotFound(Waiter(*reader, RefAt(wrong, 20, 1000)).Wait())) << wrong;
  EXPECT_EQ(owner->strangers(), 3U);
  for (const auto& none :
       {at, at + "0", right + "0", right.substr(0, right.rfind('/')), at + std::string(64, 'x')})
    EXPECT_TRUE(absl::IsInvalidArgument(Waiter(*reader, RefAt(none, 20, 1000)).Wait())) << none;
  EXPECT_EQ(asked, 0);
  EXPECT_TRUE(Waiter(*reader, RefAt(right, 20, 1000)).Wait().ok());
}

TEST_P(RemoteEndpointTest, AnAddressWithoutAListenerIsUnavailable) {
  auto reader = Start();
  const std::string gone = Start()->address();
  const absl::Status status = Waiter(*reader, RefAt(gone, 20, 100)).Wait();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

// A host of its own, to be stopped and killed. It serves as Serve does and prints its address.
class OtherHost {
 public:
  explicit OtherHost(Kind kind) {
    std::array<int, 2> pipes{};
    EXPECT_EQ(pipe2(pipes.data(), O_CLOEXEC), 0);
    SpawnOptions options;
    options.arguments = {"/proc/self/exe", "--gtest_filter=OtherHostBody.DISABLED_Serves",
                         "--gtest_also_run_disabled_tests"};
    options.environment = {{"TROUPE_TEST_ADDRESS_FD", "3"},
                           {"TROUPE_TEST_KIND", std::to_string(static_cast<int>(kind))}};
    if (kind == Kind::kTls)
      options.environment.emplace_back("TROUPE_TEST_CERTIFICATES", TestCertificates().folder());
    options.descriptors = {{pipes[1], 3}};
    const UniqueFd quiet(open("/dev/null", O_WRONLY | O_CLOEXEC));
    options.log = quiet.get();
    process_ = *SpawnProcess(options);
    close(pipes[1]);
    std::array<char, 256> text{};
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
    int status = 0;  // the signal may still be on its way: wait until the process has stopped
    EXPECT_EQ(waitpid(process_.pid(), &status, WUNTRACED), process_.pid());
    EXPECT_TRUE(WIFSTOPPED(status));
  }
  [[nodiscard]] const std::string& address() const { return address_; }

 private:
  ProcessHandle process_;
  std::string address_;
};

// The body of the other process, which never runs as a test of this one.
TEST(OtherHostBody, DISABLED_Serves) {
  const char* report = std::getenv("TROUPE_TEST_ADDRESS_FD");
  ASSERT_NE(report, nullptr);
  auto endpoint = StartOne(static_cast<Kind>(std::atoi(std::getenv("TROUPE_TEST_KIND"))));
  ASSERT_EQ(write(std::atoi(report), endpoint->address().data(), endpoint->address().size()),
            static_cast<ssize_t>(endpoint->address().size()));
  for (;;) pause();
}

TEST_P(RemoteEndpointTest, AKilledPeerFailsWhatIsPendingAndTheNextOneServes) {
  auto reader = Start();
  for (int life = 0; life < 3; ++life) {
    OtherHost other(GetParam());
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

TEST_P(RemoteEndpointTest, AHungPeerTimesOut) {
  auto reader = Start();
  OtherHost other(GetParam());
  ASSERT_TRUE(Waiter(*reader, RefAt(other.address(), 20, 100)).Wait().ok());
  other.Freeze();
  const absl::Status status =
      Waiter(*reader, RefAt(other.address(), 20, 100), std::chrono::milliseconds(20)).Wait();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
}

TEST_P(RemoteEndpointTest, KilledInMidTransferLeavesNothingHeld) {
  auto reader = Start();
  for (std::size_t life = 0; life < 4; ++life) {
    constexpr std::size_t kSize = 64'000'000;
    OtherHost other(GetParam());
    ASSERT_TRUE(Waiter(*reader, RefAt(other.address(), 20, 100)).Wait().ok());
    Waiter fetch(*reader, RefAt(other.address(), 20, kSize));
    while (fetch.ByteAt(life * kSize / 8) != std::byte{20}) std::this_thread::yield();
    other.Kill();
    const absl::Status status = fetch.Wait();
    EXPECT_TRUE(status.ok() || absl::IsUnavailable(status)) << status;
    while (!fetch.Released()) std::this_thread::yield();
  }
}

TEST_P(RemoteEndpointTest, EndsWithFetchesPending) {
  OtherHost other(GetParam());
  auto reader = Start();
  ASSERT_TRUE(Waiter(*reader, RefAt(other.address(), 20, 100)).Wait().ok());
  other.Freeze();
  Waiter fetch(*reader, RefAt(other.address(), 20, 5'000'000));
  reader.reset();
  EXPECT_TRUE(absl::IsCancelled(fetch.Wait()));
  EXPECT_TRUE(fetch.Released());
}

TEST_P(RemoteEndpointTest, PendingFetchesAreBounded) {
  OtherHost other(GetParam());
  auto reader = Start();
  other.Freeze();
  std::vector<Waiter> fetches;
  for (int i = 0; i < 8; ++i) fetches.emplace_back(*reader, RefAt(other.address(), 20, 100));
  EXPECT_TRUE(absl::IsResourceExhausted(Waiter(*reader, RefAt(other.address(), 20, 100)).Wait()));
  reader.reset();
  for (Waiter& fetch : fetches) EXPECT_TRUE(absl::IsCancelled(fetch.Wait()));
}

TEST_P(RemoteEndpointTest, ManyFetchesOfOneOwnerWaitForEachOther) {
  auto owner = Start();
  auto reader = Start();
  for (int round = 0; round < 4; ++round) {
    std::vector<Waiter> fetches;
    for (std::uint64_t i = 0; i < kPending; ++i)
      fetches.emplace_back(*reader, RefAt(owner->address(), i + 20, 100'000 * i));
    for (std::uint64_t i = 0; i < kPending; ++i) {
      ASSERT_TRUE(fetches[i].Wait().ok()) << fetches[i].Wait();
      EXPECT_TRUE(fetches[i].AllAre(i + 20));
    }
  }
}

TEST_P(RemoteEndpointTest, AnOwnerThatHasStartedAnewIsAskedOverANewConnection) {
  auto reader = Start();
  auto owner = Start();
  ASSERT_TRUE(Waiter(*reader, RefAt(owner->address(), 20, 100)).Wait().ok());
  const std::string before = owner->address();
  owner.reset();
  EXPECT_FALSE(Waiter(*reader, RefAt(before, 20, 100), std::chrono::seconds(1)).Wait().ok());
  owner = Start();
  EXPECT_TRUE(Waiter(*reader, RefAt(owner->address(), 20, 100)).Wait().ok());
}

// Another program that speaks UCX: it connects, and sends what it wants.
class Stranger {
 public:
  explicit Stranger(const std::string& address) {
    const auto target = *ParseAddress(ParseEndpointAddress(address)->address);
    // It reads no answer; without a handler UCX ends the process when one comes.
    EXPECT_TRUE(core_
                    ->Handle(
                        kAnswerId, [](auto...) { return UCS_OK; }, nullptr)
                    .ok());
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
  FetchAsk ask{kFetchMagic, kFetchVersion + 1, 1, 2, 3, 4, 5, {}};
  const std::string other_version(reinterpret_cast<const char*>(&ask), sizeof ask);
  for (const std::string& header : {other_version, other_version.substr(1), std::string(200, 'x')}) {
    Stranger stranger(server->address());
    stranger.Say(header);
    stranger.AwaitClosed();
  }
  EXPECT_EQ(options.refusals->count(SocketRefusal::kBrokenMessage), 3u);
  const auto client = StartOne(Kind::kUcx);
  Waiter fetched(*client, RefAt(server->address(), 7, 1000));
  EXPECT_TRUE(fetched.Wait().ok());
}

TEST(UcxServer, ConnectionsThatNeverShowTheTokenAreFewAndShort) {
  auto options = Loopback();
  options.refusals = std::make_shared<SocketRefusals>();
  const auto server = *UcxEndpoint::Start(options, Serve);
  const FetchAsk guess{kFetchMagic, kFetchVersion, 1, 2, 3, 4, 5, {}};
  Stranger silent(server->address());
  Stranger guessing(server->address());
  guessing.Say(std::string(reinterpret_cast<const char*>(&guess), sizeof guess));
  silent.AwaitClosed();
  guessing.AwaitClosed();
  EXPECT_EQ(options.refusals->count(SocketRefusal::kSilent), 2u);
  EXPECT_EQ(server->strangers(), 1u);
}

// Another program that opens a TCP connection.
class TcpStranger {
 public:
  explicit TcpStranger(const std::string& endpoint) {
    const auto target = *ParseAddress(ParseEndpointAddress(endpoint)->address);
    EXPECT_EQ(connect(socket_.get(), reinterpret_cast<const sockaddr*>(&target), AddressLength(target)), 0);
  }
  void Say(const std::string& bytes) const {
    EXPECT_EQ(send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // Reads all bytes until the other end closes.
  std::string ReadToEnd() const {
    std::string all;
    std::array<char, 4096> piece{};
    for (ssize_t got = 0; (got = recv(socket_.get(), piece.data(), piece.size(), 0)) > 0;)
      all.append(piece.data(), static_cast<std::size_t>(got));
    return all;
  }

 private:
  UniqueFd socket_{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
};

StreamEndpoint::Options Counted(Kind kind = Kind::kStream) {
  StreamEndpoint::Options options;
  options.refusals = std::make_shared<SocketRefusals>();
  if (kind == Kind::kTls) options.credentials = TestCertificates().Of("node");
  return options;
}

std::string HeaderOf(const FetchAsk& ask) {
  return {reinterpret_cast<const char*>(&ask), sizeof ask};
}

TEST(StreamServer, AStrangersBytesCloseItsConnectionAndAreCounted) {
  for (const Kind kind : {Kind::kStream, Kind::kTls}) {
    const auto options = Counted(kind);
    const auto server = *StreamEndpoint::Start(options, Serve);
    const std::string other_version = HeaderOf({kFetchMagic, kFetchVersion + 1, 1, 2, 3, 4, 5, {}});
    for (const std::string& bytes : {other_version, other_version.substr(1) + "x", std::string(200, 'x')}) {
      const TcpStranger stranger(server->address());
      stranger.Say(bytes);
      EXPECT_LT(stranger.ReadToEnd().size(), 100u);  // at most an alert of TLS
    }
    // The server's thread has counted its earlier events by now.
    EXPECT_TRUE(Waiter(*StartOne(kind), RefAt(server->address(), 7, 1000)).Wait().ok());
    EXPECT_EQ(options.refusals->count(SocketRefusal::kBrokenMessage), 3u);
  }
}

TEST(StreamServer, ConnectionsThatAskNothingAreFew) {
  const auto options = Counted();
  const auto server = *StreamEndpoint::Start(options, Serve);
  std::vector<TcpStranger> silent;
  for (int i = 0; i < 65; ++i) silent.emplace_back(server->address());
  EXPECT_EQ(silent[0].ReadToEnd(), "");  // this connection was closed for the last one
  EXPECT_EQ(options.refusals->count(SocketRefusal::kCrowdedOut), 1u);
  EXPECT_TRUE(Waiter(*StartOne(Kind::kStream), RefAt(server->address(), 7, 1000)).Wait().ok());
}

TEST(StreamServer, ConnectionsThatAskNothingAreShort) {
  const auto options = Counted(Kind::kTls);
  const auto server = *StreamEndpoint::Start(options, Serve);
  const TcpStranger silent(server->address());
  EXPECT_EQ(silent.ReadToEnd(), "");
  EXPECT_TRUE(Waiter(*StartOne(Kind::kTls), RefAt(server->address(), 7, 1000)).Wait().ok());
  EXPECT_EQ(options.refusals->count(SocketRefusal::kSilent), 1u);
}

// A reader with these credentials, or without any.
absl::Status FetchWith(std::shared_ptr<security::Credentials> credentials, const std::string& address) {
  StreamEndpoint::Options options;
  options.credentials = std::move(credentials);
  const auto reader = *StreamEndpoint::Start(std::move(options), Serve);
  return Waiter(*reader, RefAt(address, 20, 1000), std::chrono::seconds(10)).Wait();
}

TEST(StreamTls, AReaderWithoutACertificateOfADaemonGetsNothing) {
  const auto options = Counted(Kind::kTls);
  const auto server = *StreamEndpoint::Start(options, Serve);
  EXPECT_TRUE(absl::IsUnavailable(FetchWith(nullptr, server->address())));
  EXPECT_FALSE(FetchWith(TestCertificates().Of("admin"), server->address()).ok());
  EXPECT_EQ(options.refusals->count(SocketRefusal::kBrokenMessage), 2u);
  EXPECT_TRUE(FetchWith(TestCertificates().Of("node"), server->address()).ok());
}

TEST(StreamTls, AnOwnerThatIsNotTheHostOfTheAddressIsRefused) {
  auto options = Counted();
  options.credentials = TestCertificates().Of("elsewhere");
  const auto impostor = *StreamEndpoint::Start(options, Serve);
  const absl::Status status = FetchWith(TestCertificates().Of("node"), impostor->address());
  EXPECT_TRUE(absl::IsUnauthenticated(status)) << status;
}

TEST(StreamTls, AReaderWhoseCertificateIsRevokedGetsNothingMoreOverItsConnection) {
  TestCertificates().Issue("leaver", security::Role::kNode);
  auto options = Counted(Kind::kTls);
  const auto server = *StreamEndpoint::Start(options, Serve);
  StreamEndpoint::Options reading;
  reading.credentials = TestCertificates().Of("leaver");
  const auto reader = *StreamEndpoint::Start(std::move(reading), Serve);
  ASSERT_TRUE(Waiter(*reader, RefAt(server->address(), 20, 1000)).Wait().ok());
  TestCertificates().Revoke("leaver");
  ASSERT_TRUE(options.credentials->Reload(true).value_or(false));
  EXPECT_FALSE(Waiter(*reader, RefAt(server->address(), 20, 1000)).Wait().ok());
  EXPECT_EQ(server->strangers(), 1u);
}

TEST(StreamTls, AReaderWithANewCertificateInPlaceOfARevokedOneIsServedAtOnce) {
  TestCertificates().Issue("renewed", security::Role::kNode);
  const auto credentials = TestCertificates().Of("renewed");
  const auto options = Counted(Kind::kTls);
  const auto server = *StreamEndpoint::Start(options, Serve);
  StreamEndpoint::Options reading;
  reading.credentials = credentials;
  const auto reader = *StreamEndpoint::Start(std::move(reading), Serve);
  ASSERT_TRUE(Waiter(*reader, RefAt(server->address(), 20, 1000)).Wait().ok());
  TestCertificates().Revoke("renewed");
  ASSERT_TRUE(options.credentials->Reload(true).value_or(false));
  TestCertificates().Issue("renewed", security::Role::kNode);
  ASSERT_TRUE(credentials->Reload(true).value_or(false));
  const absl::Status status = Waiter(*reader, RefAt(server->address(), 20, 1000)).Wait();
  EXPECT_TRUE(status.ok()) << status;
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

TEST(IpAddress, FindsTheInterfaceOfAnAddress) {
  EXPECT_EQ(InterfaceOf(*ParseAddress("127.0.0.1:1")), "lo");
  EXPECT_EQ(InterfaceOf(*ParseAddress("127.9.8.7:1")), "lo");
  EXPECT_EQ(InterfaceOf(*ParseAddress("0.0.0.0:1")), "");
}

}  // namespace
}  // namespace troupe::transport
