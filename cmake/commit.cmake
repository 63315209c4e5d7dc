# Run by every build: writes which commit the sources are of. The file is touched only when that has changed, so that what
# includes it is compiled again only then. A source archive carries the commit in a file COMMIT.
#   cmake -D SOURCE=... -D RELEASE=... -D OUTPUT=... -P cmake/commit.cmake
if(EXISTS ${SOURCE}/COMMIT)
  file(STRINGS ${SOURCE}/COMMIT commit LIMIT_COUNT 1)
else()
  execute_process(COMMAND git -C ${SOURCE} rev-parse --short=12 HEAD
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT commit)
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [[
#pragma once
namespace troupe::proto {
inline constexpr char kRelease[] = "@RELEASE@";
inline constexpr char kCommit[] = "@commit@";
}  // namespace troupe::proto
]] @ONLY)
