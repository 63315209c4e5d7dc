#include "gpu/cuda/launch_groups.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "base/status.hpp"

namespace troupe::gpu::cuda {
namespace {

// A group is made to take this part of the limit at most, and may come to take twice as much.
constexpr int kPieces = 16;

Duration Scaled(Duration time, double by) {
  return std::max(Duration(static_cast<Duration::rep>(static_cast<double>(time.count()) * by)), Duration(1));
}

// A power of two, so that groups do not change with a learned limit.
Duration PieceOf(Duration limit) {
  return Duration(
      static_cast<Duration::rep>(std::bit_floor(static_cast<std::uint64_t>((limit / kPieces).count()))));
}

// A limit whose groups are as long as those of the launch's turns, too.
Duration LimitForGroups(const LaunchArguments& arguments) {
  if (!arguments.turn) return arguments.limit;
  const Duration turns = arguments.group * kPieces;
  return arguments.limit <= Duration::zero() ? turns : std::min(arguments.limit, turns);
}

}  // namespace

LaunchGroups::Share& LaunchGroups::Of(std::uint32_t sms) {
  Share& share = shares_[sms];
  share.units.resize((steps_ + kUnit - 1) / kUnit);
  return share;
}

Duration LaunchGroups::Sum(const Share& share, std::size_t begin, std::size_t end) {
  Duration sum{};
  for (std::size_t unit = begin / kUnit; unit < (end + kUnit - 1) / kUnit; ++unit) sum += share.units[unit];
  return sum;
}

bool LaunchGroups::Known(const Share& share) {
  return std::ranges::none_of(share.units, [](Duration unit) { return unit == Duration::zero(); });
}

bool LaunchGroups::Holds(const Share& share, Duration piece) {
  if (share.piece != piece || piece == Duration::zero() || !Known(share)) return false;
  std::size_t begin = 0;
  for (const std::size_t end : share.ends) {
    if (end - begin > kUnit && Sum(share, begin, end) > 2 * piece) return false;
    begin = end;
  }
  return true;
}

std::vector<std::size_t> LaunchGroups::Choose(const Share& share, Duration piece) const {
  std::vector<std::size_t> ends;
  std::size_t begin = 0;
  for (std::size_t unit = 0; unit < share.units.size(); ++unit) {
    const std::size_t at = unit * kUnit;
    const bool known = share.units[unit] > Duration::zero();
    const bool fits = known && Sum(share, begin, at) + share.units[unit] <= piece;
    if (at > begin && !fits) ends.push_back(begin = at);
    if (!known && at + kUnit < steps_) ends.push_back(begin = at + kUnit);
  }
  ends.push_back(steps_);
  return ends;
}

const std::vector<std::size_t>& LaunchGroups::Ends(std::uint32_t sms, Duration limit) {
  Share& share = Of(sms);
  const Duration piece = PieceOf(limit);
  if (Holds(share, piece)) return share.ends;
  share.ends = Choose(share, piece);
  // What was chosen before all units were known is chosen again as soon as they are.
  share.piece = Known(share) ? piece : Duration::zero();
  return share.ends;
}

void LaunchGroups::Learn(std::uint32_t sms, std::size_t begin, std::size_t end, Duration took) {
  if (begin >= end) return;
  Share& share = Of(sms);
  const auto first = share.units.begin() + static_cast<std::ptrdiff_t>(begin / kUnit);
  const auto last = share.units.begin() + static_cast<std::ptrdiff_t>((end + kUnit - 1) / kUnit);
  took = std::max(took, Duration(1));
  if (std::find(first, last, Duration::zero()) != last)
    return std::fill(first, last, std::max(took / (last - first), Duration(1)));
  const double by = static_cast<double>(took.count()) /
                    static_cast<double>(std::accumulate(first, last, Duration()).count());
  // Longer ones are believed at once, shorter ones little by little.
  for (auto unit = first; unit != last; ++unit) *unit = Scaled(*unit, by > 1 ? by : 1 - (1 - by) / 8);
}

GroupedLaunch::GroupedLaunch(Submission& submission, LaunchGroups& groups, const LaunchArguments& arguments,
                             std::size_t steps)
    : submission_(submission),
      groups_(groups),
      steps_(steps),
      sms_(static_cast<std::uint32_t>(arguments.share.sms)),
      turn_(arguments.turn),
      limit_(arguments.limit) {
  const Duration grouped = LimitForGroups(arguments);
  if (grouped <= Duration::zero() || steps == 0) return;
  submission_.CountWaits();
  limit_.Began(Time());
  ends_ = groups_.Ends(sms_, grouped);
  ends_.pop_back();
}

absl::Status GroupedLaunch::Before(std::size_t step) {
  if (!EndsAt(step)) return absl::OkStatus();
  ++next_;
  TROUPE_ASSIGN_OR_RETURN(const Duration used, submission_.AwaitAll());
  groups_.Learn(sms_, begin_, step, used - used_);
  begin_ = step;
  const Duration since = used - std::exchange(used_, used);
  if (limit_.Passed(Time(used))) {
    submission_.Cut(used);
    return CutBefore(step, steps_, used);
  }
  const EventPtr turn = turn_ ? turn_(since) : nullptr;
  return turn == nullptr ? absl::OkStatus() : submission_.AwaitTurn(turn);
}

void GroupedLaunch::Submitted() {
  if (!submission_.counts_waits()) return;
  submission_.Measure([&groups = groups_, sms = sms_, begin = begin_, end = steps_,
                       before = used_](Duration used) { groups.Learn(sms, begin, end, used - before); });
}

}  // namespace troupe::gpu::cuda
