#include "actors/daemon/vital.hpp"

#include <gtest/gtest.h>

#include <caf/all.hpp>
#include <cstdlib>
#include <future>
#include <stdexcept>

namespace troupe::actors {
namespace {

// Returns 1, and throws for a number below.
caf::behavior Fragile() {
  return {[](int what) {
    if (what < 1) throw std::runtime_error("too small");
    return what;
  }};
}

void Try(bool shuts_down) {
  caf::actor_system_config config;
  caf::actor_system system(config);
  const auto actor = system.spawn(Fragile);
  EndProcessWith(actor, "the fragile one");
  if (shuts_down) {
    caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
  } else {
    caf::anon_send(actor, 1);
    caf::anon_send(actor, 0);
  }
  caf::scoped_actor self(system);
  self->wait_for(actor);
  // This test hears of the actor's end before the watchers that came first: the process may yet end with it.
  if (!shuts_down) std::promise<void>().get_future().wait();
  std::_Exit(0);
}

TEST(VitalActorDeathTest, TheProcessEndsWithAnActorThatThrows) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(Try(false), ::testing::ExitedWithCode(kVitalActorEnded), "");
}

TEST(VitalActorDeathTest, AnActorThatIsAskedToEndEndsAlone) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(Try(true), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace troupe::actors
