#!/usr/bin/env python3
"""pictures.py - take pictures of mqctl serve from a real run

Usage: tests/web/pictures.py [--all | --serve] [DIRECTORY]   (docs/pictures)
  page.png         all queues
  page-queue.png   one queue
  page-dead.png    dead letters by their error
  page-letter.png  one letter
  page-phone.png   all queues on a telephone, dark
  --all            every page, at 1280x900 and 390x844, light and dark, to look
                   at them
  --serve          keep the scene running, and print its address
The pictures of docs take ten minutes, which their charts show.
Needs built programs ($MQW_BIN, else build/bin), Chromium and chromedriver, and
room for seven queues of 10 x 256 bytes. Removes all it made.
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

WEB = os.path.dirname(os.path.abspath(__file__))
HERE = os.path.dirname(os.path.dirname(WEB))
sys.path.insert(0, WEB)
sys.dont_write_bytecode = True
from webdriver import Browser, missing, until  # noqa: E402

BIN = os.environ.get("MQW_BIN", os.path.join(HERE, "build", "bin"))
SIZES = {"wide": (1280, 900), "phone": (390, 844)}

# For each queue: name, options of the worker, handler, messages a second.
QUEUES = (
    ("orders", ["-c", "8", "--max-attempts", "1"],
     "read -r n; case $n in *7}) echo \"no such account: $$\" >&2; "
     "exit 65;; *03}) echo 'connect: connection refused (db-2:5432)' >&2; "
     "exit 1;; esac; sleep 0.1", 20),
    ("invoices", ["-c", "2", "--backoff", "1h", "--on-group-dead", "hold"],
     "read -r n; case $n in *1042}) echo 'no such customer' >&2; exit 65;; "
     "*1063}) echo 'the bank does not answer' >&2; exit 75;; esac; "
     "[ -z \"$MQW_GROUP\" ] || sleep 6; sleep 0.05", 6),
    ("mail", ["-c", "2", "--backoff", "1h"],
     "echo 'smtp: 451 try again later' >&2; exit 75", 0.5),
    ("thumbnails", ["-c", "8"], "sleep 0.3", 10),
    ("webhooks", ["-c", "4", "--max-attempts", "3", "--backoff", "2s",
                  "--timeout", "300ms"],
     "read -r n; case $n in *5}) echo 'POST https://shop.example/hook' >&2; "
     "dd if=/dev/zero of=/dev/null bs=24M count=1 status=none; sleep 9;; esac; "
     "sleep 0.05", 3),
    ("exports", ["-c", "1", "--spool"], "sleep 30", 8),
    ("reports", ["-c", "2"], "sleep 0.2", 2),
)


class Run:
    def __init__(self, folder):
        self.state, self.processes, self.feeds = folder, [], []
        self.feeder, self.ending = None, False
        self.workers = {}
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
            self.workers[name] = self.start(
                "mqworker", "--state-dir", self.state, "--quiet", *options,
                "/" + name, "--", "sh", "-c", handler)
            self.feeds.append(["/" + name, rate, 0])

    def feed(self, seconds):
        """Send to each queue at its rate."""
        began = time.monotonic()
        start = [f[2] for f in self.feeds]
        while time.monotonic() < began + seconds and not self.ending:
            for feed, first in zip(self.feeds, start):
                due = first + (time.monotonic() - began) * feed[1]
                while feed[2] < due:
                    feed[2] += 1
                    subprocess.run(
                        [os.path.join(BIN, "mqsend"), "--no-wait", feed[0],
                         json.dumps({"order": 1000 + feed[2]})],
                        stderr=subprocess.DEVNULL, timeout=10, check=False)
            time.sleep(0.02)

    def feed_on(self):
        """Send until the end, so that handlers run while pictures are taken."""
        self.feeder = threading.Thread(target=self.feed, args=(3600,))
        self.feeder.start()

    def group(self, customer, *invoices):
        """Send invoices of a customer to /invoices as one ordered group."""
        subprocess.run(
            [os.path.join(BIN, "mqsend"), "--lines", "--group",
             f"customer-{customer}", "/invoices"], check=True, text=True,
            input="".join(json.dumps({"invoice": n}) + "\n" for n in invoices))

    def groups(self):
        """Make a held group, a blocked one, and some that run in turns."""
        self.group(3, 1042, 1048, 1057)
        self.group(5, 1063, 1064)
        for customer in (1, 2, 4):
            self.group(customer, 1100 + customer, 1110 + customer)
        until(lambda: {"held", "blocked", "running"} <= {
            g["state"] for g in self.get("/api/v1/queues/invoices/groups")
            ["groups"]}, "one that is held, blocked, running")

    def trouble(self):
        """Make a paused queue, one without a worker, and ordered groups."""
        self.tool("mqctl", "pause", "--state-dir", self.state, "/thumbnails",
                  "1h")
        self.workers["reports"].terminate()
        self.workers["reports"].wait()
        self.groups()

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
        self.ending = True
        if self.feeder:
            self.feeder.join()
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
    letters = run.get("/api/v1/queues/webhooks/letters?limit=1")["letters"]
    row = letters[0]["row"]
    waits = run.get("/api/v1/queues/mail/messages?state=retry")["messages"][0]
    return {"": "/", "dead": "/dead", "groups": "/groups",
            "letter": f"/queues/webhooks/dead/{row}",
            "message": f"/queues/mail/messages/{waits['name']}",
            "find": f"/find?q={waits['id']}", "queue": "/queues/orders",
            "queue-messages": "/queues/mail/messages",
            "queue-dead": "/queues/orders/dead",
            "queue-groups": "/queues/invoices/groups",
            "queue-settings": "/queues/orders/settings"}


def take(run, b, path, file, whole=False):
    b.go(run.url + path)
    until(lambda: b.js("return document.querySelector('main h1') !== null"),
          path)
    if path == "/":
        until(lambda: b.text("#findings li"), "the findings")
        until(lambda: b.js("return document.querySelectorAll('.spark path[d]')"
                           ".length") >= len(QUEUES), "the sparks")
    if path == "/queues/orders":
        until(lambda: b.js("return document.querySelectorAll('.chart path')"
                           ".length") > 4, "the charts")
        until(lambda: b.text("#findings li"), "the findings")
        until(lambda: b.text(".errors li"), "the errors")
        until(lambda: b.text(".beside tbody tr"), "a running handler")
    if whole:
        b.picture_whole(file)
    else:
        b.picture(file)


# Pictures in docs: the file, the page, the size, the scheme.
SHOWN = (("page.png", "", "wide", "light"),
         ("page-queue.png", "queue", "wide", "light"),
         ("page-dead.png", "dead", "wide", "light"),
         ("page-letter.png", "letter", "wide", "light"),
         ("page-phone.png", "", "phone", "dark"))


def main():
    args = sys.argv[1:]
    if "-h" in args or "--help" in args:
        print(__doc__, end="")
        return
    every, stay = "--all" in args, "--serve" in args
    args = [a for a in args if a not in ("--all", "--serve")]
    if len(args) > 1 or args[:1] and args[0].startswith("-"):
        sys.exit(f"pictures.py: unknown arguments {args}; --help lists what "
                 "is allowed")
    out = os.path.abspath(args[0] if args else
                          os.path.join(HERE, "docs", "pictures"))
    if missing():
        sys.exit(f"pictures.py: no {missing()}")
    os.makedirs(out, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # by way of finally
    with tempfile.TemporaryDirectory() as folder:
        run = Run(folder)
        try:
            run.queues()
            run.serve()
            if stay:
                print(f"{run.url}/#t={run.token}", flush=True)
                run.feed(8)
                run.trouble()
                while True:
                    run.feed(60)
            photograph(run, out, every)
        except KeyboardInterrupt:
            pass
        finally:
            run.end()


def history_check(run):
    """Refuse to take pictures for docs whose charts are not full."""
    for one in run.get("/api/v1/sparks")["queues"]:
        measured = sum(c != "-" for c in one["done"])
        if measured < 54:
            sys.exit(f"pictures.py: only {measured} of 60 values of "
                     f"{one['queue']} were measured")


def photograph(run, out, every):
    b = Browser()
    try:
        b.go(f"{run.url}/#t={run.token}")
        until(lambda: b.text("#queues tbody a"), "all queues")
        run.feed(20 if every else 560)  # the charts show ten minutes
        run.trouble()
        run.feed(8 if every else 40)
        if not every:
            history_check(run)
        run.feed_on()
        found = pages(run)
        shown = SHOWN if not every else [
            (f"{name or 'queues'}-{size}-{scheme}.png", name, size, scheme)
            for name in found for size in SIZES for scheme in ("light", "dark")]
        for file, name, size, scheme in shown:
            b.phone(*SIZES[size], size == "phone")
            b.scheme(scheme)
            take(run, b, found[name], os.path.join(out, file), every)
    finally:
        b.close()


if __name__ == "__main__":
    main()
