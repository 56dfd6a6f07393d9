#!/usr/bin/env python3
"""pictures.py - take pictures of mqctl serve from a real run

Usage: tests/web/pictures.py [--all] [DIRECTORY]      (docs/pictures)
  page.png         the overview, as in the README
  page-queue.png   one queue
  page-dead.png    its dead letters
  page-groups.png  the ordered groups of another
  page-phone.png   the overview on a telephone, dark
  --all            every page, at 1280x900 and 390x844, light and dark, to look
                   at them
Needs built programs ($MQW_BIN, else build/bin), Chromium and chromedriver, and
room for four queues of 10 x 256 bytes. Removes all it made.
"""
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request

WEB = os.path.dirname(os.path.abspath(__file__))
HERE = os.path.dirname(os.path.dirname(WEB))
sys.path.insert(0, WEB)
sys.dont_write_bytecode = True
from webdriver import Browser, missing, until  # noqa: E402

BIN = os.environ.get("MQW_BIN", os.path.join(HERE, "build", "bin"))
SIZES = {"wide": (1280, 900), "phone": (390, 844)}

# A queue's name, options of its worker, its handler, its messages a second.
QUEUES = (
    ("orders", ["-c", "4", "--max-attempts", "1"],
     "read -r n; case $n in *7}) echo 'no such account: 4711' >&2; exit 65;; "
     "*03}) echo 'connect: connection refused (db-2:5432)' >&2; exit 1;; esac; "
     "sleep 0.02", 20),
    ("invoices", ["-c", "2", "--backoff", "1h", "--on-group-dead", "hold"],
     "read -r n; case $n in *1042}) echo 'no such customer' >&2; exit 65;; "
     "*1063}) echo 'the bank does not answer' >&2; exit 75;; esac; "
     "[ -z \"$MQW_GROUP\" ] || sleep 3; sleep 0.05", 6),
    ("mail", ["-c", "2", "--backoff", "1h"],
     "echo 'smtp: 451 try again later' >&2; exit 75", 0.5),
    ("thumbnails", ["-c", "8"], "sleep 0.3", 10),
)


class Run:
    def __init__(self, folder):
        self.state, self.processes, self.feeds = folder, [], []
        self.names = [f"/{q[0]}" for q in QUEUES]

    def tool(self, name, *args, check=True):
        return subprocess.run(
            [os.path.join(BIN, name), *args], check=check, text=True,
            capture_output=True).stdout

    def start(self, name, *args, **more):
        p = subprocess.Popen([os.path.join(BIN, name), *args],
                             stderr=subprocess.DEVNULL, **more)
        self.processes.append(p)
        return p

    def queues(self):
        for name, options, handler, rate in QUEUES:
            self.tool("mqctl", "create", "--queue-depth", "10",
                      "--message-size", "256", "/" + name)
            self.start("mqworker", "--state-dir", self.state, "--quiet",
                       *options, "/" + name, "--", "sh", "-c", handler)
            self.feeds.append(["/" + name, rate, 0])

    def feed(self, seconds):
        """Send to all, each at its rate."""
        began = time.monotonic()
        start = [f[2] for f in self.feeds]
        while time.monotonic() < began + seconds:
            for feed, first in zip(self.feeds, start):
                due = first + (time.monotonic() - began) * feed[1]
                while feed[2] < due:
                    feed[2] += 1
                    subprocess.run(
                        [os.path.join(BIN, "mqsend"), "--no-wait", feed[0],
                         json.dumps({"order": 1000 + feed[2]})],
                        stderr=subprocess.DEVNULL, timeout=10, check=False)
            time.sleep(0.02)

    def group(self, customer, *invoices):
        """Send to /invoices, in order."""
        subprocess.run(
            [os.path.join(BIN, "mqsend"), "--lines", "--group",
             f"customer-{customer}", "/invoices"], check=True, text=True,
            input="".join(json.dumps({"invoice": n}) + "\n" for n in invoices))

    def groups(self):
        """One that is held, one that is blocked, and some that run in turns."""
        self.group(3, 1042, 1048, 1057)
        self.group(5, 1063, 1064)
        until(lambda: {"held", "blocked"} <= {g["state"] for g in self.get(
            "/api/v1/queues/invoices/groups")["groups"]}, "the two that wait")
        for customer in (1, 2, 4, 6):
            self.group(customer, *range(1100 + customer, 1120, 7))
        until(lambda: len(self.get("/api/v1/queues/invoices/groups")["groups"])
              == 6, "all of them")

    def serve(self):
        p = self.start("mqctl", "serve", "--state-dir", self.state, "--listen",
                       "127.0.0.1:0", "--allow-write", stdout=subprocess.PIPE,
                       text=True)
        url, self.token = p.stdout.readline().strip().split("/#t=")
        self.url = url.replace("127.0.0.1", "localhost")
        return self.url

    def get(self, path):
        request = urllib.request.Request(
            self.url + path, headers={"Authorization": "Bearer " + self.token})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def end(self):
        for p in reversed(self.processes):
            p.terminate()
        for p in self.processes:
            try:
                p.wait(20)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
        for name in self.names:
            self.tool("mqctl", "remove", "--force", name, check=False)


def pages(run):
    row = run.get("/api/v1/queues/orders/letters?limit=1")["letters"][0]["row"]
    waits = run.get("/api/v1/queues/mail/messages")["messages"][0]["id"]
    return {"": "/", "queue": "/q/orders", "waits": "/q/mail",
            "groups": "/q/invoices/groups",
            "dead": "/q/orders/dead", "letter": f"/q/orders/dead/{row}",
            "all-dead": "/dead", "find": f"/find?id={waits}"}


def take(run, b, path, file, whole=False):
    b.go(run.url + path)
    until(lambda: b.js("return document.readyState") == "complete", path)
    if path == "/":
        until(lambda: b.js("return document.querySelectorAll('.spark path')"
                           ".length") == len(QUEUES), "the sparks")
    if path in ("/q/orders", "/q/mail"):
        until(lambda: b.js("return document.querySelectorAll('.charts path')"
                           ".length") > 8, "the charts")
    if whole:
        b.picture_whole(file)
    else:
        b.picture(file)


def main():
    args = sys.argv[1:]
    every = "--all" in args
    args = [a for a in args if a != "--all"]
    if "-h" in args or "--help" in args:
        print(__doc__, end="")
        return
    if len(args) > 1 or args[:1] and args[0].startswith("-"):
        sys.exit(f"pictures.py: unknown arguments {args}; --help lists what "
                 "is allowed")
    out = os.path.abspath(args[0] if args else
                          os.path.join(HERE, "docs", "pictures"))
    if missing():
        sys.exit(f"pictures.py: no {missing()}")
    os.makedirs(out, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        run = Run(folder)
        try:
            run.queues()
            run.serve()
            b = Browser()
            try:
                b.go(f"{run.url}/#t={run.token}")
                until(lambda: b.text("#queues"), "the overview")
                run.feed(8 if every else 20)
                run.tool("mqctl", "pause", "--state-dir", folder, "/thumbnails",
                         "1h")
                run.feed(3)
                found = pages(run)
                if not every:
                    for name in ("", "queue", "dead"):
                        take(run, b, found[name], os.path.join(
                            out, f"page{name and '-' + name}.png"))
                    run.groups()
                    take(run, b, found["groups"],
                         os.path.join(out, "page-groups.png"))
                    b.phone(*SIZES["phone"])
                    b.scheme("dark")
                    take(run, b, "/", os.path.join(out, "page-phone.png"))
                    return
                for name, path in found.items():
                    if name == "groups":
                        run.groups()
                    for size, (width, height) in SIZES.items():
                        b.phone(width, height, size == "phone")
                        for scheme in ("light", "dark"):
                            b.scheme(scheme)
                            take(run, b, path, os.path.join(
                                out, f"{name or 'overview'}-{size}-{scheme}"
                                ".png"), True)
            finally:
                b.close()
        finally:
            run.end()


if __name__ == "__main__":
    main()
