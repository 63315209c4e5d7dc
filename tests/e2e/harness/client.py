"""A client of the HTTP API on one socket per call; it returns code, headers and body, on which tests assert."""
import http.client
import json
import math
import socket
import time

TIMEOUT = 90.0
TYPES = {"float32": "FP32", "float64": "FP64", "int64": "INT64", "int32": "INT32", "uint8": "UINT8", "bool": "BOOL",
         "object": "BYTES"}  # texts: arrays of str
SIZES = {"BOOL": 1, "UINT8": 1, "INT8": 1, "FP16": 2, "INT32": 4, "FP32": 4, "INT64": 8, "FP64": 8}  # bytes of one element


class HttpError(Exception):
    def __init__(self, answer):
        super().__init__(f"HTTP {answer.code}: {answer.body[:500]!r}")
        self.code, self.answer = answer.code, answer


class Answer:
    def __init__(self, response):
        self.code, self.headers, self.body = response.status, response.headers, response.read()

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        """The message of an error; every error has this form."""
        assert self.code >= 400, f"{self.code} is not an error: {self.body[:200]!r}"
        return self.json["error"]

    def good(self):
        if self.code != 200:
            raise HttpError(self)
        return self


class Client:
    """A client that any number of threads may use."""

    def __init__(self, address):
        host, _, port = address.rpartition(":")
        self.host, self.port = host, int(port)
        self.tls = None  # an ssl.SSLContext: the client then speaks HTTPS

    def call(self, method, path, body=None, headers=None, timeout=TIMEOUT):
        connection = self.connection(timeout)
        try:
            connection.request(method, path, body, headers or {})
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def connection(self, timeout=TIMEOUT):
        """A connection of http.client, for several requests on one connection."""
        if self.tls is None:
            return http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        return http.client.HTTPSConnection(self.host, self.port, timeout=timeout, context=self.tls)

    def get(self, path):
        return self.call("GET", path)

    def post(self, path, value=None):
        return self.call("POST", path, json.dumps(value) if value is not None else b"")

    def connect(self):
        """A bare socket, for clients that misbehave."""
        return socket.create_connection((self.host, self.port), timeout=TIMEOUT)

    # --- functions and workflows ---

    def deploy(self, name, onnx, query=""):
        return self.call("POST", f"/v2/troupe/functions/{name}{query}", onnx)

    def remove(self, name):
        return self.call("DELETE", f"/v2/troupe/functions/{name}")

    def function(self, name):
        """The registry's record of the newest version."""
        return self.get(f"/v2/troupe/functions/{name}").good().json[-1]

    def members(self):
        """{name: state} of the cluster."""
        members = self.get("/v2/troupe/cluster").good().json["members"]
        return {entry["member"]["name"]: entry["member"]["state"].removeprefix("MEMBER_") for entry in members}

    def loads(self):
        """{name: figures} of the cluster's members."""
        return {entry["member"]["name"]: entry["load"] for entry in
                self.get("/v2/troupe/cluster").good().json["members"]}

    def served(self, name):
        """(successes, failures) of a function, by its statistics."""
        statistics = self.get(f"/v2/models/{name}/stats").good().json["model_stats"][-1]["inference_stats"]
        return int(statistics["success"]["count"]), int(statistics["fail"]["count"])

    # --- inference ---

    def ask(self, name, inputs, parameters=None, timeout=TIMEOUT):
        """One infer request with JSON tensors, tried once; `inputs`: {name: numpy array}."""
        return self.call("POST", f"/v2/models/{name}/infer", infer_body(inputs, parameters), timeout=timeout)

    def infer(self, name, inputs, parameters=None, tries=4):
        """{name: flat list} of the outputs. Honours Retry-After up to three times; HttpError for any other error."""
        while True:
            answer = self.ask(name, inputs, parameters)
            tries -= 1
            if answer.code == 503 and "Retry-After" in answer.headers and tries > 0:
                time.sleep(float(answer.headers["Retry-After"]))
                continue
            return {output["name"]: output["data"] for output in answer.good().json["outputs"]}


def infer_body(inputs, parameters=None):
    tensors = [{"name": name, "datatype": TYPES[str(array.dtype)], "shape": list(array.shape),
                "data": array.reshape(-1).tolist()} for name, array in inputs.items()]
    return json.dumps({"inputs": tensors, **({"parameters": parameters} if parameters else {})})


def tensor_bytes(array):
    """As the binary extension has a tensor: texts each behind their length."""
    if array.dtype != object:
        return array.tobytes()
    return b"".join(len(data).to_bytes(4, "little") + data for data in (text.encode() for text in array.ravel()))


def texts_of(data):
    """The texts of a BYTES tensor in the binary extension."""
    texts = []
    while data:
        size = int.from_bytes(data[:4], "little")
        texts.append(data[4:4 + size].decode())
        data = data[4 + size:]
    return texts


def infer_binary(client, name, inputs, timeout=TIMEOUT):
    """One infer request by the binary tensor extension, both ways. `inputs`: {name: array}; answers {name: (shape, bytes)}."""
    tensors = [{"name": key, "datatype": TYPES[str(array.dtype)], "shape": list(array.shape),
                "parameters": {"binary_data_size": len(tensor_bytes(array))}} for key, array in inputs.items()]
    head = json.dumps({"inputs": tensors, "parameters": {"binary_data_output": True}}).encode()
    body = head + b"".join(map(tensor_bytes, inputs.values()))
    answer = client.call("POST", f"/v2/models/{name}/infer", body,
                         {"Inference-Header-Content-Length": str(len(head))}, timeout).good()
    size = int(answer.headers["Inference-Header-Content-Length"])
    described, rest, out = json.loads(answer.body[:size])["outputs"], answer.body[size:], {}
    for output in described:
        length = output["parameters"]["binary_data_size"]
        if output["datatype"] != "BYTES":
            assert length == math.prod(output["shape"]) * SIZES[output["datatype"]], output
        out[output["name"]] = output["shape"], rest[:length]
        rest = rest[length:]
    assert not rest, f"{len(rest)} bytes that no output describes"
    return out
