#!/usr/bin/env python3
"""axe.py - check the pages of mqctl serve by axe-core

Usage: axe.py URL TOKEN QUEUE

All rules are tried on each page, at both widths and in both schemes. Status 0;
77 and a word if a program or axe-core is missing; else what it found is on
stderr. axe-core is that of `npm install -g`, or the file $MQW_AXE.
"""
import os
import shutil
import subprocess
import sys

from browser import DRAWN, PAGES
from webdriver import Browser, missing, until

RUN = """return axe.run(document, {resultTypes: ['violations']}).then((r) => ({
  rules: r.passes.length, found: r.violations.map((v) =>
    `${v.id}: ${v.help}: ${v.nodes.map((n) => n.html.slice(0, 200))}`)}));"""


def axe_file():
    """Return the path of axe-core; None: it is not installed."""
    path = os.environ.get("MQW_AXE")
    if not path and shutil.which("npm"):
        root = subprocess.run(["npm", "root", "-g"], capture_output=True,
                              text=True, check=False).stdout.strip()
        path = os.path.join(root, "axe-core", "axe.min.js")
    return path if path and os.path.exists(path) else None


def look(b, axe, what):
    """Return what axe-core finds on this page, each after the page's name."""
    until(lambda: b.js(DRAWN), str(what))
    b.js(axe)
    said = b.js(RUN)
    assert said["rules"] > 10, (what, said)
    print(said["rules"], "rules", *what, flush=True)
    return [f"{what}: {one}" for one in said["found"]]


def main(url, token, queue):
    with open(axe_file(), encoding="utf-8") as source:
        axe = source.read()
    b = Browser()
    found = []
    try:
        b.go(url)
        found += look(b, axe, ("without a token",))
        b.go(f"{url}/#t={token}")
        until(lambda: b.text("#queues"), "the overview")
        for width, height, mobile in ((1280, 900, False), (390, 844, True)):
            b.phone(width, height, mobile)
            for scheme in ("light", "dark"):
                b.scheme(scheme)
                for path in PAGES:
                    b.go(url + path.format(q=queue.lstrip("/")))
                    found += look(b, axe, (path, width, scheme))
        assert not found, "\n".join(found)
        # It must find faults that are put into the page:
        b.js("document.querySelector('input').removeAttribute('aria-label')")
        b.js("document.querySelector('main').append(new Image())")
        assert b.js(RUN)["found"]
    finally:
        b.close()


if __name__ == "__main__":
    gone = missing() or (
        None if axe_file() else "axe-core here: scripts/deps --browser")
    if gone:
        print("no", gone)
        sys.exit(77)
    main(*sys.argv[1:4])
