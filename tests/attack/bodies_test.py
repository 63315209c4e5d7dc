#!/usr/bin/python3
"""Bodies that never come: connections that claim 2 GiB and send one byte take nothing from other clients."""
import socket

import numpy as np

from harness import E2eTest, main
from harness.networks import digits, scale

CONNECTIONS = 200
X = {"x": np.ones((1, 4), np.float32)}


class Bodies(E2eTest):
    def test_a_length_that_is_only_claimed(self):
        daemon = self.start("one", "all").wait_serving()
        daemon.http.deploy("double", scale(2)).good()
        host, port = daemon.address("gateway").rsplit(":", 1)
        idle = []
        self.addCleanup(lambda: [client.close() for client in idle])
        for path in ("/v2/troupe/functions/big", "/v2/models/double/infer") * (CONNECTIONS // 2):
            length = 2147483648 if "functions" in path else 268435456
            client = socket.create_connection((host, int(port)))
            client.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\nx".encode())
            idle.append(client)
        # Small ones, one of 100 kB whose tensor lies in the arena, and a whole deployment.
        for _ in range(20):
            self.assertEqual(daemon.http.infer("double", X)["y"], [2.0] * 4)
        wide = np.ones((6000, 4), np.float32)
        self.assertEqual(daemon.http.infer("double", {"x": wide})["y"], [2.0] * wide.size)
        daemon.http.deploy("digits", digits()[0]).good()

    def test_raw_inputs_that_are_only_claimed_take_no_place_in_the_arena(self):
        daemon = self.start("two", "all", arena="8MiB").wait_serving()
        daemon.http.deploy("double", scale(2)).good()
        host, port = daemon.address("gateway").rsplit(":", 1)
        header = ('{"inputs":[{"name":"x","shape":[6250,4],"datatype":"FP32",'
                  '"parameters":{"binary_data_size":100000}}]}')
        idle = []
        self.addCleanup(lambda: [client.close() for client in idle])
        for _ in range(CONNECTIONS):
            client = socket.create_connection((host, int(port)))
            client.sendall(f"POST /v2/models/double/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: "
                           f"{len(header)}\r\nContent-Length: {len(header) + 100000}\r\n\r\n{header}x".encode())
            idle.append(client)
        wide = np.ones((6000, 4), np.float32)
        self.assertEqual(daemon.http.infer("double", {"x": wide})["y"], [2.0] * wide.size)


if __name__ == "__main__":
    main()
