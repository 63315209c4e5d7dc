// TOP: the frame that `troupe top` draws, from two samples of the cluster. Pure.
#pragma once

#include <cstddef>
#include <string>

#include "base/units.hpp"
#include "proto/admin.pb.h"
#include "shell/text/text.hpp"

namespace troupe::shell {

struct TopSample {
  Time at;
  proto::ClusterStatusReply status;
  proto::AdminReply gpus;
  proto::AdminReply functions;
};

struct Screen {
  std::size_t columns = 100;
  std::size_t rows = 40;
};

// At most `screen.rows` lines. Rates and busy shares are those between the samples; without an earlier one
// (null), or where a worker or node began anew in between, they are "-".
[[nodiscard]] std::string RenderTop(const TopSample& now, const TopSample* before, const Screen& screen,
                                    const Style& style);

// Share of the time between the samples that the compute stream of a GPU was busy; negative when it cannot be
// known.
[[nodiscard]] double BusyShare(const proto::GpuStatus& now, const proto::GpuStatus* before, Duration between);

}  // namespace troupe::shell
