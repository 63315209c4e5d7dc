"""An address of this machine at which daemons show certificates, and an authority that makes them."""
import pathlib
import re
import shutil
import subprocess

from .daemon import BIN


def address_of_this_machine():
    found = subprocess.run(["hostname", "-I"], capture_output=True, text=True).stdout.split()
    return next((address for address in found if re.fullmatch(r"[0-9.]+", address)), None)


ADDRESS = address_of_this_machine()  # None: there is no such address


class Authority:
    """`troupe ca` in a folder, and the folders of the members to which it issued certificates."""

    def __init__(self, directory, name="ca"):
        self.directory, self.ca = pathlib.Path(directory) / name, pathlib.Path(directory) / name / "ca"
        self.directory.mkdir(parents=True)
        self.run("init", self.ca)

    def run(self, *words):
        done = subprocess.run([BIN / "troupe", "ca", *map(str, words)], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def folder(self, name):
        return self.directory / name

    def issue(self, name, *roles, host=ADDRESS):
        words = [word for role in roles for word in ("--role", role)]
        return self.run("issue", *words, name, "--host", host, "--out", self.folder(name), "--ca", self.ca)

    def renew(self, name):
        return self.run("renew", name, "--out", self.folder(name), "--ca", self.ca)

    def serial(self, name):
        """The serial number of the certificate that lies in the folder."""
        text = subprocess.run(["openssl", "x509", "-noout", "-serial", "-in", self.folder(name) / "certificate.pem"],
                              capture_output=True, text=True).stdout
        return text.strip().partition("=")[2].lower()

    def revoke(self, which, *to):
        self.run("revoke", which, "--ca", self.ca)
        for name in to:
            # The file is replaced in one step, as an operator would do it, so that no daemon reads half of it.
            fresh = self.folder(name) / "revoked.fresh"
            shutil.copy(self.ca / "revoked.pem", fresh)
            fresh.rename(self.folder(name) / "revoked.pem")
