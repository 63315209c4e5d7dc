#!/usr/bin/python3
"""HTTPS at a gateway: certificates from files, their renewal, and everything that plain HTTP does."""
import gzip
import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import zlib

import numpy as np

from harness import E2eTest, StartFailed, eventually, main
from harness.client import infer_binary, infer_body
from harness.networks import rolls, scale

X = {"x": np.ones((1, 4), np.float32)}


class Https(E2eTest):
    def setUp(self):
        super().setUp()
        self.certificate, self.key = self.directory / "front.pem", self.directory / "front.key"
        self.issue()

    def openssl(self, *words):
        done = subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def issue(self, days=30):
        """Writes a new key and a self-signed certificate for 127.0.0.1 in place of the old files."""
        key, certificate = self.directory / "new.key", self.directory / "new.pem"
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key,
                     "-out", certificate, "-days", days, "-subj", "/CN=front", "-addext", "subjectAltName=IP:127.0.0.1")
        key.chmod(0o600)
        os.replace(key, self.key)
        os.replace(certificate, self.certificate)

    def trust(self):
        return ssl.create_default_context(cafile=self.certificate)

    def serve(self, **options):
        daemon = self.start("one", "all", http_tls_certificate=self.certificate, http_tls_key=self.key, **options)
        client = daemon.http
        client.tls = self.trust()
        eventually(lambda: client.get("/v2/health/ready").code == 200, "the front is ready")
        return daemon, client

    def fails(self, **options):
        self.tried = getattr(self, "tried", 0) + 1
        with self.assertRaises(StartFailed) as failed:
            self.start(f"bad-{self.tried}", "gateway", manager="127.0.0.1:1", **options)
        self.assertEqual(failed.exception.code, 2)
        lines = [line for line in failed.exception.errors.splitlines() if line.startswith("trouped: ")]
        self.assertEqual(len(lines), 1, failed.exception.errors)
        return lines[0]

    def test_everything_over_tls(self):
        daemon, client = self.serve()
        self.assertIn("gateway at https://", daemon.ready)
        client.deploy("double", scale(2)).good()
        self.assertEqual(client.infer("double", X)["y"], [2.0] * 4)
        # Large tensors travel both ways.
        client.deploy("rolls", rolls(1, 1)).good()
        rows = np.random.default_rng(1).standard_normal((4096, 1024), dtype=np.float32)
        shape, raw = infer_binary(client, "rolls", {"x": rows})["y"]
        self.assertEqual(shape, list(rows.shape))
        np.testing.assert_array_equal(np.frombuffer(raw, np.float32).reshape(rows.shape), np.roll(rows, 1, axis=1))
        # One connection carries many requests.
        connection = client.connection()
        for _ in range(50):
            connection.request("POST", "/v2/models/double/infer", infer_body(X))
            answer = connection.getresponse()
            self.assertEqual((answer.status, json.load(answer)["outputs"][0]["data"]), (200, [2.0] * 4))
        self.assertIn(connection.sock.version(), ("TLSv1.2", "TLSv1.3"))
        connection.close()
        # curl connects with the file of the authority.
        url = f"https://{client.host}:{client.port}/v2/health/ready"
        done = subprocess.run(["curl", "-sS", "--cacert", self.certificate, url], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(json.loads(done.stdout)["ready"])
        wrong = url.replace(client.host, "localhost")
        self.assertEqual(subprocess.run(["curl", "-sS", "--cacert", self.certificate, wrong], capture_output=True).returncode,
                         60, "the certificate is for another host")
        # A slow reader gets all of its answer.
        with client.tls.wrap_socket(socket.create_connection((client.host, client.port)), server_hostname=client.host) as slow:
            head = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": list(rows.shape),
                                           "parameters": {"binary_data_size": rows.nbytes}}],
                               "parameters": {"binary_data_output": True}}).encode()
            slow.sendall(b"POST /v2/models/rolls/infer HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                         b"Inference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n" %
                         (len(head), len(head) + rows.nbytes) + head + rows.tobytes())
            received = bytearray()
            while piece := slow.recv(64 << 10):
                received += piece
                client.get("/v2/health/live").good()
            self.assertGreater(len(received), rows.nbytes)
            self.assertEqual(bytes(received[-rows.nbytes:]), raw)

    def test_plain_requests_and_other_versions_are_refused(self):
        daemon, client = self.serve()
        plain = http.client.HTTPConnection(client.host, client.port)
        plain.request("GET", "/v2/health/live")
        answer = plain.getresponse()
        self.assertEqual(answer.status, 400)
        self.assertIn("https://", json.load(answer)["error"])
        old = self.trust()
        old.minimum_version = ssl.TLSVersion.TLSv1
        old.maximum_version = ssl.TLSVersion.TLSv1_1
        client.tls = old
        with self.assertRaises((ssl.SSLError, ConnectionError)):
            client.get("/v2/health/live")
        client.tls = ssl.create_default_context()
        with self.assertRaises(ssl.SSLCertVerificationError):
            client.get("/v2/health/live")
        client.tls = self.trust()
        metrics = eventually_value(lambda: client.get("/metrics").good().body.decode(), 'reason="failed"} 2')
        self.assertIn('troupe_https_refused_total{reason="plain_http"} 1', metrics)

    def test_renewal_without_restart(self):
        daemon, client = self.serve()
        before = client.connection()
        before.request("GET", "/v2/health/live")
        before.getresponse().read()
        old = before.sock.getpeercert(True)
        self.issue()
        client.tls = self.trust()
        eventually(lambda: answers(client), "the new certificate is served by its stamp")
        before.request("GET", "/v2/health/live")
        self.assertEqual(before.getresponse().read() and before.sock.getpeercert(True), old)
        # A certificate that cannot be used is reported once, and the good one stays.
        self.key.write_text("nonsense")
        eventually(lambda: "the old one stays" in daemon.log.read_text(), "the log says that the old certificate stays")
        daemon.process.send_signal(signal.SIGHUP)
        eventually(lambda: daemon.log.read_text().count("the old one stays") == 2, "a signal makes the gateway read the files")
        self.assertTrue(answers(client))
        self.issue()
        daemon.process.send_signal(signal.SIGHUP)
        client.tls = self.trust()
        eventually(lambda: answers(client), "the next good one is served")
        self.assertEqual(daemon.log.read_text().count("the old one stays"), 2)
        self.assertEqual(daemon.terminate(), 0)

    def test_files_that_cannot_be_used(self):
        self.key.chmod(0o644)
        self.assertIn("chmod 600", self.fails(http_tls_certificate=self.certificate, http_tls_key=self.key))
        self.key.chmod(0o600)
        self.assertIn("belong together", self.fails(http_tls_certificate=self.certificate))
        self.assertIn("No such file", self.fails(http_tls_certificate=self.directory / "none", http_tls_key=self.key))
        self.assertIn("expected origins", self.fails(http_cors_origins="https://a.example/path"))
        self.issue(days=1)
        daemon, _ = self.serve()
        self.assertIn("ends at", daemon.log.read_text())

    def test_compressed_bodies_and_pages(self):
        daemon = self.start("one", "all", http_cors_origins="https://app.example").wait_serving()
        client = daemon.http
        client.call("POST", "/v2/troupe/functions/double", gzip.compress(scale(2)), {"Content-Encoding": "gzip"}).good()
        body = infer_body(X).encode()
        path = "/v2/models/double/infer"
        for coding, packed in (("gzip", gzip.compress(body)), ("deflate", zlib.compress(body))):
            self.assertEqual(client.call("POST", path, packed, {"Content-Encoding": coding}).good().json["outputs"][0]["data"],
                             [2.0] * 4)
            self.assertEqual(client.call("POST", path, packed[:-2], {"Content-Encoding": coding}).code, 400)
            self.assertEqual(client.call("POST", path, packed + b"x", {"Content-Encoding": coding}).code, 400)
        answer = client.call("POST", path, body, {"Content-Encoding": "br"})
        self.assertEqual((answer.code, answer.headers["Accept-Encoding"]), (415, "gzip, deflate"))
        bomb = gzip.compress(bytes(300 << 20))
        self.assertEqual(client.call("POST", path, bomb, {"Content-Encoding": "gzip"}).code, 413)
        page = {"Origin": "https://app.example"}
        answer = client.call("OPTIONS", path, headers={**page, "Access-Control-Request-Method": "POST"})
        self.assertEqual((answer.code, answer.headers["Access-Control-Allow-Origin"]), (204, "https://app.example"))
        self.assertEqual(client.call("POST", path, body, page).good().headers["Access-Control-Allow-Origin"],
                         "https://app.example")
        self.assertEqual(client.call("POST", path, body, {"Origin": "https://evil.example"}).code, 403)


def answers(client):
    try:
        return client.get("/v2/health/live").code == 200
    except ssl.SSLError:
        return False


def eventually_value(read, part):
    """Returns what `read` gives once it contains `part`."""
    eventually(lambda: part in read(), part)
    return read()


if __name__ == "__main__":
    main()
