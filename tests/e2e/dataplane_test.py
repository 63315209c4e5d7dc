#!/usr/bin/python3
"""Outputs of workflows' steps stay with the workers that computed them: the next step reads them there, on another GPU or on
another host, though workers die in between, and nothing of a run is left behind it."""
import re
import threading

from harness import E2eTest, Load, eventually, main
from harness.client import infer_binary
from harness.networks import scale
from harness.shell import Shell
from harness.workflows import chain, pattern

CHAIN = chain("chain", ["double", "triple", "double"])
FAN = b"""
name: fan
inputs:
  x: {type: FP32, shape: [-1, 1024]}
steps:
  - {name: first, function: double, inputs: {x: x}}
  - {name: each, function: triple, inputs: {x: first.y}, fan_out: {input: x, dimension: 0}}
outputs: {y: each.y}
"""
WIDE = 32768  # floats of a row, 128 KiB: more than a message carries
GATHER = f"""
name: gather
inputs:
  x: {{type: FP32, shape: [-1, {WIDE}]}}
steps:
  - {{name: each, function: wide-double, inputs: {{x: x}}, for_each: {{input: x, dimension: 0}}}}
  - {{name: all, function: wide-triple, inputs: {{x: each.y}}}}
  - {{name: again, function: wide-double, inputs: {{x: all.y}}, for_each: {{input: x, dimension: 0}}}}
  - {{name: rows, function: wide-double, inputs: {{x: again.y}}, for_each: {{input: x, dimension: 0}}}}
outputs: {{y: rows.y}}
""".encode()
MIB = 1 << 20


class DataPlane(E2eTest):
    def begin(self, hosts="", nodes=2, **options):
        self.front = self.start("front", "manager,gateway", replicas=1, arena="256MiB", **({"host_id": f"{hosts}-front"} if hosts else {}))
        address = self.front.address("manager")
        self.nodes = [self.start(f"node-{i}", "node", manager=address, gpus=2, **options,
                                 **({"host_id": f"{hosts}-{i}"} if hosts else {})) for i in range(nodes)]
        self.front.wait_serving(gpus=0)
        self.http = self.front.http
        self.shell = Shell(address, self.directory)
        for name, factor in (("double", 2), ("triple", 3)):
            self.http.deploy(name, scale(factor, 1024)).good()
            self.http.deploy(f"wide-{name}", scale(factor, WIDE)).good()
        self.homes = {}
        for name in ("double", "triple"):
            eventually(lambda: len(self.http.function(name)["adopted_by"]) == 1, "a node holds it")
            self.homes[name] = self.http.function(name)["adopted_by"][0]
        for workflow in (CHAIN, FAN, GATHER):
            self.http.call("POST", "/v2/troupe/workflows", workflow).good()
        for name in ("chain", "fan", "gather"):
            eventually(lambda: self.http.get(f"/v2/models/{name}/ready").code == 200, "the workflow can be called")

    def workers(self):
        return [gpu["worker"] for gpu in self.shell.json("gpu", "list")["gpus"]]

    def total(self, field):
        return sum(int(worker.get(field, 0)) for worker in self.workers())

    def expect_nothing_left(self):
        eventually(lambda: self.total("kept_tensors") == 0, "no worker keeps a tensor")
        self.assertEqual(self.total("kept_device_bytes"), 0)
        for daemon in (self.front, *self.nodes):
            eventually(lambda: re.search(rb"^troupe_arena_used_bytes\S* 0(\.0)?$",
                                         daemon.operations.get("/metrics").body, re.M), "its arena is empty")

    def ask(self, workflow, factor, rows, seed=0, width=1024):
        x = pattern(rows, seed, width)
        shape, data = infer_binary(self.http, workflow, {"x": x})["y"]
        self.assertEqual(shape, [rows, width])
        self.assertEqual(data, (factor * x).tobytes())

    def test_a_tensor_leaves_a_gpu_only_for_readers_elsewhere(self):
        self.begin()
        before = self.total("copy_out_bytes")
        self.ask("chain", 12, 2048)  # 8 MiB
        left = self.total("copy_out_bytes") - before
        # The models are on one node or on two: then both results between them cross, and in any case the last one leaves.
        moves = 0 if self.homes["double"] == self.homes["triple"] else 2
        self.assertEqual(left, (1 + moves) * 8 * MIB)
        run = self.shell.json("workflow", "runs")["runs"][0]["start"]["run"]
        self.assertIn("kept by node", self.shell.text("workflow", "status", run))
        self.ask("fan", 6, 40)
        self.ask("fan", 6, 1)
        self.expect_nothing_left()

    def test_workers_that_die_with_them_fail_no_run(self):
        self.begin()
        seeds = iter(range(1 << 30))
        lock = threading.Lock()

        def ask():
            with lock:
                seed = next(seeds)
            self.ask("chain", 12, 64 + seed % 64, seed)
        load = Load(ask)
        load.wait(20)
        for node in (self.nodes[0], self.nodes[1], self.nodes[0]):
            node.kill_workers()
            load.wait(20)
        load.stop()  # raises when a run failed
        self.expect_nothing_left()

    def test_hosts_of_their_own_and_little_memory(self):
        self.begin(hosts="host", gpu_memory="24MiB")
        for seed in range(4):
            self.ask("chain", 12, 1024, seed)  # 4 MiB
        threads = [threading.Thread(target=self.ask, args=("chain", 12, 1024, seed)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.expect_nothing_left()

    def test_over_a_link_between_gpus_they_do_not_pass_the_host(self):
        self.begin(nodes=1, topology="link:0-1=50GB")

        def pulled():
            self.ask("fan", 6, 64)  # more calls at once than one GPU has time for
            return self.total("pulled_tensor_bytes") > 0
        eventually(pulled, "a slice passes the link")
        for _ in range(3):
            self.nodes[0].kill_workers()
            self.ask("fan", 6, 64)
        self.expect_nothing_left()

    def test_what_many_calls_gave_comes_together_where_it_is_read(self):
        self.begin(nodes=1, topology="link:0-1=50GB")
        rows = 16
        before = self.total("copy_out_bytes")
        self.ask("gather", 24, rows, width=WIDE)
        self.assertEqual(self.total("copy_out_bytes") - before, rows * WIDE * 4, "the workflow's output alone leaves")
        run = self.shell.json("workflow", "runs")["runs"][0]["start"]["run"]
        self.assertIn(f"kept in {rows} parts, the first by node node-0", self.shell.text("workflow", "status", run))
        load = Load(lambda: self.ask("gather", 24, rows, width=WIDE))
        load.wait(5)
        for _ in range(3):
            self.nodes[0].kill_workers()
            load.wait(5)
        load.stop()  # raises when a run failed
        self.expect_nothing_left()

    def test_where_they_lie_is_chosen_by_name(self):
        self.begin(intermediates="host-only")
        self.ask("chain", 12, 2048)
        self.assertEqual({worker["intermediates"] for worker in self.workers()}, {"host-only"})
        self.expect_nothing_left()


if __name__ == "__main__":
    main()
