"""The first inputs of each target, made anew for each run, which libFuzzer would take long to find by itself."""
import io
import pathlib
import struct
import sys
import tarfile

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
    yield request(b"POST /v2/systemsharedmemory/region/r/register", body=b'{"key":"/k","offset":0,"byte_size":8}')
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
    yield b"\0\0" + (head + '{"name":"o","shape":[1,1],"datatype":"BYTES","parameters":{"shared_memory_region":"r",'
                     '"shared_memory_offset":0,"shared_memory_byte_size":5}}],' + tail).encode()


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


def frame_guard():
    def frame(kind, length, body=b""):
        return struct.pack(">BBBBI", kind, 0, 0, 0, length) + b"\0" * 24 + body

    def node(process):  # as CAF writes the id of a process: the kind of the id as an atom, the host, the process
        letters = " 0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
        kind = 0xF
        for letter in "default":
            kind = kind << 6 | letters.index(letter)
        return struct.pack(">Q", kind) + b"\xaa" * 20 + struct.pack(">I", process)

    def message(types):
        return frame(2, 8 + len(types) + 5, b"\0\0\0" + bytes([len(types) + 4]) + b"@<>+" + types + b"bytes")

    hello = frame(1, 32, node(2))
    yield b"\0" + hello + hello + message(b"troupe.proto.InferReply") + frame(6, 0) + frame(4, 64, node(2) + node(1))
    yield b"\0" + hello + frame(5, 67, node(2) + node(1) + b"why") + message(b"troupe.proto.JoinRequest+troupe.NodeController")
    yield b"\7" + frame(0, 50, node(2) + b"node and interface") + message(b"troupe.proto.InferReply") + frame(6, 0)
    yield b"\x40" + hello + frame(2, 0xFFFFFFFF)
    yield b"\0" + frame(1, 0) + frame(3, 4, b"far!")


def fetch_headers():
    arena = 0x6172656E61  # the target puts its arena's identity in place of this number
    token = bytes(32)
    # The target's slices, each behind a header of 64 bytes.
    for number, (offset, length) in enumerate(((64, 1), (192, 100), (384, 4096), (4544, 20000)), 1):
        yield b"\0" + struct.pack("<IIQQQQQ", 0x74726663, 3, 7, arena, offset, length, number) + token
    yield b"\0" + struct.pack("<IIQQQQQ", 0x74726663, 3, 7, arena, 64, 1 << 63, 1) + token
    yield b"\0" + struct.pack("<IIQQQQQ", 0x74726663, 2, 7, arena, 64, 1, 1) + token
    for code in (0, 5, -1):
        yield b"\1" + struct.pack("<IiQQ", 0x74726663, code, 7, 100)


def store_files():
    yield b"\x80" + b"\x0a\x05value"
    yield b"\0" + struct.pack("<HBBII", 0x5254, 1, 0, 5, 0) + b"value"

    def record(kind, body):
        return struct.pack("<IHB", 0, len(body), kind) + body

    group = struct.pack("<QI", 1, 1) + b"\x01\x03key\x05value"
    yield bytes([128 + 1]) + record(1, group) + record(2, group[:8]) + record(3, group[8:12]) + record(4, group[12:])
    yield bytes([128 + 1]) + record(1, group) + record(1, struct.pack("<QI", 9, 2) + group[12:] * 2) + b"\0" * 40
    mark = struct.pack("<QQQQQ", 0x314B52414D525454, 1, 100, 7, 0)
    yield bytes([128 + 2]) + mark.ljust(512, b"\0") + mark
    digest = "0123456789abcdef" * 4
    yield b"\3" + ("troupe-backup 1\ncluster c\nsequence 12\n%s 5 db/CURRENT\n%s 7 MARK\n" % (digest, digest)).encode()

    def field(number, body):
        return bytes([number << 3 | 2, len(body)]) + body

    tensor = field(1, b"x") + b"\x10\x0a" + field(3, b"\x01\x04")
    output = field(1, b"y") + b"\x10\x0a" + field(3, b"\x01\x04")
    weight = field(1, b"w") + b"\x10\x0a" + field(3, b"\x04") + b"\x20\x00\x28\x10"
    step = field(1, b"Add") + field(2, b"n") + field(3, b"x") + field(3, b"w") + field(4, b"y")
    yield (b"\4\x08\x01\x18\x0d" + field(4, tensor) + field(5, output) + field(6, step) + field(7, weight) +
           b"\x40\x10" + field(9, digest.encode()))


def onnx():
    """Small files of ONNX's own tests, one for each operator, and constants that are folded."""
    data = pathlib.Path("/usr/share/libonnx-testdata/data")
    files = sorted((data / "node").glob("*/model.onnx")) + sorted((data / "simple").glob("*/model.onnx"))
    operators = set()
    for file in files:
        operator = file.parent.name.split("_")[1]
        if file.stat().st_size > 2048 or operator in operators:
            continue
        operators.add(operator)
        yield file.read_bytes()
    # Opsets 18 to 23, which came after ONNX's packaged tests, classic models and control flow: the first small case of each
    # operator and opset, or of each operator and kind of case.
    opsets = pathlib.Path(__file__).resolve().parents[1] / "conformance" / "opsets"
    for archive, most in (("operators", 2048), ("classic", 8192), ("control", 4096)):
        with tarfile.open(opsets / f"{archive}.tar.gz") as cases:
            for member in sorted(cases.getmembers(), key=lambda member: member.name):
                name = member.name.split("/")[1]
                kind = (name.split("_")[0], name.split("_")[-1])
                if member.name.endswith("model.onnx") and member.size <= most and kind not in operators:
                    operators.add(kind)
                    yield cases.extractfile(member).read()


def model_with_weights_beside(location, offset, length):
    from onnx import TensorProto, external_data_helper, helper  # takes a second, which the other targets need not wait

    weights = helper.make_tensor("w", TensorProto.FLOAT, [4], bytes(16), raw=True)
    external_data_helper.set_external_data(weights, location, offset, length)
    weights.ClearField("raw_data")
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [4])
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [value("x")], [value("y")], [weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()


def archives():
    """A model with weights in a file beside it, in each form of tar; folders, links and long names."""
    files = {"m/model.onnx": model_with_weights_beside("data/w.bin", 16, 16), "m/data/w.bin": bytes(range(48))}
    for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        for extra in ((), ("m", tarfile.DIRTYPE), ("m/link", tarfile.SYMTYPE), ("m/" + "long/" * 30 + "x", tarfile.REGTYPE)):
            made = io.BytesIO()
            with tarfile.open(fileobj=made, mode="w", format=form) as archive:
                for name, content in files.items():
                    entry = tarfile.TarInfo(name)
                    entry.size = len(content)
                    archive.addfile(entry, io.BytesIO(content))
                if extra:
                    entry = tarfile.TarInfo(extra[0])
                    entry.type, entry.linkname = extra[1], "w.bin" if extra[1] == tarfile.SYMTYPE else ""
                    archive.addfile(entry)
            yield made.getvalue().rstrip(b"\0").ljust(4096, b"\0")


def yaml():
    yield b"\0" + b"""name: w
version: "2"
inputs:
  image: {type: FP32, shape: [-1, 4]}
steps:
  - name: left
    function: f
    version: "1"
    inputs: {x: image}
    fan_out: {input: x, dimension: 0}
    timeout: 5s
  - {name: right, function: g, inputs: {x: left.y}}
outputs:
  out: right.y
"""
    yield b"\0" + b"a: &a [1, 2]\nb: [*a, *a]\nname: {x: !!str y}\nsteps: |\n  text\n"
    yield b"\1" + b"roles: [manager, node]\nname: n\nlisten: 127.0.0.1:0\ngpus: 2\ngpu-memory: 1GiB\nlink-bandwidth: 6GB\nadvanced:\n  hang: 5s\n"
    yield b"\1" + b"preset: torpor\ntopology: auto\nmemory-policy: fine\nisolation: tenant\nallow-faults: true\nnonsense: 1\n"


def write(target, folder):
    for number, seed in enumerate(getattr(sys.modules[__name__], target)()):
        (folder / f"seed-{number}").write_bytes(seed)
