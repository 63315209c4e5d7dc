"""First inputs of each target, made anew for each run: what libFuzzer would take long to find by itself."""
import struct
import sys

MAGIC_RING = 0x7472757072696E67
BODY = b'{"inputs":[{"name":"x","shape":[2,2],"datatype":"FP32","data":[1,2,3,4]}]}'


def http():
    def request(line, headers=b"", body=b""):
        return b"\0" + line + b" HTTP/1.1\r\nHost: x\r\n" + headers + b"Content-Length: %d\r\n\r\n" % len(body) + body

    yield request(b"POST /v2/models/f/infer", body=BODY)
    yield request(b"POST /v2/models/two/versions/1/infer", b"Expect: 100-continue\r\nIdempotency-Key: k\r\n", BODY)
    yield request(b"POST /v2/repository/index", body=b'{"ready":true}')
    yield request(b"POST /v2/repository/models/f/load", body=b"{}")
    yield request(b"POST /v2/troupe/functions/n?state=a=b&tenant=t", body=b"onnx")
    yield request(b"POST /v2/troupe/workflows", body=b"name: w\n")
    for path in (b"/v2", b"/v2/health/ready", b"/v2/models/f", b"/v2/models/f/stats", b"/metrics", b"/v2/troupe/cluster"):
        yield request(b"GET " + path) + request(b"GET " + path)[1:]
    raw = struct.pack("<2f", 1, 2)
    yield request(b"POST /v2/models/f/infer", b"Inference-Header-Content-Length: 0\r\n", raw)
    yield (b"\7POST /v2/models/f/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n" + BODY[:16] +
           b"\r\n%x\r\n" % len(BODY[16:]) + BODY[16:] + b"\r\n0\r\n\r\n")


def oip_json():
    # The target calls BOOL b, UINT8 c, FP32 l and BYTES o.
    head = ('{"id":"i","parameters":{"timeout":5,"priority":1,"binary_data_output":false},"inputs":['
            '{"name":"b","shape":[1],"datatype":"BOOL","data":[true]},'
            '{"name":"c","shape":[1,2],"datatype":"UINT8","data":[[1,2]]},'
            '{"name":"l","shape":[3],"datatype":"FP32","data":[1e3,NaN,-Infinity]},')
    tail = '"outputs":[{"name":"l","parameters":{"binary_data":true}}]}'
    yield b"\0\0" + (head + '{"name":"o","shape":[1,2],"datatype":"BYTES","data":["a","\\u00e9"]}],' + tail).encode()
    strings = struct.pack("<I", 1) + b"z"
    yield (struct.pack("<H", len(strings)) + (head + '{"name":"o","shape":[1,1],"datatype":"BYTES","parameters":'
           '{"binary_data_size":%d}}],' % len(strings) + tail).encode() + strings)


def ring_records():
    def record(payload, length=None):
        body = struct.pack("<HHIQ", 1, 0, len(payload) if length is None else length, 7) + payload
        return body + b"\0" * (-len(body) % 16)

    records = record(b"\x08\x01") + record(b"")
    yield b"\2" + struct.pack("<QQ", len(records), 0) + records
    yield b"\0" + struct.pack("<QQ", 16, 0) + record(b"", 2000)
    control = struct.pack("<QIIQ", MAGIC_RING, 1, 0, 4096).ljust(48, b"\0")
    yield b"\1" + control + struct.pack("<QQ", len(records), 0) + records


def actor_frames():
    for kind in range(80):
        yield bytes([kind]) + b"\x04\x0a\x02ab"
        yield bytes([kind]) + b"\x02\x08\x01"
    name = b"troupe.proto.Heartbeat"
    yield b"\xff" + struct.pack("<H", 0) + bytes([len(name)]) + name + b"\x02\x08\x01"


def write(target, folder):
    for number, seed in enumerate(getattr(sys.modules[__name__], target)()):
        (folder / f"seed-{number}").write_bytes(seed)
