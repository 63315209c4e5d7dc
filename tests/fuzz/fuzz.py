#!/usr/bin/env python3
"""Runs the libFuzzer targets of BUILD/fuzz, and says how many inputs each took. Exit 1 when an input was found that
crashes, hangs, leaks or takes too much memory: the input lies in BUILD/fuzz/found, and running the target with its path
shows the error again.
usage: fuzz.py BUILD [--seconds N] [--jobs N] [--seed N] [--anew] [--counts FILE] [--keep] [TARGET ...]
       fuzz.py BUILD --changed [--inputs N] [--seed N] [--counts FILE] [TARGET ...]
Without --seconds each target takes a number of inputs that is fixed (TESTED): the same ones on each machine, as in `make test`.
--anew begins with the kept inputs alone, and not with what earlier runs of this build have found to be new: as in `make test`.
--counts adds the inputs of this run to those in FILE (JSON, by target). --keep puts the smallest inputs that reach all that
was reached into tests/fuzz/corpus. --changed: each target is asked with all kept inputs, and with some that are changed at random,
the same for the same seed (changed_inputs.cpp)."""
import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import seeds  # noqa: E402

# Protobuf reserves up to 50 MB, and touches none of it, for a text that is longer than what has arrived, when a message
# around the text claims to be longer still.
PROTOBUF = 64
# The longest input, and the largest allocation in MiB that one input may cause.
LIMITS = {
    "actor_frames": (4096, PROTOBUF),
    "frame_guard": (1024, 1),
    "http": (8192, 16),
    "oip_json": (4096, 8),
    "onnx": (8192, 64),
    "archives": (8192, 16),
    "ring_records": (4096, PROTOBUF),
    "store_files": (4096, PROTOBUF),
    "fetch_headers": (128, 1),
    "yaml": (2048, 8),
}


# Seconds after which an input hangs: a hundred times what the slowest takes on a quiet machine.
HANG = 60

# Inputs of a run without --seconds: what takes about half a minute under GCC's sanitizers.
TESTED = {"actor_frames": 650_000, "archives": 65_000, "frame_guard": 65_000, "http": 7_000, "oip_json": 110_000, "onnx": 70_000,
          "ring_records": 150_000, "store_files": 130_000, "fetch_headers": 800_000, "yaml": 8_000}

# Changed inputs for each target: what takes some ten seconds under the sanitizers.
CHANGED = {"actor_frames": 200_000, "archives": 50_000, "frame_guard": 100_000, "http": 20_000, "oip_json": 200_000, "onnx": 50_000,
           "ring_records": 200_000, "store_files": 200_000, "fetch_headers": 500_000, "yaml": 20_000}

# Takes a quarter of the time of an input away: stacks of allocations are not kept, and memory is soon used again. One input by
# its number (--only) is asked with AddressSanitizer's own settings.
CHEAP_MEMORY = ":malloc_context_size=1:quarantine_size_mb=16"

# How often each feature was seen, which libFuzzer would choose inputs by, takes two thirds of the time of inputs with thousands of them.
CHEAP_CHOICE = ["-entropic=0"]

# The most bytes of one target in tests/fuzz/corpus.
KEPT_FILES = 200
KEPT_BYTES = 1 << 20

# Each target has one thread; libraries that are not instrumented hand containers over, which the check would report wrongly.
# What UndefinedBehaviorSanitizer finds ends the program, too.
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1",
                   ASAN_OPTIONS="detect_container_overflow=0:allocator_may_return_null=0:detect_odr_violation=1",
                   UBSAN_OPTIONS=f"halt_on_error=1:print_stacktrace=1:suppressions={HERE.parents[1]}/cmake/ubsan.supp")


def write_seeds(name, folder):
    """The target's first inputs, none of which may be longer than its longest input: libFuzzer would cut it without a word."""
    seeds.write(name, folder)
    for file in folder.glob("seed-*"):
        if file.stat().st_size > LIMITS[name][0]:
            sys.exit(f"fuzz: {name}: its first input {file.name} has {file.stat().st_size} bytes, and an input may have "
                     f"{LIMITS[name][0]}: raise its limit in fuzz.py")


def keep(build, name):
    """Replaces the target's corpus by the inputs that were found, minimised; when they are too much, by the smallest of them."""
    corpus = HERE / "corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as merged:
        subprocess.run([str(build / "fuzz" / name), "-merge=1", f"-max_len={LIMITS[name][0]}", merged, str(corpus),
                        str(build / "fuzz" / "corpus" / name)], env=ENVIRONMENT, check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        shutil.rmtree(corpus)
        corpus.mkdir()
        room = KEPT_BYTES
        for file in sorted(pathlib.Path(merged).iterdir(), key=lambda one: (one.stat().st_size, one.name))[:KEPT_FILES]:
            content = file.read_bytes()
            room -= len(content)
            if room >= 0:
                (corpus / hashlib.sha1(content).hexdigest()[:16]).write_bytes(content)


def count(file, name, inputs):
    counts = json.loads(file.read_text()) if file.exists() else {}
    counts[name] = counts.get(name, 0) + inputs
    file.write_text(json.dumps(counts, indent=1, sort_keys=True) + "\n")


def run(build, name, options):
    """The target's name, and the line that says how it ended; its output when it failed, else None; how many inputs it took."""
    work, corpus = build / "fuzz" / "corpus" / name, HERE / "corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    found = build / "fuzz" / "found"
    if options.anew:
        shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True, exist_ok=True)
    found.mkdir(parents=True, exist_ok=True)
    write_seeds(name, work)
    longest, allocation = LIMITS[name]
    end = f"-max_total_time={options.seconds}" if options.seconds else f"-runs={TESTED[name]}"
    command = [str(build / "fuzz" / name), str(work), str(corpus), end,
               f"-max_len={longest}", f"-malloc_limit_mb={allocation}", "-rss_limit_mb=1536", f"-timeout={HANG}",
               f"-seed={options.seed}", *CHEAP_CHOICE, f"-artifact_prefix={found}/{name}-", "-print_final_stats=1", "-verbosity=1"]
    ended = subprocess.run(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    output = ended.stdout.decode(errors="replace")
    (build / "fuzz" / f"{name}.log").write_text(output)
    inputs = int((re.findall(r"number_of_executed_units:\s*(\d+)", output) or ["0"])[-1])
    # What libFuzzer tells inputs apart by; a build that tells it nothing of where the code goes has hardly one.
    features = int((re.findall(r"\bft: (\d+)", output) or ["0"])[-1])
    line = f"fuzz: {name}: {inputs} inputs, {features} features"
    if ended.returncode != 0:
        return name, line + ": FAILED", output, inputs
    if features < 10:
        return name, line + ": FAILED, because libFuzzer does not see where the code of this build goes", output, inputs
    return name, line, None, inputs


def run_changed(build, name, inputs, seed):
    """Exit code."""
    longest, allocation = LIMITS[name]
    with tempfile.TemporaryDirectory() as first:
        write_seeds(name, pathlib.Path(first))
        folders = [first, *(str(folder) for folder in [HERE / "corpus" / name] if folder.is_dir())]
        options = ENVIRONMENT["ASAN_OPTIONS"] + f":max_allocation_size_mb={allocation}" + CHEAP_MEMORY
        return subprocess.run([str(build / "fuzz" / name), "changed", "--inputs", str(inputs), "--seed", str(seed), "--longest", str(longest),
                               *folders], env=dict(ENVIRONMENT, ASAN_OPTIONS=options), check=False).returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--seconds", type=int, help="for each target")
    kind.add_argument("--changed", action="store_true")
    parser.add_argument("--inputs", type=int, help="with --changed, instead of what takes some ten seconds")
    parser.add_argument("--jobs", type=int, default=2, help="targets at the same time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--anew", action="store_true")
    parser.add_argument("--counts", type=pathlib.Path)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("targets", nargs="*", default=sorted(LIMITS))
    arguments = parser.parse_intermixed_args()
    build = arguments.build.resolve()
    failed = False
    if arguments.changed:
        for name in arguments.targets:
            inputs = arguments.inputs or CHANGED[name]
            failed = run_changed(build, name, inputs, arguments.seed) != 0 or failed
            if arguments.counts and not failed:
                count(arguments.counts, name, inputs)
        return 1 if failed else 0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        runs = [pool.submit(run, build, name, arguments) for name in arguments.targets]
        for done in concurrent.futures.as_completed(runs):
            name, line, failure, inputs = done.result()
            print(line, flush=True)
            if arguments.counts:
                count(arguments.counts, name, inputs)
            if arguments.keep and failure is None:
                keep(build, name)
            if failure is not None:
                failed = True
                print("\n".join(failure.splitlines()[-60:]), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
