#!/usr/bin/python3
"""A function is measured on shares of a real daemon's GPU: the table finds the saturation that its timed compute has, it
outlives the manager, goes out as a file and comes back, a trial whose worker dies is a row that says so, and a function that
leaves its share to the profile follows it."""
import csv
import io
import os
import signal
import xml.etree.ElementTree

import numpy as np

from harness import E2eTest, Load, eventually, main
from harness.networks import scale
from harness.shell import Shell

# A run takes 60 ms on 40 % of the SMs or more, and in proportion longer on fewer.
RUN_MS, SATURATION = 60, 40
SHARES = [10, 20, 40, 60, 80, 90, 100]
X = np.ones((1, 4), dtype=np.float32)
# Measured on a machine that does other things, too.
TOLERANCE = 0.15


class ProfiledNode(E2eTest):
    OPTIONS, QUERY = {}, ""

    def setUp(self):
        super().setUp()
        times = self.directory / "times"
        times.write_text(f"default {RUN_MS}ms {SATURATION}%\n")
        self.front = self.start("front", "manager,gateway", **self.OPTIONS)
        self.address = self.front.address("manager")
        self.node = self.start("node-0", "node", manager=self.address, compute="timed", profile=times,
                               gpu_kind="slow one", gpu_sms=80)  # units of 8: each share is some of them
        self.front.wait_serving(gpus=0)
        self.shell = Shell(self.address, self.directory)
        self.front.http.deploy("double", scale(2), self.QUERY).good()
        eventually(lambda: [gpu["gpu"]["state"] for gpu in self.shell.json("gpu", "list")["gpus"]] == ["ready"] and
                   self.shell.json("function", "show", "double")["functions"][0].get("adopted_by"), "a GPU that has the model")


class FollowedShares(ProfiledNode):
    OPTIONS, QUERY = {"owning": "always"}, "?deadline_ms=500"

    def owned(self):
        """The percent of the SMs of each instance."""
        record = self.shell.json("function", "show", "double")["functions"][0]["record"]
        return [place["sms"] for place in record.get("places", [])]

    def test_the_share_of_an_instance_grows_with_the_load(self):
        self.shell.text("profile", "double", "--grid", "--quotas", 100, "--shares", f"10,20,{SATURATION},100")
        self.shell.text("function", "update", "double", "--sm-partition", "auto", "--quota-request", "auto", "--min-instances", 1)
        # On 10 % of the SMs a run takes 240 ms, and half of the deadline is more.
        eventually(lambda: self.owned() == [10], "without a load it owns as little as it may")
        load = Load(lambda: self.front.http.infer("double", {"x": X}), threads=4)
        eventually(lambda: max(self.owned(), default=0) >= 20, "the instance that runs has more SMs")
        load.wait(8)
        load.stop()  # raises when a request failed
        self.assertIn("of the SMs to", self.shell.text("autoscale", "status", "double"))


class Profile(ProfiledNode):
    def rows(self):
        profile, = self.shell.json("profile", "show", "double")["profiles"]
        return {row["sm_partition"]: row for row in profile["rows"]}

    def experiment(self):
        return self.shell.json("profile", "show", "double")["experiments"][0]

    def truth(self, share):
        return 1000 / RUN_MS * min(share / SATURATION, 1)

    def test_the_saturation_is_found_and_kept(self):
        shares = ",".join(map(str, SHARES))
        text = self.shell.text("profile", "double", "--quotas", 100, "--shares", shares, "--on", "node-0/0")
        self.assertIn("bisect on node-0/0: done", text)
        self.assertIn("used on node-0/0", text)
        self.assertIn(f"batch 1: no gain above {SATURATION} % of the SMs", text)
        rows = self.rows()
        self.assertEqual(sorted(rows), SHARES)
        trials = [row for row in rows.values() if row["state"] == "PROFILE_ROW_MEASURED"]
        self.assertLess(len(trials), len(SHARES))
        for share, row in rows.items():
            self.assertAlmostEqual(row["throughput"] / self.truth(share), 1, delta=TOLERANCE, msg=f"{share} %")

        exported = self.shell.text("profile", "show", "double", "--csv", "--svg", self.directory / "map.svg")
        lines = list(csv.DictReader(io.StringIO(exported)))
        self.assertEqual({line["gpu_kind"] for line in lines}, {"slow one"})
        xml.etree.ElementTree.parse(self.directory / "map.svg")

        # The profile outlives the manager.
        self.front.kill()
        self.front = self.start("front", "manager,gateway", manager=self.address)
        eventually(lambda: self.front.http.get("/v2/health/ready").code == 200, "the front is ready again")
        self.assertEqual(self.rows(), rows)

        # One of another kind is kept, and named as what it is.
        other = self.directory / "other.csv"
        other.write_text(exported.replace("slow one", "fast one"))
        self.shell.text("profile", "import", "double", other)
        self.assertIn("not used: no GPU of the cluster is of this kind", self.shell.text("profile", "show", "double"))
        other.write_text(exported.replace(lines[0]["model_digest"], "0" * 64))
        self.assertIn("it is not taken", self.shell.error("profile", "import", "double", other, code=1))

    def test_quotas_of_time_are_measured_beside_shares(self):
        self.shell.text("profile", "double", "--grid", "--quotas", "40,100", "--shares", "20,100")
        profile, = self.shell.json("profile", "show", "double")["profiles"]
        found = {(row["sm_partition"], row["quota_limit"]): row for row in profile["rows"]}
        self.assertEqual(sorted(found), [(share, quota) for share in (20, 100) for quota in (40, 100)])
        for (share, quota), row in found.items():
            self.assertEqual(row["state"], "PROFILE_ROW_MEASURED")
            self.assertAlmostEqual(row["throughput"] / (self.truth(share) * quota / 100), 1, delta=TOLERANCE, msg=f"{share} %, {quota} %")

    def applied(self, name):
        """How a setting of the function applies, and where it comes from."""
        function, = self.shell.json("function", "show", "double")["functions"]
        setting, = (setting for setting in function["sharing"] if setting["name"] == name)
        return setting["value"], setting["source"], setting["reason"]

    def share(self):
        return self.applied("sm_partition")

    def test_the_memory_that_a_profile_says_is_enough_and_is_a_limit(self):
        self.shell.text("profile", "double", "--grid", "--quotas", 100, "--shares", "100")
        run, = {int(row["run_bytes"]) for row in self.shell.json("profile", "show", "double")["profiles"][0]["rows"]}
        self.shell.text("function", "update", "double", "--gpu-mem", "auto", "--max-instances", 1)
        eventually(lambda: self.applied("gpu_mem")[1] == "PROFILED", "the profile says the memory")
        value, _, reason = self.applied("gpu_mem")
        weights = int(self.shell.json("function", "show", "double")["functions"][0]["record"].get("weights_bytes", 0))
        self.assertEqual(int(value), weights + 2 * run)
        self.assertIn("weights and 2 runs of a request on 'slow one'", reason)
        load = Load(lambda: self.front.http.infer("double", {"x": X}), threads=4)
        load.wait(40)
        load.stop()  # raises when a request failed

    def test_a_function_follows_the_profile_that_it_leaves_its_share_to(self):
        self.shell.text("function", "update", "double", "--sm-partition", "auto")
        value, source, reason = self.share()
        self.assertEqual((value, source), ("100", "DEFAULT"))
        self.assertIn("auto: no profile of its model in fp32 on 'slow one'", reason)
        self.assertIn("sm_partition: auto", self.shell.text("export", "double"))
        self.shell.text("profile", "double", "--grid", "--quotas", 100, "--shares", f"20,{SATURATION},100")
        eventually(lambda: self.share()[1] == "PROFILED", "the profile says the share")
        chosen = int(self.share()[0])
        rows = self.rows()
        best = max(row["throughput"] for row in rows.values())
        self.assertEqual(chosen, min(share for share, row in rows.items() if row["throughput"] >= 0.97 * best))

        # It goes and comes back while requests flow: none fails, and no worker is started again.
        file = self.directory / "double.csv"
        file.write_text(self.shell.text("profile", "show", "double", "--csv"))
        workers = self.node.workers()
        load = Load(lambda: self.front.http.infer("double", {"x": X}), threads=2)
        load.wait(4)
        self.assertIn("the profile on slow one is removed", self.shell.text("profile", "remove", "double"))
        eventually(lambda: self.share()[:2] == ("100", "DEFAULT"), "the share is the default again")
        self.shell.error("profile", "remove", "double", code=3)
        load.wait(8)
        self.shell.text("profile", "import", "double", file)
        eventually(lambda: self.share()[:2] == (str(chosen), "PROFILED"), "the imported profile says the share")
        load.wait(8)
        load.stop()  # raises when a request failed
        self.assertEqual(self.node.workers(), workers)

        # It is durable, and a manager that comes back finds the nodes' kinds before it changes anything.
        self.front.kill()
        self.front = self.start("front", "manager,gateway", manager=self.address)
        eventually(lambda: self.front.http.get("/v2/health/ready").code == 200, "the front is ready again")
        self.assertEqual(self.share()[0], str(chosen))
        self.assertIn("--quota-limit is 'auto'",
                      self.shell.error("function", "update", "double", "--quota-limit", "auto", code=2))

    def test_a_trial_whose_worker_dies_is_a_row_that_says_so(self):
        self.shell.text("profile", "double", "--grid", "--quotas", 100, "--shares", "50,100", "--detach")
        eventually(lambda: self.node.workers(), "the worker runs")
        eventually(lambda: self.shell.json("gpu", "list")["gpus"][0]["worker"]["runs"] != "0", "the trial runs")
        os.kill(self.node.workers()[0], signal.SIGKILL)
        eventually(lambda: self.experiment()["state"] == "EXPERIMENT_DONE", "the experiment goes on to its end")
        rows = self.rows()
        self.assertEqual(rows[50]["state"], "PROFILE_ROW_FAILED")
        self.assertNotEqual(rows[50]["reason"], "")
        self.assertEqual(rows[100]["state"], "PROFILE_ROW_MEASURED")

    def test_an_experiment_goes_on_after_its_manager_and_can_be_cancelled(self):
        shares = list(range(60, 100, 2))
        self.shell.text("profile", "double", "--grid", "--quotas", 100, "--shares", ",".join(map(str, shares)), "--detach")
        eventually(lambda: self.experiment()["rows"], "a row is stored")
        first = self.experiment()["rows"][0]
        self.front.kill()
        self.front = self.start("front", "manager,gateway", manager=self.address)
        eventually(lambda: len(self.experiment()["rows"]) > 2, "the experiment goes on")
        self.assertEqual(self.experiment()["rows"][0], first)
        self.assertIn("cancelled", self.shell.text("profile", "cancel", "double"))
        rows = sorted(self.rows())
        self.assertEqual(rows, shares[:len(rows)])
        self.assertLess(len(rows), len(shares))
        # The GPU is free for another one.
        eventually(lambda: "done" in self.shell.text("profile", "double", "--quotas", 100, "--shares", 100),
                   "the next experiment runs")


if __name__ == "__main__":
    main()
