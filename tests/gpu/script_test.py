#!/usr/bin/python3
"""tests/gpu/run.sh as a machine with a GPU runs it: unpacked from its bundle in a folder of its own, on the fake driver of the
build, in its small form. Every step is run and its figures are counted; their values say nothing."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TROUPE_BUILD_DIR", ROOT / "build" / "release")).resolve()
sys.path.insert(0, str(ROOT / "bench"))
SMI = """#!/bin/sh
case "$*" in
  *name,memory.total*) echo "Fake GPU, 256 MiB, 0" ;;
  *=driver_version*) echo "580.65.06" ;;
  --list-gpus) echo "GPU 0: Fake GPU"; echo "GPU 1: Fake GPU" ;;
  *) echo "Fake GPU" ;;
esac
"""
# One figure of each kind; when a step is left out, some are missing.
FIGURES = [
    r"plain_pinned_copy", r"copy_in/registered/64KiB", r"copy_in/pageable/4096KiB", r"copy_out/registered/64KiB",
    r"map_and_set_access_us/units=8", r"unmap_call_us/units=1", r"swap_and_run_4MiB_ms", r"native_ms/vit-tiny",
    r"variant_compute_ms/bert-tiny/precision=(tf32|bf16|fp16)", r"variant_compute_ms/vit-tiny/graphs=off",
    r"variant_compute_ms/bert-tiny/kernels=persistent",
    r"swap_run_ms/bert-tiny/(pageable|whole|per-tensor|grouped|mapped)", r"swap_run_over_max/bert-tiny", r"function_start_ms/vit-tiny",
    r"link_use/bert-tiny", r"extra_function_beyond_weights_bytes", r"neighbour_p98_ms/vit-tiny/racing",
    r"share_latency_ms/vit-tiny/sms=8", r"neighbour_p98_ms/bert-tiny/shares", r"throughput/vit-tiny/share=12/instances=2",
    r"throughput/bert-tiny/racing/instances=2", r"compute_busy/throughput/vit-tiny/racing/instances=1",
    r"worker_killed_to_answer_ms", r"illegal_access_to_exit_ms", r"illegal_access_to_answer_ms", r"requests_per_second/noop",
    r"requests_per_second/vit-tiny", r"killed_worker_recovery_ms", r"killed_worker_failed_requests"]
GOALS = ["host to device", "swap and run", "a further function", "a function starts", "a neighbour"]


def what_failed(done):
    """The output of each step that the script calls failed, and the end of all of it."""
    steps = "".join(done.stdout[done.stdout.index(f"== {name}\n"):done.stdout.index(f"== {name}: ")][-4000:]
                    for name in re.findall(r"^failed: (.*)$", done.stdout, re.M) if f"== {name}: " in done.stdout)
    return steps + done.stdout[-2000:] + done.stderr[-3000:]


class FakeLibrary:
    """Stands for NVIDIA's management library on a machine that has only GPU 1; it does not know the occupancy."""
    def nvmlInit_v2(self):
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, ordinal, device):
        device._obj.value = 77
        return 0 if ordinal == 1 else 6

    def nvmlDeviceGetMemoryInfo(self, device, memory):
        memory._obj.used = 5 << 30
        return 0 if device.value == 77 else 2

    def nvmlGpmSampleAlloc(self, sample):
        sample._obj.value = 1
        return 0

    def nvmlGpmSampleGet(self, device, sample):
        return 0

    def nvmlGpmSampleFree(self, sample):
        return 0

    def nvmlGpmMetricsGet(self, asked):
        for metric in asked._obj.metrics[:asked._obj.count]:
            metric.result, metric.value = (0, 75.0) if metric.id == 2 else (3, 1.0)
        return 0


class Script(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="troupe-gpu-script-", dir="/tmp")
        cls.home = pathlib.Path(cls.folder.name)
        subprocess.run([ROOT / "tests" / "gpu" / "bundle.sh", "--build", BUILD, cls.home / "bundle.tar.gz"], check=True)
        subprocess.run(["tar", "-xzf", "bundle.tar.gz"], check=True, cwd=cls.home)
        smi = cls.home / "nvidia-smi"
        smi.write_text(SMI)
        smi.chmod(0o755)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_script(self, *words, gpu=True):
        environment = {key: value for key, value in os.environ.items() if not key.startswith("TROUPE_")}
        if gpu:
            environment["LD_LIBRARY_PATH"] = str(BUILD / "tests" / "fake_cuda")
            environment["PATH"] = f"{self.home}:{environment['PATH']}"
        return subprocess.run([self.home / "troupe-gpu" / "tests" / "gpu" / "run.sh", *words], capture_output=True, text=True,
                              env=environment, cwd=self.home)

    def test_the_dry_run_says_what_is_there_and_what_would_run(self):
        done = self.run_script("--dry-run")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertNotIn("missing", done.stdout)
        for step in ("probe", "device contract", "broadcasts between GPUs", "memory and link", "conformance and networks",
                     "swaps and variants of networks", "memory of functions", "shares of the SMs", "faults", "daemons"):
            self.assertIn(f"would run  {step} (at most", done.stdout)
        self.assertLess(done.stdout.index("device contract ("), done.stdout.index("swaps and variants"),
                        "what needs no networks comes first")
        limits = [int(seconds) for seconds in re.findall(r"at most (\d+) s", done.stdout)]
        self.assertLessEqual(sum(limits), 480, "8 minutes in all")

    def test_what_is_missing_is_named_and_nothing_runs(self):
        (self.home / "empty").mkdir()
        for words in (["--dry-run"], []):
            done = self.run_script("--build", str(self.home / "empty"), *words, gpu=False)
            self.assertEqual(done.returncode, 3, done.stdout)
            self.assertRegex(done.stdout, r"missing +.*empty/bin/device_bench \(make build")
            self.assertNotIn("== ", done.stdout)
            if words:
                self.assertRegex(done.stdout, r"skipped +broadcasts between GPUs: two GPUs are needed")
        self.assertEqual(self.run_script("--fast").returncode, 2)

    def test_the_first_minutes_on_a_new_gpu_are_its_probe_the_contract_and_one_network(self):
        done = self.run_script("--first", "--dry-run")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        steps = re.findall(r"would run  ([\w ]+) \(at most", done.stdout)
        self.assertEqual(steps, ["probe", "device contract", "conformance and networks", "memory and link",
                                 "swaps and variants of networks", "memory of functions", "shares of the SMs", "faults"])
        self.assertIn("--networks resnet50", done.stdout)

    def test_parts_run_alone_and_are_added_to_one_file(self):
        out = self.home / "parts"
        done = self.run_script("--small", "--parts", "probe,raw", "--out", str(out))
        self.assertEqual(done.returncode, 0, what_failed(done))
        self.assertEqual(re.findall(r"^== ([\w ]+)$", done.stdout, re.M), ["probe", "memory and link"])
        (probe,) = out.glob("probe-*.json")
        self.assertRegex(probe.name, r"^probe-Fake-GPU-\d{4}-\d\d-\d\d\.json$", "one of each kind and day")
        probed = json.loads(probe.read_text())
        self.assertEqual(probed["trouble"], "none")
        self.assertTrue(any(fact["part"] == "host memory" for fact in probed["facts"]))
        self.assertTrue(any("its driver is for CUDA 13.0" in use for use in probed["uses"]))
        (file,) = out.glob("Fake-GPU-*.json")
        self.assertEqual(json.loads(file.read_text())["driver"], "580.65.06")
        raw = {figure["name"] for figure in json.loads(file.read_text())["figures"]}
        self.assertIn("plain_pinned_copy", raw)
        done = self.run_script("--small", "--parts", "faults", "--out", str(out))
        self.assertEqual(done.returncode, 0, what_failed(done))
        names = [figure["name"] for figure in json.loads(file.read_text())["figures"]]
        self.assertTrue(raw < set(names), "the figures of the part before stay")
        self.assertEqual(len(names), len(set(names)))
        self.assertEqual(self.run_script("--parts", "raw,everything").returncode, 2)

    def test_what_was_measured_is_kept_when_time_is_over(self):
        out = self.home / "late"
        words = [sys.executable, ROOT / "bench" / "gpu.py", "--small", "--build", BUILD, "--out", out, "--only", "raw,networks,faults"]
        environment = {**os.environ, "LD_LIBRARY_PATH": str(BUILD / "tests" / "fake_cuda"), "PATH": f"{self.home}:{os.environ['PATH']}"}
        with subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            for line in process.stderr:
                if "device_bench" in line:  # the first part is over, and the second one has begun
                    process.terminate()
        self.assertEqual(process.returncode, 1)
        (file,) = out.glob("*.json")
        result = json.loads(file.read_text())
        self.assertEqual(result["failures"], ["networks: stopped by SIGTERM"])
        self.assertIn("plain_pinned_copy", {figure["name"] for figure in result["figures"]})
        done = subprocess.run([*words, "--limit", "0"], env=environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        result = json.loads(file.read_text())
        self.assertEqual([text.partition(",")[0] for text in result["failures"]],
                         [f"{part}: not begun" for part in ("raw", "networks", "faults")])
        self.assertIn("plain_pinned_copy", {figure["name"] for figure in result["figures"]}, "an earlier run's stay")

    def test_it_measures_everything_and_the_page_shows_it(self):
        done = self.run_script("--small", "--out", str(self.home / "results"))
        self.assertEqual(done.returncode, 0, what_failed(done))
        (file,) = (self.home / "results").glob("Fake-GPU-*.json")
        self.assertRegex(file.name, r"^Fake-GPU-\d{4}-\d\d-\d\d\.json$")
        result = json.loads(file.read_text())
        self.assertEqual(result["driver"], "580.65.06")
        figures = {figure["name"]: figure for figure in result["figures"]}
        for pattern in FIGURES:
            self.assertTrue(any(re.fullmatch(pattern, name) for name in figures), f"{pattern} in {sorted(figures)}")
        self.assertEqual(figures["killed_worker_failed_requests"]["value"], 0)
        for goal in GOALS:
            self.assertTrue(any(each["goal"].startswith(goal) for each in result["goals"]), goal)
        for goal in result["goals"]:
            self.assertIn(f"{'met   ' if goal['met'] else 'MISSED'} {goal['goal']}: {goal['figure']}", done.stdout)
        self.assertEqual(len(re.findall(r"^(?:met   |MISSED) ", done.stdout, re.M)), len(result["goals"]))
        page = self.page(self.home / "results")
        self.assertIn("**Not yet measured.**", page, "figures of small networks are not results")
        file.write_text(json.dumps({**result, "small": False}))
        page = self.page(self.home / "results")
        self.assertNotIn("ot yet measured", page)
        self.assertIn("4.16x", page)
        self.assertIn("; driver 580.65.06; ", page)
        self.assertIn(f"`function_start_ms/vit-tiny`", page)
        row = next(line for line in page.splitlines() if line.startswith("| swap and run (ms), over native"))
        self.assertRegex(row, r"vit-tiny/grouped [\d.,]+ \([\d.]+x\)")

    def page(self, results):
        file = self.home / "page.md"
        subprocess.run([sys.executable, ROOT / "bench" / "gpu_page.py", "--results", results, "--page", file], check=True)
        return file.read_text()

    def test_what_fails_is_named_and_what_was_measured_is_kept(self):
        out = self.home / "failures"
        done = subprocess.run([sys.executable, ROOT / "bench" / "gpu.py", "--small", "--device", "cuda:7", "--build", BUILD, "--out", out,
                               "--only", "raw,faults"], capture_output=True, text=True,
                              env={**os.environ, "LD_LIBRARY_PATH": str(BUILD / "tests" / "fake_cuda")})
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        (file,) = out.glob("*.json")
        failures = json.loads(file.read_text())["failures"]
        self.assertEqual([text.partition(":")[0] for text in failures], ["raw", "faults"])
        for text in failures:
            self.assertIn(f"failed: {text}", done.stderr)

    def test_the_meter_reads_what_the_library_says(self):
        import gpu_meter
        meter = gpu_meter.GpuMeter(1, "libnvidia-ml.so.1", lambda name: FakeLibrary())
        self.assertEqual(meter.used_memory(), 5 << 30)
        begin, end = meter.sample(), meter.sample()
        self.assertEqual(meter.over(begin, end), {gpu_meter.SM_BUSY: 75.0})
        self.assertEqual(meter.over(None, end), {})
        old = gpu_meter.GpuMeter(1, load=lambda name: object())
        self.assertEqual((old.used_memory(), old.sample()), (None, None), "a library without these calls")
        absent = gpu_meter.GpuMeter(0, "libno_such_library.so.1")
        self.assertIsNone(absent.used_memory())
        self.assertIsNone(absent.sample())

    def test_memory_is_told_per_function(self):
        import gpu
        lines = gpu.Lines(None, 0)
        lines.rows["memory_functions"] = [[4.0]]
        lines.rows["extra_function_beyond_weights_bytes"] = [[100.0], [500.0]]
        lines.memory = {"before": 1000, "first_function": 700_001_000, "one_runtime": 703_001_000, "process_each": 2_400_001_000}
        report = gpu.Report("memory", self.home)
        lines.add_to(report)
        values = {figure["name"]: figure["value"] for figure in report.figures}
        self.assertEqual(values["device_memory_per_function_mb/process_each"], 600)
        self.assertEqual(values["device_memory_per_function_mb/one_runtime"], 175.75)
        goals = {goal["goal"].split()[0]: goal for goal in gpu.goals_of(report.figures)}
        self.assertEqual((goals["a"]["value"], goals["a"]["met"]), (1_000_500, False))
        self.assertAlmostEqual(goals["memory"]["value"], 0.707, 3)
        self.assertFalse(goals["memory"]["met"])
        lines.memory["before"] = None  # as without the library
        silent = gpu.Report("memory", self.home)
        lines.rows = {"memory_functions": [[4.0]]}
        lines.add_to(silent)
        self.assertEqual([figure["name"] for figure in silent.figures], ["memory_functions"])

    def test_the_page_in_docs_is_what_the_results_say(self):
        subprocess.run([sys.executable, ROOT / "bench" / "gpu_page.py", "--check"], check=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
