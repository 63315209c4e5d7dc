"""A client of the Open Inference Protocol over one keep-alive connection: raw tensors, and patience as told."""
import http.client
import json
import time
import urllib.parse

import numpy as np

TYPES = {"FP32": np.float32, "INT64": np.int64}
NAMES = {np.dtype(kind): name for name, kind in TYPES.items()}
TRIES = 4  # the first and three more


class Refused(Exception):
    """An answer that is an error: its code and the server's message."""


class Client:
    def __init__(self, url, timeout=40):
        self.where = urllib.parse.urlsplit(url)
        self.timeout = timeout
        self.connection = None
        self.retries = 0

    def _exchange(self, method, path, body=b"", headers=None):
        """One request and its answer; an idle connection that the server has closed meanwhile is replaced once."""
        for fresh in (self.connection is None, True):
            if self.connection is None:
                self.connection = http.client.HTTPConnection(self.where.hostname, self.where.port,
                                                             timeout=self.timeout)
            try:
                self.connection.request(method, path, body, headers or {})
                answer = self.connection.getresponse()
                return answer, answer.read()
            except (OSError, http.client.HTTPException):
                self.connection.close()
                self.connection = None
                if fresh:
                    raise

    def call(self, method, path, body=b"", headers=None):
        """Honours Retry-After up to three times. Returns (headers, body) of a 200; raises Refused otherwise."""
        for attempt in range(TRIES):
            answer, data = self._exchange(method, path, body, headers)
            wait = answer.getheader("Retry-After")
            if answer.status == 200 or wait is None or attempt == TRIES - 1:
                break
            self.retries += 1
            time.sleep(float(wait))
        if answer.status != 200:
            raise Refused(f"{method} {path}: {answer.status} {data[:300].decode(errors='replace')}")
        return answer, data

    def infer(self, name, inputs):
        """inputs: {tensor: array}; returns {tensor: array}."""
        request = {"inputs": [{"name": tensor, "datatype": NAMES[array.dtype], "shape": list(array.shape),
                               "parameters": {"binary_data_size": array.nbytes}} for tensor, array in inputs.items()],
                   "parameters": {"binary_data_output": True}}
        head = json.dumps(request).encode()
        body = head + b"".join(np.ascontiguousarray(array).tobytes() for array in inputs.values())
        answer, data = self.call("POST", f"/v2/models/{name}/infer", body, {
            "Inference-Header-Content-Length": str(len(head)), "Content-Type": "application/octet-stream"})
        size = int(answer.getheader("Inference-Header-Content-Length") or len(data))
        outputs = {}
        for output in json.loads(data[:size])["outputs"]:
            kind = np.dtype(TYPES[output["datatype"]])
            length = output["parameters"]["binary_data_size"]
            outputs[output["name"]] = np.frombuffer(data, kind, length // kind.itemsize, size).reshape(output["shape"])
            size += length
        return outputs

    def close(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None
