#!/usr/bin/python3
"""Daemons and shells at an address of this machine that is not loopback: each shows a certificate of the cluster's
authority, and may do what its roles say. Renewal and revocation without a restart."""
import re
import unittest

import numpy as np

from harness import E2eTest, StartFailed, eventually, main
from harness.certificates import ADDRESS, Authority
from harness.client import infer_binary
from harness.networks import scale
from harness.shell import Shell


DAEMONS = ("manager", "gateway", "node")


@unittest.skipIf(ADDRESS is None, "this machine has no address that is not loopback")
class Tls(E2eTest):
    def setUp(self):
        super().setUp()
        self.authority = Authority(self.directory)
        for name in DAEMONS:
            self.authority.issue(name, name)

    def begin(self, holder, role=None, directory=None, **options):
        """A daemon with the certificate of `holder`."""
        folder = self.authority.folder(holder)
        settings = {"listen": f"{ADDRESS}:0", "tls-dir": folder, "host-id": f"host-{holder}", "name": holder, **options}
        return self.start(directory or holder, role or holder, **settings)

    def cluster(self):
        self.manager = self.begin("manager", manager=f"{ADDRESS}:0")
        self.at = self.manager.address("manager")
        self.node = self.begin("node", manager=self.at)
        self.gateway = self.begin("gateway", manager=self.at)
        self.gateway.wait_serving(gpus=0)
        self.http = self.gateway.http
        self.http.deploy("double", scale(2, 1024)).good()

    def ask(self, seed=0):
        """A request with 512 KiB in and out: the tensors cross the network encrypted, as each daemon is a host of its own."""
        x = np.random.default_rng(seed).standard_normal((128, 1024), dtype=np.float32)
        shape, data = infer_binary(self.http, "double", {"x": x})["y"]
        self.assertEqual((shape, data), ([128, 1024], (2 * x).tobytes()))

    def served(self):
        try:
            self.ask()
            return True
        except Exception:
            return False

    def shell(self, name=None, authority=None):
        shell = Shell(self.at, self.directory)
        if name is not None:
            shell.environment["TROUPE_TLS_DIR"] = str((authority or self.authority).folder(name))
        return shell

    def test_each_may_do_what_its_certificate_says(self):
        self.cluster()
        self.ask()
        eventually(lambda: re.search(r"troupe_certificate_expires_seconds 3[01]\d{6}",
                                     self.manager.operations.get("/metrics").body.decode()),
                   "the manager tells when its certificate ends")

        self.authority.issue("ann", "admin")
        self.authority.issue("bob", "reader")
        ann, bob = self.shell("ann"), self.shell("bob")
        self.assertIn("double", ann.text("function", "list"))
        self.assertIn("double", bob.text("function", "list"))
        self.assertIn("node", bob.text("cluster", "status"))
        for words in (("function", "remove", "double"), ("kill", "gpu", "node/0", "--yes"), ("key", "create", "k", "--scope", "read"),
                      ("node", "drain", "node")):
            line = bob.error(*words, code=1)
            self.assertIn("'bob' (reader", line)
            self.assertIn("--role admin", line)
        line = self.shell("node").error("function", "list", code=1)  # a daemon's certificate is not a person's
        self.assertIn("'node' (node", line)
        self.assertIn("--role admin", line)
        self.assertIn("double", ann.text("function", "list"))
        # 256 KiB, on another host than the gateway: the gateway fetches the output for the shell.
        tensor, out = self.directory / "x.npy", self.directory / "out.npy"
        np.save(tensor, np.ones((64, 1024), np.float32))
        ann.run("infer", "double", "--input", f"x={tensor}", "--output", f"y={out}")
        np.testing.assert_array_equal(np.load(out), np.full((64, 1024), 2, np.float32))
        ann.run("key", "create", "k", "--scope", "read")

        # Shells with a certificate of another cluster's authority, without a certificate, and without TLS.
        other = Authority(self.directory, "other")
        other.issue("mallory", "admin")
        self.assertIn("unknown certificate authority", self.shell("mallory", other).error("function", "list", code=1))
        self.assertIn("--tls-dir", self.shell().error("function", "list", code=1))
        self.assertIn("--tls-dir", self.shell().error("function", "list", "--insecure-network", code=1))
        eventually(lambda: 'reason="certificate"' in self.manager.operations.get("/metrics").body.decode(),
                   "the refusals are counted")

    def test_two_daemons_with_one_certificate(self):
        self.cluster()
        twin = self.begin("node", directory="twin", manager=self.at)
        refused = eventually(lambda: [line for line in twin.tail(200).splitlines() if "join-refused" in line],
                             "the second daemon is refused")
        self.assertIn("shows the certificate 'node' (node, serial " + self.authority.serial("node"), refused[0])
        self.ask()
        with self.assertRaises(StartFailed) as failed:
            self.begin("node", directory="third", manager=self.at, name="third")
        self.assertIn("--name third is not the name in the certificate 'node'", failed.exception.errors)

    def test_what_a_daemon_may_not_be(self):
        for role in ("manager", "gateway"):
            with self.assertRaises(StartFailed) as failed:
                self.begin("node", role, directory=f"as-{role}", manager=f"{ADDRESS}:7400")
            self.assertIn("certificate 'node' (node", failed.exception.errors)
            self.assertIn(f"--role {role}", failed.exception.errors)
        with self.assertRaises(StartFailed) as failed:
            self.start("bare", "manager", manager=f"{ADDRESS}:0")
        self.assertIn("--tls-dir", failed.exception.errors)

    def test_revoked_and_renewed_without_a_restart(self):
        self.cluster()
        self.ask()
        self.authority.revoke("node", "manager", "gateway")
        eventually(lambda: self.http.members().get("node") != "ALIVE", "the node is out")
        eventually(lambda: "'node' (node" in self.manager.tail(400) and "is revoked" in self.manager.tail(400),
                   "the manager says why")
        self.authority.issue("node", "node")
        eventually(self.served, "the node is back with its new certificate")

        # The manager's own certificate is renewed: new connections show the new one, and the old one is worth nothing.
        old = self.authority.serial("manager")
        self.authority.renew("manager")
        new = self.authority.serial("manager")
        self.assertNotEqual(old, new)
        eventually(lambda: f"uses the certificate 'manager' (manager, serial {new}" in self.manager.tail(400),
                   "the manager uses its new certificate")
        self.authority.revoke(old, *DAEMONS)
        for daemon in (self.gateway, self.node):
            eventually(lambda d=daemon: f"serial {old}) is revoked" in d.tail(400), "the old connection is closed")
        eventually(lambda: set(self.http.members().values()) == {"ALIVE"}, "both daemons are members again")
        eventually(self.served, "the cluster serves")
        self.assertEqual([daemon.process.poll() for daemon in (self.manager, self.gateway, self.node)], [None] * 3)


if __name__ == "__main__":
    main()
