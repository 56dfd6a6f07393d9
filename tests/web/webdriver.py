"""webdriver.py - drive Chromium by chromedriver's HTTP, with the standard
library alone (https://www.w3.org/TR/webdriver2/)"""
import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


def missing():
    """Return what is missing and how to get it; None: nothing."""
    for program in ("chromedriver", "chromium"):
        if not shutil.which(program):
            return f"{program} here: scripts/deps --browser"
    try:
        # The name by which chromedriver reaches Chromium.
        socket.gethostbyname("localhost")
    except OSError:
        return "localhost in /etc/hosts"
    return None


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def until(condition, what, limit_s=20):
    """Wait until `condition` is true; return its value."""
    end = time.monotonic() + limit_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError("not in time: " + what)
        time.sleep(0.05)


class Browser:
    def __init__(self, size=(1280, 900), dark=False, args=()):
        self.port = free_port()
        self.driver = subprocess.Popen(
            ["chromedriver", f"--port={self.port}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(self._ready, "chromedriver answers")
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu",
                 "--disable-dev-shm-usage", "--hide-scrollbars",
                 f"--window-size={size[0]},{size[1]}", *args]
        if dark:
            flags.append("--force-dark-mode")
        self.session = None
        try:
            self.session = self._ask("POST", "/session", {"capabilities": {
                "alwaysMatch": {
                    "browserName": "chrome",
                    "goog:chromeOptions": {"args": flags},
                    "goog:loggingPrefs": {"browser": "ALL"},
                }}})["sessionId"]
        except BaseException:
            self.close()
            raise

    def _ready(self):
        try:
            return self._ask("GET", "/status")["ready"]
        except OSError:
            return False

    def _ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data, method=method,
            headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from None

    def _do(self, method, path, body=None):
        return self._ask(method, f"/session/{self.session}{path}", body)

    def go(self, url):
        self._do("POST", "/url", {"url": url})

    def url(self):
        return self._do("GET", "/url")

    def js(self, script, *args):
        return self._do("POST", "/execute/sync",
                        {"script": script, "args": list(args)})

    def text(self, selector):
        return self.js("const e = document.querySelector(arguments[0]);"
                       "return e && e.textContent", selector)

    def click(self, selector):
        found = self._do("POST", "/element",
                         {"using": "css selector", "value": selector})
        self._do("POST", f"/element/{found[ELEMENT]}/click", {})

    def point(self, selector, x=0):
        """Move the pointer to x pixels beside the middle of an element."""
        found = self._do("POST", "/element",
                         {"using": "css selector", "value": selector})
        self._do("POST", "/actions", {"actions": [{
            "type": "pointer", "id": "mouse", "actions": [
                {"type": "pointerMove", "duration": 0, "x": x, "y": 0,
                 "origin": found}]}]})

    def key(self, key):
        self._do("POST", "/actions", {"actions": [{
            "type": "key", "id": "keys", "actions": [
                {"type": "keyDown", "value": key},
                {"type": "keyUp", "value": key}]}]})

    def accept(self):
        self._do("POST", "/alert/accept", {})

    def cdp(self, command, **params):
        return self._do("POST", "/goog/cdp/execute",
                        {"cmd": command, "params": params})

    def phone(self, width, height, mobile=True):
        self.cdp("Emulation.setDeviceMetricsOverride", width=width,
                 height=height, deviceScaleFactor=1, mobile=mobile)

    def scheme(self, name):
        self.cdp("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": name}])

    def window(self):
        self._do("POST", "/window", {"handle": self._do(
            "POST", "/window/new", {"type": "tab"})["handle"]})

    def windows(self):
        return self._do("GET", "/window/handles")

    def log(self):
        return self._do("POST", "/se/log", {"type": "browser"})

    def picture(self, path):
        with open(path, "wb") as out:
            out.write(base64.b64decode(self._do("GET", "/screenshot")))

    def picture_whole(self, path):
        """Take a picture that includes what lies below the window."""
        data = self.cdp("Page.captureScreenshot", captureBeyondViewport=True)
        with open(path, "wb") as out:
            out.write(base64.b64decode(data["data"]))

    def close(self):
        try:
            if self.session:
                self._do("DELETE", "")
        finally:
            self.driver.terminate()
            self.driver.wait()
