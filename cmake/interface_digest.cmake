# Writes the digest of all headers that a plug-in and the program that loads it must have alike: a plug-in of another build is then
# refused by name, and does not end the program at its first call.
#   cmake -D SOURCE=... -D LIST=file of paths, a line each -D OUTPUT=... -P cmake/interface_digest.cmake
file(STRINGS ${LIST} headers)
set(digests)
foreach(header IN LISTS headers)
  file(SHA256 ${SOURCE}/${header} digest)
  string(APPEND digests "${header} ${digest}\n")
endforeach()
string(SHA256 digest "${digests}")
string(SUBSTRING ${digest} 0 16 digest)
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [[
#pragma once
#define TROUPE_INTERFACE_DIGEST "@digest@"
]] @ONLY)
