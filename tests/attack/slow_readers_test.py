#!/usr/bin/python3
"""Clients that ask for large answers and do not read them: the memory for them is bounded, and others are served.

slow_readers_test.py [--clients N]: how many clients (default 300); each holds a connection (`ulimit -n`).
"""
import json
import pathlib
import socket

import numpy as np

from harness import E2eTest, main
from harness.networks import scale
from options import option

CLIENTS = 300
ROWS = 120000  # four floats each: an answer of some 5 MB of text
BUDGET = 512 << 20  # the budget of one client address (gateway/http_server.hpp)
X = {"x": np.ones((1, 4), np.float32)}


def resident(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


class SlowReaders(E2eTest):
    def test_answers_that_no_client_reads(self):
        daemon = self.start("one", "all", arena="64MiB").wait_serving()
        daemon.http.deploy("double", scale(2)).good()
        pid = daemon.process.pid
        before = resident(pid)
        host, port = daemon.address("gateway").rsplit(":", 1)
        head = json.dumps({"inputs": [{"name": "x", "shape": [ROWS, 4], "datatype": "FP32",
                                       "parameters": {"binary_data_size": ROWS * 16}}]}).encode()
        request = (b"POST /v2/models/double/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: %d\r\n"
                   b"Content-Length: %d\r\n\r\n" % (len(head), len(head) + ROWS * 16)) + head
        request += np.full((ROWS, 4), 1.2345678, np.float32).tobytes()
        lazy = []
        self.addCleanup(lambda: [client.close() for client in lazy])
        most = refused = 0
        for _ in range(CLIENTS):
            client = socket.create_connection((host, int(port)))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(20)
            lazy.append(client)
            try:
                client.sendall(request)
                first = client.recv(12)
            except OSError:
                first = b""  # The answer came before the body was sent, and the connection was closed.
            refused += first != b"HTTP/1.1 200"
            most = max(most, resident(pid))
        print(f"{CLIENTS} clients that do not read: {(most - before) >> 20} MiB more at most, {refused} refused")
        self.assertLess(most - before, BUDGET + (256 << 20))
        # A client of another address is served meanwhile: it has a share of its own.
        with socket.create_connection((host, int(port)), source_address=("127.0.0.2", 0)) as other:
            other.settimeout(20)
            body = b'{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,1,1,1]}]}'
            other.sendall(b"POST /v2/models/double/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
                          + body)
            self.assertTrue(other.recv(4096).startswith(b"HTTP/1.1 200 "))


if __name__ == "__main__":
    CLIENTS = option("--clients", CLIENTS)
    main()
