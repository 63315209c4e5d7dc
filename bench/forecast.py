#!/usr/bin/python3
"""How long a function that a timer calls waits for its model, when the model is loaded before the call and for it.

usage: forecast.py [--build DIR] [--shared DIR] [--network NAME] [--functions N] [--interval SECONDS] [--calls N]
                   [--rate PER_SECOND] [--rounds N] [--compute timed|real]

One GPU of 1 GiB at 6 GB/s, and more functions of one network than fit there, of distinct digests. One of them is called at a
regular interval, the others at random in between (Poisson), and their models take its place on the GPU. The calls go to a
daemon with `prefetch: forecast` (the default) and one with `prefetch: ahead`, in turn:

  timer_ms/p50, timer_ms/p98     from the timer's call to the answer, without its first calls, from which the interval is learned
  others_ms/p50, others_ms/p98   of all other calls
"""
import argparse
import pathlib
import random
import statistics
import sys
import tempfile

import function_models
from function_site import FunctionSite
from report import Report, percentile

KNOWN = 6  # calls until the interval is trusted, and one more
CONNECTIONS = 16
POLICIES = ("forecast", "ahead")


def trace_of(functions, arguments, seed):
    """[(second, function)] in order: the first one is the timer's."""
    draw, timer, others = random.Random(seed), functions[0], functions[1:]
    trace = [(arguments.interval * (call + 1), timer) for call in range(KNOWN + arguments.calls)]
    end, at = trace[-1][0], draw.expovariate(arguments.rate)
    while at < end:
        trace.append((at, draw.choice(others)))
        at += draw.expovariate(arguments.rate)
    return sorted(trace, key=lambda entry: entry[0])


def measure(functions, arguments, policy, trace):
    """Milliseconds: of the timer's calls, of the others."""
    with tempfile.TemporaryDirectory(prefix="troupe-bench-data-") as data:
        with FunctionSite(arguments, pathlib.Path(data), functions, ["--set", f"prefetch={policy}"], gpus=1) as site:
            site.deploy(functions)
            answers = site.replay(trace, CONNECTIONS)
    failed = [answer.failure for answer in answers if answer.failure]
    if failed:
        raise SystemExit(f"forecast.py: {len(failed)} calls failed, the first: {failed[0]}")
    of = {True: [], False: []}
    for answer in answers:
        of[answer.function is functions[0]].append(1e3 * answer.seconds)
    return {"timer_ms": of[True][KNOWN:], "others_ms": of[False]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    function_models.add_arguments(parser)
    parser.add_argument("--functions", type=int, default=16)
    parser.add_argument("--interval", type=float, default=2)
    parser.add_argument("--calls", type=int, default=15)
    parser.add_argument("--rate", type=float, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compute", choices=["timed", "real"], default="timed")
    arguments = parser.parse_args()
    arguments.build = arguments.build.resolve()
    report = Report("forecast", note=f"{arguments.functions} functions of {arguments.network}, {arguments.compute} compute, one "
                                     f"GPU of 1 GiB at 6 GB/s; a call every {arguments.interval:g} s, the others {arguments.rate:g} a second")
    values = {}
    with tempfile.TemporaryDirectory(prefix="troupe-bench-models-") as directory:
        functions = function_models.copies_of(arguments.network, arguments.functions, arguments.shared / "models",
                                              pathlib.Path(directory))
        if functions is None:
            print(f"forecast: {arguments.shared} lacks the networks; skipped", file=sys.stderr)
            return 0
        for seed in range(arguments.rounds):
            trace = trace_of(functions, arguments, seed)
            for policy in POLICIES:
                for kind, found in measure(functions, arguments, policy, trace).items():
                    for name, value in (("p50", statistics.median(found)), ("p98", percentile(found, 98))):
                        values.setdefault(f"{kind}/{name}", {}).setdefault(policy, []).append(value)
    for name, found in values.items():
        report.add(name, found["forecast"], "ms", baseline="prefetch", baseline_values=found["ahead"])
    report.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
