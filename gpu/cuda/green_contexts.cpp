#include "gpu/cuda/green_contexts.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.hpp"
#include "base/status.hpp"

namespace troupe::gpu::cuda {
namespace {

// A context for each place of each share costs memory: a GPU with small parts is split into larger ones.
constexpr std::uint32_t kMostPieces = 20;

}  // namespace

std::unique_ptr<GreenContexts> GreenContexts::Make(Context& context) {
  auto made = std::unique_ptr<GreenContexts>(new GreenContexts(context));
  const absl::Status status = made->Split();
  if (status.ok()) return made;
  made->Clear();
  const int sms = context.Attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  made->ladder_ = ShareLadder(static_cast<std::uint32_t>(std::max(sms, 1)), 0, 0);
  made->remark_ = absl::StrCat("its SMs cannot be shared out (", std::string(status.message()),
                               "); functions with an SM partition run one at a time, on all of them");
  return made;
}

// Without flags: a flag that ignores which SMs are scheduled together gives smaller parts, and loses
// clusters.
absl::Status GreenContexts::Split() {
  const Driver& driver = context_.driver();
  CUdevResource all{};
  TROUPE_RETURN_IF_ERROR(
      context_.Check(driver.cuDeviceGetDevResource(context_.device(), &all, CU_DEV_RESOURCE_TYPE_SM),
                     "asking for the GPU's SMs"));
  const std::uint32_t sms = all.sm.smCount;
  const std::uint32_t step = std::max(all.sm.smCoscheduledAlignment, 1U);
  std::uint32_t least = std::max(all.sm.minSmPartitionSize, 1U);
  while (sms / least > kMostPieces) least += step;
  unsigned int groups = 0;
  TROUPE_RETURN_IF_ERROR(
      context_.Check(driver.cuDevSmResourceSplitByCount(nullptr, &groups, &all, nullptr, 0, least),
                     "asking how the SMs can be split"));
  if (groups < 2) return absl::UnimplementedError(absl::StrCat("they make ", groups, " parts"));
  units_.resize(groups);
  TROUPE_RETURN_IF_ERROR(
      context_.Check(driver.cuDevSmResourceSplitByCount(units_.data(), &groups, &all, nullptr, 0, least),
                     "splitting the SMs"));
  units_.resize(groups);
  const std::uint32_t unit = groups == 0 ? 0 : units_.front().sm.smCount;
  const bool equal =
      std::ranges::all_of(units_, [&](const CUdevResource& part) { return part.sm.smCount == unit; });
  if (unit == 0 || !equal || std::uint64_t{unit} * groups > sms)
    return absl::UnimplementedError("the parts are not equal");
  ladder_ = ShareLadder(sms, unit, groups);
  // Of one unit and of several, since parts are joined for the second.
  for (const std::uint32_t units : {1U, 2U}) {
    if (std::uint64_t{units} * unit >= sms) continue;
    Place& place = places_[{0, units}];
    TROUPE_RETURN_IF_ERROR(MakePlace(0, units, place));
    TROUPE_RETURN_IF_ERROR(Probe(place));
  }
  return absl::OkStatus();
}

// Parts of one split may be joined in a descriptor.
absl::Status GreenContexts::MakePlace(std::uint32_t begin, std::uint32_t units, Place& place) const {
  const Driver& driver = context_.driver();
  std::vector<CUdevResource> parts(units_.begin() + begin, units_.begin() + begin + units);
  CUdevResourceDesc joined = nullptr;
  TROUPE_RETURN_IF_ERROR(context_.Check(driver.cuDevResourceGenerateDesc(&joined, parts.data(), units),
                                        "joining parts of the SMs"));
  TROUPE_RETURN_IF_ERROR(context_.Check(
      driver.cuGreenCtxCreate(&place.green, joined, context_.device(), CU_GREEN_CTX_DEFAULT_STREAM),
      absl::StrCat("making a green context of ", units, " parts")));
  TROUPE_RETURN_IF_ERROR(
      context_.Check(driver.cuCtxFromGreenCtx(&place.context, place.green), "asking for a green context"));
  place.sms = units * ladder_.unit();
  return context_.Check(driver.cuGreenCtxStreamCreate(&place.stream, place.green, CU_STREAM_NON_BLOCKING, 0),
                        "making a green context's stream");
}

// Whether such streams take part in the order of others, before anything rests on it.
absl::Status GreenContexts::Probe(const Place& place) const {
  TROUPE_ASSIGN_OR_RETURN(const EventHandle event, context_.MakeEvent());
  const Driver& driver = context_.driver();
  TROUPE_RETURN_IF_ERROR(context_.Check(driver.cuEventRecord(event.get(), place.stream),
                                        "recording an event in a green context"));
  return context_.Check(driver.cuEventSynchronize(event.get()), "waiting for a green context");
}

absl::StatusOr<GreenContexts::Place> GreenContexts::PlaceOf(const SmShare& share) {
  if (share.everywhere()) return Place();
  TROUPE_CHECK(share.units > 0 && std::uint64_t{share.begin} + share.units <= units_.size(),
               "a share that this GPU's ladder does not have");
  const std::lock_guard lock(mutex_);
  const auto [found, fresh] = places_.try_emplace(std::pair(share.begin, share.units));
  if (!fresh) return found->second;
  const absl::Status made = MakePlace(share.begin, share.units, found->second);
  if (made.ok() && made_) made_(found->second);
  if (made.ok()) return found->second;
  Destroy(found->second);
  places_.erase(found);
  return made;
}

void GreenContexts::Watch(std::function<void(const Place&)> made) {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, place] : places_) made(place);
  made_ = std::move(made);
}

void GreenContexts::Destroy(const Place& place) const {
  if (place.stream != nullptr) (void)context_.driver().cuStreamDestroy(place.stream);
  if (place.green != nullptr) (void)context_.driver().cuGreenCtxDestroy(place.green);
}

void GreenContexts::Clear() {
  for (const auto& [key, place] : places_) Destroy(place);
  places_.clear();
}

GreenContexts::~GreenContexts() {
  context_.Enter();
  Clear();
}

}  // namespace troupe::gpu::cuda
