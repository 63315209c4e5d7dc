#!/usr/bin/python3
"""Models that come over the link: how near a swapped run is to the limit of the pipeline, and how transfers share links.

usage: swap.py [--build DIR] [--models DIR] [--shared DIR] [--rounds N] [--networks a,b] [--links 2,6,12] [--only runs|links|memory]

Real bytes on virtual links of LINK GB/s, real worker processes, all variants in alternating rounds. Figures:

  swap_run_over_limit/NETWORK/LINK/VARIANT   from the orders until the outputs are there, over the limit: the bound from the
                                             arrival of the grouped variant's groups and the steps' times, which are
                                             those of a resident run with an equal copy going on beside it
  swap_run_over_max/NETWORK/LINK             grouped, over the larger of link and run
  mapped_swap_over_adjacent/NETWORK/LINK     from the orders until the outputs are there, weights mapped block by block to the
                                             model's address (addresses: mapped), over the same in adjacent memory:
                                             above 1 it is slower
  swap_run_ms, limit_ms, run_ms              the same as times; run_ms: beside a copy, and uncontended as its baseline
  function_start_ms/NETWORK/LINK             from the orders until the first step runs; baseline: the groups that the first step
                                             reads are there (one, but for BERT's table of embeddings), plus 2 ms
  function_start_unprepared_ms/NETWORK/LINK  the same when the plan is made meanwhile
  link_use/LINK                              GB/s of a swap in groups; baseline: one plain copy
  fair_share/LINK/...                        percent of the link that one of two (or three) transfers gets
  swap_from_peer/LINK                        GB/s of a swap from another GPU over a link of LINK; baseline: from the host
                                             over one as fast
  peer_first_group_ms/LINK                   from the request of the pin until the first group is there; baseline: a load
                                             from the host, from the order on
  late_arrival_delay/LINK/VARIANT            how much later a ResNet-50 is there that arrives during a ResNet-152;
                                             baseline: exclusive. It is due before the other; not so in deadline-same-objective
                                             (due later, by as much as it comes later), nor in deadline-no-objectives (no
                                             request has an objective). Ablations: of the deadline variant
  late_arrival_delay/LINK/equals-VARIANT     the same of two equals on a link where each copy costs time (StreamBox, Fig. 17);
                                             baseline: equals-exclusive. Ablations: of equals-shared
  pool_peak/VARIANT and the other figures of device memory are those of memory.py

Networks come from examples/make_models.py, and from the models directory beside the project (light_NAME) when it is there.
"""
import argparse
import os
import pathlib
import subprocess
import sys
from collections import defaultdict

import memory
from chart import bars
from report import ROOT, Report

MADE = ["resnet50", "resnet152", "bert-base"]
LIGHT = ["densenet121", "inception_v1", "squeezenet", "vgg19"]


def lines_of(command):
    """What a bench program prints: name -> [(value, baseline)], in the order of the rounds."""
    print("#", " ".join(map(str, command)), file=sys.stderr)
    environment = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive")
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    measured = defaultdict(list)
    for line in output.splitlines():
        name, *numbers = line.split()
        measured[name].append([float(number) for number in numbers])
    return measured


def model_of(name, arguments):
    if name.startswith("light_"):
        model = arguments.shared / "models" / f"{name}.onnx"
        return model if model.exists() else None
    model = arguments.models / f"{name}.onnx"
    if not model.exists():
        maker = [sys.executable, str(ROOT / "examples" / "make_models.py"), "--output", str(arguments.models)]
        subprocess.run([*maker, "--batch", "1", name], check=True)
    return model


BASELINES = {"swap_run_ms": "limit", "run_ms": "uncontended", "function_start_ms": "its groups + 2 ms", "link_use": "plain copy",
             "swap_from_peer": "from the host", "peer_first_group_ms": "from the host"}
UNITS = {"swap_run_over_limit": "x", "mapped_swap_over_adjacent": "x", "swap_run_over_max": "x",
         "fair_share": "%", "link_use": "GB/s", "swap_from_peer": "GB/s", "group_mib": "MiB"}


def add(report, name, rows):
    kind = name.split("/")[0]
    values = [row[0] for row in rows]
    others = [row[1] for row in rows] if len(rows[0]) > 1 and kind in BASELINES else None
    report.add(name, values, UNITS.get(kind, "ms"), BASELINES.get(kind) if others else None, others)


def measure_runs(report, arguments):
    for name in arguments.networks.split(","):
        model = model_of(name, arguments)
        if model is None:
            print(f"# {name}: no {arguments.shared}/models, skipped", file=sys.stderr)
            continue
        program = arguments.build / "bin" / "swap_run_bench"
        measured = lines_of([program, model, str(arguments.rounds), *arguments.links.split(",")])
        for line, rows in measured.items():
            kind, rest = line.split("/", 1)
            add(report, f"{kind}/{name.replace('-', '_')}/{rest}", rows)


def measure_links(report, arguments):
    program = arguments.build / "bin" / "swap_links_bench"
    measured = lines_of([program, str(arguments.rounds), *arguments.links.split(",")])
    for name, rows in measured.items():
        if not name.startswith("late_arrival_delay_ms"):
            add(report, name, rows)
            continue
        kind, link, variant = name.split("/")
        baseline = "equals-exclusive" if variant.startswith("equals-") else "exclusive"
        exclusive = [row[0] for row in measured[f"{kind}/{link}/{baseline}"]]
        report.add(f"late_arrival_delay/{link}/{variant}", [row[0] for row in rows], "ms", baseline, exclusive)


def judge(report):
    """The goals, each with how many of its figures reach it."""
    def count(what, prefix, good, suffix="", among=lambda figure: True):
        figures = [f for f in report.figures if f["name"].startswith(prefix) and f["name"].endswith(suffix) and among(f)]
        missed = [f["name"] for f in figures if not good(f)]
        print(f"{what}: {len(figures) - len(missed)} of {len(figures)}" + (f"; not: {', '.join(missed)}" if missed else ""))

    print()
    count("grouped at most 1.10 of the limit", "swap_run_over_limit/", lambda f: f["value"] <= 1.10, "/grouped")
    count("start at most 2 ms after the first step's groups", "function_start_ms/", lambda f: f["ratio"] <= 1)
    count("link use at least 95 % of the plain copy", "link_use/", lambda f: f["ratio"] >= 0.95)
    count("two at a time get 45 to 55 %", "fair_share/", lambda f: 45 <= f["value"] <= 55, "/one-worker")
    count("two workers get 45 to 55 %", "fair_share/", lambda f: 45 <= f["value"] <= 55, "/switch-1-to-1")
    for figure in report.figures:
        name, _, link = figure["name"].partition("/")
        if name == "link_use" and figure["baseline_value"] < 0.9 * float(link):
            print(f"  (this machine's memory carries {figure['baseline_value']:.1f} of {link} GB/s: there the two share that, not the link)")
    for what, variant in (("late arrival that is due before: 91 % less than exclusive", "/deadline"),
                          ("late arrival with the same objective: the same", "/deadline-same-objective"),
                          ("late arrival without objectives: the same", "/deadline-no-objectives"),
                          ("late arrival of an equal, each copy costs time: the same (004, Fig. 17)", "/equals-shared")):
        count(what, "late_arrival_delay/", lambda f: f["ratio"] <= 0.09, variant)
    workers = lambda figure: "weights=by-layer" not in figure["name"]  # by layer: 004's load, which no worker runs
    count("runs' pool at most 9 % of static", "pool_peak/fine-resilient", lambda f: f["ratio"] <= 0.09,
          ("resilient", "streams=4", "streams=8"), among=workers)
    count("runs' pool at most 33 % of fine", "pool_peak/fine-resilient", lambda f: f["ratio"] <= 0.33, "/beside=fine", among=workers)
    count("allocations at most 5 us (p99)", "allocation_p99_us", lambda f: f["value"] <= 5)
    count("at most 1 MB beyond weights per function", "bytes_per_extra_function", lambda f: f["value"] <= 1e6)


def draw(report):
    for prefix, title, goal in (("swap_run_over_limit/", "Swapped run over the limit of the pipeline", 1.1),
                                ("swap_run_ms/", "Swapped run: pageable, whole, per tensor, in groups", None),
                                ("function_start_ms/", "Orders given to first step running", None),
                                ("link_use/", "Link use while swapping", None),
                                ("swap_from_peer/", "Swap from another GPU", None),
                                ("late_arrival_delay/", "Delay of a transfer that arrives during another", None),
                                ("fair_share/", "Share of the link of one transfer", None),
                                ("pool_peak/", "Memory set aside for runs, at most", None),
                                ("bytes_per_extra_function", "Device memory of one more function, without weights", 1e6),
                                ("allocation_p99_us", "An allocation under churn, p99", 5),
                                ("allocation_over_run/", "Time of allocations over the time of the run", None)):
        path = report.path.with_name(f"swap-{prefix.rstrip('/')}.svg")
        if bars(report.figures, prefix, path, title, goal):
            print(f"drawn: {path}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--models", type=pathlib.Path, default=ROOT / "build" / "bench" / "models")
    parser.add_argument("--shared", type=pathlib.Path,
                        default=pathlib.Path(os.environ.get("TROUPE_SHARED_DIR", ROOT.parent / "shared")))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--networks", default=",".join(MADE + [f"light_{name}" for name in LIGHT]))
    parser.add_argument("--links", default="2,6,12")
    parser.add_argument("--only", choices=["runs", "links", "memory"])
    arguments = parser.parse_args()
    report = Report("swap")
    if arguments.only in (None, "links"):
        measure_links(report, arguments)
    if arguments.only in (None, "runs"):
        measure_runs(report, arguments)
    if arguments.only in (None, "memory"):
        memory.add_figures(report, arguments.build, arguments.models, arguments.rounds)
    report.write()
    draw(report)
    judge(report)


if __name__ == "__main__":
    main()
