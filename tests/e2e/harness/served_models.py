"""Models with the answers that they have to give, deployed and called over HTTP."""
import pathlib
import tarfile

import numpy as np
import onnx
from onnx import numpy_helper

from .case import E2eTest
from .client import infer_binary, texts_of

ARCHIVES = pathlib.Path(__file__).resolve().parents[2] / "conformance" / "opsets"


def archived(name):
    """By the names of the cases in this archive of tests/conformance/opsets: the model's bytes, the inputs by name, the expected
    outputs by name. Outputs beyond those that the file declares are the keys of its last map."""
    files = {}
    with tarfile.open(ARCHIVES / f"{name}.tar.gz") as opened:
        for member in opened.getmembers():
            files[member.name] = opened.extractfile(member).read()
    found = {}
    for path, data in files.items():
        if not path.endswith("model.onnx"):
            continue
        folder = path[:-len("model.onnx")] + "test_data_set_0/"
        graph = onnx.load_from_string(data).graph

        def tensors(kind, names):
            return {name: numpy_helper.to_array(onnx.load_tensor_from_string(files[f"{folder}{kind}_{i}.pb"]))
                    for i, name in enumerate(names) if f"{folder}{kind}_{i}.pb" in files}
        outputs = [o.name for o in graph.output]
        found[path.split("/")[1]] = (data, tensors("input", [i.name for i in graph.input]),
                                     tensors("output", [*outputs, f"{outputs[-1]}.keys"]))
    return found


def check(case, http, name, inputs, expected):
    """Asks for the inputs and compares the answers."""
    given = infer_binary(http, name, inputs)
    for output, array in expected.items():
        shape, data = given[output]
        case.assertEqual(shape, list(array.shape), output)
        if array.dtype == object:
            case.assertEqual(texts_of(data), array.ravel().tolist(), f"{name}: {output}")
            continue
        half = array.dtype == np.float16
        np.testing.assert_allclose(np.frombuffer(data, array.dtype).reshape(shape), array, rtol=8e-3 if half else 1e-4,
                                   atol=1e-3 if half else 1e-5, err_msg=f"{name}: {output}")


class ServedModels(E2eTest):
    def setUp(self):
        super().setUp()
        self.daemon = self.start("one", "all").wait_serving()
        self.http = self.daemon.http

    def check(self, name, inputs, expected):
        check(self, self.http, name, inputs, expected)
