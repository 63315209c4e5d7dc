#!/usr/bin/python3
"""What the manager's metadata cost: a commit beside the disk's own time, many writers, a start.

usage: store.py [--build DIR] [--directory DIR] [--rounds N] [--commits N] [--seconds S] [--functions N]

  commit_us_p50                one writer, 300 bytes: until the commit is acknowledged; the baseline is an append of as many
                               bytes and an fdatasync, alternating with the commits
  commits_per_s/writers=16     each waits for its own before the next; the baseline is the raw log with one writer
  recover_ms/functions=10000   from opening a store whose log has all of them (as a killed manager leaves it) to the registry

The directory has to be on the disk that is to be measured; by default it is in build/bench.
"""
import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile

from report import ROOT, Report


def measure(arguments, *words):
    """The numbers of the one line that the program prints."""
    directory = tempfile.mkdtemp(prefix="store-", dir=arguments.directory)
    try:
        command = [str(arguments.build / "bin" / "store_bench"), directory, *map(str, words)]
        line = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return [float(word) for word in line.split()[1:]]
    finally:
        shutil.rmtree(directory)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--directory", type=pathlib.Path, default=ROOT / "build" / "bench")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--commits", type=int, default=3000)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--functions", type=int, default=10_000)
    arguments = parser.parse_args()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    commits, writers, recoveries = [], [], []
    for _ in range(arguments.rounds):
        commits.append(measure(arguments, "commit", arguments.commits))
        writers.append(measure(arguments, "writers", 16, arguments.seconds))
        recoveries.append(measure(arguments, "recover", arguments.functions))
    report = Report("store")
    for name, unit, baseline, rounds in (("commit_us_p50", "us", "append+fdatasync", commits),
                                         ("commits_per_s/writers=16", "1/s", "append+fdatasync, one writer", writers)):
        report.add(name, [ours for ours, _ in rounds], unit, baseline, [raw for _, raw in rounds])
    report.add(f"recover_ms/functions={arguments.functions}", [ms for ms, in recoveries], "ms")
    report.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
