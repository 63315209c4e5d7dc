#!/usr/bin/python3
"""Manager, gateway and two nodes, each of which is told that it is on a host of its own (--host-id): models, tensors above 64 KiB
and blobs cross the network, and a daemon that dies in the middle leaves no memory in use."""
import re
import threading
import time

from harness import E2eTest, HttpError, Load, eventually, main, processes
from harness.client import infer_binary
from harness.networks import scale
from harness.workflows import chain, pattern

CHAIN = chain("chain", ["double", "double"])


def arena_used(daemon):
    """Bytes of tensors in the daemon's arena, by its metrics; -1 before they are there."""
    found = re.search(r"^troupe_arena_used_bytes\S* (\S+)$", daemon.operations.get("/metrics").body.decode(), re.M)
    return float(found.group(1)) if found else -1


class RemoteHosts(E2eTest):
    def setUp(self):
        super().setUp()
        self.manager = self.start("manager", "manager", host_id="host-manager")
        self.address = self.manager.address("manager")
        self.gateway = self.start("gateway", "gateway", manager=self.address, host_id="host-gateway")
        # An address and a name: others are told the address behind it.
        self.nodes = [self.start(f"node-{i}", "node", manager=self.address, host_id=f"host-{i}", listen=f"{host}:0")
                      for i, host in enumerate(("127.0.0.1", "localhost"))]
        self.gateway.wait_serving(gpus=0)
        self.http = self.gateway.http
        self.http.deploy("double", scale(2, 1024)).good()
        eventually(lambda: len(self.http.function("double")["adopted_by"]) == 2, "both nodes hold a copy")

    def ask(self, rows, seed):
        """2x of rows x 4 KiB, checked byte for byte; Retry-After is honoured three times."""
        x = pattern(rows, seed)
        for tries in (3, 2, 1, 0):
            try:
                shape, data = infer_binary(self.http, "double", {"x": x})["y"]
                break
            except HttpError as error:
                if error.code != 503 or tries == 0:
                    raise
                time.sleep(float(error.answer.headers["Retry-After"]))
        self.assertEqual(shape, [rows, 1024])
        self.assertEqual(data, (2 * x).tobytes())

    def expect_nothing_left(self, *daemons):
        for daemon in daemons:
            eventually(lambda: arena_used(daemon) == 0, f"the arena of {daemon.directory.name} is empty")

    def test_large_inputs_and_outputs_cross_hosts(self):
        for rows in (1, 17, 512, 2048):  # 4 KiB (inline) to 8 MiB
            self.ask(rows, rows)
        self.expect_nothing_left(self.gateway, *self.nodes)

    def test_blobs_of_a_workflow_cross_hosts(self):
        self.http.call("POST", "/v2/troupe/workflows", CHAIN).good()
        eventually(lambda: self.http.get("/v2/models/chain").code == 200, "the gateway knows the workflow")
        x = pattern(512)
        shape, data = infer_binary(self.http, "chain", {"x": x})["y"]
        self.assertEqual((shape, data), ([512, 1024], (4 * x).tobytes()))
        self.expect_nothing_left(self.manager, self.gateway, *self.nodes)

    def test_a_node_killed_in_the_middle_fails_no_request(self):
        seeds = iter(range(1 << 30))
        lock = threading.Lock()

        def ask():
            with lock:
                seed = next(seeds)
            self.ask(64 + seed % 64, seed)

        load = Load(ask)
        load.wait(10)
        self.nodes[0].kill_node()
        load.wait(20)
        load.stop()
        self.expect_nothing_left(self.gateway, self.nodes[1])

    def test_a_worker_killed_in_the_middle_fails_no_request(self):
        load = Load(lambda: self.ask(64, 1))
        load.wait(10)
        for node in self.nodes:
            for pid in node.workers().values():
                processes.kill(pid)
            load.wait(10)
        load.wait(20)
        load.stop()
        self.expect_nothing_left(self.gateway, *self.nodes)

    def test_a_gateway_killed_in_the_middle_leaves_nothing_at_the_nodes(self):
        load = Load(lambda: self.ask(512, 2))
        load.wait(5)
        self.gateway.kill()
        load.finish()
        self.expect_nothing_left(*self.nodes)
        self.gateway = self.start("gateway", "gateway", manager=self.address, host_id="host-gateway")
        self.gateway.wait_serving(gpus=0)
        self.http = self.gateway.http
        self.ask(512, 3)
        self.expect_nothing_left(self.gateway, *self.nodes)


if __name__ == "__main__":
    main()
