#!/usr/bin/python3
"""Chooses CAF's scheduler settings: the no-op model under each candidate, beside the settings that are the default now.

usage: caf_settings.py [--build DIR] [--rounds N] [--seconds S] [--only NAME ...]

A candidate is a set of trouped's advanced options. Every round starts one cluster after another (`all`: one embedded
daemon; `split`: a manager, a gateway and a node), so that none is disturbed by the threads of another, and measures one
connection (latency) and 32 (throughput). The two-process round trip of CAF alone is measured beside them. A candidate
is worth its place when it is better in both, in most of the rounds.
"""
import argparse
import pathlib

from invoke import CONNECTIONS, ROOT, Load, RawCaf, Site
from report import Report

# Name -> options. The first is the daemon's default; each of the others changes one option of it.
CANDIDATES = {
    "default": [],
    "stealing": ["--set=actor-scheduler=stealing"],
    "threads=1": ["--set=actor-threads=1"],
    "threads=4": ["--set=actor-threads=4"],
    "throughput=5": ["--set=actor-throughput=5"],
    "throughput=none": ["--set=actor-throughput=0"],
    "middleman=1": ["--set=middleman-workers=1"],
}
BASELINE = "default"
MEASURES = (("latency_p50", "us"), ("latency_p99", "us"), ("requests_per_second", "1/s"))


def measure(arguments, options, split):
    """{measure: value} of one fresh cluster, which is started again when another program took one of its ports."""
    try:
        return measure_once(arguments, options, split)
    except SystemExit as failure:
        print(f"again: {str(failure)[:200]}", flush=True)
        return measure_once(arguments, options, split)


def measure_once(arguments, options, split):
    with Site(arguments.build, options) as site:
        load = Load(arguments.build, site.home, arguments.seconds)
        url = site.troupe(split)
        one, many = load.once(url, 1), load.once(url, CONNECTIONS)
    return {"latency_p50": one["latency_us"]["p50"], "latency_p99": one["latency_us"]["p99"],
            "requests_per_second": many["requests_per_second"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.6)
    parser.add_argument("--only", nargs="+", default=list(CANDIDATES), choices=list(CANDIDATES), metavar="NAME")
    arguments = parser.parse_args()
    arguments.build = arguments.build.resolve()
    names = [BASELINE, *(name for name in arguments.only if name != BASELINE)]
    sites = {"all": False, "split": True}
    results = {(site, name): [] for site in (*sites, "raw_tcp") for name in names}
    for round_number in range(arguments.rounds):
        # The order is reversed in each round, so that no candidate always follows the same one.
        for name in (names if round_number % 2 == 0 else reversed(names)):
            options = CANDIDATES[name]
            for site, split in sites.items():
                results[site, name].append(measure(arguments, options, split))
            with RawCaf(arguments.build, options) as raw:
                results["raw_tcp", name].append({"round_trip_p50": raw.once("tcp")["p50_us"]})
        print(f"round {round_number + 1} of {arguments.rounds}", flush=True)
    report = Report("caf-settings")
    for site, measures in (("all", MEASURES), ("split", MEASURES), ("raw_tcp", (("round_trip_p50", "us"),))):
        for what, unit in measures:
            theirs = [each[what] for each in results[site, BASELINE]]
            for name in names:
                ours = [each[what] for each in results[site, name]]
                report.add(f"{site}/{what}/{name}", ours, unit, *((BASELINE, theirs) if name != BASELINE else ()))
    report.write()


if __name__ == "__main__":
    main()
