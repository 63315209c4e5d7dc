#!/usr/bin/env python3
"""`troupe simulate` as its users see it: output, exit codes, bad input. usage: program_test.py BIN"""
import gzip
import json
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

BIN = pathlib.Path(sys.argv.pop(1))
EXAMPLE = pathlib.Path("examples/simulation")
CLUSTER = ["--cluster", str(EXAMPLE / "cluster.yaml")]
TRACE = ["--trace", str(EXAMPLE / "trace.csv")]


def simulate(*words):
    return subprocess.run([BIN / "troupe", "simulate", *words], capture_output=True, text=True, timeout=100)


class Simulate(unittest.TestCase):
    def test_the_example(self):
        hashes = set()
        for policy in ("troupe", "torpor", "torpor"):
            done = simulate(*CLUSTER, *TRACE, "--policy", policy, "--seed", "7")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("2482 arrived = 2482 served", done.stdout)
            hashes.add(re.search(r"trace hash: (\w{16})", done.stdout).group(1))
        self.assertEqual(len(hashes), 2)

    def test_bad_input_says_where_and_exits_with_2(self):
        with tempfile.TemporaryDirectory() as folder:
            bad = pathlib.Path(folder) / "bad.csv"
            bad.write_text("function,m1\na,-1\n")
            for words, message in (
                ((*CLUSTER, "--trace", str(bad)), "bad.csv:2:3: found '-1'"),
                ((*CLUSTER, *TRACE, "--policy", "best"), "no preset policy is called 'best'"),
                ((*CLUSTER, "--trace", "nowhere.csv"), "no trace nowhere.csv"),
                (("--cluster", str(EXAMPLE / "trace.csv"), *TRACE), "trace.csv:1:1: expected 'key: value'"),
                ((*CLUSTER, "--generate", "wavy"), "expected poisson"),
                ((*CLUSTER, *TRACE, "--spread", "sideways"), "'sideways' is not a valid spread"),
                (CLUSTER, "--trace,--generate"),
                (TRACE, "--cluster is required"),
            ):
                done = simulate(*words)
                self.assertEqual(done.returncode, 2, (words, done.stdout, done.stderr))
                self.assertIn(message, done.stderr)

    def test_faults_of_the_network(self):
        with tempfile.TemporaryDirectory() as folder:
            faults = pathlib.Path(folder) / "faults.yaml"
            faults.write_text("- {at: 2s, partition: [gateway-1, node-2], for: 3s}\n- {at: 9s, cut: [node-1, manager]}\n")
            runs = [simulate(*CLUSTER, *TRACE, "--faults", str(faults)) for _ in range(2)]
            self.assertEqual(runs[0].returncode, 0, runs[0].stderr)
            self.assertIn("network: 2 connections lost", runs[0].stdout)
            self.assertEqual(runs[0].stdout, runs[1].stdout)
            faults.write_text("- {at: 2s, cut: [node-1, node-9]}\n")
            done = simulate(*CLUSTER, *TRACE, "--faults", str(faults))
            self.assertEqual(done.returncode, 2)
            self.assertIn("faults.yaml:1:17: cut: found", done.stderr)

    def test_an_interrupt_prints_what_there_is(self):
        run = subprocess.Popen([BIN / "troupe", "simulate", *CLUSTER, "--generate", "poisson rate=20 length=60000s"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = run.stderr.readline()  # it is on its way
        self.assertRegex(line, r"of .* in .*requests answered")
        run.send_signal(signal.SIGINT)
        out, _ = run.communicate(timeout=60)
        self.assertEqual(run.returncode, 130)
        self.assertIn("ended early", out)
        self.assertIn("trace hash", out)


class Experiment(unittest.TestCase):
    def experiment(self, *words):
        return subprocess.run([BIN / "troupe", "experiment", *words], capture_output=True, text=True, timeout=100)

    def test_the_list_and_what_is_not_in_it(self):
        self.assertIn("lalb-latency", self.experiment("list").stdout)
        for words, message in ((("lalb-speed", "--data", "."), "no experiment is called 'lalb-speed'"),
                               (("lalb",), "needs --data"),
                               (("lalb", "--data", "/nowhere"), "there is no table /nowhere/papers/lalb_table1.csv")):
            done = self.experiment(*words)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn(message, done.stderr)

    def test_lalb_on_small_data(self):
        with tempfile.TemporaryDirectory() as folder:
            data = pathlib.Path(folder)
            for name in ("papers", "traces"):
                (data / name).mkdir()
            models = [f"model{i}" for i in range(30)]
            (data / "papers/lalb_table1.csv").write_text("model,occupation_mb,loading_s,inference_s_batch32\n" + "".join(
                f"{name},{3000 + 20 * i},2.5,1.3\n" for i, name in enumerate(models)))
            for size in (15, 25, 35):
                (data / f"traces/derived_lalb_ws{size}.csv").write_text("function,table1_model,m1\n" + "".join(
                    f"f{i},{models[i % 30]},8\n" for i in range(size)))
            done = self.experiment("lalb", "--data", folder, "--seeds", "2", "--json", str(data / "out.json"), "--svg",
                                   str(data / "pictures"))
            self.assertEqual(done.returncode, 0, done.stderr)
            figures = {figure["name"]: figure for figure in json.loads((data / "out.json").read_text())["figures"]}
            for size in (25, 35):
                base, o3, ours = (figures[f"lalb-latency/{size}/{preset}/mean_s"]
                                  for preset in ("load-balance", "lalb-o3", "troupe"))
                self.assertEqual(base["runs"], 2)
                self.assertLess(o3["ratio"], 0.9)  # of load-balance
                self.assertEqual(ours["baseline"], o3["name"])
            self.assertEqual(figures["lalb-latency/35/lalb-o3/reduction"]["paper"], 96.93)
            # Without prefetch whoever has a model loaded has missed it, and others may wait for the same load.
            misses, loads = (figures[f"lalb-misses/35/load-balance/{of}per_request"]["min"] for of in ("", "loads_"))
            self.assertTrue(0 < loads <= misses < 1, (loads, misses))
            self.assertIn("lalb-utilization/15/troupe+overlap/computing", figures)
            picture = (data / "pictures/lalb-latency-mean_s.svg").read_text()
            self.assertEqual(picture.count("<title>"), 15)  # three working sets under five presets
            self.assertIn("models in the working set", picture)
            self.assertTrue((data / "pictures/lalb-misses-reduction.svg").exists())
            done = self.experiment("lalb-placement", "--data", folder, "--seeds", "1")  # two to a GPU
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn("25 functions do not fit on 12 GPUs of 8 GiB each", done.stderr)

    def test_torpor_on_small_data(self):
        with tempfile.TemporaryDirectory() as folder:
            data = pathlib.Path(folder)
            for name in ("papers", "traces/torpor"):
                (data / name).mkdir(parents=True)
            models = ("DenseNet-169", "DenseNet-201", "Inception-v3", "EfficientNet", "ResNet-50", "ResNet-101",
                      "ResNet-152", "Bert-qa")
            (data / "papers/torpor_table4.csv").write_text("model,native_ms,gpu_remoting_ms,swap_pcie_ms\n" + "".join(
                f"{name},30,25,27\n" for name in models))
            (data / "papers/torpor_table1.csv").write_text(
                "model,coldstart_s,mem_footprint_gb\nResNet-152,8,1.6\nBert-qa,11,2.4\n")
            samples = data / "traces/torpor/samples.csv"
            samples.write_text("func,m0,m1,m2\n" + "".join(f"{i},5,20,10\n" for i in range(3)))
            done = self.experiment("torpor-node", "--data", folder, "--seeds", "2", "--jobs", "2", "--minutes", "2",
                                   "--functions", "96..96", "--json", str(data / "out.json"))
            self.assertEqual(done.returncode, 0, done.stderr)
            figures = {figure["name"]: figure for figure in json.loads((data / "out.json").read_text())["figures"]}
            at = "torpor-node/96/even/"
            self.assertEqual(figures[at + "native/executed_functions"]["runs"], 2)
            # Four GPUs of 32 GB hold 53 runtimes of 2.4 GB, or 80 of 1.6 GB.
            self.assertGreaterEqual(figures[at + "native/executed_functions"]["min"], 53)
            self.assertLessEqual(figures[at + "native/executed_functions"]["max"], 80)
            self.assertEqual(figures[at + "torpor/executed_functions"]["value"], 96)
            self.assertEqual(figures[at + "torpor/compliant_functions"]["value"], 96)
            self.assertEqual(figures[at + "troupe/executed_functions"]["baseline"], at + "native/executed_functions")
            samples.write_text("func,m0\n0,many\n")
            for words, message in ((("torpor-node", "--data", folder), "samples.csv:2:3: found 'many'"),
                                   (("torpor-node", "--data", folder, "--functions", "9..5"), "expected two numbers"),
                                   (("torpor-node", "--data", folder, "--presets", "best"), "called 'best'")):
                done = self.experiment(*words)
                self.assertEqual(done.returncode, 2, done.stdout)
                self.assertIn(message, done.stderr)

    def small_inputs(self, folder):
        data = pathlib.Path(folder)
        for name in ("papers", "traces/torpor", "traces/azure2019"):
            (data / name).mkdir(parents=True)
        models = ("DenseNet-169", "DenseNet-201", "Inception-v3", "EfficientNet", "ResNet-50", "ResNet-101", "ResNet-152",
                  "Bert-qa")
        (data / "papers/torpor_table4.csv").write_text(
            "model,native_ms,gpu_remoting_ms,swap_pcie_ms,swap_nvlink_ms,code_level\n" + "".join(
                f"{name},20,{10 + i},{20 + i},15,1\n" for i, name in enumerate(models)))
        (data / "papers/torpor_table1.csv").write_text(
            "model,coldstart_s,mem_footprint_gb\nResNet-152,8,1.6\nBert-qa,11,2.4\n")
        (data / "traces/torpor/samples.csv").write_text("func,m0,m1\n0,3,4\n1,5,6\n")
        (data / "traces/azure2019/invitro_1350_inv.csv.gz").write_bytes(gzip.compress(
            ("HashFunction,1_minute,2_minute,3_minute\n" + "".join(f"f{i},{i},3,9\n" for i in range(12))).encode()))
        return data

    def figures(self, data, *words):
        done = self.experiment(*words, "--data", str(data), "--json", str(data / "out.json"))
        self.assertEqual(done.returncode, 0, done.stderr)
        return {figure["name"]: figure for figure in json.loads((data / "out.json").read_text())["figures"]}

    def test_streambox_on_small_data(self):
        with tempfile.TemporaryDirectory() as folder:
            data = self.small_inputs(folder)
            figures = self.figures(data, "streambox-throughput", "--minutes", "1", "--seeds", "2", "--jobs", "2",
                                   "--presets", "infless,streambox")
            for load in ("bursty", "periodic", "sporadic"):
                times = figures[f"streambox-throughput/{load}/infless/streambox_times"]
                self.assertEqual(times["paper"], 6.7)
                self.assertGreater(times["min"], 1.5)  # twenty-four functions in eight runtimes
                self.assertGreater(figures[f"streambox-throughput/{load}/infless/starts"]["min"], 0)
                self.assertEqual(figures[f"streambox-throughput/{load}/streambox/starts"]["max"], 0)
            times = [figures[f"streambox-throughput/{load}/infless/streambox_times"]["value"]
                     for load in ("bursty", "periodic", "sporadic", "average")]
            self.assertTrue(min(times[:3]) < times[3] < max(times[:3]), times)
            self.assertGreater(figures["streambox-throughput/saturated/streambox/computing"]["min"],
                               2 * figures["streambox-throughput/bursty/streambox/computing"]["max"])
            figures = self.figures(data, "streambox-tenants", "--minutes", "1", "--seeds", "1", "--presets", "streambox")
            self.assertEqual(figures["streambox-tenants/3/streambox/starts"]["max"], 0)
            self.assertGreater(figures["streambox-tenants/6/streambox/starts"]["min"], 0)  # three runtimes
            figures = self.figures(data, "streambox-cluster", "--minutes", "1", "--seeds", "1", "--presets", "streambox")
            self.assertGreater(figures["streambox-cluster/8/streambox/served_per_s"]["value"],
                               1.5 * figures["streambox-cluster/4/streambox/served_per_s"]["value"])

    def test_azure_on_small_data(self):
        with tempfile.TemporaryDirectory() as folder:
            data = self.small_inputs(folder)
            figures = self.figures(data, "azure-day", "--seeds", "1", "--minutes", "2", "--rates", "1,10", "--gpus", "1,8",
                                   "--presets", "load-balance,troupe")
            self.assertEqual(len([name for name in figures if name.endswith("/compliant")]), 8)
            paid = [figures[f"azure-day/{rate}x/1/troupe/paid_gpu_s"]["value"] for rate in (1, 10)]
            self.assertGreater(paid[1], 2 * paid[0])
            self.assertGreater(paid[0], 0)
            done = self.experiment("azure-day", "--data", folder, "--gpus", "6")
            self.assertEqual(done.returncode, 2)
            self.assertIn("--gpus: found 6", done.stderr)


if __name__ == "__main__":
    unittest.main()
