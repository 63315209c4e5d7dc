#!/usr/bin/python3
"""What functions use is charged once, whatever dies: a worker, the node's daemon, the manager, each by kill -9 under load."""
import os
import pathlib
import signal
import threading

import numpy as np

from harness import E2eTest, Load, eventually, main
from harness.networks import scale
from harness.shell import Shell

X = np.arange(4, dtype=np.float32).reshape(1, 4)
THREADS = 2


class Usage(E2eTest):
    def setUp(self):
        super().setUp()
        self.manager = self.start("manager", "manager")
        self.address = self.manager.address("manager")
        self.gateway = self.start("gateway", "gateway", manager=self.address)
        self.node = self.start("node-0", "node", manager=self.address)
        self.gateway.wait_serving(gpus=0)
        self.shell = Shell(self.address, self.directory)
        self.gateway.http.deploy("double", scale(2), "?tenant=acme").good()
        self.answered, self.lock = 0, threading.Lock()

    def ask(self):
        reply = self.gateway.http.ask("double", {"x": X})
        if reply.code == 200:
            with self.lock:
                self.answered += 1

    def await_answers(self, more):
        goal = self.answered + more
        eventually(lambda: self.answered >= goal, f"{more} more requests are answered")

    def amounts(self, by="function"):
        """The rows of `troupe usage`, or none while there is no manager."""
        return self.shell.json("usage", "--by", by).get("usage", [])

    def runs(self):
        return sum(int(row.get("runs", 0)) for row in self.amounts() if row["function"] == "double")

    def settled(self):
        """The runs, once the manager has all: everything was counted before it was answered, and is read each second."""
        seen = []

        def same():
            seen.append((self.runs(), self.answered))
            return len(seen) > 3 and len(set(seen[-3:])) == 1 and seen[-1][0] >= self.answered
        eventually(same, "the manager has what was answered")
        return seen[-1][0]

    def pages(self):
        return sorted(pathlib.Path(self.node.settings["run"]).glob("*.meter"))

    def test_each_run_counts_once_over_kills(self):
        load = Load(self.ask, threads=THREADS)
        self.await_answers(10)
        os.kill(self.node.workers()[0], signal.SIGKILL)
        self.await_answers(10)
        self.node.kill()  # its worker lives on
        self.node = self.start("node-0", "node", manager=self.address)
        self.await_answers(10)
        self.manager.kill()
        self.await_answers(10)
        self.manager = self.start("manager", "manager", manager=self.address)
        self.await_answers(10)
        self.node.kill_node()
        self.node = self.start("node-0", "node", manager=self.address)
        self.await_answers(10)
        load.stop()
        runs = self.settled()
        # A run that computed and whose answer was lost with its worker, daemon or connection is charged, and the request
        # runs again: at each of four kills at most as many as were under way.
        self.assertGreaterEqual(runs, self.answered)
        self.assertLessEqual(runs, self.answered + 4 * THREADS)
        rows = {row["function"]: row for row in self.amounts()}
        self.assertEqual(rows["double"]["tenant"], "acme")
        for amount in ("gpu_ns", "bytes_moved", "host_kib_ms"):
            self.assertGreater(int(rows["double"][amount]), 0, amount)
        self.assertEqual([row["tenant"] for row in self.amounts("tenant")], ["acme"])
        eventually(lambda: len(self.pages()) == 1, "pages of ended workers go")

    def test_without_kills_the_runs_are_those_that_were_answered(self):
        for _ in range(12):
            self.ask()
        self.assertEqual(self.answered, 12)
        self.assertEqual(self.settled(), 12)
        self.gateway.http.remove("double").good()
        self.assertEqual(self.settled(), 12, "what a removed function used is kept")
        table = self.shell.text("usage")
        self.assertRegex(table, r"acme +double +12 ")
        prices = self.directory / "prices.yaml"
        prices.write_text("currency: EUR\ngpu_hour: 2.4\ngpu_memory_gib: 80\n")
        lines = self.shell.text("usage", "--csv", "--by", "day", "--prices", prices).splitlines()
        self.assertEqual(lines[0], "day,tenant,function,runs,gpu_ns,host_kib_ms,bytes_moved,cost")
        self.assertRegex(lines[1], r"^\d{4}-\d\d-\d\d,acme,double,12,\d+,\d+,\d+,0\.\d{9}$")
        prices.write_text("gpu_hour: 2.4\ngpu_memory_gb: 80\n")
        self.assertIn("line 2: a price book has no key 'gpu_memory_gb'; did you mean 'gpu_memory_gib'?",
                      self.shell.error("usage", "--prices", prices, code=2))
        metrics = eventually(lambda: [line for line in self.node.operations.get("/metrics").body.decode().splitlines()
                                      if line.startswith("troupe_usage_runs_total{") and line.endswith(" 12")],
                             "the node's metrics have the runs")
        self.assertIn('function="double"', metrics[0])

    def test_a_ledger_that_is_damaged_is_set_aside_and_nothing_is_charged_twice(self):
        for _ in range(5):
            self.ask()
        self.assertEqual(self.settled(), 5)
        self.node.kill()
        ledger = pathlib.Path(self.node.settings["data"]) / "usage"
        ledger.write_bytes(b"x" + ledger.read_bytes()[1:])
        self.node = self.start("node-0", "node", manager=self.address)
        eventually(lambda: self.gateway.http.ask("double", {"x": X}).code == 200, "the function is served again")
        for _ in range(3):
            self.ask()
        self.assertEqual(self.settled(), self.answered + 1)
        self.assertTrue(ledger.with_suffix(".damaged").exists())


if __name__ == "__main__":
    main()
