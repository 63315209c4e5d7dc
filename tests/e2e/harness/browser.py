"""Debian's Chromium, without a screen, driven through its WebDriver (W3C WebDriver, section 8)."""
import json
import pathlib
import shutil
import subprocess
import tempfile
import urllib.request

from . import processes

FOUND = shutil.which("chromedriver") and shutil.which("chromium")


class Browser:
    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="troupe-browser-", dir="/tmp"))
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for line in self.driver.stdout:
            if "on port " in line:  # "ChromeDriver was started successfully on port 41234."
                self.url = f"http://127.0.0.1:{line.rstrip().rstrip('.').rpartition(' ')[2]}/session"
            if "started successfully" in line:
                break
        options = {"args": ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,1000",
                            f"--user-data-dir={self.folder}"]}
        made = self._call("POST", "", {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}})
        self.url += f"/{made['sessionId']}"

    def _call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def open(self, url):
        self._call("POST", "/url", {"url": url})

    def run(self, script, *arguments):
        """What the script returns, that runs in the page as the body of a function."""
        return self._call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def text(self, selector):
        """What a reader sees of the first element; "" where it is hidden or not there."""
        return self.run("const found = document.querySelector(arguments[0]); return found?.getClientRects().length ? found.innerText : ''",
                        selector)

    def type(self, selector, text):
        (element,) = self._call("POST", "/element", {"using": "css selector", "value": selector}).values()
        self._call("POST", f"/element/{element}/value", {"text": text})

    def close(self):
        try:
            self._call("DELETE", "")
        finally:
            self.driver.kill()
            self.driver.communicate()
            processes.kill(*processes.mentioning(str(self.folder)))
            shutil.rmtree(self.folder, ignore_errors=True)
