#!/usr/bin/python3
"""Measures one whole GPU: its memory and link, swaps, shares, memory per function, faults, and daemons on it.

usage: gpu.py [--device cuda:0|virtual:0] [--build DIR] [--out DIR] [--models DIR] [--networks NAMES] [--small]
              [--limit SECONDS] [--only raw,networks,memory,shares,faults,system]

Run by tests/gpu/run.sh; writes OUT/<GPU>-<date>.json after each part, and a table, and says of each goal whether it was
reached. A virtual device only shows that the script works. --small: networks of a few MB and a second or two, for the
same reason. --limit counts from this process's start. What fails or is not done by then, or when SIGTERM comes, is
named, earlier figures are kept, and the exit code is 1. A file of the same GPU and day is added to: a figure that is
measured again takes the place of the earlier one.

  plain_pinned_copy, copy_in/..., copy_out/...   GB/s by size and method; baseline: the plain pinned copy (cuda devices only)
  map_and_set_access_us, unmap_call_us           of so many units (cuda devices only)
  native_ms/NETWORK                              a resident network, batch 1: order to outcome; compute_ms: of it on the device
  variant_compute_ms/NETWORK/...                 in another precision, without CUDA graphs, by persistent kernels; baseline: FP32 with graphs (cuda only)
  swap_run_ms/NETWORK/STEP                       orders to outputs when the model is on the host: pageable, whole, per-tensor,
                                                 grouped, and mapped (grouped, to one address); baseline: native
  swap_run_over_max/NETWORK                      grouped; baseline: the larger of weights over the plain link, and compute
  function_start_ms/NETWORK                      orders to first step running; baseline: what that step reads is there, + 2 ms
  link_use/NETWORK                               GB/s of a swap alone; baseline: the plain pinned copy
  extra_function_beyond_weights_bytes            device memory of each further function in one worker
  extra_function_outside_bytes                   and what the driver gave for each beside that worker's memory
  device_memory_per_function_mb/...              by the driver's count: as many in one worker, and a process each
  share_latency_ms/NETWORK/sms=N                 one function on so many SMs; baseline: on all
  neighbour_p98_ms/NETWORK/...                   of one of two functions side by side, each with 48 % of the SMs or racing;
                                                 baseline: the same alone, with as many SMs
  throughput/NETWORK/.../instances=N             runs a second of all; baseline: one instance racing. share=12: as FaST-GShare
  sm_busy, sm_occupancy, compute_busy            percent meanwhile: by the GPU's counters; by the worker's clock
  worker_killed_to_answer_ms                     a killed worker's successor has started, prepared, swapped in and run
  illegal_access_to_exit_ms, ..._to_answer_ms    the same after an illegal access of the GPU (cuda devices only)
  requests_per_second/..., request_p98_ms/...    over HTTP, 32 connections, one daemon of every role
  killed_worker_...                              a SIGKILL of its worker under load
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

from gpu_meter import SM_BUSY, SM_OCCUPANCY, GpuMeter
from report import ROOT, Report

NETWORKS = ["resnet50", "resnet152", "bert-base", "bert-large", "vit-large"]
SMALL = ["vit-tiny", "bert-tiny"]
UNITS = {"weights_mb": "MB", "copy_in": "GB/s", "copy_out": "GB/s", "plain_pinned_copy": "GB/s", "link_use": "GB/s",
         "open_device_s": "s", "map_and_set_access_us": "us", "unmap_call_us": "us", "throughput": "1/s",
         "extra_function_beyond_weights_bytes": "B", "extra_function_outside_bytes": "B", "memory_functions": "", "compute_busy": "%"}
BASELINES = {"copy_in": "plain pinned", "copy_out": "plain pinned", "link_use": "plain pinned", "swap_run_ms": "native", "variant_compute_ms": "FP32, graphs",
             "swap_run_over_max": "max(link, run)", "function_start_ms": "its groups + 2 ms", "share_latency_ms": "all SMs",
             "neighbour_p98_ms": "alone", "throughput": "one racing"}


def make_networks(arguments, directory):
    """{name: file}, in the order in which they are measured; `noop` for the daemons."""
    names = arguments.networks or (SMALL if arguments.small else NETWORKS)
    maker = [sys.executable, str(ROOT / "examples" / "make_models.py"), "--output", str(directory), "--batch", "1"]
    for name in [*names, "noop"]:
        if not (directory / f"{name}.onnx").exists():
            subprocess.run([*maker, name], check=True, stdout=subprocess.DEVNULL)
    return {name: directory / f"{name}.onnx" for name in [*names, "noop"]}


class Stopped(BaseException):
    """SIGTERM came."""


def stop(*_):
    raise Stopped("stopped by SIGTERM")


class Failed(Exception):
    """A part that gave no figures, or only some of them."""


class Lines:
    """Reads "name value [baseline]" from a program, and measures from outside when the program asks for it."""

    def __init__(self, meter, deadline):
        self.meter, self.deadline = meter, deadline
        self.rows, self.notes, self.memory, self.begun = {}, [], {}, None

    def run(self, command):
        print("#", " ".join(map(str, command)), file=sys.stderr)
        environment = dict(os.environ, OMP_WAIT_POLICY="passive")
        with subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                              env=environment) as process:
            limit = threading.Timer(max(0, self.deadline - time.monotonic()), process.kill)
            limit.start()
            try:
                for line in process.stdout:
                    self._read(line.rstrip("\n"), process)
            except BaseException:
                process.kill()
                raise
            finally:
                limit.cancel()
        if process.returncode != 0:
            late = ", out of time" if time.monotonic() >= self.deadline else ""
            raise Failed(f"{pathlib.Path(command[0]).name} ended with {process.returncode}{late}")

    def _read(self, line, process):
        word, _, rest = line.partition(" ")
        if word == "sample":
            self._sample(rest)
            process.stdin.write("\n")
            process.stdin.flush()
        elif word == "note":
            self.notes += [] if rest in self.notes else [rest]
        else:
            self.rows.setdefault(word, []).append([float(number) for number in rest.split()])

    def _sample(self, name):
        kind, _, what = name.partition("/")
        if kind == "memory":
            self.memory[what] = self.meter.used_memory()
        elif kind == "begin":
            self.begun = self.meter.sample()
        else:
            found = self.meter.over(self.begun, self.meter.sample())
            for metric, label in ((SM_BUSY, "sm_busy"), (SM_OCCUPANCY, "sm_occupancy")):
                if metric in found:
                    self.rows.setdefault(f"{label}/{what}", []).append([found[metric]])

    def memory_per_function(self):
        """Adds the memory that the driver counted, if it did."""
        functions = self.rows.get("memory_functions")
        before = self.memory.get("before")
        # A count that workers do not change is not of their device.
        moved = before is not None and any(value is not None and value > before for value in self.memory.values())
        if functions and moved:
            for what in ("one_runtime", "process_each"):
                if self.memory.get(what) is not None:
                    used = (self.memory[what] - before) / functions[0][0] / 1e6
                    self.rows[f"device_memory_per_function_mb/{what}"] = [[used]]
            first, all_of_them = self.memory.get("first_function"), self.memory.get("one_runtime")
            if first is not None and all_of_them is not None and functions[0][0] > 1:
                self.rows["extra_function_outside_bytes"] = [[(all_of_them - first) / (functions[0][0] - 1)]]

    def add_to(self, report):
        """All that was read so far."""
        self.memory_per_function()
        for name, rows in self.rows.items():
            kind = name.split("/")[0]
            unit = UNITS.get(kind, "MB" if kind.endswith("_mb") else "%" if kind.startswith("sm_") else "ms")
            others = [row[1] for row in rows] if len(rows[0]) > 1 else None
            report.add(name, [row[0] for row in rows], unit, BASELINES.get(kind) if others else None, others)


def goals_of(figures):
    """Issue 4's goals on an H200: [{goal, figure, value, limit, met}]; those whose figure was measured."""
    found = {figure["name"]: figure for figure in figures}
    each, one = (found.get(f"device_memory_per_function_mb/{what}") for what in ("process_each", "one_runtime"))
    goals = []

    def judge(goal, prefix, value, limit, least=False, contains=""):
        for name, figure in found.items():
            if re.match(prefix, name) and contains in name and value(figure) is not None:
                measured = value(figure)
                goals.append({"goal": goal, "figure": name, "value": measured, "limit": limit,
                              "met": measured >= limit if least else measured <= limit})

    ratio = lambda figure: figure.get("ratio")
    judge("host to device at least 97 % of the plain pinned copy", "copy_in/registered/131072KiB|link_use/", ratio, 0.97, least=True)
    judge("swap and run at most 1.10 of max(link, run)", "swap_run_over_max/", ratio, 1.10)
    outside = found.get("extra_function_outside_bytes", {"value": 0})["value"]
    judge("a further function at most its weights and 1 MB", "extra_function_beyond_weights_bytes",
          lambda figure: figure["max"] + outside, 1e6)
    judge("a function starts within 2 ms of its first group", "function_start_ms/", ratio, 1)
    judge("a neighbour's p98 within 1.15 of alone, by shares", "neighbour_p98_ms/", ratio, 1.15, contains="/shares")
    if each and one:
        goals.append({"goal": "memory per function 79 % less than a process each (004)", "figure": one["name"],
                      "value": 1 - one["value"] / each["value"], "limit": 0.79, "met": 1 - one["value"] / each["value"] >= 0.79})
    return goals


def asked_of(arguments, what):
    """What nvidia-smi says of the GPU; None without one, or without that program."""
    if not arguments.device.startswith("cuda:"):
        return None
    try:
        return subprocess.run(["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader", "-i", arguments.device.partition(":")[2]],
                              capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def name_of(arguments):
    """The GPU's name, for the file's name."""
    return re.sub(r"[^A-Za-z0-9]+", "-", asked_of(arguments, "name") or arguments.device).strip("-")


class Kept:
    """What is written after each part: an earlier file's figures, and those of this run in their place."""

    def __init__(self, arguments, report):
        self.arguments, self.report, self.system = arguments, report, Report("system")
        self.driver = asked_of(arguments, "driver_version")
        self.earlier = {}
        if report.path.exists():
            try:
                self.earlier = json.loads(report.path.read_text())
            except ValueError:  # cut off while it was written, by a version before this one
                self.earlier = {}

    def write(self, lines, failures, quiet=True):
        fresh = Report("fresh")
        lines.add_to(fresh)
        figures = [*fresh.figures, *self.system.figures]
        names = {figure["name"] for figure in figures}
        if self.earlier.get("small") in (None, self.arguments.small):
            figures = [figure for figure in self.earlier.get("figures", []) if figure["name"] not in names] + figures
        self.report.figures, self.report.ratios = figures, [figure.get("ratio") for figure in figures]
        # A part that runs again has its failures again, or none.
        others = [text for text in self.earlier.get("failures", []) if text.partition(":")[0] not in self.arguments.only]
        notes = [text for text in self.earlier.get("notes", []) if text not in lines.notes]
        self.report.facts = {"device": self.arguments.device, "driver": self.driver, "small": self.arguments.small, "notes": notes + lines.notes,
                             "failures": others + failures, "goals": goals_of(figures)}
        self.report.write(quiet)


def measure(arguments, report, directory):
    """(notes, failures, the goals that these figures decide anew)."""
    lines = Lines(GpuMeter(int(arguments.device.partition(":")[2] or 0)), arguments.begun + arguments.limit)
    kept = Kept(arguments, report)
    networks = {}
    tools = arguments.build / "bin"
    sizes = ["--together", 2, "--spare", 32] if arguments.small else []

    def raw():
        lines.run([tools / "cuda_bench", arguments.device, 4 if arguments.small else 128])

    def worker(parts, among):
        networks.update(networks or make_networks(arguments, directory))
        files = [path for name, path in networks.items() if name != "noop" and among(name)]
        lines.run([tools / "device_bench", "--device", arguments.device, "--rounds", arguments.rounds, "--window",
                   arguments.window, "--parts", parts, *sizes, *files])

    def two(name):
        """The networks of which several instances run."""
        return name in (next(iter(networks)), "bert-base", "bert-tiny")

    def system():
        networks.update(networks or make_networks(arguments, directory))
        os.environ["TROUPE_BUILD_DIR"] = str(arguments.build)  # before the harness is read
        import gpu_system
        gpu_system.add_figures(kept.system, arguments, dict(networks), "64MiB" if arguments.small else "4GiB")

    parts = {"raw": raw, "networks": lambda: worker("swaps,variants", lambda name: True), "memory": lambda: worker("memory", two),
             "shares": lambda: worker("shares", two), "faults": lambda: worker("faults", two), "system": system}
    if not arguments.device.startswith("cuda:"):
        del parts["raw"]
    failures = []
    for name, part in parts.items():
        if name not in arguments.only:
            continue
        begun = time.monotonic()
        try:
            if begun >= lines.deadline:
                raise Failed(f"not begun, out of time after {arguments.limit:g} s")
            part()
        except Stopped as stopped:  # the script that began this process is out of time
            failures.append(f"{name}: {stopped}")
            break
        except Exception as failed:  # after any error the earlier figures are kept
            failures.append(f"{name}: {failed}")
        finally:
            print(f"# {name}: {time.monotonic() - begun:.1f} s", file=sys.stderr)
            kept.write(lines, failures)
    kept.write(lines, failures, quiet=False)
    before = kept.earlier.get("goals", [])
    return lines.notes, failures, [goal for goal in report.facts["goals"] if goal not in before]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench" / "results")
    parser.add_argument("--models", type=pathlib.Path, help="where networks are kept (default: made anew)")
    parser.add_argument("--networks", type=lambda text: text.split(","), help="which are measured (default: all)")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--limit", type=float, default=290)
    parser.add_argument("--only", default="raw,networks,memory,shares,faults,system", type=lambda text: text.split(","))
    arguments = parser.parse_args()
    arguments.begun = time.monotonic()
    unknown = set(arguments.only) - {"raw", "networks", "memory", "shares", "faults", "system"}
    if unknown:
        parser.error(f"--only {','.join(sorted(unknown))}: no such part")
    signal.signal(signal.SIGTERM, stop)
    arguments.build = arguments.build.resolve()
    arguments.rounds, arguments.window = (1, 0.2) if arguments.small else (3, 1)
    note = f"device {arguments.device}" + ("; small networks: figures of nothing" if arguments.small else "")
    report = Report(f"{name_of(arguments)}-{datetime.date.today()}", arguments.out, note)
    with tempfile.TemporaryDirectory(prefix="troupe-gpu-models-") as made:
        directory = arguments.models or pathlib.Path(made)
        directory.mkdir(parents=True, exist_ok=True)
        notes, failures, goals = measure(arguments, report, directory)
    for text in notes:
        print(f"not measured: {text}")
    for goal in goals:
        print(f"{'met   ' if goal['met'] else 'MISSED'} {goal['goal']}: {goal['figure']} {goal['value']:.4g} (limit {goal['limit']:g})")
    for text in failures:
        print(f"failed: {text}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
