// What an actor may expect of any PeerDirectory: the table of one process, and connections to actors of
// another process (this program, started once more).
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <caf/all.hpp>
#include <caf/io/all.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <condition_variable>
#include <csignal>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "actors/interfaces/message_types.hpp"
#include "actors/peers/guarded_connection.hpp"
#include "actors/peers/local_socket.hpp"
#include "actors/peers/network_peer_directory.hpp"
#include "base/units.hpp"
#include "proto/admin.pb.h"
#include "tests/certificates.hpp"

namespace troupe::actors {
namespace {

constexpr Duration kPatience = std::chrono::seconds(60);

// What is published: an actor with one operation, or with two; or a node of an earlier release, without an operation that is
// wanted of nodes.
enum class Offer { kSmall, kLarge, kEarlierNode };
using EarlierNode = Interface<Asks<proto::DescribeNode, proto::NodeDescription>,
                              Asks<proto::AdoptModel, proto::AdoptModelReply>>;
using NewNode = EarlierNode::extend<Asks<proto::DrainNode, proto::DrainReply>, Hears<proto::KillGpu>>;
using Small = Interface<Asks<proto::DescribeNode, proto::NodeDescription>>;
using Large = Interface<Asks<proto::DescribeNode, proto::NodeDescription>, Hears<proto::KillGpu>>;

Small::behavior_type BeSmall() {
  return {[](const proto::DescribeNode&) {
    proto::NodeDescription report;
    report.add_adopted("small");
    return report;
  }};
}
Large::behavior_type BeLarge() {
  return {[](const proto::DescribeNode&) {
            proto::NodeDescription report;
            report.add_adopted("large");
            return report;
          },
          [](const proto::KillGpu&) {}};
}

EarlierNode::behavior_type BeAnEarlierNode() {
  return {[](const proto::DescribeNode&) {
            proto::NodeDescription report;
            report.add_adopted("earlier");
            return report;
          },
          [](const proto::AdoptModel&) { return proto::AdoptModelReply(); }};
}

// What one watcher has heard; it outlives the watcher.
struct Heard {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::uint64_t> ups;    // the numbers of the connections
  std::vector<std::string> answers;  // of the peers that were announced
  std::vector<caf::error> refusals;  // the answers of peers that were asked to drain and cannot
  std::size_t losts = 0;
  bool ended = false;  // the watcher's actor has ended, not only stopped watching

  template <class Do>
  void Change(Do change) {
    const std::lock_guard lock(mutex);
    change();
    changed.notify_all();
  }
};

class Watcher : public PeerWatcherActor::base {
 public:
  Watcher(caf::actor_config& config, std::shared_ptr<Heard> heard, bool asks_to_drain = false)
      : PeerWatcherActor::base(config), heard_(std::move(heard)), asks_to_drain_(asks_to_drain) {}
  ~Watcher() override {
    heard_->Change([&] { heard_->ended = true; });
  }
  behavior_type make_behavior() override {
    return {
        [this](const proto::PeerUp& up, const caf::strong_actor_ptr& peer) {
          EXPECT_EQ(up.address(), address);
          heard_->Change([&] { heard_->ups.push_back(up.connection()); });
          request(caf::actor_cast<Small>(peer), kPatience, proto::DescribeNode())
              .then([this](const proto::NodeDescription& report) {
                heard_->Change([&] { heard_->answers.push_back(report.adopted(0)); });
              });
          if (!asks_to_drain_) return;
          // The peer has dropped this message by the time that it answers the question behind it.
          send(caf::actor_cast<NewNode>(peer), proto::KillGpu());
          request(caf::actor_cast<NewNode>(peer), kPatience, proto::DrainNode())
              .then([](const proto::DrainReply&) { ADD_FAILURE() << "no such peer can drain"; },
                    [this](caf::error& error) {
                      heard_->Change([&] { heard_->refusals.push_back(std::move(error)); });
                    });
        },
        [this](const proto::PeerLost&) { heard_->Change([&] { ++heard_->losts; }); },
    };
  }
  static inline std::string address;  // the address that every test watches

 private:
  std::shared_ptr<Heard> heard_;
  const bool asks_to_drain_;
};

class Site {
 public:
  virtual ~Site() = default;
  virtual PeerDirectory& directory() = 0;
  virtual caf::actor_system& system() = 0;
  virtual std::string address() = 0;
  // An actor appears at the address; it goes by Stop (it ends) or Crash.
  virtual void Publish(Offer offer) = 0;
  virtual void Stop() = 0;
  virtual void Crash() = 0;
  virtual bool Await(Heard& heard, const std::function<bool()>& condition) = 0;
};

class Local final : public Site {
 public:
  Local() : config_(Configure()), system_(*config_) {}
  ~Local() override {
    directory_.Clear();
    Stop();
    scheduler().clock().cancel_all();
  }
  PeerDirectory& directory() override { return directory_; }
  caf::actor_system& system() override { return system_; }
  std::string address() override { return "here"; }
  void Publish(Offer offer) override {
    if (offer == Offer::kLarge) return Stand(system_.spawn(BeLarge));
    if (offer == Offer::kEarlierNode) return Stand(system_.spawn(BeAnEarlierNode));
    Stand(system_.spawn(BeSmall));
  }
  void Stop() override { End(caf::exit_reason::user_shutdown); }
  void Crash() override { End(caf::exit_reason::kill); }
  bool Await(Heard&, const std::function<bool()>& condition) override {
    Settle();
    return condition();
  }

 private:
  void Settle() {
    while (scheduler().try_run_once()) {
    }
  }
  static std::unique_ptr<caf::actor_system_config> Configure() {
    auto config = std::make_unique<caf::actor_system_config>();
    RegisterMessageTypes(*config);
    config->set("scheduler.policy", caf::atom("testing"));
    return config;
  }
  template <class Handle>
  void Stand(const Handle& handle) {
    peer_ = caf::actor_cast<caf::strong_actor_ptr>(handle);
    directory_.Publish(address(), peer_, system_.message_types<Handle>());
  }
  void End(caf::exit_reason reason) {
    if (peer_) caf::anon_send_exit(peer_, reason);
    peer_ = nullptr;
    Settle();
  }
  caf::scheduler::test_coordinator& scheduler() {
    return dynamic_cast<caf::scheduler::test_coordinator&>(system_.scheduler());
  }

  std::unique_ptr<caf::actor_system_config> config_;
  caf::actor_system system_;
  LocalPeerDirectory directory_;
  caf::strong_actor_ptr peer_;
};

std::unique_ptr<caf::actor_system_config> NetworkConfiguration() {
  auto config = std::make_unique<caf::actor_system_config>();
  RegisterMessageTypes(*config);
  config->load<caf::io::middleman>();
  config->set("scheduler.max-threads", static_cast<std::size_t>(2));
  return config;
}

// A port that was free a moment ago.
std::uint16_t FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof name;
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&name), size), 0);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size), 0);
  close(fd);
  return ntohs(name.sin_port);
}

// The process in which the actors of the other side live; it reads commands and answers each with a line.
class OtherProcess {
 public:
  // Listens at an address of this machine, with the certificate of the folder when one is given.
  OtherProcess(const std::string& host, const std::string& folder) {
    std::array<int, 2> in{}, out{};
    EXPECT_EQ(pipe2(in.data(), O_CLOEXEC) + pipe2(out.data(), O_CLOEXEC), 0);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(in[0], STDIN_FILENO);
      dup2(out[1], STDOUT_FILENO);
      execl("/proc/self/exe", "peer", "--be-the-peer", host.c_str(), folder.c_str(), nullptr);
      _exit(127);
    }
    close(in[0]);
    close(out[1]);
    commands_ = in[1];
    answers_ = out[0];
  }
  ~OtherProcess() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    close(commands_);
    close(answers_);
  }
  void Do(const std::string& command) {
    const auto line = command + "\n";
    ASSERT_EQ(write(commands_, line.data(), line.size()), static_cast<ssize_t>(line.size()));
    std::string answer;
    char c = 0;
    while (read(answers_, &c, 1) == 1 && c != '\n') answer += c;
    ASSERT_EQ(answer, "done");
  }

 private:
  pid_t pid_ = 0;
  int commands_ = -1;
  int answers_ = -1;
};

// The site's connections run over a Unix socket, or over TCP with certificates at both ends.
class Network final : public Site {
 public:
  explicit Network(std::string host = "127.0.0.1")
      : host_(std::move(host)), config_(NetworkConfiguration()), system_(*config_), port_(FreePort()) {
    if (host_ == "127.0.0.1") {
      directory_ = std::make_unique<NetworkPeerDirectory>(system_, pool_);
      return;
    }
    authority_ = std::make_unique<test::TestAuthority>();
    authority_->Issue("rack-3", {security::Role::kNode});
    directory_ = std::make_unique<NetworkPeerDirectory>(system_, pool_,
                                                        authority_->Make("head", {security::Role::kManager}));
  }
  ~Network() override { directory_->Clear(); }
  PeerDirectory& directory() override { return *directory_; }
  caf::actor_system& system() override { return system_; }
  std::string address() override { return absl::StrCat(host_, ":", port_); }
  void Publish(Offer offer) override {
    if (other_ == nullptr)
      other_ =
          std::make_unique<OtherProcess>(host_, authority_ == nullptr ? "" : authority_->folder("rack-3"));
    const char* const word = offer == Offer::kLarge   ? "large "
                             : offer == Offer::kSmall ? "small "
                                                      : "earlier ";
    other_->Do(absl::StrCat(word, port_));
  }
  void Stop() override { other_->Do("stop"); }
  void Crash() override { other_.reset(); }
  bool Await(Heard& heard, const std::function<bool()>& condition) override {
    std::unique_lock lock(heard.mutex);
    return heard.changed.wait_for(lock, kPatience, condition);
  }
  NetworkPeerDirectory& network() { return *directory_; }
  [[nodiscard]] std::uint16_t port() const { return port_; }

 private:
  const std::string host_;
  std::unique_ptr<test::TestAuthority> authority_;
  std::unique_ptr<caf::actor_system_config> config_;
  caf::actor_system system_;
  WorkPool pool_{2};
  std::unique_ptr<NetworkPeerDirectory> directory_;
  const std::uint16_t port_;
  std::unique_ptr<OtherProcess> other_;
};

// A watcher of the site's address.
struct Watch {
  explicit Watch(Site& s, Offer wanted = Offer::kSmall) : site(s) {
    Watcher::address = site.address();
    watcher =
        caf::actor_cast<PeerWatcherActor>(site.system().spawn<Watcher>(heard, wanted == Offer::kEarlierNode));
    auto interface = site.system().message_types<Small>();
    if (wanted == Offer::kLarge) interface = site.system().message_types<Large>();
    if (wanted == Offer::kEarlierNode) interface = site.system().message_types<NewNode>();
    site.directory().Watch(site.address(), std::move(interface), watcher);
  }
  ~Watch() { End(); }
  void End() {
    caf::anon_send_exit(watcher, caf::exit_reason::user_shutdown);
    watcher = PeerWatcherActor();
  }
  bool Await(const std::function<bool()>& condition) { return site.Await(*heard, condition); }
  bool AwaitUps(std::size_t count) {
    return Await([this, count] { return heard->ups.size() >= count && heard->answers.size() >= count; });
  }
  bool AwaitLosts(std::size_t count) {
    return Await([this, count] { return heard->losts >= count; });
  }
  std::pair<std::size_t, std::size_t> Counts() {
    const std::lock_guard lock(heard->mutex);
    return {heard->ups.size(), heard->losts};
  }

  Site& site;
  std::shared_ptr<Heard> heard = std::make_shared<Heard>();
  PeerWatcherActor watcher;
};

enum class Form { kLocal, kUnix, kTls };

class PeerDirectoryContract : public ::testing::TestWithParam<Form> {
 protected:
  void SetUp() override {
    if (GetParam() == Form::kLocal) {
      site_ = std::make_unique<Local>();
    } else if (GetParam() == Form::kUnix) {
      site_ = std::make_unique<Network>();
    } else {
      const auto host = test::AddressOfThisMachine();
      if (host.empty()) GTEST_SKIP() << "this machine has no address that is not loopback";
      site_ = std::make_unique<Network>(host);
    }
  }
  Site& site() { return *site_; }

 private:
  std::unique_ptr<Site> site_;
};

using Counts = std::pair<std::size_t, std::size_t>;

TEST_P(PeerDirectoryContract, APeerThatIsThereIsAnnouncedAndCanBeAsked) {
  site().Publish(Offer::kSmall);
  Watch watch(site());
  ASSERT_TRUE(watch.AwaitUps(1));
  EXPECT_EQ(watch.heard->answers[0], "small");
  EXPECT_EQ(watch.Counts(), Counts(1, 0));
}

TEST_P(PeerDirectoryContract, APeerThatComesLaterIsAnnouncedToAllWhoWaitForIt) {
  Watch one(site()), two(site());
  EXPECT_EQ(one.Counts(), Counts(0, 0));
  site().Publish(Offer::kSmall);
  EXPECT_TRUE(one.AwaitUps(1));
  EXPECT_TRUE(two.AwaitUps(1));
}

TEST_P(PeerDirectoryContract, APeerThatEndsIsLostAndItsSuccessorIsANewConnection) {
  site().Publish(Offer::kSmall);
  Watch watch(site());
  ASSERT_TRUE(watch.AwaitUps(1));
  site().Stop();
  ASSERT_TRUE(watch.AwaitLosts(1));
  site().Publish(Offer::kLarge);
  ASSERT_TRUE(watch.AwaitUps(2));
  EXPECT_EQ(watch.heard->answers[1], "large");
  EXPECT_GT(watch.heard->ups[1], watch.heard->ups[0]);
  EXPECT_EQ(watch.Counts(), Counts(2, 1));
}

TEST_P(PeerDirectoryContract, APeerThatCrashesIsLostAndFoundAgain) {
  site().Publish(Offer::kSmall);
  Watch watch(site());
  for (std::size_t round = 1; round <= 3; ++round) {
    ASSERT_TRUE(watch.AwaitUps(round));
    site().Crash();
    ASSERT_TRUE(watch.AwaitLosts(round));
    site().Publish(Offer::kSmall);
  }
  ASSERT_TRUE(watch.AwaitUps(4));
  EXPECT_EQ(watch.Counts(), Counts(4, 3));
}

TEST_P(PeerDirectoryContract, OnlyAPeerWithEveryOperationIsAnnounced) {
  site().Publish(Offer::kSmall);
  Watch large(site(), Offer::kLarge);
  Watch small(site());
  ASSERT_TRUE(small.AwaitUps(1));
  site().Stop();
  ASSERT_TRUE(small.AwaitLosts(1));
  EXPECT_EQ(large.Counts(), Counts(0, 0)) << "a peer that was never announced was reported as lost";
  site().Publish(Offer::kLarge);
  ASSERT_TRUE(large.AwaitUps(1));
  ASSERT_TRUE(small.AwaitUps(2));
}

// While a cluster is upgraded: what it knows it is asked, and what it does not know never reaches it.
TEST_P(PeerDirectoryContract, APeerOfAnEarlierReleaseIsAnnouncedAndSaysWhatItLacks) {
  site().Publish(Offer::kEarlierNode);
  Watch watch(site(), Offer::kEarlierNode);
  ASSERT_TRUE(watch.AwaitUps(1));
  ASSERT_TRUE(watch.Await([&] { return watch.heard->refusals.size() >= 1; }));
  EXPECT_EQ(watch.heard->answers.front(), "earlier");
  EXPECT_EQ(watch.heard->refusals.front(), caf::sec::unexpected_message);
  EXPECT_EQ(watch.Counts(), Counts(1, 0)) << "the connection is still there";
  EXPECT_FALSE(watch.heard->ended) << "what the peer could not hear did not end its sender";
  site().Stop();
  ASSERT_TRUE(watch.AwaitLosts(1));
  site().Publish(Offer::kEarlierNode);
  ASSERT_TRUE(watch.AwaitUps(2));
}

TEST_P(PeerDirectoryContract, AWatcherThatForgetsAnAddressHearsNothingMore) {
  site().Publish(Offer::kSmall);
  Watch stays(site()), goes(site());
  ASSERT_TRUE(stays.AwaitUps(1));
  ASSERT_TRUE(goes.AwaitUps(1));
  site().directory().Forget(site().address(), goes.watcher);
  site().directory().Forget("127.0.0.1:1", goes.watcher);  // no actor watches this address
  site().Stop();
  ASSERT_TRUE(stays.AwaitLosts(1));
  site().Publish(Offer::kSmall);
  ASSERT_TRUE(stays.AwaitUps(2));
  EXPECT_EQ(goes.Counts(), Counts(1, 0));
}

TEST_P(PeerDirectoryContract, AWatcherThatEndsIsLetGo) {
  site().Publish(Offer::kSmall);
  Watch stays(site()), ends(site());
  ASSERT_TRUE(stays.AwaitUps(1));
  ASSERT_TRUE(ends.AwaitUps(1));
  ends.End();
  EXPECT_TRUE(ends.Await([&] { return ends.heard->ended; }))
      << "the directory keeps a reference to the watcher";
  site().Stop();
  ASSERT_TRUE(stays.AwaitLosts(1));
  EXPECT_EQ(ends.Counts(), Counts(1, 0));
}

TEST_P(PeerDirectoryContract, AnAddressThatWasNotWatchedForAWhileIsFoundAgain) {
  site().Publish(Offer::kSmall);
  for (int round = 0; round < 3; ++round) {
    Watch watch(site());
    ASSERT_TRUE(watch.AwaitUps(1));
    if (round == 0) {
      site().directory().Forget(site().address(), watch.watcher);
    } else {
      watch.End();
      ASSERT_TRUE(watch.Await([&] { return watch.heard->ended; }));
    }
  }
}

TEST_P(PeerDirectoryContract, AnInvalidAddressHasNoActorAndHarmsNothing) {
  auto heard = std::make_shared<Heard>();
  const auto watcher = caf::actor_cast<PeerWatcherActor>(site().system().spawn<Watcher>(heard));
  site().directory().Watch("no address", {}, watcher);
  site().directory().Forget("no address", watcher);
  caf::anon_send_exit(watcher, caf::exit_reason::user_shutdown);
  site().Publish(Offer::kSmall);
  Watch watch(site());
  EXPECT_TRUE(watch.AwaitUps(1));
}

INSTANTIATE_TEST_SUITE_P(Forms, PeerDirectoryContract,
                         ::testing::Values(Form::kLocal, Form::kUnix, Form::kTls), [](const auto& form) {
                           return form.param == Form::kLocal  ? "Local"
                                  : form.param == Form::kUnix ? "Network"
                                                              : "Tls";
                         });

// A listener that accepts connections and never sends anything.
class MutePeer {
 public:
  explicit MutePeer(std::uint16_t port) {
    auto listening = ListenLocal("127.0.0.1", port);
    EXPECT_TRUE(listening.ok()) << listening.status();
    if (!listening.ok()) return;
    socket_ = std::move(listening->first);
    EXPECT_EQ(fcntl(socket_.get(), F_SETFL, 0), 0);  // Hear() waits
  }
  MutePeer(const MutePeer&) = delete;
  MutePeer& operator=(const MutePeer&) = delete;
  // The number of bytes that the next caller sends before it hangs up.
  std::size_t Hear() const {
    const int line = accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC);
    std::array<char, 1024> said{};
    std::size_t bytes = 0;
    for (ssize_t n = 0; (n = read(line, said.data(), said.size())) > 0;) bytes += static_cast<std::size_t>(n);
    close(line);
    return bytes;
  }

 private:
  transport::UniqueFd socket_;
};

// A connection that only tries whether the port is open would send nothing.
TEST(NetworkPeerDirectory, APeerThatSaysNothingIsHungUpOnAndEveryConnectionIsARealOne) {
  Network site;
  const MutePeer mute(site.port());
  Watch watch(site);
  for (int call = 0; call < 2; ++call) EXPECT_GT(mute.Hear(), 0u) << "call " << call;
  EXPECT_EQ(watch.Counts(), Counts(0, 0));
}

TEST(NetworkPeerDirectory, AnActorOfThisProcessIsFoundByThoseWhoWatchedBefore) {
  Network site;
  Watch watch(site);
  const auto actor = site.system().spawn(BeSmall);
  site.network().PublishHere(site.address(), caf::actor_cast<caf::strong_actor_ptr>(actor),
                             site.system().message_types<Small>());
  EXPECT_TRUE(watch.AwaitUps(1));
  caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
  EXPECT_TRUE(watch.AwaitLosts(1));
}

TEST(ParseAddress, TakesHostAndPortAndNothingElse) {
  const auto good = ParseAddress("node-1.example:7400");
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(*good, std::pair(std::string("node-1.example"), std::uint16_t{7400}));
  for (const char* wrong : {"", ":", "host", "host:", ":7400", "host:0", "host:65536", "host:-1", "host:x"})
    EXPECT_TRUE(absl::IsInvalidArgument(ParseAddress(wrong).status())) << wrong;
}

}  // namespace

// The other process; it understands "small PORT", "large PORT", "earlier PORT" and "stop".
int BeThePeer(const std::string& host, const std::string& folder) {
  auto config = NetworkConfiguration();
  caf::actor_system system(*config);
  std::shared_ptr<security::Credentials> credentials;
  if (!folder.empty())
    credentials = *security::Credentials::Load(security::CredentialFiles::InFolder(folder));
  const PeerNetwork network(system.node(), credentials);
  caf::actor standing;
  std::string command;
  std::uint16_t port = 0;
  while (std::cin >> command) {
    if (command == "stop") {
      if (!system.middleman().unpublish(standing, port)) _exit(1);
      caf::anon_send_exit(standing, caf::exit_reason::user_shutdown);
      caf::scoped_actor self(system);
      self->wait_for(standing);
      standing = caf::actor();
    } else {
      std::cin >> port;
      const auto stand = [&](const auto& actor) {
        const auto listening =
            ListenGuarded(system, network, caf::actor_cast<caf::strong_actor_ptr>(actor),
                          system.message_types<std::decay_t<decltype(actor)>>(), host, port);
        if (!listening.ok()) _exit(1);
        standing = caf::actor_cast<caf::actor>(actor);
      };
      if (command == "large") {
        stand(system.spawn(BeLarge));
      } else if (command == "earlier") {
        stand(system.spawn(BeAnEarlierNode));
      } else {
        stand(system.spawn(BeSmall));
      }
    }
    std::cout << "done" << std::endl;
  }
  _exit(0);
}

}  // namespace troupe::actors

int main(int argc, char** argv) {
  if (argc > 3 && std::string(argv[1]) == "--be-the-peer") return troupe::actors::BeThePeer(argv[2], argv[3]);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
