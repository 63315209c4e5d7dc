#!/usr/bin/python3
"""The daemons' pages of metrics pass Prometheus's own checker."""
import shutil
import subprocess
import unittest

import numpy as np

from harness import E2eTest, eventually, main
from harness.networks import scale

PROMTOOL = shutil.which("promtool")
ONES = {"x": np.ones((2, 4), np.float32)}


@unittest.skipUnless(PROMTOOL, "promtool is not installed: deploy/bootstrap.sh brings it with Debian's prometheus")
class Metrics(E2eTest):
    def check(self, name, client):
        page = client.get("/metrics").body
        self.assertIn(b"troupe_", page, f"{name} measures nothing")
        checked = subprocess.run([PROMTOOL, "check", "metrics"], input=page, capture_output=True, timeout=60)
        self.assertEqual((checked.returncode, checked.stdout, checked.stderr), (0, b"", b""), name)

    def test_promtool_accepts_the_metrics_of_every_role(self):
        front, (node,) = self.start_cluster(1)
        front.http.deploy("double", scale(2)).good()
        self.assertEqual(front.http.infer("double", ONES)["y"], [2.0] * 8)
        for name, daemon, measured in (("manager and gateway", front, b"troupe_functions 1"),
                                       ("node", node, b"troupe_node_swap_seconds_count{node=\"node-0\"} 1")):
            eventually(lambda: measured in daemon.operations.get("/metrics").body, f"{name} has measured the request")
            self.check(name, daemon.operations)
        self.check("front", front.http)


if __name__ == "__main__":
    main()
