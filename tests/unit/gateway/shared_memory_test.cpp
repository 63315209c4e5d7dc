// Regions of clients' shared memory: what is registered, for whom, within which bounds, and what a client may
// do to its object meanwhile.
#include "gateway/shared_memory.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <limits>

#include "gateway/client_user.hpp"
#include "gateway/text.hpp"
#include "tests/unit/gateway/shared_folder.hpp"

namespace troupe::gateway {
namespace {

using Code = absl::StatusCode;

class SharedMemoryTable : public testing::Test {
 protected:
  SharedMemoryTable() {
    options_.folder = folder_.path();
    options_.regions = 8;
    options_.bytes = Bytes(1000);
    options_.inputs = Bytes(300);
    folder_.Make("object", "0123456789");
    memory_ = std::make_unique<SharedMemory>(options_);
  }
  absl::Status Register(const std::string& name, RegionPlace place) {
    return memory_->Register(owner_, name, std::move(place));
  }
  Code CodeOf(RegionPlace place) { return Register("r", std::move(place)).code(); }
  std::string Read(const SharedRange& range) {
    std::string bytes(range.size().count(), '\0');
    const auto status = range.Read(std::as_writable_bytes(std::span(bytes)));
    return status.ok() ? bytes : std::string(status.message());
  }
  static absl::Status Write(const SharedRange& range, std::string_view bytes) {
    return range.Write(std::as_bytes(std::span(bytes)));
  }

  SharedFolder folder_;
  SharedMemoryOptions options_;
  RegionOwner owner_{"key/a", getuid()};
  std::unique_ptr<SharedMemory> memory_;
};

TEST_F(SharedMemoryTable, ARangeIsReadAndWrittenWhereItLies) {
  ASSERT_TRUE(Register("r", {"/object", 2, 6}).ok());
  const auto range = memory_->Find(owner_, "r", 1, 4);
  ASSERT_TRUE(range.ok()) << range.status();
  EXPECT_EQ(Read(*range), "3456");
  ASSERT_TRUE(Write(*range, "abc").ok());
  EXPECT_EQ(folder_.Read("object"), "012abc6789");
  const auto all = memory_->Describe(owner_, std::nullopt);
  ASSERT_TRUE(all.ok());
  ASSERT_EQ(all->size(), 1U);
  EXPECT_EQ(all->front().place.key, "/object");
  EXPECT_EQ(all->front().place.offset, 2U);
  EXPECT_EQ(all->front().place.byte_size, 6U);
}

TEST_F(SharedMemoryTable, RangesThatLeaveTheirRegionAreRefused) {
  ASSERT_TRUE(Register("r", {"object", 2, 6}).ok());
  constexpr auto kMost = std::numeric_limits<std::uint64_t>::max();
  EXPECT_TRUE(memory_->Find(owner_, "r", 6, 0).ok());
  EXPECT_EQ(memory_->Find(owner_, "r", 0, 7).status().code(), Code::kOutOfRange);
  EXPECT_EQ(memory_->Find(owner_, "r", 5, 2).status().code(), Code::kOutOfRange);
  EXPECT_EQ(memory_->Find(owner_, "r", kMost, 2).status().code(), Code::kOutOfRange);
  EXPECT_EQ(memory_->Find(owner_, "r", 2, kMost).status().code(), Code::kOutOfRange);
  EXPECT_EQ(memory_->Find(owner_, "s", 0, 1).status().code(), Code::kNotFound);
}

TEST_F(SharedMemoryTable, RegionsThatLeaveTheirObjectAreRefused) {
  constexpr auto kMost = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(CodeOf({"object", 0, 0}), Code::kInvalidArgument);
  EXPECT_EQ(CodeOf({"object", 0, 11}), Code::kInvalidArgument);
  EXPECT_EQ(CodeOf({"object", 10, 1}), Code::kInvalidArgument);
  EXPECT_EQ(CodeOf({"object", kMost, 2}), Code::kInvalidArgument);
  EXPECT_EQ(CodeOf({"object", 2, kMost}), Code::kInvalidArgument);
  EXPECT_EQ(CodeOf({"object", std::uint64_t{1} << 63, 1}), Code::kInvalidArgument);
  EXPECT_EQ(memory_->load().regions, 0U);
  EXPECT_EQ(CodeOf({"object", 9, 1}), Code::kOk);
}

TEST_F(SharedMemoryTable, KeysThatAreNotOneNameAreRefused) {
  for (const std::string key :
       {"", "/", ".", "..", "/..", "a/b", "/a/b", "../object", "//object", "/dev/shm/object"})
    EXPECT_EQ(CodeOf({key, 0, 1}), Code::kInvalidArgument) << key;
  EXPECT_EQ(CodeOf({std::string(256, 'k'), 0, 1}), Code::kInvalidArgument);
  EXPECT_EQ(CodeOf({std::string("object\0x", 8), 0, 1}), Code::kInvalidArgument);
  EXPECT_EQ(CodeOf({"absent", 0, 1}), Code::kNotFound);
}

TEST_F(SharedMemoryTable, OnlyRegularFilesInMemoryAreTaken) {
  std::filesystem::create_directory(folder_.Of("folder"));
  EXPECT_EQ(CodeOf({"folder", 0, 1}), Code::kInvalidArgument);
  ASSERT_EQ(mkfifo(folder_.Of("pipe").c_str(), 0600), 0);
  EXPECT_EQ(CodeOf({"pipe", 0, 1}), Code::kInvalidArgument);
  const auto elsewhere = SharedRegion::Open("/proc/self", {"status", 0, 1}, getuid()).status();
  EXPECT_EQ(elsewhere.code(), Code::kInvalidArgument);
  EXPECT_NE(elsewhere.message().find("a file that is not in memory"), std::string_view::npos) << elsewhere;
}

TEST_F(SharedMemoryTable, LinksAreNotFollowed) {
  std::filesystem::create_symlink("object", folder_.Of("link"));
  std::filesystem::create_symlink("/etc/passwd", folder_.Of("far"));
  for (const std::string key : {"link", "far"}) {
    const auto status = Register("r", {key, 0, 1});
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status;
    EXPECT_NE(status.message().find("a link"), std::string_view::npos) << status;
  }
}

TEST_F(SharedMemoryTable, AnotherUsersObjectIsRefused) {
  const RegionOwner other{"key/a", getuid() + 1};
  const auto status = memory_->Register(other, "r", {"object", 0, 1});
  EXPECT_EQ(status.code(), Code::kPermissionDenied);
  EXPECT_NE(status.message().find("its own objects only"), std::string_view::npos) << status;
}

TEST_F(SharedMemoryTable, EachOwnerSeesItsRegionsOnly) {
  const RegionOwner key{"key/b", getuid()};
  ASSERT_TRUE(Register("r", {"object", 0, 4}).ok());
  EXPECT_EQ(memory_->Find(key, "r", 0, 1).status().code(), Code::kNotFound);
  EXPECT_EQ(memory_->Describe(key, "r").status().code(), Code::kNotFound);
  EXPECT_TRUE(memory_->Describe(key, std::nullopt)->empty());
  memory_->Unregister(key, std::nullopt, nullptr);
  memory_->Unregister(key, "r", nullptr);
  EXPECT_TRUE(memory_->Find(owner_, "r", 0, 1).ok());
  EXPECT_TRUE(memory_->Register(key, "r", {"object", 5, 4}).ok());
  EXPECT_EQ(Read(*memory_->Find(key, "r", 0, 1)), "5");
  EXPECT_EQ(memory_->Find({"key/a", getuid() + 1}, "r", 0, 1).status().code(), Code::kNotFound);
}

TEST_F(SharedMemoryTable, ANameIsRegisteredOnce) {
  ASSERT_TRUE(Register("r", {"object", 0, 4}).ok());
  EXPECT_EQ(CodeOf({"object", 4, 4}), Code::kAlreadyExists);
  EXPECT_EQ(Read(*memory_->Find(owner_, "r", 0, 1)), "0");
  memory_->Unregister(owner_, "r", nullptr);
  memory_->Unregister(owner_, "r", nullptr);
  EXPECT_EQ(CodeOf({"object", 4, 4}), Code::kOk);
}

TEST_F(SharedMemoryTable, AShrunkObjectIsAnErrorBothWays) {
  ASSERT_TRUE(Register("r", {"object", 0, 10}).ok());
  const auto range = *memory_->Find(owner_, "r", 2, 8);
  folder_.Resize("object", 5);
  EXPECT_NE(Read(range).find("was shrunk since it was registered"), std::string::npos) << Read(range);
  EXPECT_EQ(Write(range, "abcdefgh").code(), Code::kFailedPrecondition);
  EXPECT_EQ(folder_.Read("object"), "01234");  // nor is it made longer again
  folder_.Resize("object", 10);
  EXPECT_TRUE(Write(range, "abcdefgh").ok());
}

TEST_F(SharedMemoryTable, ARegionStaysTheObjectThatWasRegistered) {
  ASSERT_TRUE(Register("r", {"object", 0, 4}).ok());
  folder_.Remove("object");
  folder_.Make("object", "another one");
  EXPECT_EQ(Read(*memory_->Find(owner_, "r", 0, 4)), "0123");
}

TEST_F(SharedMemoryTable, ARegionInUseEndsWhenItsUsersDo) {
  ASSERT_TRUE(Register("r", {"object", 0, 4}).ok());
  ASSERT_TRUE(Register("s", {"object", 4, 4}).ok());
  auto range = *memory_->Find(owner_, "r", 0, 4);
  bool ended = false;
  const auto notice = [&ended] {
    return std::shared_ptr<const void>(&ended, [&ended](const void*) { ended = true; });
  };
  memory_->Unregister(owner_, std::nullopt, notice());
  EXPECT_FALSE(ended);
  EXPECT_EQ(memory_->Find(owner_, "r", 0, 4).status().code(), Code::kNotFound);
  EXPECT_EQ(Read(range), "0123");
  EXPECT_TRUE(Register("r", {"object", 4, 4}).ok());  // its name is free
  range = SharedRange();
  EXPECT_TRUE(ended);
  ended = false;
  memory_->Unregister(owner_, "absent", notice());
  EXPECT_TRUE(ended);
}

TEST_F(SharedMemoryTable, TheNumberOfRegionsIsBoundedInAllAndForEachOwner) {
  ASSERT_TRUE(Register("1", {"object", 0, 1}).ok());
  ASSERT_TRUE(Register("2", {"object", 0, 1}).ok());
  EXPECT_EQ(Register("3", {"object", 0, 1}).code(), Code::kResourceExhausted);
  for (const std::string name : {"b", "c", "d"})
    for (const std::string region : {"1", "2"})
      EXPECT_TRUE(memory_->Register({name, getuid()}, region, {"object", 0, 1}).ok()) << name;
  EXPECT_EQ(memory_->Register({"e", getuid()}, "1", {"object", 0, 1}).code(), Code::kResourceExhausted);
  memory_->Unregister(owner_, "1", nullptr);
  EXPECT_TRUE(memory_->Register({"e", getuid()}, "1", {"object", 0, 1}).ok());
  EXPECT_EQ(memory_->load().regions, 8U);
}

TEST_F(SharedMemoryTable, TheBytesOfRegionsAndOfInputsAreBounded) {
  folder_.Make("large", std::string(600, 'x'));
  EXPECT_EQ(Register("r", {"large", 0, 501}).code(), Code::kResourceExhausted);
  EXPECT_TRUE(Register("r", {"large", 0, 500}).ok());
  EXPECT_EQ(Register("s", {"large", 0, 1}).code(), Code::kResourceExhausted);
  EXPECT_EQ(memory_->load().bytes, Bytes(500));
  memory_->Unregister(owner_, "r", nullptr);
  EXPECT_TRUE(Register("s", {"large", 0, 1}).ok());

  EXPECT_FALSE(memory_->Charge(owner_, Bytes(201)).ok());
  auto two_thirds = memory_->Charge(owner_, Bytes(200));
  ASSERT_TRUE(two_thirds.ok());
  EXPECT_EQ(memory_->Charge(owner_, Bytes(1)).status().code(), Code::kResourceExhausted);
  const auto other = memory_->Charge({"b", getuid()}, Bytes(100));
  ASSERT_TRUE(other.ok());
  EXPECT_FALSE(memory_->Charge({"c", getuid()}, Bytes(1)).ok());
  EXPECT_FALSE(memory_->Charge({"c", getuid()}, Bytes(std::numeric_limits<std::uint64_t>::max())).ok());
  two_thirds->reset();
  EXPECT_TRUE(memory_->Charge(owner_, Bytes(200)).ok());
}

TEST_F(SharedMemoryTable, AnObjectThatMayOnlyBeReadIsReadOnly) {
  folder_.Make("fixed", "fixed");
  std::filesystem::permissions(folder_.Of("fixed"), std::filesystem::perms::owner_read);
  if (getuid() == 0) GTEST_SKIP() << "root may write every object";
  ASSERT_TRUE(Register("r", {"fixed", 0, 5}).ok());
  const auto range = *memory_->Find(owner_, "r", 0, 5);
  EXPECT_FALSE(range.writable());
  EXPECT_EQ(Read(range), "fixed");
  EXPECT_FALSE(Write(range, "other").ok());
}

// Both ends of one TCP connection over loopback.
struct Connection {
  explicit Connection(int family) {
    const int listener = socket(family, SOCK_STREAM, 0);
    sockaddr_storage address{};
    address.ss_family = static_cast<sa_family_t>(family);
    if (family == AF_INET) {
      reinterpret_cast<sockaddr_in&>(address).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    } else {
      reinterpret_cast<sockaddr_in6&>(address).sin6_addr = in6addr_loopback;
    }
    socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    auto* const plain = reinterpret_cast<sockaddr*>(&address);
    made = bind(listener, plain, length) == 0 && listen(listener, 1) == 0 &&
           getsockname(listener, plain, &length) == 0;
    client = socket(family, SOCK_STREAM, 0);
    made = made && connect(client, plain, length) == 0;
    server = made ? accept(listener, nullptr, nullptr) : -1;
    close(listener);
    if (!made) return;
    ends.is_v6 = family == AF_INET6;
    ends.local = End(getsockname);
    ends.remote = End(getpeername);
  }
  ~Connection() {
    close(client);
    close(server);
  }
  TcpEnd End(int (*ask)(int, sockaddr*, socklen_t*) noexcept) const {
    sockaddr_storage address{};
    socklen_t length = sizeof(address);
    EXPECT_EQ(ask(server, reinterpret_cast<sockaddr*>(&address), &length), 0);
    TcpEnd end;
    if (ends.is_v6) {
      const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
      std::memcpy(end.address.data(), &v6.sin6_addr, 16);
      end.port = ntohs(v6.sin6_port);
    } else {
      const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
      std::memcpy(end.address.data(), &v4.sin_addr, 4);
      end.port = ntohs(v4.sin_port);
    }
    return end;
  }
  bool made = false;
  int client = -1;
  int server = -1;
  TcpEnds ends;
};

TEST(ClientUser, IsTheUserAtTheOtherEndOfAConnection) {
  for (const int family : {AF_INET, AF_INET6}) {
    const Connection connection(family);
    if (!connection.made && family == AF_INET6) continue;  // a machine without IPv6
    ASSERT_TRUE(connection.made);
    const auto user = UserAtRemoteEnd(connection.ends);
    ASSERT_TRUE(user.ok()) << user.status();
    EXPECT_EQ(*user, getuid());
    EXPECT_EQ(*ClientUser(connection.ends).Get(), getuid());
  }
}

TEST(ClientUser, IsAnotherUserWhereTheSocketIsTheirs) {
  if (getuid() != 0) GTEST_SKIP() << "only root makes sockets of other users";
  const Connection connection(AF_INET);
  ASSERT_EQ(fchown(connection.client, 4711, static_cast<gid_t>(-1)), 0);
  EXPECT_EQ(*UserAtRemoteEnd(connection.ends), 4711U);
  // The number that stands for all users without one.
  ASSERT_EQ(fchown(connection.client, 65534, static_cast<gid_t>(-1)), 0);
  EXPECT_EQ(UserAtRemoteEnd(connection.ends).status().code(), Code::kPermissionDenied);
}

TEST(ClientUser, IsUnknownWithoutAnEstablishedConnection) {
  Connection connection(AF_INET);
  TcpEnds other = connection.ends;
  other.remote.address = {10, 255, 255, 1};
  EXPECT_EQ(UserAtRemoteEnd(other).status().code(), Code::kPermissionDenied);
  EXPECT_EQ(UserAtRemoteEnd(TcpEnds()).status().code(), Code::kPermissionDenied);
  close(std::exchange(connection.client, -1));  // what is left of its socket has no user
  EXPECT_EQ(UserAtRemoteEnd(connection.ends).status().code(), Code::kPermissionDenied);
}

}  // namespace
}  // namespace troupe::gateway
