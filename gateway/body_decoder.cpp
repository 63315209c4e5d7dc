#include "gateway/body_decoder.hpp"

#include <algorithm>
#include <cctype>

#include "gateway/text.hpp"

namespace troupe::gateway {

namespace {

std::string_view NameOf(BodyCoding coding) {
  return coding == BodyCoding::kGzip ? "gzip" : "deflate";
}

bool Same(std::string_view text, std::string_view small) {
  return std::equal(text.begin(), text.end(), small.begin(), small.end(),
                    [](unsigned char a, char b) { return std::tolower(a) == b; });
}

}  // namespace

std::optional<BodyCoding> ParseBodyCoding(std::string_view header) {
  if (header.empty() || Same(header, "identity")) return BodyCoding::kIdentity;
  if (Same(header, "gzip") || Same(header, "x-gzip")) return BodyCoding::kGzip;
  if (Same(header, "deflate")) return BodyCoding::kDeflate;
  return std::nullopt;
}

BodyDecoder::BodyDecoder(BodyCoding coding) : coding_(coding) {
  constexpr int kAsGzip = 16;  // on top of the window's bits
  usable_ = inflateInit2(&stream_, MAX_WBITS + (coding == BodyCoding::kGzip ? kAsGzip : 0)) == Z_OK;
}

BodyDecoder::~BodyDecoder() {
  if (usable_) inflateEnd(&stream_);
}

void BodyDecoder::Feed(std::string_view bytes) {
  stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream_.avail_in = static_cast<uInt>(bytes.size());
  fed_ += bytes.size();
}

absl::Status BodyDecoder::NextMember() {
  if (coding_ != BodyCoding::kGzip || inflateReset(&stream_) != Z_OK)
    return absl::InvalidArgumentError("the body goes on behind the end of its deflate stream");
  ended_ = false;
  return absl::OkStatus();
}

absl::StatusOr<std::size_t> BodyDecoder::Decode(std::span<std::byte> into) {
  if (!usable_) return absl::ResourceExhaustedError("there is no memory to decompress the body; try again");
  stream_.next_out = reinterpret_cast<Bytef*>(into.data());
  stream_.avail_out = static_cast<uInt>(into.size());
  while (stream_.avail_in > 0 || !ended_) {
    if (ended_)
      if (absl::Status status = NextMember(); !status.ok()) return status;
    const int result = inflate(&stream_, Z_NO_FLUSH);
    ended_ = result == Z_STREAM_END;
    if (result == Z_MEM_ERROR)
      return absl::ResourceExhaustedError("there is no memory to decompress the body; try again");
    if (!ended_ && result != Z_OK && result != Z_BUF_ERROR)
      return absl::InvalidArgumentError(
          Cat("the body is not what its Content-Encoding ", NameOf(coding_),
              " says: ", stream_.msg == nullptr ? "a dictionary is wanted" : stream_.msg));
    if (stream_.avail_out < into.size() || result == Z_BUF_ERROR) break;
    if (stream_.avail_in == 0 && !ended_) break;
  }
  const std::size_t count = into.size() - stream_.avail_out;
  decoded_ += count;
  if (decoded_ > kFree && decoded_ / kMostRatio > fed_)
    return absl::OutOfRangeError(Cat("the body expands to more than ", kMostRatio,
                                     " times its length; send it without Content-Encoding"));
  return count;
}

absl::Status BodyDecoder::CheckEnd() const {
  if (ended_) return absl::OkStatus();
  return absl::InvalidArgumentError(Cat("the body ends in the middle of its ", NameOf(coding_), " stream"));
}

}  // namespace troupe::gateway
