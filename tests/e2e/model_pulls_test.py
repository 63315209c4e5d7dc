#!/usr/bin/python3
"""A model goes from node to node: the second node's copy comes from the first one's, over the network, and is whole also when
the first node is killed in the middle. Each daemon is told that it is on a host of its own (--host-id)."""
import pathlib
import re

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
        self.manager = self.start("manager", "manager", host_id="host-manager", replicas=3, **options)
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

    def test_over_ucx(self):
        self.start_first(tensor_network="ucx")
        self.deploy(24)
        second = self.start_node(2)
        self.expect_adopted(2)
        self.expect_fetched(second, 24 * MIB, "nodes")
        self.expect_right()


if __name__ == "__main__":
    main()
