#!/usr/bin/python3
"""Daemons that stop, die and come back: what was acknowledged is kept, and resident models outlive their daemon."""
import json
import os
import pathlib
import re
import signal
import sys
import time

import numpy as np

from harness import E2eTest, Load, eventually, main
from harness.networks import ensemble, scale

X = np.arange(4, dtype=np.float32).reshape(1, 4)
MANY = 50
# Milliseconds that a request may take whose model is at hand: a probe that did not wait for the models let requests in
# that took 1,200 and more.
FIRST_ANSWER = 1000


class Restart(E2eTest):
    def ask(self, http, factor=2):
        self.assertEqual(http.infer(f"times-{factor}", {"x": X})["y"], (factor * X).reshape(-1).tolist())

    def test_registry_and_models_survive_a_clean_stop(self):
        daemon = self.start("one", "all").wait_serving()
        functions, workflow = ensemble()
        for name, onnx in functions.items():
            daemon.http.deploy(name, onnx).good()
        daemon.http.call("POST", "/v2/troupe/workflows", workflow).good()
        image = {"image": np.ones((1, 1, 8, 8), np.float32)}
        eventually(lambda: daemon.http.get("/v2/models/ensemble").code == 200, "the workflow is known")
        before = daemon.http.infer("ensemble", image)["probabilities"]
        self.assertEqual(daemon.terminate(), 0)
        eventually(lambda: not daemon.workers(), "the workers of an embedded daemon end with it")

        daemon = self.start("one", "all").wait_serving()
        eventually(lambda: daemon.http.get("/v2/models/ensemble/ready").code == 200, "the workflow is ready")
        np.testing.assert_allclose(daemon.http.infer("ensemble", image)["probabilities"], before, rtol=1e-5)
        names = {entry["record"]["key"]["name"] for entry in daemon.http.get("/v2/troupe/functions").good().json}
        self.assertEqual(names, set(functions))
        self.assertEqual(int(daemon.http.get("/v2/troupe/cluster").good().json["runs"]), 2)

    def test_what_was_acknowledged_survives_kill_9(self):
        daemon = self.start("one", "all").wait_serving()
        daemon.http.deploy("times-2", scale(2)).good()
        daemon.http.deploy("times-3", scale(3)).good()
        daemon.http.remove("times-3").good()
        daemon.http.deploy("times-5", scale(5)).good()
        daemon.kill()  # at once, so that a write after the answer would be lost
        eventually(lambda: not daemon.workers(), "the workers end without their daemon")
        daemon = self.start("one", "all").wait_serving()
        self.ask(daemon.http, 2)
        self.ask(daemon.http, 5)
        self.assertEqual(daemon.http.ask("times-3", {"x": X}).code, 404)

    def test_a_function_whose_objects_are_gone_says_so_at_once(self):
        daemon = self.start("one", "all").wait_serving()
        for factor in (2, 3):
            daemon.http.deploy(f"times-{factor}", scale(factor)).good()
            self.ask(daemon.http, factor)
        digests = {entry["record"]["key"]["name"]: set(re.findall(r"[0-9a-f]{64}", json.dumps(entry["record"])))
                   for entry in daemon.http.get("/v2/troupe/functions").good().json}
        self.assertEqual(daemon.terminate(), 0)
        models = pathlib.Path(daemon.settings["data"]) / "models"
        objects = [path for path in models.rglob("*") if path.is_file() and any(
            digest in str(path) for digest in digests["times-3"] - digests["times-2"])]
        self.assertTrue(objects, list(models.rglob("*")))
        for path in objects:
            path.unlink()

        daemon = self.start("one", "all")
        eventually(lambda: daemon.http.get("/v2/models/times-2/ready").code == 200, "the other function is served")
        self.ask(daemon.http, 2)
        answer = daemon.http.ask("times-3", {"x": X})
        self.assertEqual(answer.code, 503, "refused; a request that waits for its model ends with 504")
        self.assertIn("the store lacks its", answer.error)
        self.assertIn("deploy it again", answer.error)
        daemon.http.deploy("times-3", scale(3)).good()
        self.ask(daemon.http, 3)

    def deploy_many(self, http):
        """Functions of as many models."""
        for factor in range(1, MANY + 1):
            http.deploy(f"times-{factor}", scale(factor)).good()

    def first_answers(self, http, what):
        """Right after the probe says ready, every function is, and the first requests of some are answered at once."""
        eventually(lambda: http.get("/v2/health/ready").code == 200, "the front is ready")
        index = http.post("/v2/repository/index", {}).good().json
        self.assertEqual([entry for entry in index if entry["state"] != "READY"], [])
        self.assertEqual(len(index), MANY)
        times = []
        for factor in (MANY, 1, MANY // 2, 2, MANY - 1):
            begin = time.monotonic()
            self.ask(http, factor)
            times.append(1000 * (time.monotonic() - begin))
        print(f"{what}: the first requests after ready, of different ones of {MANY} functions, took "
              f"{', '.join(f'{took:.0f}' for took in times)} ms", file=sys.stderr)
        self.assertLess(max(times), FIRST_ANSWER)

    def test_ready_after_a_restart_means_that_every_function_is_servable(self):
        daemon = self.start("one", "all").wait_serving()
        self.deploy_many(daemon.http)
        self.assertEqual(daemon.terminate(), 0)
        daemon = self.start("one", "all")
        self.first_answers(daemon.http, "one daemon stopped")
        daemon.kill_node()
        daemon = self.start("one", "all")
        self.first_answers(daemon.http, "one daemon killed")

    def test_a_gateway_that_comes_back_is_ready_when_its_nodes_are(self):
        front, (node,) = self.start_cluster(1)
        self.deploy_many(front.http)
        manager, http = front.address("manager"), front.address("gateway")
        front.kill()
        front = self.start("front", "manager,gateway", manager=manager, http=http)
        self.first_answers(front.http, "manager and gateway killed")
        node.kill_node()
        front.kill()
        front = self.start("front", "manager,gateway", manager=manager, http=http)
        self.start("node-0", "node", manager=manager)
        self.first_answers(front.http, "every daemon killed")

    def start_with_a_request(self, **options):
        """(daemon, worker, client): the client's request is at the GPU, whose worker stands still."""
        daemon = self.start("one", "all", hang="10m", **options).wait_serving()
        daemon.http.deploy("times-2", scale(2)).good()
        self.ask(daemon.http)
        worker = daemon.workers()[0]
        os.kill(worker, signal.SIGSTOP)
        client = Load(lambda: self.ask(daemon.http), threads=1)
        eventually(lambda: int(daemon.http.loads()["one"]["running"]) > 0, "the request is at the GPU")
        return daemon, worker, client

    def test_sigterm_lets_requests_finish(self):
        daemon, worker, client = self.start_with_a_request(stop_grace="60s")
        client.finish()
        daemon.process.send_signal(signal.SIGTERM)
        eventually(lambda: "stopping" in daemon.tail(), "the daemon has heard it")
        os.kill(worker, signal.SIGCONT)
        self.assertEqual(client.stop(), 1)
        self.assertEqual(daemon.process.wait(60), 0)

    def test_sigterm_gives_up_what_takes_too_long(self):
        daemon, worker, client = self.start_with_a_request(stop_grace="200ms")
        client.finish()
        self.assertEqual(daemon.terminate(), 0)
        with self.assertRaises(AssertionError):
            client.stop()

    def test_a_node_adopts_its_living_worker_again(self):
        front, (node,) = self.start_cluster(1)
        front.http.deploy("times-2", scale(2)).good()
        self.ask(front.http)
        before = node.workers()
        resident = eventually(lambda: front.http.function("times-2").get("resident_on"), "the model is on the GPU")
        node.kill()
        self.assertEqual(node.workers(), before, "the worker waits for its daemon")
        node = self.start("node-0", "node", manager=front.address("manager"))
        eventually(lambda: front.http.members().get("node-0") == "ALIVE", "the node is back")
        eventually(lambda: front.http.function("times-2").get("resident_on") == resident, "the model is still on the GPU")
        self.ask(front.http)
        self.assertEqual(node.workers(), before, "the worker is the same")
        load = eventually(lambda: (load := front.http.loads()["node-0"]) and int(load["served"]) and load, "a heartbeat was sent")
        self.assertEqual((int(load["swaps"]), int(load["hits"])), (0, 1), "no model was loaded again")

    def test_a_worker_whose_daemon_stays_away_ends_after_its_lease(self):
        front, (node,) = self.start_cluster(1, lease="300ms")
        eventually(node.workers, "the worker runs")
        node.kill()
        eventually(lambda: not node.workers(), "the worker ends")

    def test_a_node_that_lost_all_but_its_disk_serves_while_the_manager_is_away(self):
        manager = self.start("manager", "manager")
        address = manager.address("manager")
        gateway = self.start("gateway", "gateway", manager=address)
        node = self.start("node-0", "node", manager=address)
        gateway.wait_serving(gpus=0)
        gateway.http.deploy("times-2", scale(2)).good()
        self.ask(gateway.http)
        adopted = node.directory / "data" / "adopted"
        eventually(adopted.exists, "what is adopted is on the node's disk")
        manager.kill()
        listen = node.address("GPUs")
        node.kill_node()
        eventually(lambda: not node.workers(), "the node's workers are gone")
        node = self.start("node-0", "node", manager=address, listen=listen)
        self.assertIn("found on disk: 1 functions that were adopted", node.tail(200))
        eventually(lambda: gateway.http.ask("times-2", {"x": X}).code == 200, "the node serves from its disk")
        self.ask(gateway.http)
        manager = self.start("manager", "manager", manager=address)
        eventually(lambda: gateway.http.members().get("node-0") == "ALIVE", "the node joins again by itself")
        self.ask(gateway.http)

    def test_manager_and_gateway_come_back(self):
        front, (node,) = self.start_cluster(1)
        front.http.deploy("times-2", scale(2)).good()
        self.ask(front.http)
        workers, manager, http = node.workers(), front.address("manager"), front.address("gateway")
        front.kill()
        front = self.start("front", "manager,gateway", manager=manager, http=http)
        front.wait_serving(gpus=0)
        eventually(lambda: front.http.members().get("node-0") == "ALIVE", "the node joins again by itself")
        self.ask(front.http)
        self.assertEqual(node.workers(), workers)
        front.http.deploy("times-3", scale(3)).good()
        self.ask(front.http, 3)


if __name__ == "__main__":
    main()
