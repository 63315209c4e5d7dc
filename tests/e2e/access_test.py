#!/usr/bin/python3
"""Which clients may ask what over HTTP: API keys are made, judged by every gateway, and revoked, with real daemons."""
import socket

import numpy as np

from harness import E2eTest, eventually, main
from harness.client import infer_body
from harness.networks import scale
from harness.shell import Shell

X = {"x": np.ones((1, 4), np.float32)}


class Access(E2eTest):
    def setUp(self):
        super().setUp()
        self.manager = self.start("manager", "manager")
        self.node = self.start("node", "node", manager=self.manager.address("manager"))
        self.gateway = self.start("gateway", "gateway", manager=self.manager.address("manager"))
        self.gateway.wait_serving(gpus=0)
        self.http = self.gateway.http
        self.shell = Shell(self.manager.address("manager"), self.directory)
        self.http.deploy("double", scale(2)).good()

    def create(self, name, scopes):
        key = self.shell.text("key", "create", name, "--scope", scopes).strip()
        self.assertRegex(key, "^troupe_[0-9a-f]{64}$")
        eventually(lambda: self.code(key, "GET", "/v2/troupe/cluster") != 401, "the gateway has heard of the key")
        return key

    def code(self, key, method, path, body=None):
        return self.http.call(method, path, body, {"Authorization": f"Bearer {key}"} if key else {}).code

    def infer(self, key):
        return self.code(key, "POST", "/v2/models/double/infer", infer_body(X))

    def test_keys(self):
        self.assertEqual(self.infer(None), 200, "without keys, this machine's clients are answered")
        caller = self.create("caller", "infer")
        reader = self.create("reader", "read")
        developer = self.create("developer", "deploy,read")
        self.assertEqual([self.infer(key) for key in (caller, reader, developer, None, "troupe_" + "0" * 64)],
                         [200, 403, 403, 401, 401])
        self.assertEqual([self.code(key, "GET", "/v2/troupe/functions") for key in (caller, reader, developer, None)],
                         [403, 200, 200, 401])
        self.assertEqual([self.code(key, "POST", "/v2/troupe/functions/triple", scale(3))
                          for key in (caller, reader, developer, None)], [403, 403, 200, 401])
        self.assertEqual(self.code(None, "GET", "/v2/health/ready"), 200)
        self.assertEqual(self.gateway.operations.get("/metrics").code, 200)
        listed = self.shell.text("key", "list")
        for name in ("caller", "reader", "developer"):
            self.assertIn(name, listed)
        self.assertEqual([key.get("sha256", "") for key in self.shell.json("key", "list")["keys"]], ["", "", ""])
        self.assertIn("already", self.shell.error("key", "create", "caller", "--scope", "read", code=1))

        # Neither a daemon nor a file keeps the text of the key.
        for path in self.directory.rglob("*"):
            if path.is_file():
                self.assertNotIn(caller.encode(), path.read_bytes(), path)

        self.shell.run("key", "revoke", "caller")
        eventually(lambda: self.infer(caller) == 401, "a revoked key is refused")
        self.assertEqual(self.infer(reader), 403, "the others are what they were")
        events = self.shell.text("events")
        self.assertIn("key-created", events)
        self.assertIn("key-revoked", events)

        # Without the manager the gateway judges by the keys that it knows.
        self.manager.kill()
        self.assertEqual([self.infer(key) for key in (caller, reader, None)], [401, 403, 401])
        self.assertEqual(self.code(reader, "GET", "/v2/models/double"), 200)

    def test_keys_outlive_the_manager(self):
        caller = self.create("caller", "infer")
        self.manager.kill()
        self.manager = self.start("manager", "manager", manager=self.manager.address("manager"))
        self.assertIn("caller", self.shell.text("key", "list"))
        eventually(lambda: self.infer(caller) == 200, "the key is still good")
        self.assertEqual(self.infer(None), 401)

    def test_other_machines_need_a_key(self):
        outside = next((info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
                        if not info[4][0].startswith("127.")), None)
        if outside is None:
            self.skipTest("this machine has no address but loopback")
        gateway = self.start("open", "gateway", manager=self.manager.address("manager"), http="0.0.0.0:0")
        eventually(lambda: gateway.http.get("/v2").code == 200, "the gateway has joined")
        gateway.http.host = outside
        answer = gateway.http.get("/v2")
        self.assertEqual(answer.code, 401)
        self.assertIn("troupe key create", answer.error)


if __name__ == "__main__":
    main()
