#!/usr/bin/python3
"""A model goes from node to node: the second node's copy comes from the first one's, over the network, and is whole also when
the first node is killed in the middle. Each daemon is told that it is on a host of its own (--host-id)."""
import pathlib
import re
import threading

import numpy as np

from harness import E2eTest, eventually, main
from harness.networks import dense

MIB = 1 << 20
SIZES = dict(gpu_memory="512MiB", host_region="512MiB")


def fetched(node, source):
    """Bytes of models that came to this node from `source`; None before its metrics are there."""
    found = re.search(rf'^troupe_model_bytes_fetched_total{{from="{source}",node="[^"]*"}} (\S+)$',
                      node.operations.get("/metrics").body.decode(), re.M)
    return float(found.group(1)) if found else None


def sent(daemon, name):
    """Bytes of models that this daemon sent to nodes; 0 before its metrics are there."""
    found = re.search(rf"^{name}(?:{{.*}})? (\S+)$", daemon.operations.get("/metrics").body.decode(), re.M)
    return float(found.group(1)) if found else 0


def being_written(node):
    """Bytes of objects that are not whole yet."""
    sizes = [0]
    for path in pathlib.Path(node.settings["data"]).rglob("tmp/*"):
        try:
            sizes.append(path.stat().st_size)
        except FileNotFoundError:
            pass
    return max(sizes)


class ModelPulls(E2eTest):
    def start_first(self, **options):
        """Manager, gateway and the first node; `options` of every daemon."""
        self.options = options
        self.manager = self.start("manager", "manager", host_id="host-manager", replicas=4, **options)
        self.address = self.manager.address("manager")
        self.gateway = self.start("gateway", "gateway", manager=self.address, host_id="host-gateway", **options)
        return self.start_node(1)

    def start_node(self, number):
        return self.start(f"node-{number}", "node", manager=self.address, host_id=f"host-{number}", **SIZES, **self.options)

    def deploy(self, mebibytes):
        self.gateway.wait_serving(gpus=0)
        onnx, self.weight = dense(mebibytes)
        self.gateway.http.deploy("dense", onnx).good()
        self.expect_adopted(1)

    def expect_adopted(self, nodes):
        eventually(lambda: len(self.gateway.http.function("dense")["adopted_by"]) == nodes,
                   f"{nodes} nodes hold a copy of the model")

    def expect_right(self):
        x = np.zeros((1, self.weight.shape[0]), np.float32)
        x[0, 0] = 1
        found = np.array(self.gateway.http.infer("dense", {"x": x})["y"])
        np.testing.assert_allclose(found.reshape(-1), self.weight[0], rtol=1e-4, atol=1e-5)

    def expect_fetched(self, node, least, *sources):
        """At least so many bytes came to the node, from each of these sources and from no other."""
        eventually(lambda: (fetched(node, "nodes") or 0) + (fetched(node, "manager") or 0) >= least, "the bytes are counted")
        for source in ("nodes", "manager"):
            self.assertEqual(fetched(node, source) > 0, source in sources, f"bytes from {source}")

    def test_the_second_nodes_copy_comes_from_the_first_one(self):
        first = self.start_first()
        self.deploy(24)
        self.expect_fetched(first, 24 * MIB, "manager")
        second = self.start_node(2)
        self.expect_adopted(2)
        self.expect_fetched(second, 24 * MIB, "nodes")
        first.kill_node()
        self.expect_right()

    def test_a_copy_is_whole_when_its_source_is_killed_in_the_middle(self):
        first = self.start_first()
        self.deploy(256)
        second = self.start_node(2)
        eventually(lambda: being_written(second) >= 8 * MIB, "a part of the model has come")
        first.kill_node()
        self.expect_fetched(second, 256 * MIB, "nodes", "manager")
        eventually(lambda: self.gateway.http.function("dense")["adopted_by"] == ["node-2"], "the second node holds a copy")
        self.expect_right()
        self.assertLess(fetched(second, "nodes") + fetched(second, "manager"), 257 * MIB, "no byte came twice")

    def deploy_on_four(self, mebibytes, **options):
        """Four nodes are to have a new model, which the manager alone has: bytes that came from the manager, and the nodes."""
        first = self.start_first(**options)
        nodes = [first, *[self.start_node(number) for number in (2, 3, 4)]]
        self.gateway.wait_serving(gpus=0)
        onnx, self.weight = dense(mebibytes)
        self.gateway.http.deploy("dense", onnx).good()
        self.expect_adopted(4)
        for node in nodes:
            eventually(lambda: (fetched(node, "nodes") or 0) + (fetched(node, "manager") or 0) >= mebibytes * MIB, "all is counted")
        from_manager = sum(fetched(node, "manager") for node in nodes)
        eventually(lambda: sent(self.manager, "troupe_manager_model_bytes_sent_total") >= from_manager, "the manager counts them")
        eventually(lambda: sum(sent(node, "troupe_model_bytes_sent_total") for node in nodes) >=
                   sum(fetched(node, "nodes") for node in nodes), "the nodes count what they sent")
        return from_manager, nodes

    def test_nodes_that_fetch_a_model_at_the_same_time_hand_it_on_to_each_other(self):
        from_manager, nodes = self.deploy_on_four(96)
        self.assertLess(from_manager, 1.2 * 96 * MIB, "the manager sent it about once")
        self.assertGreater(sum(fetched(node, "nodes") for node in nodes), 2.8 * 96 * MIB)
        for node in nodes[:-1]:
            node.kill_node()
        self.expect_right()

    def test_without_relays_each_node_fetches_it_from_the_manager(self):
        from_manager, _ = self.deploy_on_four(96, fetching="holders")
        self.assertGreater(from_manager, 2.8 * 96 * MIB)

    def test_when_a_node_is_killed_that_hands_a_model_on_the_others_get_it(self):
        first = self.start_first()
        nodes = [first, *[self.start_node(number) for number in (2, 3, 4)]]
        self.gateway.wait_serving(gpus=0)
        onnx, self.weight = dense(192)
        deployment = threading.Thread(target=lambda: self.gateway.http.deploy("dense", onnx))
        deployment.start()
        eventually(lambda: all(being_written(node) >= 4 * MIB for node in nodes), "each node has a part of the model")
        # The node that has most of the model hands it on to the others.
        ahead = max(nodes, key=being_written)
        ahead.kill_node()
        deployment.join()
        self.expect_adopted(3)
        for node in nodes:
            if node is not ahead:
                self.assertLess(fetched(node, "nodes") + fetched(node, "manager"), 193 * MIB, "no byte came twice")
        self.expect_right()

    def test_over_ucx(self):
        self.start_first(tensor_network="ucx")
        self.deploy(24)
        second = self.start_node(2)
        self.expect_adopted(2)
        self.expect_fetched(second, 24 * MIB, "nodes")
        self.expect_right()


if __name__ == "__main__":
    main()
