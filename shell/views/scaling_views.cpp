#include <string>

#include "absl/strings/str_format.h"
#include "proto/gpu_place.hpp"
#include "shell/text/cat.hpp"
#include "shell/views.hpp"

namespace troupe::shell {

namespace {

Colour ColourOfAction(const std::string& action) {
  if (action == "no-room") return Colour::kRed;
  return action == "add" || action == "resize" ? Colour::kGreen : Colour::kPlain;
}

std::string PerSecond(double per_second) {
  return absl::StrFormat("%.1f/s", per_second);
}

}  // namespace

std::string ScalingDetails(const proto::ScalingStatus& scaling, const Style& style) {
  std::string out = Cat(style.Paint(DescribeKey(scaling.key()), Colour::kBold), "\npolicy     ",
                        Printable(scaling.policy()), ", forecast ", Printable(scaling.forecast()));
  if (scaling.dry_run()) out += style.Paint(", dry run: nothing of it is carried out", Colour::kYellow);
  if (scaling.basis().empty()) {
    out += "\nload       no request has come since the manager began";
  } else {
    Append(&out, "\nload       ", PerSecond(scaling.arrived()), " came, ", PerSecond(scaling.expected()),
           " are expected, ", scaling.waiting(), " wait");
    Append(&out, "\nwanted     instances for ", PerSecond(scaling.wanted()), "; there are some for ",
           PerSecond(scaling.capacity()), ", ", Printable(scaling.basis()));
    Append(&out, "\nbusy       ", Percent(scaling.busy()), " of the time of its instances");
  }
  if (!scaling.binding().empty()) Append(&out, "\nbinding    ", Printable(scaling.binding()));
  const std::string owns = scaling.dry_run() ? "\nwould own  " : "\nowns       ";
  for (const auto& place : scaling.places()) Append(&out, owns, Printable(proto::Describe(place)));
  if (scaling.places().empty()) Append(&out, owns, "no part of a GPU: its requests are bound late");
  out += '\n';
  if (scaling.decisions().empty()) return out;
  Table table({">AGO", "DECISION", "GPU", "WHY"});
  for (const auto& decision : scaling.decisions())
    table.Add({FormatDuration(Duration(decision.age_ns())),
               {decision.action(), ColourOfAction(decision.action())},
               decision.gpu().empty() ? "-" : decision.gpu(),
               decision.reason()});
  return out + '\n' + table.Render(style);
}

}  // namespace troupe::shell
