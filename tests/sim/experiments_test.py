#!/usr/bin/env python3
"""`troupe experiment` on small data: what it prints and refuses, and for every experiment the order of its baselines.
usage: experiments_test.py BIN"""
import gzip
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

BIN = pathlib.Path(sys.argv.pop(1))
TABLE1 = ("model,torpor_model_load_s,torpor_runtime_resume_s,coldstart_s,mem_footprint_gb\n"
          "ResNet-152,0.03,0.26,8,1.6\nBert-qa,0.14,0.19,11,2.4\n")
# As in the paper, but for what the experiments do not read.
FAST = """item,model,sm_partition_pct,time_quota_pct,value,unit,section
8 pods spatial,ResNet,12,100,296.8,req/s,5.3
1 racing pod (time sharing max),ResNet,100,100,71.37,req/s,5.3
8 pods spatial,RNNT,12,100,43.24,req/s,5.3
1 racing pod (time sharing max),RNNT,100,100,12.51,req/s,5.3
spatial,GNMT,12,100,43.79,req/s,5.3
1 racing pod (time sharing max),GNMT,100,100,28.85,req/s,5.3
footprint no sharing,ResNet,,,1525,MB,5.5
footprint with sharing,ResNet,,,1427,MB,5.5
footprint no sharing,ViT_huge,,,4735,MB,5.5
footprint with sharing per pod,ViT_huge,,,2101,MB,5.5
storage process + one model copy,ViT_huge,,,2979,MB,5.5
fixed storage context,all,,,300,MB,5.5
3 pods with sharing,ViT_huge,,,9282,MB,5.5
3 pods without sharing,ViT_huge,,,14205,MB,5.5
pods on a 16 GB V100 with sharing,ResNeXt,,,7,pods,5.5
pods on a 16 GB V100 without sharing,ResNeXt,,,4,pods,5.5
pods to pack,ResNet,12,40,4,pods,5.4
pods to pack,RNNT,24,40,2,pods,5.4
pods to pack,BERT,50,60,2,pods,5.4
GPUs needed time sharing,mix,,,4,gpus,5.4
GPUs needed FaST-Scheduler,mix,,,1,gpus,5.4
SLO,ResNet,,,69,ms,5.4
SLO violation bound,ResNet,,,1,pct,5.4
"""


def write_lalb_tables(data, occupation):
    """Thirty models, the smallest of so many megabytes, and three working sets of functions that run them."""
    models = [f"model{i}" for i in range(30)]
    (data / "papers/lalb_table1.csv").write_text("model,occupation_mb,loading_s,inference_s_batch32\n" + "".join(
        f"{name},{occupation + 20 * i},2.5,1.3\n" for i, name in enumerate(models)))
    for size in (15, 25, 35):
        (data / f"traces/derived_lalb_ws{size}.csv").write_text("function,table1_model,m1\n" + "".join(
            f"f{i},{models[i % 30]},8\n" for i in range(size)))


class Experiment(unittest.TestCase):
    def experiment(self, *words):
        return subprocess.run([BIN / "troupe", "experiment", *words], capture_output=True, text=True, timeout=300)

    def test_the_list_and_what_is_not_in_it(self):
        self.assertIn("lalb-latency", self.experiment("list").stdout)
        for words, message in ((("lalb-speed", "--data", "."), "no experiment is called 'lalb-speed'"),
                               (("lalb",), "needs --data"),
                               (("lalb", "--data", "/nowhere"), "there is no table /nowhere/papers/lalb_table1.csv")):
            done = self.experiment(*words)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn(message, done.stderr)

    def test_scale_grows_as_it_should(self):
        """What is decided for one function does not grow with the functions that are there; times are not looked at."""
        with tempfile.TemporaryDirectory() as folder:
            file, pictures = pathlib.Path(folder) / "out.json", pathlib.Path(folder) / "pictures"
            done = self.experiment("scale", "--functions", "200..2000", "--gpus", "16,160", "--json", str(file), "--svg", str(pictures))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue((pictures / "scale-tick_ms.svg").exists(), list(pictures.iterdir()))
            report = json.loads(file.read_text())
        self.assertIn("wall time", report["note"])
        value = {figure["name"]: figure["value"] for figure in report["figures"]}
        for gpus in (16, 160):
            few, many = ({name.rpartition("/")[2]: of for name, of in value.items() if name.startswith(f"scale/{count}/{gpus}-gpus/")}
                         for count in (200, 2000))
            for of in (few, many):
                self.assertEqual((of["deploy_copies"], of["cold_copies"], of["cold_commits"]), (2, 2, 0), of)
                self.assertTrue(all(of[time] > 0 for time in ("deploy_us", "tick_ms", "join_ms", "cold_per_second")), of)
            for told in ("update_bytes", "change_bytes"):  # names and sizes have a few more digits
                self.assertLess(many[told], few[told] + 10, told)
            # A member that joins hears of each function once, and gets its part of the copies and no more.
            self.assertLess(many["snapshot_bytes"], 10.5 * few["snapshot_bytes"])
            nodes = gpus / 8 if gpus > 100 else (gpus + 9) // 10
            self.assertLess(many["join_copies"], 1.3 * 2 * 2000 / (nodes + 1), nodes)
            self.assertLess(many["memory_bytes"], 1.05 * few["memory_bytes"])

    def test_scale_needs_no_data_and_refuses_sizes_that_say_nothing(self):
        done = self.experiment("scale", "--functions", "10..20")
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("expected 100 at least", done.stderr)

    def test_lalb_on_small_data(self):
        with tempfile.TemporaryDirectory() as folder:
            data = pathlib.Path(folder)
            for name in ("papers", "traces"):
                (data / name).mkdir()
            write_lalb_tables(data, 3000)
            done = self.experiment("lalb", "--data", folder, "--seeds", "2", "--json", str(data / "out.json"), "--svg",
                                   str(data / "pictures"))
            self.assertEqual(done.returncode, 0, done.stderr)
            figures = {figure["name"]: figure for figure in json.loads((data / "out.json").read_text())["figures"]}
            for size in (25, 35):
                base, o3, ours = (figures[f"lalb-latency/{size}/{preset}/mean_s"]
                                  for preset in ("load-balance", "lalb-o3", "troupe"))
                self.assertEqual(base["runs"], 2)
                self.assertLess(o3["ratio"], 0.9)  # of the ratio of load-balance
                self.assertEqual(ours["baseline"], o3["name"])
            self.assertEqual(figures["lalb-latency/35/lalb-o3/reduction"]["paper"], 96.93)
            # Without prefetch a request whose model is loaded for it has missed, and others may wait for the same load.
            misses, loads = (figures[f"lalb-misses/35/load-balance/{of}per_request"]["min"] for of in ("", "loads_"))
            self.assertTrue(0 < loads <= misses < 1, (loads, misses))
            self.assertIn("lalb-utilization/15/troupe+overlap/computing", figures)
            picture = (data / "pictures/lalb-latency-mean_s.svg").read_text()
            self.assertEqual(picture.count("<title>"), 15)  # bars: three working sets under five presets
            self.assertIn("models in the working set", picture)
            self.assertTrue((data / "pictures/lalb-misses-reduction.svg").exists())
            done = self.experiment("lalb-placement", "--data", folder, "--seeds", "1")  # two models for each GPU
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
            (data / "papers/torpor_table1.csv").write_text(TABLE1)
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
            # All has room on the GPUs: nothing but the run, 30 ms natively and 25 over the remoting, is longer.
            computing = [figures[at + row + "/computing"]["value"] for row in ("troupe@native", "troupe")]
            self.assertAlmostEqual(computing[0] / computing[1], 30 / 25, delta=0.01)
            samples.write_text("func,m0\n0,many\n")
            for words, message in ((("torpor-node", "--data", folder), "samples.csv:2:3: found 'many'"),
                                   (("torpor-node", "--data", folder, "--functions", "9..5"), "expected two numbers"),
                                   (("torpor-node", "--data", folder, "--presets", "best"), "called 'best'"),
                                   (("torpor-node", "--data", folder, "--presets", "best@native"), "called 'best'"),
                                   (("torpor-node", "--data", folder, "--presets", "native@native"),
                                    "the runs of 'native' take the native times anyway")):
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
        (data / "papers/torpor_table1.csv").write_text(TABLE1)
        (data / "papers/fast_profile_and_sched.csv").write_text(FAST)
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
                self.assertGreater(times["min"], 1.5)  # twenty-four functions share eight runtimes
                self.assertGreater(figures[f"streambox-throughput/{load}/infless/starts"]["min"], 0)
                self.assertEqual(figures[f"streambox-throughput/{load}/streambox/starts"]["max"], 0)
            times = [figures[f"streambox-throughput/{load}/infless/streambox_times"]["value"]
                     for load in ("bursty", "periodic", "sporadic", "average")]
            self.assertTrue(min(times[:3]) < times[3] < max(times[:3]), times)
            self.assertGreater(figures["streambox-throughput/saturated/streambox/computing"]["min"],
                               2 * figures["streambox-throughput/bursty/streambox/computing"]["max"])
            figures = self.figures(data, "streambox-tenants", "--minutes", "1", "--seeds", "1", "--presets", "streambox")
            self.assertEqual(figures["streambox-tenants/3/streambox/starts"]["max"], 0)
            self.assertGreater(figures["streambox-tenants/6/streambox/starts"]["min"], 0)  # there are three runtimes
            figures = self.figures(data, "streambox-cluster", "--minutes", "1", "--seeds", "1", "--presets", "streambox")
            self.assertGreater(figures["streambox-cluster/8/streambox/served_per_s"]["value"],
                               1.5 * figures["streambox-cluster/4/streambox/served_per_s"]["value"])

    def test_azure_on_small_data(self):
        with tempfile.TemporaryDirectory() as folder:
            data = self.small_inputs(folder)
            figures = self.figures(data, "azure-day", "--seeds", "1", "--minutes", "2", "--rates", "1,10", "--gpus", "1,8",
                                   "--presets", "load-balance,troupe")
            for rate in (1, 10):
                needed = figures.get(f"azure-day/{rate}x/troupe/gpus_needed", {"value": None})["value"]
                tried = {gpus: figures[f"azure-day/{rate}x/{gpus}/troupe/compliant"]["value"]
                         for gpus in (1, 8) if f"azure-day/{rate}x/{gpus}/troupe/compliant" in figures}
                enough = [gpus for gpus, compliant in tried.items() if compliant >= 0.99]
                self.assertEqual(needed, min(enough, default=None))
                self.assertEqual(8 in tried, 1 not in enough)  # what has enough is not run with more
            self.assertIn("azure-day/1x/troupe/gpus_needed", figures)
            paid = [figures[f"azure-day/{rate}x/1/troupe/paid_gpu_s"]["value"] for rate in (1, 10)]
            self.assertGreater(paid[1], 2 * paid[0])
            self.assertGreater(paid[0], 0)
            # `fast` and `troupe-late` give different results, and `troupe` chooses no worse than the better of them.
            figures = self.figures(data, "azure-day", "--seeds", "1", "--minutes", "3", "--rates", "80", "--gpus", "2",
                                   "--presets", "fast,troupe-late,troupe")
            at = {preset: {what: figures[f"azure-day/80x/2/{preset}/{what}"]["value"] for what in ("mean_ms", "compliant")}
                  for preset in ("fast", "troupe-late", "troupe")}
            self.assertNotEqual(at["fast"]["mean_ms"], at["troupe-late"]["mean_ms"])
            self.assertGreaterEqual(at["troupe"]["compliant"], max(at[preset]["compliant"] for preset in ("fast", "troupe-late")))
            done = self.experiment("azure-day", "--data", folder, "--gpus", "5")
            self.assertEqual(done.returncode, 2)
            self.assertIn("--gpus: found 5", done.stderr)

    def test_fast_is_what_the_paper_says(self):
        with tempfile.TemporaryDirectory() as folder:
            data = self.small_inputs(folder)
            figures = self.figures(data, "fast-spatial", "--seeds", "1")
            for model, gain in (("ResNet", 4.16), ("RNNT", 3.46), ("GNMT", 1.52)):
                self.assertAlmostEqual(figures[f"fast-spatial/{model}/fast/gain"]["paper"], gain, 2)
                self.assertGreaterEqual(figures[f"fast-spatial/{model}/fast/of_profile"]["value"], 0.95)
                self.assertLessEqual(figures[f"fast-spatial/{model}/fast/of_profile"]["value"], 1.001)
            figures = self.figures(data, "fast-isolation", "--seeds", "2", "--presets", "fast,racing")
            self.assertNotIn("fast-isolation/half/exclusive/p98_ratio", figures)
            for part in ("half", "both"):  # of the SMs each has its own
                self.assertLessEqual(figures[f"fast-isolation/{part}/fast/p98_ratio"]["max"], 1.1)
                self.assertGreater(figures[f"fast-isolation/{part}/racing/p98_ratio"]["min"], 2)
            # At most half of the time: the neighbour's quota holds whatever it is asked.
            self.assertAlmostEqual(figures["fast-isolation/quota/fast/neighbour_per_s"]["value"], 71.37 / 2, delta=0.5)
            for quota in (20, 40, 60, 80, 100):
                at = f"fast-isolation/quotas/{quota}/fast/"
                self.assertAlmostEqual(figures[at + "of_line"]["value"], 1, delta=0.02)
                self.assertAlmostEqual(figures[at + "used_of_quota"]["value"], 1, delta=0.01)
                self.assertLessEqual(figures[at + "most_over_quota_ms"]["value"], 10)  # a group
            figures = self.figures(data, "fast-memory")
            for name in ("ViT_huge/3/no-sharing/mb", "ViT_huge/3/sharing/mb", "16GB/ResNeXt/no-sharing/instances",
                         "16GB/ResNeXt/sharing/instances"):
                self.assertEqual(figures["fast-memory/" + name]["value"], figures["fast-memory/" + name]["paper"], name)
            self.assertEqual(figures["fast-memory/16GB/ResNeXt/troupe-models/instances"]["value"], 4)
            figures = self.figures(data, "fast-packing", "--seeds", "1", "--presets", "fast,troupe")
            self.assertEqual(figures["fast-packing/orders_on_one_gpu/fast"]["value"], 138)
            self.assertEqual(figures["fast-packing/orders_on_one_gpu/troupe"]["value"], 420)
            self.assertEqual(figures["fast-packing/mix/troupe/gpus_most"]["value"], 1)
            self.assertNotIn("fast-packing/mix/time-sharing/gpus", figures)
            table = data / "papers/fast_profile_and_sched.csv"
            table.write_text(FAST.replace("req/s,5.3", "req/s", 1))
            for words, message in (("", "fast_profile_and_sched.csv:2: expected seven cells"),
                                   (FAST.replace("RNNT,12", "RNNT,6"), "expected a line of RNNT with the req/s on 12 % of the SMs"),
                                   ("item\n", "fast_profile_and_sched.csv:1: expected item,model")):
                if words:
                    table.write_text(words)
                done = self.experiment("fast-spatial", "--data", folder)
                self.assertEqual(done.returncode, 2, done.stdout)
                self.assertIn(message, done.stderr)


# Each experiment has its options, and for some of its figures the presets (or limits, or rules) from the least to the most.
# The options leave out what the order does not need; the figures of the paper's own sizes are in docs/experiments.md.
ORDERS = {
    "lalb-latency": (["--seeds", "2"], {"35/{}/mean_s": ["lalb-o3", "lalb", "load-balance"]}),
    "lalb-misses": (["--seeds", "2"], {"35/{}/per_request": ["lalb-o3", "lalb", "load-balance"]}),
    "lalb-utilization": (["--seeds", "2"], {"35/{}/computing": ["load-balance", "lalb", "lalb-o3"]}),
    "lalb-false-misses": (["--seeds", "2"], {"35/{}/of_loads": ["lalb-o3", "load-balance"]}),
    "lalb-duplicates": (["--seeds", "2"], {"15/{}/gpus": ["lalb", "load-balance"]}),
    "lalb": (["--seeds", "1"], {"lalb-latency/35/{}/mean_s": ["lalb-o3", "lalb", "load-balance"]}),
    "lalb-o3-sweep": (["--seeds", "2"], {"{}/mean_s": ["45", "5", "0"]}),
    "lalb-nodes": (["--seeds", "2"], {f"35/{{}}@{nodes}/mean_s": ["lalb-o3", "lalb", "load-balance"] for nodes in (1, 4, 12)}),
    "lalb-placement": (["--seeds", "1"], {"15/{}/mean_s": ["fixed", "troupe+overlap"]}),
    "torpor-node": (["--seeds", "1", "--minutes", "2"],
                    {"160/poisson/{}/executed_functions": ["native", "infless-ka", "torpor"],
                     "160/poisson/{}/compliant_functions": ["infless-ka", "torpor"],
                     "160/poisson/{}/computing": ["troupe", "troupe@native"]}),
    "torpor-policies": (["--seeds", "1", "--minutes", "2", "--functions", "320..320",
                         "--presets", "torpor,torpor-random,torpor-lru,troupe,troupe@native"],
                        {"320/poisson/{}/compliant": ["torpor-random", "torpor"],
                         "320/poisson/{}/p98_cv_ms": ["troupe", "troupe@native"],
                         "320/poisson/{}/p98_bert_ms": ["torpor", "torpor-lru", "torpor-random"]}),
    "torpor-heaviness": (["--seeds", "1", "--minutes", "2"],
                         {"600/{}/Bert-qa_p98_ms": ["torpor", "torpor-lru"], "600/{}/hits": ["torpor-lru", "torpor"],
                          "600/{}/computing": ["troupe", "troupe@native"]}),
    "torpor-efficiency": (["--seeds", "1", "--minutes", "2"],
                          {"10/{}/served_per_minute": ["native", "torpor"], "10/{}/p98_ms": ["troupe", "troupe@native", "torpor"]}),
    "torpor-balance": (["--seeds", "1", "--minutes", "2"], {"200/{}/p98_ms": ["torpor", "native"],
                                                                 "200/{}/computing": ["troupe", "troupe@native"]}),
    "torpor-cluster": (["--seeds", "1", "--minutes", "2", "--functions", "400..400"],
                       {"400/{}/p98_of_deadline": ["torpor", "nonswap", "simple-swap", "native"],
                        "400/{}/compliant": ["native", "torpor"],
                        "400/{}/computing": ["troupe", "troupe@native"]}),
    "torpor-deadlines": (["--seeds", "1", "--minutes", "2", "--functions", "640..640",
                          "--presets", "torpor,troupe,troupe@native"],
                         {"60/640/poisson/{}/p98_cv_ms": ["troupe", "torpor", "troupe@native"], "80/640/poisson/{}/compliant": ["torpor", "troupe"]}),
    "torpor-cost": (["--seeds", "1", "--minutes", "10"], {"3000/{}/cost": ["torpor", "native"], "6000/{}/metered_cost": ["troupe", "native"]}),
    "streambox-throughput": (["--seeds", "1", "--minutes", "1"],
                             {"bursty/{}/served_per_s": ["infless", "streambox"], "bursty/{}/starts": ["streambox", "infless"]}),
    "streambox-tenants": (["--seeds", "1", "--minutes", "1"], {"3/{}/p98_ms": ["streambox", "stream-only", "infless"]}),
    "streambox-cluster": (["--seeds", "1", "--minutes", "1", "--presets", "infless,streambox"],
                          {"4/{}/served_per_s": ["infless", "streambox"], "8/{}/p98_ms": ["streambox", "infless"]}),
    "azure-day": (["--seeds", "1", "--minutes", "2", "--rates", "10,100", "--gpus", "1"],
                  {"10x/1/{}/compliant": ["infless-ka", "torpor"], "100x/1/{}/mean_ms": ["torpor", "load-balance", "infless-ka"]}),
    "gpu-kinds-nodes": (["--seeds", "1", "--minutes", "2", "--rates", "100,250"],
                        {"3x/100/{}/in_time": ["troupe-kind-blind", "troupe"]}),
    "gateways": (["--seeds", "1", "--minutes", "2", "--rates", "300"],
                 {"8/300/{}/in_time": ["troupe-own-work", "troupe"], "1/300/{}/in_time": ["troupe-resident-first", "troupe"]}),
    "gpu-kinds": (["--seeds", "1", "--minutes", "2", "--rates", "100,250"],
                  {"3x/250/{}/in_time": ["troupe-kind-blind", "troupe"], "mixed/100/{}/in_time": ["troupe-kind-blind", "troupe"]}),
    "fast-spatial": (["--seeds", "1"], {"ResNet/{}/served_per_s": ["time-sharing", "fast-24", "fast"],
                                        "RNNT/{}/p98_ms": ["fast", "exclusive"], "{}/fast/gain": ["GNMT", "RNNT", "ResNet"]}),
    "fast-isolation": (["--seeds", "1"], {"half/{}/p98_ratio": ["fast", "racing", "exclusive"],
                                          "quota/{}/p98_ratio": ["fast", "racing", "exclusive"],
                                          "elastic/{}/kept": ["racing", "time-sharing", "fast"],
                                          "quotas/{}/fast/served_per_s": ["20", "40", "60", "80", "100"]}),
    "fast-memory": ([], {"16GB/ResNeXt/{}/instances": ["no-sharing", "sharing", "troupe"],
                         "ViT_huge/3/{}/mb": ["troupe", "sharing", "no-sharing"]}),
    "fast-packing": (["--seeds", "1"], {"orders_on_one_gpu/{}": ["time-sharing", "fast", "troupe"],
                                        "mix/{}/gpus": ["troupe", "fast", "time-sharing-replan", "time-sharing"],
                                        "random/{}/gpus": ["troupe", "fast", "time-sharing-replan"]}),
    "fast-efficiency": (["--seeds", "1"], {"mix/{}/gpus": ["troupe", "fast", "time-sharing-replan", "time-sharing"],
                                           "mix/{}/utilisation": ["time-sharing", "time-sharing-replan", "troupe"],
                                           "mix/{}/sms_used": ["time-sharing-replan", "fast", "troupe"]}),
    "scale": (["--functions", "200..2000", "--gpus", "16"], {"{}/16-gpus/snapshot_bytes": ["200", "2000"],
                                                              "{}/16-gpus/owners": ["200", "2000"]}),
    "model-fanout": ([], {"8/{}/time_over_one_transfer": ["relay", "holders"],
                          "{}/relay/time_over_one_transfer": ["1", "8", "32"]}),
    "fast-autoscaling": (["--seeds", "1"], {"ramp/{}/late": ["troupe", "fast-scaler"],
                                            "steps/{}/late": ["troupe", "fast-scaler"],
                                            "crowd/{}/late": ["troupe", "fast-scaler", "hpa"],
                                            "azure/{}/late": ["troupe", "fast-scaler"],
                                            "crowd/{}/gpu_s": ["oracle", "troupe", "hpa"],
                                            "ramp/{}/gpu_s": ["oracle", "troupe", "hpa"]}),
}


class Orders(unittest.TestCase):
    """On data that takes seconds, the baselines of every experiment come out in their order."""

    def small_data(self, folder, occupation):
        data = Experiment.small_inputs(self, folder)
        write_lalb_tables(data, occupation)
        return data

    def test_every_experiment_has_an_order(self):
        listed = subprocess.run([BIN / "troupe", "experiment", "list"], capture_output=True, text=True, timeout=300).stdout
        self.assertEqual({line.split()[0] for line in listed.splitlines()}, set(ORDERS))

    def check(self, experiment):
        options, orders = ORDERS[experiment]
        with tempfile.TemporaryDirectory() as folder:
            # A placement has every function on some GPU: two models would not fit on each.
            data = self.small_data(folder, 1500 if experiment == "lalb-placement" else 3000)
            figures = Experiment.figures(self, data, experiment, "--jobs", "2", *options)
        for figure, ascending in orders.items():
            names = [(figure if figure.startswith(experiment + "-") else f"{experiment}/{figure}").format(one) for one in ascending]
            values = [figures[name]["value"] for name in names]
            for name, less, more in zip(names[1:], values, values[1:]):
                self.assertLess(less, more, (name, dict(zip(names, values))))

    experiment = Experiment.experiment


for _name in ORDERS:
    setattr(Orders, "test_" + _name.replace("-", "_"), lambda self, name=_name: self.check(name))


if __name__ == "__main__":
    unittest.main()
