"""What the cases are made with: one case is a model, its inputs, and the outputs that onnxruntime gives (or that NumPy
computes from the definition, where a case says so). An archive of cases has ONNX's own layout of test data."""
import dataclasses
import gzip
import io
import json
import os
import pathlib
import subprocess
import tarfile
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = pathlib.Path(__file__).resolve().parent
IR_VERSIONS = {9: 4, 11: 6, 13: 7, 15: 8, 17: 8, 18: 8, 19: 9, 20: 9, 21: 10, 22: 10, 23: 11}
KINDS = {"float32": np.float32, "float64": np.float64, "float16": np.float16, "int8": np.int8, "uint8": np.uint8,
         "int16": np.int16, "uint16": np.uint16, "int32": np.int32, "uint32": np.uint32, "int64": np.int64,
         "uint64": np.uint64, "bool": np.bool_, "string": np.object_}  # texts: arrays of str


@dataclasses.dataclass
class Case:
    name: str
    opset: int
    nodes: list
    inputs: dict  # by name: what a run is given
    constants: dict  # by name: initialisers
    outputs: list  # names
    expected: list = None  # arrays, when NumPy is the reference
    symbols: dict = dataclasses.field(default_factory=dict)  # by input: its dimensions as the model declares them
    domains: dict = dataclasses.field(default_factory=dict)  # by name: the version of another domain than ONNX's own
    # Called with the model and its outputs before they are written: gives both as the case has them, where onnxruntime's
    # JavaScript cannot run it so (outputs that are maps or texts).
    finish: object = None


def value_info(name, array, dims=None):
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype) if hasattr(
        helper, "np_dtype_to_tensor_dtype") else onnx.mapping.NP_TYPE_TO_TENSOR_TYPE[array.dtype],
        list(array.shape) if dims is None else dims)


def model_of(case, outputs=None):
    """`outputs`: arrays whose types and shapes the model declares; without them it names its outputs only."""
    inputs = [value_info(name, array, case.symbols.get(name)) for name, array in case.inputs.items()]
    constants = [numpy_helper.from_array(np.array(array, order="C"), name) for name, array in case.constants.items()]
    if outputs is None:
        declared = [helper.make_empty_tensor_value_info(name) for name in case.outputs]
    else:
        declared = [value_info(name, array, [f"{name}_{d}" for d in range(array.ndim)] if case.symbols else None)
                    for name, array in zip(case.outputs, outputs)]
    graph = helper.make_graph(case.nodes, case.name, inputs, declared, constants)
    domains = dict(case.domains)
    if any(node.domain == "com.microsoft" for node in case.nodes):
        domains["com.microsoft"] = 1
    imports = [helper.make_opsetid("", case.opset)] + [helper.make_opsetid(*domain) for domain in domains.items()]
    model = helper.make_model(graph, opset_imports=imports, producer_name="troupe-tests")
    model.ir_version = IR_VERSIONS[case.opset]
    return model


def ask_oracle(cases, folder):
    """The outputs of each case, as lists of arrays; None where onnxruntime refused the case, with the reason printed."""
    manifest = []
    for i, case in enumerate(cases):
        model = folder / f"{i}.onnx"
        model.write_bytes(model_of(case).SerializeToString())
        inputs = []
        for j, (name, array) in enumerate(case.inputs.items()):
            file = folder / f"{i}.in{j}"
            texts = array.dtype == np.object_
            file.write_bytes(json.dumps(array.ravel().tolist()).encode() if texts else np.array(array, order="C").tobytes())
            kind = next(k for k, v in KINDS.items() if array.dtype == v)
            inputs.append({"name": name, "type": kind, "dims": list(array.shape), "file": str(file)})
        manifest.append({"model": str(model), "inputs": inputs, "result": str(folder / f"{i}.out")})
    (folder / "manifest.json").write_text(json.dumps(manifest))
    subprocess.run(["node", str(HERE / "oracle.js"), str(folder / "manifest.json")], check=True)
    answers = []
    for entry, case in zip(manifest, cases):
        answer = json.loads(pathlib.Path(entry["result"]).read_text())
        if "error" in answer:
            print(f"{case.name}: {answer['error']}")
            answers.append(None)
            continue
        answers.append([read_answer(output) for output in answer["outputs"]])
    return answers


def read_answer(output):
    data = pathlib.Path(output["file"]).read_bytes()
    if output["type"] == "string":
        return np.array(json.loads(data), np.object_).reshape(output["dims"])
    return np.frombuffer(data, KINDS[output["type"]]).reshape(output["dims"])


def add(archive, path, data):
    info = tarfile.TarInfo(path)
    info.size = len(data)
    info.mode = 0o644
    archive.addfile(info, io.BytesIO(data))


def write_archive(path, group, cases):
    """Asks for what is not computed here, and writes the archive; the same cases give the same bytes."""
    asked = [case for case in cases if case.expected is None]
    with tempfile.TemporaryDirectory() as folder:
        answers = dict(zip((case.name for case in asked), ask_oracle(asked, pathlib.Path(folder))))
    refused = [name for name, answer in answers.items() if answer is None]
    if refused and not os.environ.get("ORACLE_LEAVE_OUT"):
        raise SystemExit(f"the oracle refused {len(refused)} cases: {', '.join(refused)}")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for case in sorted(cases, key=lambda case: case.name):
            outputs = answers[case.name] if case.expected is None else case.expected
            if outputs is None:
                continue
            root = f"{group}/{case.name}"
            model = model_of(case, outputs)
            if case.finish:
                model, outputs = case.finish(model, outputs)
            add(archive, f"{root}/model.onnx", model.SerializeToString())
            for kind, arrays in (("input", case.inputs.values()), ("output", outputs)):
                for i, array in enumerate(arrays):
                    tensor = numpy_helper.from_array(np.array(array, order="C"))
                    add(archive, f"{root}/test_data_set_0/{kind}_{i}.pb", tensor.SerializeToString())
    path.write_bytes(gzip.compress(buffer.getvalue(), mtime=0))
    print(f"{path.name}: {len(cases) - len(refused)} cases, {path.stat().st_size} bytes")


class Cases:
    """Collects cases of one operator each. A value is an input of the run; Const(value) is an initialiser."""

    def __init__(self):
        self.list = []

    def op(self, name, opset, operator, values, outputs=1, expected=None, **attributes):
        inputs, constants, names = {}, {}, []
        for i, value in enumerate(values):
            if value is None:
                names.append("")
                continue
            constant = isinstance(value, Const)
            (constants if constant else inputs)[f"x{i}"] = value.array if constant else np.asarray(value)
            names.append(f"x{i}")
        made = outputs if isinstance(outputs, list) else [f"y{i}" for i in range(outputs)]
        node = helper.make_node(operator, names, made, **attributes)
        self.list.append(Case(f"{operator.lower()}_{name}_{opset}", opset, [node], inputs, constants,
                              [y for y in made if y], expected))


class Const:
    def __init__(self, values, kind=np.int64):
        self.array = np.asarray(values, dtype=kind)


def floats(*shape, seed=0, low=-2.0, high=2.0, kind=np.float32):
    return np.random.default_rng(seed).uniform(low, high, shape).astype(kind)


def integers(*shape, seed=0, low=-100, high=100, kind=np.int32):
    return np.random.default_rng(seed).integers(low, high, shape).astype(kind)
