"""troupe as a child process: one command, or an interactive shell on a terminal of its own."""
import json
import os
import pty
import re
import select
import signal
import subprocess
import time

from .daemon import BIN
from .waiting import DEADLINE


class Shell:
    """Commands for one cluster. `home` is where the history of interactive shells lies."""

    def __init__(self, manager, home):
        self.environment = {**os.environ, "TROUPE_MANAGER": manager, "HOME": str(home), "TERM": "xterm"}
        self.environment.pop("NO_COLOR", None)

    def run(self, *words, stdin="", code=0):
        """The finished process; AssertionError when it ends with another exit code."""
        done = subprocess.run([BIN / "troupe", *map(str, words)], input=stdin, capture_output=True, text=True,
                              env=self.environment, timeout=2 * DEADLINE)
        assert done.returncode == code, f"troupe {words}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def text(self, *words):
        return self.run(*words).stdout

    def json(self, *words, code=0):
        return json.loads(self.run(*words, "--json", code=code).stdout)

    def error(self, *words, code, stdin=""):
        """The one line on standard error."""
        done = self.run(*words, stdin=stdin, code=code)
        lines = done.stderr.splitlines()
        assert len(lines) == 1 and lines[0].startswith("troupe: "), done.stderr
        return lines[0]

    def start(self, *words):
        """A process that runs on; its standard streams are pipes."""
        return subprocess.Popen([BIN / "troupe", *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, env=self.environment)

    def terminal(self, *words):
        return Terminal([str(BIN / "troupe"), *map(str, words)], self.environment)


class Terminal:
    """A program on a pseudo-terminal of 100 columns: keys go in, what it writes comes out."""

    def __init__(self, command, environment):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(command[0], command, {**environment, "COLUMNS": "100", "LINES": "40"})
        self.seen = ""

    def type(self, keys):
        os.write(self.fd, keys.encode())

    def expect(self, pattern):
        """Waits until `pattern` (a regular expression) was written behind the last match; returns the match."""
        end = time.monotonic() + DEADLINE
        while True:
            found = re.search(pattern, self.seen)
            if found:
                self.seen = self.seen[found.end():]
                return found
            assert time.monotonic() < end, f"'{pattern}' was not written, but only: {self.seen!r}"
            assert self._read(), f"the shell ended without '{pattern}'; its last output: {self.seen!r}"

    def finish(self):
        """The exit code of the shell, once it has ended by itself."""
        end = time.monotonic() + DEADLINE
        while self._read():
            assert time.monotonic() < end, f"the shell does not end: {self.seen!r}"
        return self._wait()

    def close(self):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            self._wait()

    def _wait(self):
        _, status = os.waitpid(self.pid, 0)
        os.close(self.fd)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)

    def _read(self):
        """Reads more output; False when the shell has ended."""
        if not select.select([self.fd], [], [], 0.1)[0]:
            return True
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # how Linux says that the other side is closed
            return False
        self.seen += data.decode(errors="replace")
        return bool(data)
