#!/usr/bin/python3
"""The console in a browser: what a reader sees of a cluster, of a node that dies, and of a cluster that asks for a key."""
import unittest

import numpy as np

from harness import E2eTest, Load, eventually, main
from harness.browser import FOUND, Browser
from harness.client import infer_body
from harness.networks import scale
from harness.shell import Shell
from harness.workflows import chain

X = {"x": np.ones((1, 4), np.float32)}


@unittest.skipUnless(FOUND, "chromium and chromium-driver are not installed: deploy/bootstrap.sh test")
class Console(E2eTest):
    def setUp(self):
        super().setUp()
        self.front, self.nodes = self.start_cluster(nodes=2)
        self.http = self.front.http
        self.http.deploy("double", scale(2), "?tenant=us").good()
        self.browser = Browser()
        self.addCleanup(self.browser.close)

    def open(self):
        self.browser.open(f"http://127.0.0.1:{self.http.port}/console")

    def sees(self, selector, *words):
        eventually(lambda: all(word in self.browser.text(selector) for word in words), f"the reader sees {words} in {selector}")

    def test_the_cluster(self):
        self.http.call("POST", "/v2/troupe/workflows", chain("twice", ["double", "double"], width=4)).good()
        eventually(lambda: self.http.get("/v2/models/twice/ready").code == 200, "the workflow can be called")
        self.http.call("POST", "/v2/models/twice/infer", infer_body(X)).good()
        self.open()
        self.sees("#state", "live")
        self.sees("#tiles", "2 of 2", "nodes alive")
        self.sees("#members", "node-0", "node-1", "gateway", "0 ready")
        self.sees("#functions", "double/1", "us", "served")
        self.sees("#runs", "twice", "succeeded", "step-1", "step-2")
        # The front refuses names that could be part of a page; the page would show them as text all the same.
        self.assertEqual(self.browser.run("return element('td', '', '<b>name</b>').children.length"), 0)
        self.browser.type("#filter", "nothing is called so")
        self.sees("#functions-note", "No function")
        self.assertNotIn("double", self.browser.text("#functions"))

    def test_a_run_that_fails_says_why(self):
        self.http.call("POST", "/v2/troupe/workflows", chain("twice", ["double", "double"], width=4)).good()
        eventually(lambda: self.http.get("/v2/models/twice/ready").code == 200, "the workflow can be called")
        self.http.call("POST", "/v2/repository/models/double/unload").good()
        self.assertNotEqual(self.http.call("POST", "/v2/models/twice/infer", infer_body(X, {"timeout": 200_000})).code, 200)
        self.open()
        self.sees("#runs", "twice", "failed", "step 'step-1'", "version 1 is unloaded")

    def test_requests_and_a_node_that_dies(self):
        self.open()
        self.sees("#tiles", "2 of 2")
        load = Load(lambda: self.http.infer("double", X), threads=1)
        self.addCleanup(load.finish)
        # A rate of four digits is written with a comma.
        rate = "return Number(document.querySelector('#functions td.number')?.innerText.replaceAll(',', ''))"
        eventually(lambda: self.browser.run(rate), "the reader sees requests")
        self.nodes[0].kill()
        self.sees("#tiles", "1 of 2")
        self.sees("#members", "dead")
        self.sees("#state", "live")
        load.stop()

    def test_a_cluster_with_keys_asks_for_one(self):
        shell = Shell(self.front.address("manager"), self.directory)
        key = shell.text("key", "create", "reader", "--scope", "read").strip()
        eventually(lambda: self.http.get("/v2/troupe/cluster").code == 401, "the gateway has heard of the key")
        self.open()
        self.sees("#login", "troupe key create")
        self.assertEqual(self.browser.text("#page"), "")
        self.browser.type("#key", key + "\n")
        self.sees("#functions", "double/1")
        self.assertEqual(self.browser.text("#login"), "")

    def test_a_gateway_that_is_gone(self):
        self.open()
        self.sees("#state", "live")
        self.front.kill()
        self.sees("#state", "no answer from the gateway")


if __name__ == "__main__":
    main()
