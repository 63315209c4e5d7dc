#!/usr/bin/env python3
"""Runs the libFuzzer targets of BUILD/fuzz, and says how many inputs each took. Exit 1 when an input was found that
crashes, hangs, leaks or takes too much memory: the input lies in BUILD/fuzz/found, and running the target with its path
shows the error again.
usage: fuzz.py BUILD --seconds N [--jobs N] [--seed N] [--counts FILE] [--keep] [TARGET ...]
--counts adds the inputs of this run to those in FILE (JSON, by target). --keep puts the smallest inputs that reach all that
was reached into tests/fuzz/corpus."""
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
    "onnx": (4096, 64),
    "ring_records": (4096, PROTOBUF),
    "store_files": (4096, PROTOBUF),
    "fetch_headers": (64, 1),
    "yaml": (2048, 8),
}


# The most bytes of one target in tests/fuzz/corpus.
KEPT_FILES = 200
KEPT_BYTES = 1 << 20

# Each target has one thread; libraries that are not instrumented hand containers over, which the check would report wrongly.
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", ASAN_OPTIONS="detect_container_overflow=0:allocator_may_return_null=0")


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


def run(build, name, seconds, seed):
    work, corpus = build / "fuzz" / "corpus" / name, HERE / "corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    found = build / "fuzz" / "found"
    work.mkdir(parents=True, exist_ok=True)
    found.mkdir(parents=True, exist_ok=True)
    seeds.write(name, work)
    longest, allocation = LIMITS[name]
    command = [str(build / "fuzz" / name), str(work), str(corpus), f"-max_total_time={seconds}",
               f"-max_len={longest}", f"-malloc_limit_mb={allocation}", "-rss_limit_mb=1536", "-timeout=10",
               f"-seed={seed}", f"-artifact_prefix={found}/{name}-", "-print_final_stats=1", "-verbosity=1"]
    ended = subprocess.run(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
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
    parser.add_argument("--counts", type=pathlib.Path)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("targets", nargs="*", default=sorted(LIMITS))
    arguments = parser.parse_intermixed_args()
    build = arguments.build.resolve()
    failed = False
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        runs = [pool.submit(run, build, name, arguments.seconds, arguments.seed) for name in arguments.targets]
        for done in concurrent.futures.as_completed(runs):
            name, code, inputs, output = done.result()
            print(f"fuzz: {name}: {inputs} inputs in {arguments.seconds} s{'' if code == 0 else ': FAILED'}", flush=True)
            if arguments.counts:
                count(arguments.counts, name, inputs)
            if arguments.keep and code == 0:
                keep(build, name)
            if code != 0:
                failed = True
                print("\n".join(output.splitlines()[-60:]), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
