// One GPU: its memory by model, its link, what runs, its latest swaps.
#include <algorithm>
#include <map>

#include "absl/strings/str_join.h"
#include "shell/text/cat.hpp"
#include "shell/views.hpp"

namespace troupe::shell {

namespace {

constexpr std::size_t kDigest = 12;  // digits that tell models apart
constexpr std::size_t kBar = 12;

std::string Size(std::uint64_t bytes) {
  return FormatBytes(Bytes(bytes));
}

std::string Rate(double bytes_per_second) {
  return Cat(Size(static_cast<std::uint64_t>(std::clamp(bytes_per_second, 0.0, 1e18))), "/s");
}

std::string Ago(std::int64_t ns) {
  return FormatDuration(Duration(std::max<std::int64_t>(ns, 0)));
}

double Share(std::uint64_t part, std::uint64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

// Which functions use a model. A node knows one of them; the registry all.
class Names {
 public:
  explicit Names(const proto::AdminReply& functions) {
    for (const auto& function : functions.functions()) {
      const auto& record = function.record();
      Add(record.model_digest(), DescribeKey(record.key()));
      for (const auto& packed : record.packed()) Add(packed.model_digest(), DescribeKey(record.key()));
    }
  }
  template <class Known>
  [[nodiscard]] std::string Of(const std::string& digest, const Known& known) const {
    if (const auto it = by_digest_.find(digest); it != by_digest_.end())
      return absl::StrJoin(it->second, ", ");
    return known.empty() ? "-" : absl::StrJoin(known, ", ");
  }

 private:
  void Add(const std::string& digest, const std::string& name) {
    auto& names = by_digest_[digest];
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  std::map<std::string, std::vector<std::string>> by_digest_;
};

std::string Head(const proto::GpuStatus& gpu, const Style& style) {
  const auto& worker = gpu.worker();
  std::string out = Cat(style.Paint(Printable(Cat(gpu.node(), "/", gpu.gpu().index())), Colour::kBold), "  ",
                        Printable(gpu.gpu().device()), "  ",
                        style.Paint(Printable(gpu.gpu().state()), ColourOfGpu(gpu.gpu().state())), "\n");
  Append(&out, "worker    pid ", worker.pid(), ", restarted ", gpu.restarts(), " times\n");
  if (!gpu.gpu().problem().empty()) Append(&out, "problem   ", Printable(gpu.gpu().problem()), "\n");
  Append(&out, "memory    ", Size(worker.memory_bytes()), ", free ", Size(worker.free_bytes()),
         ", largest free ", Size(worker.largest_free_bytes()), "; promised to runs ",
         Size(gpu.promised_bytes()));
  if (gpu.overhead_bytes() > 0) Append(&out, ", gone beyond the plan ", Size(gpu.overhead_bytes()));
  Append(&out, "\n");
  if (!worker.memory().empty() || worker.pool_bytes() > 0) {
    Append(&out, "pool      ", Size(worker.pool_bytes()), " for activations, ",
           Size(worker.pool_used_bytes()), " in use, peak ", Size(worker.pool_peak_bytes()),
           ", fragmentation ", Percent(worker.fragmentation()));
    if (!worker.memory().empty()) Append(&out, " (", Printable(worker.memory()), ")");
    Append(&out, "\n");
  }
  if (worker.registered_bytes() + worker.registering_bytes() > 0) {
    Append(&out, "host      ", Size(worker.registered_bytes()), " of its memory registered with the GPU");
    if (worker.registering_bytes() > 0) Append(&out, ", ", Size(worker.registering_bytes()), " to come");
    Append(&out, "\n");
  }
  return out;
}

// "8, 16, 24 ... 128, 132": the shares that a run can have. Empty for a worker that does not say.
std::string Shares(const proto::WorkerDescription& worker) {
  if (worker.sms() == 0) return {};
  const auto& shares = worker.share_sms();
  if (shares.size() < 2) return Cat("SMs       ", worker.sms(), ", no shares of them\n");
  std::vector<std::string> shown;
  for (int i = 0; i < shares.size(); ++i) {
    if (i < 3 || i + 2 >= shares.size()) shown.push_back(Cat(shares[i]));
    if (i == 3 && shares.size() > 5) shown.push_back("...");
  }
  return Cat("SMs       ", worker.sms(), "; shares of ", absl::StrJoin(shown, ", "), "\n");
}

std::string Link(const proto::GpuStatus& gpu) {
  const auto& worker = gpu.worker();
  if (worker.link_bytes_per_second() <= 0) return {};
  std::string out = Cat("link      ", Rate(worker.link_bytes_per_second()), ", busy ",
                        Percent(gpu.link_share()), "; to the GPU ", Size(worker.copy_in_bytes()),
                        ", from it ", Size(worker.copy_out_bytes()), " since its start");
  if (worker.group_bytes() > 0) Append(&out, "; groups of ", Size(worker.group_bytes()));
  if (!worker.swap().empty()) Append(&out, ", ", Printable(worker.swap()));
  if (!worker.link_sharing().empty()) Append(&out, ", ", Printable(worker.link_sharing()));
  return out + "\n";
}

Table MemoryMap(const proto::GpuStatus& gpu, const Names& names) {
  Table table({"MODEL OF", "STATE", ">SIZE", "", ">RUNS", ">WAITING", ">COPIES", ">IDLE", "DIGEST"});
  const auto memory = gpu.worker().memory_bytes();
  if (gpu.models().empty()) {  // of an older node: what the worker says
    for (const auto& model : gpu.worker().resident()) {
      table.Add({names.Of(model.digest(), std::vector<std::string>()), "resident", Size(model.bytes()),
                 Bar(Share(model.bytes(), memory), kBar), "", "", "", "", model.digest().substr(0, kDigest)});
    }
    return table;
  }
  std::vector<const proto::ModelOnGpu*> models;
  for (const auto& model : gpu.models()) models.push_back(&model);
  std::stable_sort(models.begin(), models.end(),
                   [](const auto* a, const auto* b) { return a->bytes() > b->bytes(); });
  for (const auto* model : models) {
    const bool idle = model->state() == "resident";
    table.Add({names.Of(model->digest(), model->functions()), model->state(), Size(model->bytes()),
               Bar(Share(model->bytes(), memory), kBar), Count(model->runs()), Count(model->waiting()),
               Count(model->replicas()), idle ? Ago(model->idle_ns()) : "-",
               model->digest().substr(0, kDigest)});
  }
  return table;
}

// The workers of a GPU that isolates; empty for a GPU whose one worker all functions share.
Table Runtimes(const proto::GpuStatus& gpu) {
  Table table({">RUNTIME", "SERVES", "STATE", ">MEMORY", ">PID", ">IDLE"});
  for (const auto& runtime : gpu.runtimes()) {
    table.Add({Count(runtime.runtime()), runtime.key().empty() ? "none yet" : runtime.key(),
               Cell(runtime.state(), ColourOfGpu(runtime.state())), Size(runtime.memory_bytes()),
               runtime.pid() > 0 ? Cat(runtime.pid()) : "-",
               runtime.idle_ns() > 0 ? Ago(runtime.idle_ns()) : "-"});
  }
  return table;
}

Table Runs(const proto::GpuStatus& gpu) {
  Table table({"RUNNING", ">SINCE", ">ATTEMPT", "MODEL WAS"});
  for (const auto& run : gpu.runs())
    table.Add({run.function(), Ago(run.age_ns()), Count(run.attempt()), run.hit() ? "here" : "swapped in"});
  return table;
}

Table Swaps(const proto::GpuStatus& gpu, const Names& names) {
  Table table({"LATEST SWAPS", "FROM", ">SIZE", ">TOOK", ">RATE", ">AGO", ">EVICTED", "RESULT"});
  for (const auto& swap : gpu.swaps()) {
    const double seconds = static_cast<double>(swap.took_ns()) * 1e-9;
    const bool moved = swap.code() == 0 && swap.bytes() > 0 && seconds > 0;
    table.Add({names.Of(swap.digest(), swap.functions()), swap.source(), Size(swap.bytes()),
               Ago(swap.took_ns()), moved ? Rate(static_cast<double>(swap.bytes()) / seconds) : "-",
               Ago(swap.age_ns()), Count(static_cast<std::uint64_t>(swap.evicted_size())),
               swap.code() == 0 ? Cell("done") : Cell(swap.message(), Colour::kRed)});
  }
  return table;
}

}  // namespace

std::string ProblemLines(const proto::AdminReply& reply) {
  std::string out;
  for (const auto& gpu : reply.gpus()) {
    if (gpu.gpu().problem().empty()) continue;
    Append(&out, Printable(Cat(gpu.node(), "/", gpu.gpu().index())),
           " is unfit: ", Printable(gpu.gpu().problem()), "\n");
  }
  return out;
}

std::string RegionLines(const proto::AdminReply& reply) {
  std::string out;
  for (const auto& region : reply.regions()) {
    std::map<std::string, std::uint64_t> states;
    for (const auto& model : region.models()) ++states[model.state()];
    std::vector<std::string> parts;
    for (const auto& [state, count] : states) parts.push_back(Cat(Count(count), " ", Printable(state)));
    Append(&out, "host region of ", Printable(region.node()), ": ", Size(region.used_bytes()), " of ",
           Size(region.bytes()), " in use; models: ", parts.empty() ? "none" : absl::StrJoin(parts, ", "),
           "; ", Count(region.loads()), " loads, ", Count(region.drops()), " sent back to disk\n");
  }
  return out;
}

std::string GpuDetails(const proto::GpuStatus& gpu, const proto::AdminReply& functions, const Style& style) {
  const Names names(functions);
  const auto& worker = gpu.worker();
  std::string out = Head(gpu, style) + Link(gpu) + Shares(worker);
  Append(&out, "work      ", Count(worker.runs()), " runs, ", Count(worker.swaps()), " swaps, busy ",
         FormatDuration(Duration(worker.busy_ns())), " since its start, ", Count(gpu.queued()),
         " dispatched\n");
  const Table map = MemoryMap(gpu, names);
  Append(&out, map.empty() ? "nothing is resident\n" : Cat("\n", map.Render(style)));
  for (const Table& table : {Runtimes(gpu), Runs(gpu), Swaps(gpu, names)})
    if (!table.empty()) Append(&out, "\n", table.Render(style));
  return out;
}

}  // namespace troupe::shell
