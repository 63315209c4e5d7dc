#!/usr/bin/python3
"""`troupe chaos run` against real daemons: an operator's plan of faults, and a cluster that does not allow it."""
import os
import signal
import threading

import numpy as np

from harness import E2eTest, Load, eventually, main, processes
from harness.client import infer_binary
from harness.networks import scale
from harness.shell import Shell

PLAN = """
faults:
  - {at: 0s, fault: kill-worker, member: node-0, gpu: 0}
  - {at: 500ms, fault: stop-daemon, member: node-1, for: 1500ms}
  - {at: 3s, fault: cut-tensors, member: node-1, for: 1s}
  - {at: 4s, fault: kill-daemon, member: node-0}
settle: 60s
"""


class ChaosRun(E2eTest):
    def start_site(self, switches):
        self.front = self.start("front", "manager,gateway", switches, host_id="host-front")
        self.nodes = [self.start(f"node-{i}", "node", switches, manager=self.front.address("manager"), gpus=2,
                                 host_id=f"host-{i}") for i in range(2)]
        self.front.wait_serving(gpus=0)
        self.front.http.deploy("double", scale(2, 1024)).good()
        eventually(lambda: len(self.front.http.function("double")["adopted_by"]) == 2, "both nodes hold a copy")
        self.shell = Shell(self.front.address("manager"), self.directory)
        self.plan = self.directory / "plan.yaml"
        self.plan.write_text(PLAN)

    def ask(self):
        x = np.ones((64, 1024), np.float32)  # across hosts, apart from the messages
        for tries in range(40):
            try:
                return self.assertEqual(infer_binary(self.front.http, "double", {"x": x})["y"][1], (2 * x).tobytes())
            except Exception:
                if tries == 39:
                    raise

    def test_a_plan_is_carried_out_and_the_cluster_recovers(self):
        self.start_site(["allow-faults"])
        before = self.nodes[0].workers()[0]
        load = Load(self.ask, threads=2)
        watch = threading.Thread(target=self.supervise)  # what systemd does
        watch.start()
        told = self.shell.json("chaos", "run", self.plan, "--yes")
        watch.join()
        load.stop()
        self.assertTrue(told["well"], told)
        self.assertEqual([fault["fault"] for fault in told["faults"]],
                         ["kill-worker", "stop-daemon", "cut-tensors", "kill-daemon"])
        self.assertEqual([fault["refused"] for fault in told["faults"]], [""] * 4)
        for fault in told["faults"]:
            if fault["fault"] != "cut-tensors":  # only processes that read tensors notice that
                self.assertIsNotNone(fault["noticed_ms"], fault)
        self.assertEqual(self.nodes[0].process.returncode, -signal.SIGKILL)
        self.assertFalse(processes.alive(before))
        kinds = [event["message"] for event in self.shell.json("events", "--limit", 0)["events"]
                 if event["kind"] == "fault-injected"]
        self.assertEqual(len(kinds), 4, kinds)

    def supervise(self):
        self.nodes[0].process.wait(120)
        self.start("node-0", "node", ["allow-faults"], manager=self.front.address("manager"), gpus=2, host_id="host-0")

    def test_a_cluster_that_does_not_allow_faults_has_none(self):
        self.start_site([])
        workers = [node.workers() for node in self.nodes]
        line = self.shell.error("chaos", "run", self.plan, "--yes", code=1)
        self.assertIn("--allow-faults", line)
        self.assertEqual([node.workers() for node in self.nodes], workers)
        for node in self.nodes:
            os.kill(node.process.pid, 0)

    def test_a_gateway_has_no_workers_and_the_manager_can_be_stopped(self):
        self.start_site(["allow-faults"])
        self.plan.write_text("faults:\n  - {at: 0s, fault: kill-worker, member: front, gpu: 0}\n"
                             "  - {at: 0s, fault: kill-worker, member: absent, gpu: 0}\n"
                             "  - {at: 0s, fault: stop-daemon, member: manager, for: 1s}\n")
        told = self.shell.json("chaos", "run", self.plan, "--yes")
        self.assertIn("GPU workers", told["faults"][0]["refused"])
        self.assertIn("no member 'absent'", told["faults"][1]["refused"])
        self.assertEqual(told["faults"][2]["refused"], "")
        self.assertTrue(told["well"])


if __name__ == "__main__":
    main()
