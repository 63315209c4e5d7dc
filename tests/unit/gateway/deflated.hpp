// Compresses texts for tests.
#pragma once

#include <zlib.h>

#include <string>

#include "gateway/body_decoder.hpp"

namespace troupe::gateway {

inline std::string Deflated(const std::string& plain, BodyCoding coding) {
  z_stream stream{};
  deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, MAX_WBITS + (coding == BodyCoding::kGzip ? 16 : 0), 9,
               Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, plain.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

}  // namespace troupe::gateway
