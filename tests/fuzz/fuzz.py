#!/usr/bin/env python3
"""Runs the libFuzzer targets of BUILD/fuzz, and says how many inputs each took. Exit 1 when an input was found that
crashes, hangs, leaks or takes too much memory: the input lies in BUILD/fuzz/found, and running the target with its path
shows the error again.
usage: fuzz.py BUILD --seconds N [--jobs N] [--seed N] [TARGET ...]"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import seeds  # noqa: E402

# The longest input, and the largest allocation in MiB that one input may cause.
LIMITS = {
    "actor_frames": (4096, 16),
    "http": (8192, 16),
    "oip_json": (4096, 8),
    "ring_records": (4096, 8),
}


def run(build, name, seconds, seed):
    work = build / "fuzz" / "corpus" / name
    found = build / "fuzz" / "found"
    work.mkdir(parents=True, exist_ok=True)
    found.mkdir(parents=True, exist_ok=True)
    seeds.write(name, work)
    longest, allocation = LIMITS[name]
    command = [str(build / "fuzz" / name), str(work), str(HERE / "corpus" / name), f"-max_total_time={seconds}",
               f"-max_len={longest}", f"-malloc_limit_mb={allocation}", "-rss_limit_mb=1536", "-timeout=10",
               f"-seed={seed}", f"-artifact_prefix={found}/{name}-", "-print_final_stats=1", "-verbosity=1"]
    # One thread a target; libraries that are not instrumented hand containers over, which the check would mistake.
    environment = dict(os.environ, OMP_NUM_THREADS="1", ASAN_OPTIONS="detect_container_overflow=0:allocator_may_return_null=0")
    ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    output = ended.stdout.decode(errors="replace")
    (build / "fuzz" / f"{name}.log").write_text(output)
    inputs = re.search(r"number_of_executed_units:\s*(\d+)", output)
    return name, ended.returncode, int(inputs.group(1)) if inputs else 0, output


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--seconds", type=int, required=True, help="for each target")
    parser.add_argument("--jobs", type=int, default=2, help="targets at the same time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("targets", nargs="*", default=sorted(LIMITS))
    arguments = parser.parse_intermixed_args()
    build = arguments.build.resolve()
    failed = False
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        runs = [pool.submit(run, build, name, arguments.seconds, arguments.seed) for name in arguments.targets]
        for done in concurrent.futures.as_completed(runs):
            name, code, inputs, output = done.result()
            print(f"fuzz: {name}: {inputs} inputs in {arguments.seconds} s{'' if code == 0 else ': FAILED'}", flush=True)
            if code != 0:
                failed = True
                print("\n".join(output.splitlines()[-60:]), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
