#!/usr/bin/python3
"""How functions share one GPU in space and time, by the real daemon in timed mode; and what batches bring (batching.py).

usage: sharing.py [--build DIR] [--seconds S] [--rounds N] [--only PART ...]

A model takes the time of a run that FaST-GShare's Figures 8 and 9 imply for a V100 (001, section 5.3): one racing
instance's requests/s give the time on all SMs, eight instances of 12 % the part of the SMs beyond which the model is no
faster. Both are inputs; what is measured is how much of that the daemon makes real.

  quota_linearity_error/Q        requests/s at a limit of Q % of the time, against Q % of those without a limit
  quota_used_error/Q             metered time on the GPU over the windows of a measurement, against the quota
  spatial_over_profile/MODEL     requests/s of 8 instances of 12 % against what the profile allows; beside it, as
                                 spatial_gain/MODEL, against one racing instance in the same round, and the profile's own gain
  isolation_p98_ratio/MODEL      p98 of a function of 50 % of the SMs beside a neighbour of 50 % that is offered four times
                                 what it can serve, against its p98 alone; isolation_p98_ratio_racing/MODEL: with `racing`
  noisy_throughput_ratio/MIX     requests/s of a function at its quota beside others that are never without a request, against
                                 those alone; noisy_p98_ratio/MIX: its p98. MIX: `shares` (50 and 24 % of the SMs), `whole` (two
                                 functions without a share or a quota), `quotas` (two of 24 % that request 40 % of the time each)
  concurrency_requests_per_second/RUN/N, concurrency_p98_ms/RUN/N
                                 requests/s of two functions without shares that are never without a request, and the p98 at 60 % of
                                 what one run at a time serves, with N runs of RUN ms (all SMs) at a time on the GPU; RUN `1+80`:
                                 a function of 1 ms beside one of 80 ms, and the p98 is that of the short one; RUN `real`: the digits
                                 and the small BERT of batching.py, computed by the processor, four connections each
  concurrency_choice             by the rule in `choice`: what the default of `concurrency` should be
  gate_us_per_launch             what the worker's gate adds to a launch, a hundred functions with quotas being there
  gate_throughput_loss/RUN       of the runs a second of a worker with runs of RUN ms of a hundred functions with quotas, against
                                 those of one that lets every run race
  gate_freed_after_kill_ms       from the kill of a worker that has the whole GPU to the end of a run of 1 ms of another worker
                                 that waits for it
"""
import argparse
import concurrent.futures
import hashlib
import json
import math
import re
import statistics
import subprocess
import sys
import time
import urllib.request

import onnx

import batching
from invoke import BODY, Site
from report import run_parts

# requests/s of one racing instance, and of eight instances of 12 % (001, section 5.3).
PAPER = {"ResNet": (71.37, 296.8), "RNNT": (12.51, 43.24), "GNMT": (28.85, 43.79)}
TWELVE = 16 / 132  # of the SMs: 12 % as a Hopper's units of 8 allow
QUOTAS = (20, 40, 60, 80, 100)
CONCURRENCY = (1, 2, 4)
SHARE = 32 / 132  # of the SMs: 24 %
WINDOW = 1.0  # seconds: that of the daemon's quotas
ENOUGH = 150  # requests that a p98 is taken of, at least


def profile_of(model):
    """The time of a run on all SMs in milliseconds, and the percent of the SMs that the model can use."""
    racing, eight = PAPER[model]
    alone, on_twelve = 1000 / racing, 8000 / eight
    return alone, max(1, round(100 * on_twelve / alone * TWELVE))


def time_on(model, share):
    """Milliseconds on this part of the SMs, as the profile says."""
    alone, saturation = profile_of(model)
    return alone if share >= saturation / 100 else alone * saturation / 100 / share


class Gpu(Site):
    """A daemon with one virtual GPU on which every run takes the same time, but for those of `others`."""

    def __init__(self, build, times, sharing, concurrency=1, others=None):
        """`times`: of a run on all SMs in milliseconds, and the percent of the SMs that the model can use; `others`: those of
        functions that have a model of their own, by name."""
        super().__init__(build, [])
        self.times, self.sharing, self.concurrency, self.others = times, sharing, concurrency, others or {}

    def model(self, function):
        """All functions have the same network. The text in the file gives the model of one of `others` another digest."""
        if function not in self.others:
            return self.noop_model()
        model = onnx.load_from_string(self.noop_model())
        model.doc_string = function
        return model.SerializeToString()

    def __enter__(self):
        profile = self.home / "profile"
        of_models = {"default": self.times, **{hashlib.sha256(self.model(name)).hexdigest(): times for name, times in self.others.items()}}
        profile.write_text("".join(f"{model} {alone:.4f}ms {saturation}%\n" for model, (alone, saturation) in of_models.items()))
        name = self._daemon("all", "--role", "all", "--http", "127.0.0.1:0", "--operations", "127.0.0.1:0", "--compute", "timed", "--profile", str(profile),
                            "--set", f"sharing={self.sharing}", "--set", "measure=requests", "--set", "credits-per-gpu=64", "--set", f"concurrency={self.concurrency}",
                            "--manager", "127.0.0.1:0")
        self.url = self._wait(name, r"gateway at http://[0-9.:]+").split()[-1]
        self.operations = self._wait(name, r"operations at http://[0-9.:]+").split()[-1]
        self._wait(name, "worker-ready", "log")
        self.body = self.home / "body"
        self.body.write_text(BODY)
        return self

    def deploy(self, function, **sharing):
        query = "&".join(f"{key}={value}" for key, value in sharing.items())
        urllib.request.urlopen(f"{self.url}/v2/troupe/functions/{function}?{query}", self.model(function), 60).close()
        urllib.request.urlopen(f"{self.url}/v2/models/{function}/infer", BODY.encode(), 60).close()

    def start(self, function, seconds, connections, rate=0, warm_up=0.5):
        return subprocess.Popen([str(self.build / "bin" / "http_load"), f"{self.url}/v2/models/{function}/infer", "--body",
                                 str(self.body), "--connections", str(connections), "--seconds", str(seconds), "--warm-up", str(warm_up),
                                 *(["--rate", str(rate)] if rate else [])], stdout=subprocess.PIPE, text=True)

    @staticmethod
    def result(load):
        text = load.communicate()[0]
        found = json.loads(text)
        if load.returncode or found["failed"]:
            raise SystemExit(f"sharing.py: requests failed: {text}")
        return found

    def gpu_seconds(self, function, share):
        """Time that its runs had the GPU since the daemon began: what is metered counts each run by its part of the SMs."""
        time.sleep(2.5)  # the page is written once a second, and the meters are read as often
        text = urllib.request.urlopen(f"{self.operations}/metrics", timeout=10).read().decode()
        (found,) = re.findall(rf'^troupe_usage_gpu_seconds_total{{.*function="{function}".*}} (\S+)$', text, re.M)
        return float(found) / share

    def load(self, function, seconds, connections, rate=0, warm_up=0.5):
        return self.result(self.start(function, seconds, connections, rate, warm_up))


def quotas(report, arguments):
    """Fig. 8: throughput follows the quota."""
    rates, used = {quota: [] for quota in QUOTAS}, {quota: [] for quota in QUOTAS}
    for _ in range(arguments.rounds):
        with Gpu(arguments.build, profile_of("ResNet"), "fast") as gpu:
            for quota in QUOTAS:
                gpu.deploy(f"q{quota}", sm_partition=24, quota_request=quota, quota_limit=quota)
            for quota in QUOTAS:
                before = gpu.gpu_seconds(f"q{quota}", SHARE)
                # The load begins with a window and warms up for one, so that it has so many windows and one more. What is
                # under way at its end, one run of each connection, is used of a window that is not counted.
                time.sleep(math.ceil(time.monotonic()) - time.monotonic())
                found = gpu.load(f"q{quota}", arguments.seconds, 2, warm_up=WINDOW)
                rates[quota].append(found["requests_per_second"])
                used[quota].append((gpu.gpu_seconds(f"q{quota}", SHARE) - before) / (arguments.seconds + WINDOW))
    for quota in QUOTAS:
        line = [quota / 100 * whole for whole in rates[100]]
        report.add(f"quota_requests_per_second/{quota}", rates[quota], "1/s", baseline="line", baseline_values=line)
        report.add(f"quota_linearity_error/{quota}", [abs(rate / want - 1) for rate, want in zip(rates[quota], line)], "")
        if quota < 100:  # at 100 % what limits is the time between two runs
            report.add(f"quota_used_error/{quota}", [abs(part / (quota / 100) - 1) for part in used[quota]], "")


def spatial(report, arguments):
    """Fig. 9: eight instances of 12 % against one racing instance."""
    for model in PAPER:
        alone, _ = profile_of(model)
        whole, parts, over = [], [], []
        allowed = 8000 / time_on(model, TWELVE)
        for _ in range(arguments.rounds):
            with Gpu(arguments.build, profile_of(model), "racing") as gpu:
                gpu.deploy("f")
                whole.append(gpu.load("f", arguments.seconds, 4)["requests_per_second"])
            with Gpu(arguments.build, profile_of(model), "fast") as gpu:
                gpu.deploy("f", sm_partition=12)
                parts.append(gpu.load("f", arguments.seconds, 16)["requests_per_second"])
                over.append(parts[-1] / allowed)
        report.add(f"spatial_requests_per_second/{model}", parts, "1/s", baseline="one racing instance", baseline_values=whole)
        report.add(f"spatial_over_profile/{model}", over, "")
        report.add(f"spatial_gain/{model}", [a / b for a, b in zip(parts, whole)], "x", baseline="the profile's gain",
                   baseline_values=[allowed / (1000 / alone)] * len(parts))


def isolation(report, arguments):
    """A function on half of the SMs beside a neighbour of the same kind that is offered more than four times what it can serve."""
    for sharing, name in (("fast", "isolation_p98_ratio"), ("racing", "isolation_p98_ratio_racing")):
        for model in PAPER:
            alone, beside = [], []
            capacity = 1000 / time_on(model, 0.5)
            # Where all race, the queue of a function that gets less than it is offered grows for as long as it is measured.
            seconds = arguments.seconds if sharing == "racing" else max(arguments.seconds, math.ceil(2 * ENOUGH / capacity))
            for _ in range(arguments.rounds):
                with Gpu(arguments.build, profile_of(model), sharing) as gpu:
                    gpu.deploy("f", sm_partition=50, max_instances=1)
                    gpu.deploy("noisy", sm_partition=50, max_instances=1)
                    alone.append(gpu.load("f", seconds, 8, capacity / 2)["latency_us"]["p98"])
                    # So many clients that are never without a request offer more than any rate that is set.
                    noisy = gpu.start("noisy", seconds + 2, 32)
                    time.sleep(1)
                    beside.append(gpu.load("f", seconds, 8, capacity / 2)["latency_us"]["p98"])
                    gpu.result(noisy)
            report.add(f"{name}/{model}", [a / b for a, b in zip(beside, alone)], "x")


MIXES = {"shares": ({"sm_partition": 50}, {"sm_partition": 24, "quota_request": 10, "quota_limit": 100, "max_instances": 2}),
         "whole": ({}, {}),
         "quotas": ({"sm_partition": 24, "quota_request": 40}, {"sm_partition": 24, "quota_request": 40})}


def noisy(report, arguments):
    """A function at its quota beside two others that would take all they can get."""
    for mix, neighbours in MIXES.items():
        alone, beside, p98 = [], [], []
        for _ in range(arguments.rounds):
            with Gpu(arguments.build, profile_of("ResNet"), "fast") as gpu:
                gpu.deploy("f", sm_partition=24, quota_request=40, quota_limit=40)
                for name, settings in zip("ab", neighbours):
                    gpu.deploy(name, **settings)
                first = gpu.load("f", arguments.seconds, 4)
                others = [gpu.start(name, arguments.seconds + 2, 8) for name in "ab"]
                time.sleep(1)
                second = gpu.load("f", arguments.seconds, 4)
                for load in others:
                    gpu.result(load)
                alone.append(first["requests_per_second"])
                beside.append(second["requests_per_second"])
                p98.append(second["latency_us"]["p98"] / first["latency_us"]["p98"])
        report.add(f"noisy_requests_per_second/{mix}", beside, "1/s", baseline="alone", baseline_values=alone)
        report.add(f"noisy_throughput_ratio/{mix}", [b / a for a, b in zip(alone, beside)], "x")
        report.add(f"noisy_p98_ratio/{mix}", p98, "x")


def choice(rates, p98):
    """From one run at a time on, twice as many while that serves a tenth more or has a p98 a tenth lower for some kind of run, and for
    none a twentieth less or higher: more runs at a time take more of the GPU's memory for activations."""
    def gains(n, more):
        for run in rates:
            yield statistics.median(rates[run][more]) / statistics.median(rates[run][n])
            yield statistics.median(p98[run][n]) / statistics.median(p98[run][more])
    chosen = CONCURRENCY[0]
    for more in CONCURRENCY[1:]:
        found = list(gains(chosen, more))
        if max(found) < 1.1 or min(found) < 0.95:
            break
        chosen = more
    return chosen


def real_runs(arguments):
    """Requests a second and p98 (ms) of two networks that the processor computes, by name and by runs at a time."""
    parser = argparse.ArgumentParser()
    batching.add_arguments(parser)
    chosen = parser.parse_args(["--build", str(arguments.build), "--seconds", str(arguments.seconds)])
    networks = {name: network for name, network in batching.networks(chosen.shared).items() if name in ("digits", "bert_tiny")}
    rates, p98 = ({name: {n: [] for n in CONCURRENCY} for name in networks} for _ in range(2))
    for _ in range(arguments.rounds):
        for n in CONCURRENCY:
            with batching.OneGpu(chosen, "off", concurrency=n) as site:
                for name, network in networks.items():
                    site.deploy(name, network[0], 1000)
                    site.load(name, *network[1:], seconds=1)
                with concurrent.futures.ThreadPoolExecutor(len(networks)) as pool:
                    loads = {name: pool.submit(site.load, name, *network[1:], connections=4) for name, network in networks.items()}
                for name, load in loads.items():
                    rates[name][n].append(load.result()["requests_per_second"])
                    p98[name][n].append(load.result()["latency_us"]["p98"] / 1000)
    return rates, p98


def concurrency(report, arguments):
    """How many runs without shares a GPU is to have at a time: they share it evenly."""
    rates, p98 = {}, {}
    for runs in ((1, 1), (14, 14), (80, 80), (1, 80)):
        name = "+".join(str(run) for run in sorted(set(runs)))
        rates[name], p98[name] = {n: [] for n in CONCURRENCY}, {n: [] for n in CONCURRENCY}
        # Each of the two is offered 30 % of what the GPU serves of it.
        offered = [0.3 * 1000 / run for run in runs]
        seconds = max(arguments.seconds, math.ceil(ENOUGH / offered[0]))
        for _ in range(arguments.rounds):
            for n in CONCURRENCY:
                with Gpu(arguments.build, (runs[0], 100), "fast", n, {"g": (runs[1], 100)}) as gpu:
                    for function in "fg":
                        gpu.deploy(function)
                    loads = [gpu.start(function, arguments.seconds, 8) for function in "fg"]
                    # In runs of the first function: so much of the GPU's time was used.
                    done = [gpu.result(load)["requests_per_second"] for load in loads]
                    rates[name][n].append(sum(rate * run for rate, run in zip(done, runs)) / runs[0])
                    loads = [gpu.start(function, seconds, 16, rate) for function, rate in zip("fg", offered)]
                    p98[name][n].append(gpu.result(loads[0])["latency_us"]["p98"] / 1000)
                    gpu.result(loads[1])
        for n in CONCURRENCY:
            report.add(f"concurrency_requests_per_second/{name}/{n}", rates[name][n], "1/s", baseline="one at a time", baseline_values=rates[name][1])
            report.add(f"concurrency_p98_ms/{name}/{n}", p98[name][n], "ms", baseline="one at a time", baseline_values=p98[name][1])
    of_real, of_real_p98 = real_runs(arguments)
    for name in of_real:
        rates[f"real/{name}"], p98[f"real/{name}"] = of_real[name], of_real_p98[name]
        for n in CONCURRENCY:
            report.add(f"concurrency_requests_per_second/real/{name}/{n}", of_real[name][n], "1/s", baseline="one at a time", baseline_values=of_real[name][1])
            report.add(f"concurrency_p98_ms/real/{name}/{n}", of_real_p98[name][n], "ms", baseline="one at a time", baseline_values=of_real_p98[name][1])
    report.add("concurrency_choice", [choice(rates, p98)], "runs")


def gate(report, arguments):
    """What the gate adds to each launch, with a hundred functions at the worker."""
    alone, shared = [], []
    for _ in range(arguments.rounds):
        found = json.loads(subprocess.run([arguments.build / "bin" / "sharing_bench"], check=True, capture_output=True,
                                          text=True).stdout)
        alone.append(found["ns_per_launch"] / 1000)
        shared.append(found["ns_per_launch_with_page"] / 1000)
    report.add("gate_us_per_launch", alone, "us")
    report.add("gate_us_per_launch_with_page", shared, "us", baseline="without the page", baseline_values=alone)
    for run_ms, runs in ((1, 2000), (14, 200)):
        found = json.loads(subprocess.run([arguments.build / "bin" / "gate_bench", "--run", f"{run_ms}ms", "--runs", str(runs), "--rounds",
                                           str(max(5, arguments.rounds))], check=True, capture_output=True, text=True).stdout)
        with_gate, racing = found["runs_per_second"], found["runs_per_second_racing"]
        report.add(f"gate_runs_per_second/{run_ms}", with_gate, "1/s", baseline="racing", baseline_values=racing)
        report.add(f"gate_throughput_loss/{run_ms}", [1 - a / b for a, b in zip(with_gate, racing)], "")
        if run_ms == 1:
            report.add("gate_freed_after_kill_ms", found["freed_after_ms"], "ms")


def batches(report, arguments):
    """bench/batching.py, with real compute."""
    parser = argparse.ArgumentParser()
    batching.add_arguments(parser)
    batching.measure(report, parser.parse_args(["--build", str(arguments.build), "--rounds", str(arguments.rounds)]))


PARTS = {"gate": gate, "concurrency": concurrency, "quotas": quotas, "spatial": spatial, "isolation": isolation, "noisy": noisy, "batching": batches}


def main():
    return run_parts("sharing", "timed compute: times of runs are inputs (001, section 5.3); virtual GPU, real daemon",
                     __doc__, PARTS, seconds=10, seconds_help="of each measurement: whole windows of a second")


if __name__ == "__main__":
    sys.exit(main())
