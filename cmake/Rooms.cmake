# What nearly every source includes, compiled once: it is two thirds of what a small source costs. Rooms share base's; those
# with OpenMP, which changes the language, share gpu_ops's.
set(TROUPE_COMMON_PCH
  <algorithm> <array> <functional> <map> <memory> <mutex> <optional> <set> <span> <string> <string_view> <utility> <vector>
  <absl/status/statusor.h> <absl/strings/str_cat.h> <absl/strings/str_join.h>)

# The rooms that read strangers' bytes. In the sanitizers' build they tell where they go and what they compare, so that libFuzzer
# sees which inputs are new (tests/fuzz). All programs of that build have these rooms.
set(TROUPE_TRACED_ROOMS actors actors_core actors_daemon cluster gateway gpu_import gpu_model gpu_types security storage transport
  transport_remote)
set(TROUPE_TRACED -fsanitize=fuzzer-no-link)

# troupe_unite(OUT TARGET SIZE SOURCES ...): sets OUT to units of SIZE sources each, which include the sources by their paths in the
# repository. CMake's own units name them by the folder of the checkout, and a compiler cache finds nothing in another one.
function(troupe_unite out target size)
  set(units)
  set(members)
  set(batch)
  set(left ${ARGN})
  list(LENGTH left remaining)
  foreach(source ${left})
    get_filename_component(path ${source} ABSOLUTE)
    file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR} ${path})
    string(APPEND batch "#include \"${path}\"\n")
    list(APPEND members ${source})
    math(EXPR remaining "${remaining} - 1")
    list(LENGTH members count)
    if(count EQUAL size OR remaining EQUAL 0)
      list(LENGTH units number)
      set(unit ${CMAKE_CURRENT_BINARY_DIR}/units/${target}_${number}.cpp)
      file(CONFIGURE OUTPUT ${unit} CONTENT "${batch}" @ONLY)  # left alone when it says the same already
      list(APPEND units ${unit})
      set(members)
      set(batch)
    endif()
  endforeach()
  set(${out} ${units} PARENT_SCOPE)
endfunction()

# troupe_room(NAME [APART] SOURCES ... [DEPS ...] [PRIVATE_DEPS ...] [PCH headers ... | PCH_FROM target])
# A folder is a target; its DEPS are the arrows of docs/architecture.md. Its sources are compiled eight at a time, because most of
# what a source costs is its headers; APART compiles them one by one. A name in an unnamed namespace is unique in its room.
function(troupe_room name)
  cmake_parse_arguments(ROOM "APART" "PCH_FROM" "SOURCES;DEPS;PRIVATE_DEPS;PCH" ${ARGN})
  if(NOT ROOM_APART)
    troupe_unite(ROOM_SOURCES troupe_${name} 8 ${ROOM_SOURCES})
  endif()
  add_library(troupe_${name} STATIC ${ROOM_SOURCES})
  if(NOT ROOM_APART)
    # GCC takes each of the eight for a header, and GCC 12 doubts the bounds of absl's inlined vectors wrongly.
    target_compile_options(troupe_${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage> -Wno-array-bounds)
  endif()
  target_link_libraries(troupe_${name} PUBLIC troupe_settings ${ROOM_DEPS} PRIVATE ${ROOM_PRIVATE_DEPS})
  if(TROUPE_SANITIZE MATCHES "address" AND (name IN_LIST TROUPE_TRACED_ROOMS OR ROOM_PCH_FROM STREQUAL troupe_actors_core))
    target_compile_options(troupe_${name} PRIVATE ${TROUPE_TRACED})
    # Precompiled headers are compiled so, too, and only for such rooms: security, the first of them, has base's for the others.
    if(name STREQUAL security)
      set(ROOM_PCH ${TROUPE_COMMON_PCH})
    elseif(NOT ROOM_PCH AND NOT ROOM_PCH_FROM)
      set(ROOM_PCH_FROM troupe_security)
    endif()
  endif()
  if(ROOM_PCH)
    target_precompile_headers(troupe_${name} PRIVATE ${ROOM_PCH})
  elseif(ROOM_PCH_FROM)
    target_precompile_headers(troupe_${name} REUSE_FROM ${ROOM_PCH_FROM})
  else()
    target_precompile_headers(troupe_${name} REUSE_FROM troupe_base)
  endif()
endfunction()

# troupe_program(NAME SOURCES ... DEPS ...): an executable in <build>/bin.
function(troupe_program name)
  cmake_parse_arguments(PROGRAM "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${PROGRAM_SOURCES})
  target_link_libraries(${name} PRIVATE troupe_settings ${PROGRAM_DEPS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
endfunction()

# What runs under the sanitizers: the tests of the unit and actor tiers, and the programs that they start.
add_custom_target(quick_tests)
# What `make test` runs in the release build: all other tiers, and the tests that want BOTH builds.
add_custom_target(release_tests)

# troupe_test(NAME [BOTH] TIER tier SOURCES ... [DEPS ...] [TIMEOUT seconds] [PROGRAMS targets ...] [PCH headers ... | PCH_FROM test])
# Tiers: unit, actors, sim, e2e, gpu, architecture. They are ctest labels: `ctest -L unit`.
# `make test` runs the unit and actor tiers under the sanitizers alone, since compiling them twice takes as long as all else.
# BOTH: in the release build, too. Such a test is about what a sanitizer changes: arithmetic of optimised kernels, a jail,
# the worker's own process, or cases of which a slow program draws only some (tests/draws.hpp).
# One ctest entry per binary (not per case): starting a process hundreds of times costs more than the cases.
function(troupe_test name)
  cmake_parse_arguments(TEST "BOTH" "TIER;TIMEOUT;PCH_FROM" "SOURCES;DEPS;PROGRAMS;PCH" ${ARGN})
  troupe_unite(units ${name} 8 ${TEST_SOURCES})
  add_executable(${name} ${units})
  target_link_libraries(${name} PRIVATE troupe_settings ${TEST_DEPS} GTest::gmock GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  # Only the rooms are optimised: the compiler takes two thirds of the time for the tests themselves then.
  target_compile_options(${name} PRIVATE -O0)
  if(TROUPE_SANITIZE MATCHES "undefined")
    # The rooms' sources are checked; to check the tests' own, too, takes a quarter of the time that compiling them takes.
    target_compile_options(${name} PRIVATE -fno-sanitize=undefined)
  endif()
  if(TEST_PCH)
    target_precompile_headers(${name} PRIVATE ${TEST_PCH})
  elseif(TEST_PCH_FROM)
    target_precompile_headers(${name} REUSE_FROM ${TEST_PCH_FROM})
  elseif(TEST_TIER STREQUAL unit)
    target_precompile_headers(${name} REUSE_FROM base_test)
  endif()
  if(TEST_PROGRAMS)
    add_dependencies(${name} ${TEST_PROGRAMS})
  endif()
  set(labels ${TEST_TIER})
  if(TEST_TIER MATCHES "^(unit|actors)$")
    add_dependencies(quick_tests ${name})
    if(NOT TEST_BOTH)
      list(APPEND labels sanitized)
    endif()
  endif()
  if(NOT sanitized IN_LIST labels)
    add_dependencies(release_tests ${name})
  endif()
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 120)
  endif()
  if(TROUPE_SANITIZE)
    math(EXPR TEST_TIMEOUT "10 * ${TEST_TIMEOUT}")  # a sanitizer makes programs slow, and others come first (Makefile)
  endif()
  # A fake driver library holds its own copy of the rooms that its program links too. AddressSanitizer calls two copies of one
  # global a violation; at level 1 it does so only when their sizes differ, which would be a real mistake.
  set(sanitizers "ASAN_OPTIONS=detect_odr_violation=1;UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1:suppressions=${PROJECT_SOURCE_DIR}/cmake/ubsan.supp;TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/cmake/tsan.supp")
  add_test(NAME ${TEST_TIER}/${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  # The longest begin first, so that none of them runs alone at the end.
  set_tests_properties(${TEST_TIER}/${name} PROPERTIES LABELS "${labels}" TIMEOUT ${TEST_TIMEOUT} COST ${TEST_TIMEOUT}
    ENVIRONMENT "TROUPE_BUILD_DIR=${PROJECT_BINARY_DIR};OMP_WAIT_POLICY=passive;${sanitizers}")
endfunction()
