# Compiler settings shared by every room.
option(TROUPE_WERROR "Treat warnings as errors" ON)
set(TROUPE_SANITIZE "" CACHE STRING "Sanitizers to build with: 'address,undefined' or 'thread'")
option(TROUPE_FUZZ "Build the targets of tests/fuzz, with clang; nothing else is meant to be built then" OFF)

option(TROUPE_RELEASE "The same bytes from the same commit, wherever it is built: make release" OFF)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
# Assertions stay on in release: a control plane that goes on after a broken invariant loses more than it serves.
set(CMAKE_CXX_FLAGS_RELEASE "-O2")
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g")
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# Tests are a hundred programs that link most rooms: GNU's linker takes four times as long for each.
find_program(TROUPE_LLD ld.lld)
if(TROUPE_LLD)
  add_link_options($<$<LINK_LANGUAGE:CXX>:-fuse-ld=lld>)
endif()

find_program(TROUPE_CCACHE ccache)
if(TROUPE_CCACHE)
  # Paths are made relative, so that a fresh clone elsewhere finds what an earlier checkout compiled; a miss
  # costs no run of the preprocessor beside the compiler's own.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 CCACHE_DEPEND=1
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${TROUPE_CCACHE})
endif()

add_library(troupe_settings INTERFACE)
target_compile_options(troupe_settings INTERFACE -Wall -Wextra -Wpedantic)
# Clang warns of more than GCC does: designated initializers, GCC's own pragmas, attributes in types of template arguments. These
# warnings are off, so that both compilers judge the same.
target_compile_options(troupe_settings INTERFACE $<$<CXX_COMPILER_ID:Clang>:-Wno-missing-field-initializers -Wno-c99-extensions
  -Wno-unknown-warning-option -Wno-unknown-pragmas -Wno-ignored-attributes>)
if(TROUPE_WERROR)
  target_compile_options(troupe_settings INTERFACE -Werror)
endif()
target_include_directories(troupe_settings INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
if(TROUPE_RELEASE)
  # Messages name sources, and those must not tell the folder of the build.
  add_compile_options(-ffile-prefix-map=${PROJECT_SOURCE_DIR}/= -ffile-prefix-map=${PROJECT_BINARY_DIR}/=)
endif()
if(TROUPE_SANITIZE)
  # Not optimised: the compiler then takes less than half the time (actors: 35 s -> 16 s a unit), and the tests are short.
  target_compile_options(troupe_settings INTERFACE -fsanitize=${TROUPE_SANITIZE} -fno-omit-frame-pointer -O0 -g1)
  target_link_options(troupe_settings INTERFACE -fsanitize=${TROUPE_SANITIZE})
  if(TROUPE_SANITIZE MATCHES "undefined")
    # AddressSanitizer ends a program that goes through a null pointer, and -O0 knows the size of no object. A fixed place in
    # memory saves a relocation for each check, which is a quarter of such a program.
    target_compile_options(troupe_settings INTERFACE -fno-sanitize=null,object-size,vptr)
    target_link_options(troupe_settings INTERFACE $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-no-pie>)
  endif()
endif()
if(TROUPE_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "TROUPE_FUZZ needs clang, whose libFuzzer the targets are linked with: cmake --preset fuzz")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link,address -fno-omit-frame-pointer -O1 -g1)
  add_link_options(-fsanitize=address)
  # clang 14 has C++20's coroutines and does not say so; GCC's library asks.
  add_compile_definitions(__cpp_impl_coroutine=201902L)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # A compiler cache finds nothing beside a precompiled header that holds the time of its making.
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:-Xclang -fno-pch-timestamp>")
endif()
