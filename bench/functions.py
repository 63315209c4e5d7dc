#!/usr/bin/python3
"""300 functions on two GPUs of 1 GiB: a bursty trace against one daemon, the default policies and each variant beside them.

usage: functions.py [--build DIR] [--shared DIR] [--rate N] [--seconds S] [--rounds N] [--variants a,b] [--compute timed|real]
                    [--scale X] [--data DIR] [--only variants|sharing]

The functions are those of function_models.py: distinct digests, 6.3 GiB in a host region of 8. The trace (arrivals.py) is
open loop: latency counts from the time at which a request was due. Weights, inputs and outputs are real bytes over virtual
links of 6 GB/s (12 between the GPUs); `timed` compute takes as long as a V100 would and lets two cores stand for two GPUs. Every
variant serves the same trace from a fresh start of one daemon. Figures:

  functions_p50_ms, functions_p98_ms/CLASS/VARIANT   of one class; baseline of the others: default
  functions_met_percent/VARIANT                      answered within the deadline of 80 ms
  functions_hit_percent/SOURCE/VARIANT               where the model was when its request was given to a GPU: resident
                                                     (or already on its way), peer, host, disk
  functions_failed, functions_swaps, functions_gpu_seconds, functions_swap_gb/VARIANT
  functions_deploy_seconds, functions_restart_seconds   all of them; from the start until the last is in the host region
  sharing/...                                        300 functions of one digest

What was deployed stays in --data (build/bench/functions, 10 GB) for the next time; a first time takes some minutes.
"""
import argparse
import os
import pathlib
import shutil
import sys
import tempfile

import arrivals
import function_models
from chart import bars
from function_site import FunctionSite
from report import ROOT, Report, percentile

VARIANTS = {
    "default": [],
    **{preset: ["--policy", preset] for preset in ("torpor", "torpor-fifo", "torpor-random", "torpor-lru", "torpor-block")},
    **{f"ordering-{name}": ["--set", f"ordering={name}"] for name in ("fifo", "slo-aware", "slo-aware-released")},
    **{f"gpu-{name}": ["--set", f"gpu={name}"] for name in ("resident-first", "random", "bound", "most-free", "interference-aware")},
    **{f"eviction-{name}": ["--set", f"eviction={name}"] for name in ("lru", "heaviness-aware")},
    **{f"swap-{name}": ["--set", f"swap={name}"] for name in ("per-tensor", "whole", "pageable")},
    **{f"link-{name}": ["--set", f"link-sharing={name}"] for name in ("shared", "exclusive")},
}
CLASSES = ("small", "medium", "large")
SOURCES = {"resident": ("resident", "loading"), "peer": ("peer",), "host": ("host",), "disk": ("disk",)}
DEADLINE_MS = 80
COPIES = 300  # of the one digest of the sharing figure


class Round:
    """The outcome of one trace."""

    def __init__(self, site, trace, connections):
        before = site.counters()
        answers = site.replay(trace, connections)
        after = site.counters()
        self.answers = answers
        self.failed = [answer for answer in answers if answer.failure]
        self.moved = {name: after[name] - before.get(name, 0) for name in after}
        for answer in self.failed[:5]:
            print(f"# failed: {answer.function.name}: {answer.failure}", file=sys.stderr)

    def latencies(self, kind=None):
        return [1e3 * answer.seconds for answer in self.answers
                if not answer.failure and kind in (None, answer.function.kind)]

    def hits(self, source):
        total = sum(self.moved[f"was/{name}"] for names in SOURCES.values() for name in names)
        return 100 * sum(self.moved[f"was/{name}"] for name in SOURCES[source]) / max(1, total)

    def figures(self):
        """{name without the variant: (value, unit)}"""
        result = {}
        for kind in CLASSES:
            for percent in (50, 98):
                result[f"functions_p{percent}_ms/{kind}"] = (percentile(self.latencies(kind), percent), "ms")
        met = sum(value <= DEADLINE_MS for value in self.latencies())
        result["functions_met_percent"] = (100 * met / len(self.answers), "%")
        for source in SOURCES:
            result[f"functions_hit_percent/{source}"] = (self.hits(source), "%")
        result["functions_requests"] = (len(self.answers), "requests")
        result["functions_failed"] = (len(self.failed), "requests")
        result["functions_swaps"] = (self.moved["swaps"], "swaps")
        result["functions_swap_gb"] = (self.moved["swap_bytes"] / 1e9, "GB")
        result["functions_gpu_seconds"] = (self.moved["busy_ns"] / 1e9, "s")
        return result


def measure_variants(report, functions, traces, arguments):
    data = arguments.data / f"deployed-{arguments.scale:g}"
    with FunctionSite(arguments, data, functions) as site:
        missing = site.missing(functions)
        if missing:
            report.add("functions_deploy_seconds", [site.deploy(missing)], "s")
    names = [name for name in VARIANTS if name in ("default", *arguments.variants)]
    rounds = {name: [] for name in names}
    for i in range(arguments.rounds):
        trace = arrivals.arrivals(traces, functions, arguments.rate, arguments.seconds, seed=i + 1)
        for name in names:
            with FunctionSite(arguments, data, functions, VARIANTS[name]) as site:
                if name == "default":
                    report.add("functions_restart_seconds", [site.started_seconds], "s")
                # The first touch of the GPUs' memory, of the plans and of each model does not count as a latency.
                site.replay([(i / arguments.rate, function) for i, function in enumerate(functions)],
                            arguments.connections)
                rounds[name].append(Round(site, trace, arguments.connections).figures())
                print(f"# {name}: " + ", ".join(f"{figure} {value:.4g}" for figure, (value, _) in
                                                 rounds[name][-1].items()), file=sys.stderr)
    for figure, (_, unit) in rounds["default"][0].items():
        for name in names:
            values, others = ([each[figure][0] for each in rounds[which]] for which in (name, "default"))
            beside = name != "default" and any(others)
            report.add(f"{figure}/{name}", values, unit, "default" if beside else None, others if beside else None)


def measure_sharing(report, functions, traces, arguments):
    """Many functions of one file: disk, host region and each GPU hold their weights once."""
    model = next(function for function in functions if function.kind == "large")
    copies = [function_models.Function(f"copy-{i}", model.network, model.path, model.inputs) for i in range(COPIES)]
    with tempfile.TemporaryDirectory(prefix="troupe-bench-") as data, \
            FunctionSite(arguments, pathlib.Path(data), copies) as site:
        site.deploy(copies[:1])
        one = site.counters()["region_bytes"]
        report.add("sharing/deploy_seconds", [site.deploy(copies[1:])], "s")
        rate = min(arguments.rate, 60)
        result = Round(site, arrivals.arrivals(traces, copies, rate, arguments.seconds, seed=1), arguments.connections)
        after = site.counters()
    report.add("sharing/functions", [COPIES], "functions")
    report.add("sharing/weights_mb", [one / 1e6], "MB")
    report.add("sharing/host_bytes_per_additional_function", [(after["region_bytes"] - one) / (COPIES - 1)], "B")
    report.add("sharing/gpu_weights_mb", [after["gpu_model_bytes"] / 1e6], "MB")
    report.add("sharing/hit_percent", [result.hits("resident")], "%")
    report.add("sharing/swaps", [result.moved["swaps"]], "swaps")
    report.add("sharing/p98_ms", [percentile(result.latencies(), 98)], "ms")
    report.add("sharing/requests", [len(result.answers)], "requests")
    report.add("sharing/failed", [len(result.failed)], "requests")


def judge(report):
    requests = sum(figure["value"] for figure in report.figures
                   if figure["name"].startswith("functions_requests/") or figure["name"] == "sharing/requests")
    lost = [figure["name"] for figure in report.figures
            if figure["name"].startswith(("functions_failed/", "sharing/failed")) and figure["max"] > 0]
    print(f"\nall answered: {requests:.0f} requests" + (f"; not: {', '.join(lost)}" if lost else ""))
    return not lost


def draw(report):
    for prefix, title in (("functions_p98_ms/", "Time from due to answered, p98"),
                          ("functions_hit_percent/resident/", "Model on the GPU, or on its way, when its request came"),
                          ("functions_met_percent/", "Answered within the deadline")):
        path = report.path.with_name(f"functions-{prefix.replace('/', '-').rstrip('-')}.svg")
        if bars(report.figures, prefix, path, title):
            print(f"drawn: {path}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--shared", type=pathlib.Path,
                        default=pathlib.Path(os.environ.get("TROUPE_SHARED_DIR", ROOT.parent / "shared")))
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "build" / "bench" / "functions")
    parser.add_argument("--rate", type=float, default=60, help="requests per second, on average")
    parser.add_argument("--seconds", type=float, default=12, help="of the trace, for each variant")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--connections", type=int, default=48)
    parser.add_argument("--compute", choices=["timed", "real"], default="timed")
    parser.add_argument("--scale", type=float, default=1, help="share of the functions")
    parser.add_argument("--variants", type=lambda text: text.split(","), default=list(VARIANTS))
    parser.add_argument("--fresh", action="store_true", help="deploy everything again")
    parser.add_argument("--only", choices=["variants", "sharing"])
    arguments = parser.parse_args()
    arguments.build = arguments.build.resolve()
    unknown = [name for name in arguments.variants if name not in VARIANTS]
    if unknown:
        parser.error(f"no variant '{unknown[0]}'; there are: {', '.join(VARIANTS)}")
    if arguments.fresh:
        shutil.rmtree(arguments.data, ignore_errors=True)
    functions = function_models.make(arguments.data / "models", arguments.shared, arguments.scale)
    traces = arrivals.read(arguments.shared)
    if functions is None or traces is None:
        print(f"functions: {arguments.shared} lacks the networks or the traces; skipped", file=sys.stderr)
        return 0
    report = Report("functions", note=f"{arguments.compute} compute, real bytes over links of 6 GB/s (12 between GPUs), "
                                      f"{arguments.rate:g} requests/s for {arguments.seconds:g} s")
    if arguments.only in (None, "variants"):
        measure_variants(report, functions, traces, arguments)
    if arguments.only in (None, "sharing"):
        measure_sharing(report, functions, traces, arguments)
    report.write()
    draw(report)
    return 0 if judge(report) else 1


if __name__ == "__main__":
    sys.exit(main())
