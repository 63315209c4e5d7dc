#!/usr/bin/python3
"""Uploads that go on: over broken connections and restarts of the shell and of the daemons; what is wrong with a part is said."""
import hashlib
import os
import pathlib
import signal
import socket

import numpy as np
import onnx
from onnx import TensorProto, helper

from harness import main
from harness.case import E2eTest
from harness.networks import scale, value
from harness.shell import Shell
from harness.waiting import eventually

LARGE = dict(host_region="1GiB", gpu_memory="1GiB")


def model_with_table(folder, megabytes):
    """y = table[x]: the table lies in a file beside the model, mostly a hole; its row 7 has the value 7."""
    rows, columns = megabytes, 1 << 18
    table = TensorProto(name="table", data_type=TensorProto.FLOAT, dims=[rows, columns],
                        data_location=TensorProto.EXTERNAL)
    table.external_data.add(key="location", value="table.bin")
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "x"], ["row"]), helper.make_node("ReduceMax", ["row"], ["y"], axes=[1], keepdims=0)],
        "lookup", [value("x", 1, type=TensorProto.INT64)], [value("y", 1)], [table])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    folder.mkdir()
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    with open(folder / "table.bin", "wb") as file:
        file.truncate(rows * columns * 4)
        file.seek(7 * columns * 4)
        file.write(np.full(columns, 7, np.float32).tobytes())
    return folder


class Uploads(E2eTest):
    def setUp(self):
        super().setUp()
        self.daemon = self.start("one", "all", **LARGE).wait_serving()
        self.http = self.daemon.http

    def patch(self, digest, offset, complete, part):
        return self.http.call("PATCH", f"/v2/troupe/uploads/{digest}", part,
                              {"Upload-Offset": str(offset), "Upload-Complete": "?1" if complete else "?0"})

    def offset(self, digest):
        answer = self.http.call("HEAD", f"/v2/troupe/uploads/{digest}")
        return answer.code, answer.headers.get("Upload-Offset"), answer.headers.get("Upload-Complete")

    def parts(self):
        return list(pathlib.Path(self.daemon.settings["data"]).glob("**/parts/*"))

    def restart(self):
        """The daemon dies and comes back at the same addresses."""
        self.daemon.kill_node()
        addresses = {"manager": self.daemon.address("manager"), "http": self.daemon.address("gateway")}
        self.daemon = self.start("one", "all", **LARGE, **addresses).wait_serving()

    def answer(self, name):
        return self.http.infer(name, {"x": np.array([7], np.int64)})["y"]

    def test_parts_over_http_survive_a_broken_connection_and_a_killed_daemon(self):
        model = scale(3)
        digest = hashlib.sha256(model).hexdigest()
        third = len(model) // 3
        self.assertEqual(self.offset(digest)[0], 404)
        self.assertEqual(self.patch(digest, 0, False, model[:third]).code, 200)
        # A connection that breaks in the middle of a part costs that part.
        with socket.create_connection((self.http.host, self.http.port)) as broken:
            broken.sendall(f"PATCH /v2/troupe/uploads/{digest} HTTP/1.1\r\nHost: x\r\nUpload-Offset: {third}\r\n"
                           f"Upload-Complete: ?1\r\nContent-Length: {len(model) - third}\r\n\r\n".encode() + model[third:-1])
        self.assertEqual(self.offset(digest), (200, str(third), "?0"))
        self.restart()
        self.assertEqual(self.offset(digest), (200, str(third), "?0"))
        wrong = self.patch(digest, third + 1, False, b"x")
        self.assertEqual((wrong.code, wrong.headers["Upload-Offset"]), (409, str(third)))
        self.assertIn(f"go on at byte {third}", wrong.error)
        last = self.patch(digest, third, True, model[third:])
        self.assertEqual((last.code, last.headers["Upload-Complete"]), (200, "?1"), last.body)
        self.http.call("POST", f"/v2/troupe/functions/triple?digest={digest}").good()
        self.assertEqual(self.http.infer("triple", {"x": np.ones((1, 4), np.float32)})["y"], [3.0] * 4)
        self.assertEqual(self.parts(), [])

    def test_wrong_bytes_and_unknown_files_are_refused_by_name(self):
        digest = hashlib.sha256(b"what was meant").hexdigest()
        self.assertEqual(self.patch(digest, 0, False, b"what was ").code, 200)
        wrong = self.patch(digest, 9, True, b"sent!")
        self.assertEqual(wrong.code, 422)
        self.assertIn(hashlib.sha256(b"what was sent!").hexdigest(), wrong.error)
        self.assertEqual(self.offset(digest)[0], 404)
        missing = self.http.call("POST", f"/v2/troupe/functions/f?digest={digest}")
        self.assertEqual(missing.code, 404)
        self.assertIn(digest, missing.error)
        self.assertEqual(self.patch(digest, 0, False, b"what").code, 200)
        self.assertEqual(self.http.call("DELETE", f"/v2/troupe/uploads/{digest}").code, 200)
        self.assertEqual(self.parts(), [])

    def begin(self, shell, folder):
        """`troupe function deploy`, stopped while it sends; and the inode of what has come."""
        process = shell.start("function", "deploy", "lookup", folder)
        self.addCleanup(process.kill)
        eventually(lambda: any(part.stat().st_size > 1 << 20 for part in self.parts()), "a part of the file has come")
        process.send_signal(signal.SIGSTOP)
        return process, self.parts()[0].stat().st_ino

    def check_same_file(self, inode):
        """What had come before is a part of what was deployed."""
        digest = self.http.function("lookup")["record"]["onnx_digest"]
        stored = next(pathlib.Path(self.daemon.settings["data"]).glob(f"**/objects/{digest[:2]}/{digest}"))
        self.assertEqual(stored.stat().st_ino, inode)
        self.assertEqual(self.parts(), [])
        self.assertEqual(self.answer("lookup"), [7.0])

    def test_a_killed_shell_goes_on_where_it_was(self):
        folder = model_with_table(self.directory / "export", 200)
        shell = Shell(self.daemon.address("manager"), self.directory)
        process, inode = self.begin(shell, folder)
        process.kill()
        process.communicate()
        shell.run("function", "deploy", "lookup", folder)
        self.check_same_file(inode)

    def test_a_shell_waits_for_a_manager_that_comes_back(self):
        folder = model_with_table(self.directory / "export", 200)
        shell = Shell(self.daemon.address("manager"), self.directory)
        process, inode = self.begin(shell, folder)
        self.restart()
        process.send_signal(signal.SIGCONT)
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, out + err)
        self.check_same_file(inode)

    def test_a_tar_archive_is_a_model_with_its_weights(self):
        folder = model_with_table(self.directory / "export", 8)
        archive = self.directory / "model.tar"
        for names in (["model.onnx"], ["model.onnx", "table.bin"], ["table.bin"]):
            self.assertEqual(os.spawnlp(os.P_WAIT, "tar", "tar", "-C", folder, "-cf", archive, *names), 0)
            answer = self.http.deploy("lookup", archive.read_bytes())
            if names == ["model.onnx"]:
                self.assertEqual(answer.code, 400)
                self.assertIn("'table.bin', which is not in the archive", answer.error)
            elif names == ["table.bin"]:
                self.assertEqual(answer.code, 400)
                self.assertIn("none that ends in .onnx", answer.error)
            else:
                answer.good()
                self.assertEqual(self.answer("lookup"), [7.0])
        damaged = bytearray(archive.read_bytes())
        damaged[0] ^= 1
        self.assertEqual(self.http.deploy("lookup", bytes(damaged)).code, 400)


if __name__ == "__main__":
    main()
