#!/usr/bin/env python3
"""browser.py - mqctl serve as a person with a browser sees it

Usage: browser.py URL READ_ONLY_URL TOKEN QUEUE BIN STATE_DIR

Both servers show the state directory. The worker of QUEUE gives up on each
message until the file `fixed` is there. One letter is there already, with what
tests/e2e/serve/test_serve_browser.c put into its body and its stderr. Status
0; 77 and a word if a program is missing; else the reason is on stderr.
"""
import base64
import http.server
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request

from webdriver import Browser, free_port, missing, until

PAGES = ("/", "/queues/{q}", "/queues/{q}/messages", "/queues/{q}/groups",
         "/queues/{q}/settings", "/queues/{q}/dead", "/queues/{q}/dead/1",
         "/dead", "/groups", "/find?q=1")
# True once the page is drawn: until then it has no heading.
DRAWN = "return document.querySelector('main h1') !== null"

ATTACK = """<!doctype html><title>another site</title>
<form id=f method=post action="%(url)s/api/v1/queues/%(queue)s/pause"
 enctype="text/plain" target=t><input name='{"x":"' value='"}'></form>
<iframe name=t></iframe><iframe id=shown src="%(url)s/"></iframe>
<script>
window.got = [];
const url = "%(url)s", post = url + "/api/v1/queues/%(queue)s/pause";
const tried = [
  fetch(url + "/api/v1/queues").then(r => r.text()),
  fetch(url + "/api/v1/queues", {credentials: "include"}).then(r => r.text()),
  fetch(post, {method: "POST", credentials: "include", body: "{}",
    headers: {"Content-Type": "application/json", "X-MQ-Request": "1"}})
    .then(r => r.text()),
  fetch(post, {method: "POST", mode: "no-cors", credentials: "include"})
    .then(r => r.type === "opaque" ? Promise.reject() : r.text()),
  new Promise((yes, no) => {
    const s = new EventSource(url + "/api/v1/events", {withCredentials: true});
    s.onopen = yes; s.onerror = no; }),
  new Promise((yes, no) => {
    const s = document.createElement("script");
    s.src = url + "/api/v1/queues"; s.onload = yes; s.onerror = no;
    document.head.append(s); }),
];
document.getElementById("f").submit();
Promise.allSettled(tried).then(all => {
  window.got = all.filter(a => a.status === "fulfilled").map((a, i) => i);
  window.over = true; });
</script>"""


# Pages must show this as text wherever it appears; BYTES adds what is no text.
NASTY = "<script>alert(7)</script>\"'><img src=x onerror=alert(7)></pre>-->"
LETTERS = r"[0-9] dead letter"  # the text of that finding
HIDING = "\u202e\u2028\u0001"
BYTES = (NASTY + HIDING).encode() + b"\0\xff\xfe"

LISTEN = """window.breaches = [];
window.heard = '';
addEventListener('securitypolicyviolation',
                 (e) => breaches.push(`${e.violatedDirective} ${e.sample}`));
addEventListener('DOMContentLoaded', () => new MutationObserver((records) => {
    for (const record of records)
        for (const node of record.addedNodes) heard += `${node.textContent}\\n`;
}).observe(document.querySelector('#live'), {childList: true}));"""

# List what hinders people who see badly or not at all, one breach a line.
ACCESS = r"""
const out = [], told = (e) => e.outerHTML.slice(0, 80);
const seen = (e) => e.checkVisibility({checkOpacity: true}) &&
    !e.closest('.sr, .skip') && !e.matches(':disabled');
const rgb = (text) => text.match(/[\d.]+/g).map(Number);
const light = (c) => { const [r, g, b] = c.slice(0, 3).map((v) => {
    v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const behind = (e) => { for (; e; e = e.parentElement) {
    const c = rgb(getComputedStyle(e).backgroundColor);
    if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const e = walk.currentNode.parentElement;
  if (!walk.currentNode.data.trim() || !seen(e)) continue;
  const style = getComputedStyle(e), ink = rgb(e.closest('svg') ? style.fill : style.color);
  const [a, b] = [light(ink), light(behind(e))].sort((x, y) => y - x);
  if ((a + 0.05) / (b + 0.05) < 4.5) out.push('contrast ' + told(e));
}
for (const e of document.querySelectorAll('a, button, input, select, summary')) {
  const name = e.getAttribute('aria-label') || e.textContent.trim() ||
      (e.labels && [...e.labels].map((l) => l.textContent.trim()).join(''));
  if (seen(e) && !name) out.push('no name ' + told(e));
}
for (const e of document.querySelectorAll('table')) {
  if (!e.caption && !e.getAttribute('aria-label')) out.push('no caption ' + told(e));
  for (const th of e.querySelectorAll('th'))
    if (!th.scope || !th.textContent.trim()) out.push('th ' + told(th));
}
for (const e of document.querySelectorAll('svg'))
  if (seen(e) && !(e.getAttribute('role') === 'img' && e.getAttribute('aria-label')))
    out.push('picture ' + told(e));
let level = 0;
for (const e of document.querySelectorAll('h1, h2, h3, h4')) {
  if (+e.tagName[1] > level + 1) out.push('heading ' + told(e));
  level = +e.tagName[1];
}
const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
if (new Set(ids).size !== ids.length) out.push('an id twice');
for (const what of ['html[lang]', 'head title', 'main', 'header nav[aria-label]', 'h1',
    'meta[name=viewport]', '[aria-live]', '.skip[href="#main"]'])
  if (document.querySelectorAll(what).length !== 1) out.push('not one ' + what);
if (document.documentElement.scrollWidth > innerWidth) out.push('too wide');
const tabs = document.querySelector('.tabs');
if (tabs && tabs.scrollWidth > tabs.clientWidth) out.push('a tab that is cut');
return out;"""


class Site:
    """A web site of another origin on this machine."""

    def __init__(self, page):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(page.encode())

            def log_message(self, *_):
                pass

        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def hear(b, pattern, limit_s=20):
    """Wait for an announcement that no earlier call waited for. Other
    announcements, such as new findings, may come before or after it."""
    until(lambda: re.search(pattern, b.js("return heard")), pattern, limit_s)
    b.js("document.querySelector('#live').textContent = ''; heard = ''")


class Test:
    def __init__(self, url, read_only, token, queue, bin_dir, state):
        self.url, self.read_only, self.token = url, read_only, token
        self.queue, self.name = queue, queue.lstrip("/")
        self.bin_dir, self.state = bin_dir, state
        self.other = queue + "-w"  # a queue of this script's own
        self.worker = self.server = None
        self.port = url.rsplit(":", 1)[1]

    def tool(self, name, *args):
        return subprocess.run([os.path.join(self.bin_dir, name), *args],
                              check=True, capture_output=True, text=True).stdout

    def start(self, name, *args):
        return subprocess.Popen(
            [os.path.join(self.bin_dir, name), *args],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def api(self, path):
        request = urllib.request.Request(
            self.url + path, headers={"Authorization": "Bearer " + self.token})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def status(self, queue=None):
        return self.api("/api/v1/queues/" + (queue or self.queue).lstrip("/"))

    def page(self, b, path, url=None, queue=None):
        b.go((url or self.url) + path.format(q=queue or self.name))
        until(lambda: b.js(DRAWN), path)

    # ---- scenes, in the order in which they run ----

    def logs_in_by_the_fragment(self, b):
        self.page(b, "/")
        assert b.text("h1") == "Sign in" and b.text("#queues") is None
        # The address differs in its fragment only, so no page is loaded.
        b.go(f"{self.url}/#t={self.token}")
        until(lambda: b.text("#queues"), "the overview")
        assert "#" not in b.js("return location.href"), "the token stays"
        assert b.js("return document.cookie") == "", "scripts see the cookie"
        # After signing in by hand, the address and its filter stay.
        b.cdp("Network.clearBrowserCookies")
        self.page(b, "/queues/{q}/dead?match=x")
        assert b.text("h1") == "Sign in"
        b.js("document.querySelector('#token').value = arguments[0]",
             self.token)
        b.click("#login .primary")
        until(lambda: b.text("h1") == self.queue, "the page of the address")
        assert b.url().endswith("/dead?match=x"), b.url()

    def shows_a_hostile_letter_as_text(self, b):
        for path in PAGES:
            self.page(b, path)
            assert b.js("return document.querySelectorAll("
                        "'main script, main img, main iframe').length") == 0
            text = b.text("main")
            assert not any(c in text for c in "\u202e\u0000\u0001"), path
        self.page(b, "/queues/{q}/dead/1")
        assert "<script>alert(1)</script>" in b.text("main")

    @staticmethod
    def nasty_letter(reason, header):
        """Return a letter as mqdlq export prints it; its body is 1 MiB."""
        stderr = base64.b64encode(BYTES).decode()
        return json.dumps({
            "message_id": "01M82WH2675BH7W7CEF6000000", "state": "dead",
            "died_at_ns": 10**18, "reason": reason, "error": NASTY + HIDING,
            "attempts": 1, "crashes": 0, "redelivered": False,
            "length_inferred": False, "priority": 0, "group": NASTY,
            "first_received_at_ns": 10**18,
            "header_base64": base64.b64encode(header).decode(),
            "stderr_base64": stderr,
            "body_base64": base64.b64encode(BYTES.ljust(1 << 20)).decode(),
            "history": [{"n": 1, "started_at_ns": 10**18, "duration_ns": 1,
                         "error": NASTY + HIDING, "said": True,
                         "stderr_base64": stderr}]})

    def shows_all_fields_of_a_letter_as_text(self, b):
        queue = self.queue + "-" + "h" * 120
        b.phone(320, 640)
        good = b"MQW/1\nsize: 1048576\nx-a: %s\n\n" % NASTY.encode()
        path = os.path.join(self.state, "letters")
        with open(path, "w", encoding="utf-8") as out:
            print(self.nasty_letter("exhausted", good), file=out)
            print(self.nasty_letter("bad-header", BYTES), file=out)
        self.tool("mqdlq", "import", "--state-dir", self.state, queue, path)
        for path in (*PAGES, "/queues/{q}/dead/2"):
            self.page(b, path, queue=queue[1:])
            assert b.js("return document.querySelectorAll("
                        "'main script, main img, main iframe').length") == 0
            text = b.text("main")
            assert not any(c in text for c in HIDING + "\0"), path
            assert b.js("return breaches") == [], path
            wide = b.js("return document.documentElement.scrollWidth")
            assert wide <= 320, (path, wide)
            if "/dead" in path:
                until(lambda: NASTY in b.text("main"), path)
            if path.endswith(("/1", "/2")):
                assert text.count(NASTY) >= 7, path  # error, group, header ...
                assert "longer than shown here" in text
        b.cdp("Emulation.clearDeviceMetricsOverride")
        # A breach must be noticed:
        b.js("document.body.setAttribute('style', 'color: red')")
        until(lambda: len(b.js("return breaches")) == 1, "the breach")
        assert any("Security Policy" in line["message"] for line in b.log())
        self.tool("mqdlq", "discard", "--state-dir", self.state, "--all",
                  queue)

    def is_there_for_everybody(self, b):
        """Check access in both schemes, at each width, and by keyboard."""
        for width, height, mobile in ((1280, 900, False), (390, 844, True),
                                      (320, 640, True)):
            b.phone(width, height, mobile)
            for scheme in ("light", "dark"):
                b.scheme(scheme)
                for path in PAGES:
                    self.page(b, path)
                    breaches = b.js(ACCESS)
                    assert not breaches, (path, width, scheme, breaches)
                    assert b.js("return breaches") == [], path
        b.cdp("Emulation.clearDeviceMetricsOverride")
        b.scheme("light")
        self.page(b, "/")
        until(lambda: b.text("#findings li"), "the findings")
        seen = []
        for _ in range(60):
            b.key("\ue004")  # Tab
            seen.append(b.js(
                "const e = document.activeElement; return [e.textContent ||"
                " e.name, getComputedStyle(e).outlineStyle]"))
            if seen[-1][0] == self.queue:
                break
        assert seen[0][0] == "Skip to the content", seen
        assert all(style != "none" for _, style in seen), seen
        assert [self.queue, "auto"] in seen or [self.queue, "solid"] in seen

    def updates_without_moving_the_focus(self, b):
        self.page(b, "/")
        dead = f'tr[data-key="{self.queue}"] .dead-cell'
        until(lambda: b.text(dead) == "1", "one letter")
        b.js("const a = document.querySelector(arguments[0] + ' a'); a.focus();"
             "getSelection().selectAllChildren(a); window.kept = a", dead)
        self.tool("mqsend", self.queue, "bad")
        until(lambda: b.text(dead) == "2", "the second letter")
        assert b.js("return document.activeElement === window.kept"), "focus"
        assert b.js("return getSelection().anchorNode !== null &&"
                    " window.kept.isConnected"), "selection"

    def loads_in_seven_tabs(self, b):
        first = b.windows()[0]
        for _ in range(7):
            b.window()
            self.page(b, "/")
            until(lambda: b.text("#queues tbody tr"), "a tab")
        b._do("POST", "/window", {"handle": first})

    def shows_no_button_where_nothing_may_change(self, b):
        b.go(f"{self.read_only}/#t={self.token}")
        until(lambda: b.text("#queues"), "the read-only overview")
        for path in PAGES:
            self.page(b, path, self.read_only)
            words = b.js("return [...document.querySelectorAll('main button')]"
                         ".map((e) => e.textContent)")
            assert not {"Pause", "Replay", "Replay 1", "Set", "Run now",
                        "Release", "Close…"} & set(words), (path, words)
            assert "read-only" in b.text("#link")

    @staticmethod
    def answers_beside(b, button, answer):
        """The answer to a click is at the button, which keeps the focus."""
        until(lambda: b.js(
            """const button = document.querySelector(arguments[0]);
            const at = document.querySelector(arguments[1]);
            if (!at.textContent) return false;
            const a = at.getBoundingClientRect(), c = button.getBoundingClientRect();
            return document.activeElement === button && a.top >= 0 &&
                a.bottom <= innerHeight && Math.abs(a.top - c.bottom) < 100;""",
            button, answer), "the answer beside the button")

    def command_behind(self, b, icon):
        """Return the command that an icon shows."""
        b.js("document.querySelector(arguments[0]).click()", icon)
        text = b.text(".popup code")
        b.key("\ue00c")  # Escape
        until(lambda: b.text(".popup") is None, "the box is closed")
        return text

    def pauses_and_resumes(self, b):
        """It takes two clicks in the row, and one on the page of the queue."""
        b.go(f"{self.url}/#t={self.token}")
        row = f'#queues tr[data-key="{self.queue}"]'
        until(lambda: b.text(row), "its row")
        b.click(row + " .icon")
        b.click("[role=menuitem]")
        until(lambda: self.status()["paused"], "paused")
        self.answers_beside(b, row + " .icon", row + " .note")
        until(lambda: "paused" in b.text(row), "the row says so")
        self.page(b, "/queues/{q}")
        assert b.text("#actions button") == "Resume"
        b.click("#actions button")
        until(lambda: not self.status()["paused"], "resumed")
        self.answers_beside(b, "#actions button", "#actions .answer")
        until(lambda: b.text("#actions button") == "Pause", "it says so")
        b.click("#actions button:nth-of-type(2)")
        assert f"mqctl pause {self.queue} 10m" in b.text("dialog code")
        b.click("dialog .primary")
        until(lambda: self.status()["paused_until"], "paused for a time")
        until(lambda: "until" in b.text(".state-line"), "it says so")
        b.click("#actions button")
        until(lambda: not self.status()["paused"], "resumed")
        b.click("#actions button:nth-of-type(3)")
        b.js("document.querySelector('dialog input').value = '5'")
        b.click("dialog .primary")
        until(lambda: "-> 5" in b.text("#actions .answer"), "what it was")
        assert self.status()["max_concurrency"] == 5

    def pauses_all_that_are_ticked(self, b):
        """A queue without a worker is named, and the others are paused."""
        none = self.queue + "-" + "h" * 120  # has had letters, and no worker
        self.page(b, "/")
        for queue in (self.queue, none):
            row = f'#queues tr[data-key="{queue}"]'
            until(lambda: b.text(row), "its row")
            b.js("document.querySelector(arguments[0]).focus()", row + " a")
            b.key("x")
        pause, again = "#main > .bulk button", "#main > .bulk button:nth-of-type(2)"
        until(lambda: b.text(pause) == "Pause (2)", "two are ticked")
        assert none in self.command_behind(b, "#main > .bulk .icon").split()
        b.click(pause)
        until(lambda: "1 of 2 paused." in b.text("#toasts"), "the answer")
        assert f" {none}: " in b.text("#toasts")
        self.answers_beside(b, pause, "#main > .bulk .answer")
        assert self.status()["paused"]
        b.click("#toasts button")
        b.click(f'#queues input[value="{none}"]')
        b.click(again)
        hear(b, "1 of 1 resumed.")
        assert not self.status()["paused"]
        until(lambda: b.text(pause) == "Pause", "no tick is left")
        self.answers_beside(b, again, "#main > .bulk .answer")

    def sets_and_says_what_was(self, b):
        self.page(b, "/queues/{q}/settings")
        field = "input[name=max-concurrency]"
        b.js("document.querySelector(arguments[0]).value = '3'", field)
        assert (self.command_behind(b, f"form:has({field}) .icon")
                == f"mqctl set {self.queue} max-concurrency=3")
        b.click(f"form:has({field}) [type=submit]")
        hear(b, "-> 3")
        assert self.status()["max_concurrency"] == 3
        until(lambda: "--max-concurrency=3" in b.text(".keep"), "how to keep it")

    def steers_what_waits(self, b):
        self.tool("mqctl", "create", "--queue-depth", "4", "--message-size",
                  "256", self.other)
        self.worker = self.start(
            "mqworker", "--state-dir", self.state, "--backoff", "1h",
            self.other, "--", "sh", "-c", "cat >&2; exit 1")
        for _ in range(3):
            self.tool("mqsend", self.other, "<script>alert(2)</script>\u202e")
        until(lambda: self.status(self.other)["waiting"] == 3, "three wait")
        self.page(b, "/queues/{q}/messages", queue=self.other[1:])
        until(lambda: b.js("return document.querySelectorAll("
                           "'#messages tbody input').length") == 3, "three")
        assert "\u202e" not in b.text("main")
        names = b.js("return [...document.querySelectorAll("
                     "'#messages tbody input')].map((e) => e.value)")
        box = "#messages input[value='%s']"
        cancel, run_now = "#messages .danger", "#messages .bulk button"
        b.click(cancel)
        assert b.text("dialog") is None, "nothing is ticked"
        b.click(box % names[0])
        b.click(cancel)
        assert f"mqctl cancel {self.other} {names[0]}" in b.text("dialog code")
        b.click("dialog .danger")
        hear(b, "1 of 1 cancelled")
        until(lambda: self.status(self.other)["waiting"] == 2, "one less")
        until(lambda: b.text(box % names[0]) is None, "its row has gone")
        # A message that a button acted on is not ticked for the next one.
        assert "ID..." in self.command_behind(b, "#messages .bulk .icon")
        b.click(box % names[1])
        b.click(run_now)
        hear(b, "1 of 1 due now")
        self.answers_beside(b, run_now, "#messages .bulk .answer")
        until(lambda: self.status(self.other)["retried"] == 4, "it ran")
        b.click(box % names[2])
        # A refusal is told there and in a notice that stays. Ticks stay too.
        b.js("localStorage.removeItem('mqctl-key')")
        b.click(run_now)
        hear(b, "Sign in again")
        self.answers_beside(b, run_now, "#messages .bulk .answer")
        assert "Sign in again" in b.text("#toasts")
        b.click("#toasts button")
        assert b.text("#toasts") == ""
        assert b.js("return document.querySelectorAll("
                    "'#messages tbody input:checked').length") == 1
        b.go(f"{self.url}/#t={self.token}")
        until(lambda: b.js("return localStorage.getItem('mqctl-key')"), "a key")

    def closes_and_opens_a_group(self, b):
        self.tool("mqsend", "--group", "-<b>g</b>", self.other, "y")
        until(lambda: self.status(self.other)["groups"] == 1, "a group")
        self.page(b, "/queues/{q}/groups", queue=self.other[1:])
        row = "#groups tbody tr"
        until(lambda: "blocked" in (b.text(row) or ""), "it waits")
        assert "-<b>g</b>" in b.text(row)
        close, again = row + " .small:nth-of-type(2)", row + " .small:nth-of-type(3)"
        b.click(close)
        assert (f"mqctl group -- {self.other} '-<b>g</b>' close"
                == b.text("dialog code"))
        b.click("dialog .danger")
        hear(b, "Closed")
        until(lambda: "blocked, closing" in b.text(row), "the row says so")
        b.click(again)
        hear(b, "Open")
        until(lambda: "closing" not in b.text(row), "the row says so")

    def finds_a_message_in_any_queue(self, b):
        ids = self.api(f"/api/v1/queues/{self.other[1:]}/messages")["messages"]
        self.page(b, "/")
        b.key("/")
        assert b.js("return document.activeElement.id") == "find-text"
        b.js("document.activeElement.value = arguments[0];"
             "document.activeElement.form.requestSubmit()", ids[0]["id"])
        until(lambda: self.other in (b.text("#found") or ""), "its queue")
        assert f"mqctl explain {self.other} {ids[0]['id']}" in b.text("#found")

    def says_when_the_worker_is_killed(self, b):
        self.page(b, "/queues/{q}", queue=self.other[1:])
        until(lambda: "running" in b.text(".state-line"), "it runs")
        self.worker.send_signal(signal.SIGKILL)
        self.worker.wait()
        until(lambda: "killed" in b.text(".state-line"), "the page says so")

    def says_when_the_queue_is_removed(self, b):
        self.tool("mqctl", "remove", "--force", "--state-dir", self.state,
                  self.other)
        hear(b, "is gone")
        self.tool("mqctl", "create", "--queue-depth", "4", "--message-size",
                  "256", self.other)
        hear(b, "there again", 40)
        self.tool("mqctl", "remove", "--force", "--state-dir", self.state,
                  self.other)

    def comes_back_after_a_restart(self, b):
        port = free_port()
        args = ("serve", "--state-dir", self.state, "--listen",
                f"127.0.0.1:{port}")
        self.server = self.start("mqctl", *args)
        url = f"http://localhost:{port}"
        until(lambda: self.answers(url), "the server")
        b.go(f"{url}/#t={self.token}")
        dead = f'tr[data-key="{self.queue}"] .dead-cell'
        until(lambda: b.text(dead) == "2", "the letters")
        self.server.terminate()
        self.server.wait()
        hear(b, "does not answer")
        assert "no answer for" in b.text("#link")
        self.tool("mqsend", self.queue, "bad")
        until(lambda: self.status()["dead"] == 3, "a third letter")
        self.server = self.start("mqctl", *args)
        hear(b, "answers again", 40)
        until(lambda: b.text(dead) == "3", "what came meanwhile")
        # If signed out or without a stream, it does not say "no answer".
        b.cdp("Network.clearBrowserCookies")
        self.server.terminate()
        self.server.wait()
        self.server = self.start("mqctl", *args)
        hear(b, "signed out", 40)
        assert "signed out" in b.text("#link")
        streams = [self.stream(url) for _ in range(32)]
        b.go(f"{url}/#t={self.token}")
        until(lambda: b.text(dead) == "3", "the overview")
        self.tool("mqsend", self.queue, "bad")
        until(lambda: b.text(dead) == "4", "what came, without a stream", 40)
        assert "does not answer" not in b.js("return heard")
        for stream in streams:
            stream.close()

    def stream(self, url):
        request = urllib.request.Request(
            url + "/api/v1/events", headers={"Authorization": "Bearer " + self.token})
        return urllib.request.urlopen(request, timeout=30)

    def tells_a_finding_once(self, b):
        """A finding stays the same one if only its numbers change."""
        soon = b.cdp("Page.addScriptToEvaluateOnNewDocument", source="""
            const later = setTimeout;
            window.setTimeout = (f, ms, ...more) => later(f, Math.min(ms, 500), ...more);""")
        b.go(f"{self.url}/#t={self.token}")
        until(lambda: re.search(LETTERS, b.text("#findings") or ""), "the finding")
        b.js("""window.kept = [...document.querySelectorAll('#findings li')]
                .find((e) => /[0-9] dead letter/.test(e.textContent));
            window.was = kept.textContent;""")
        self.tool("mqsend", self.queue, "bad")
        until(lambda: b.js("return kept.textContent !== was"), "its new number")
        assert b.js("return kept.isConnected"), "it was made again"
        # The machine may get other findings meanwhile.
        assert not re.search(LETTERS, b.text("#live")), "it was announced"
        b.cdp("Page.removeScriptToEvaluateOnNewDocument", **soon)

    def gives_findings_room_when_the_table_is_not_used(self, b):
        """While the table is used, a new finding is behind "and 1 more"."""
        faked = b.cdp("Page.addScriptToEvaluateOnNewDocument", source="""
            const later = setTimeout, ask = fetch;
            window.setTimeout = (f, ms, ...more) => later(f, Math.min(ms, 500), ...more);
            window.wrong = [];
            window.fetch = (url, ...more) => (!/findings/.test(url) ? ask(url, ...more) :
                Promise.resolve(Response.json({findings: wrong.map((text) => (
                    {id: text, check: "c", level: "warn", text, fix: "", queues: []}))})));""")
        more = "#findings li:last-child .plain"
        lines = ("return (document.querySelector('#queues').getBoundingClientRect()"
                 ".top - document.querySelector('.findings')"
                 ".getBoundingClientRect().top - 9) / 32")
        find = lambda n: b.js("wrong = ['a', 'b', 'c', 'd', 'e', 'f', 'g']"
                              ".slice(0, arguments[0])", n)
        shown = lambda: b.js("return document.querySelectorAll"
                             "('.findings li:not(.zero)').length")
        steps = itertools.count()

        def hidden_while_used(n):
            find(n)
            until(lambda: b.point("#queues tbody tr", next(steps) % 9)
                  or b.text(more) == "and 1 more", "the finding is counted")
            assert shown() == b.js(lines) == n - 1, (n, shown(), b.js(lines))

        self.page(b, "/")
        until(lambda: "Nothing is wrong" in (b.text("#findings") or ""), "no finding")
        assert b.js(lines) == 3, "no room is reserved"
        b.point("#queues tbody tr")
        find(3)
        until(lambda: shown() == 3, "three findings")
        assert b.js(lines) == 3, "the table was moved"
        hidden_while_used(4)
        b.point("#findings")
        until(lambda: shown() == b.js(lines) == 4, "the pointer is elsewhere")
        hidden_while_used(5)
        until(lambda: shown() == b.js(lines) == 5, "the pointer rests", 40)
        find(7)
        until(lambda: b.text(more) == "and 2 more", "more than there is room for")
        assert b.js(lines) == 5
        b.click(more)
        until(lambda: b.text(more) == "fewer", "all findings")
        assert shown() == 7
        assert b.js("return document.activeElement.textContent") == "fewer"
        b.click(more)
        until(lambda: shown() == b.js(lines) == 5, "fewer")
        find(0)
        until(lambda: shown() == 0, "nothing is wrong")
        assert b.js(lines) == 5, "the table was moved"
        b.cdp("Page.removeScriptToEvaluateOnNewDocument", **faked)

    def writes_times_as_people_say_them(self, b):
        said = b.js("""return import('/static/format.js').then((m) =>
            [-3200, -1200, 1200, 3200].map((ms) =>
                m.relative(new Date(1e12 + ms).toISOString(), 1e12)))""")
        assert said == ["3 s ago", "a moment ago", "in a moment", "in 3 s"], said

    @staticmethod
    def answers(url):
        try:
            return urllib.request.urlopen(url + "/healthz", timeout=5).read()
        except OSError:
            return None

    def is_closed_to_other_sites(self, b):
        site = Site(ATTACK % {"url": self.url, "queue": self.name})
        b.go(site.url)
        until(lambda: b.js("return window.over === true"), "the attack's end")
        assert b.js("return window.got") == [], "another site read something"
        assert not self.status()["paused"], "another site changed something"

    def is_closed_to_other_names(self, b):
        b.go(f"http://evil.test:{self.port}/")
        assert "does not name this server" in b.text("body")
        assert b.text("#queues") is None

    def edits_a_letter(self, b):
        """A body that a text field would change cannot be edited."""
        edit = ("[...document.querySelectorAll('#bulk button')]"
                ".find((e) => e.textContent === 'Edit and replay…').click()")
        self.page(b, "/queues/{q}/dead/1")
        b.js(edit)
        until(lambda: "cannot be edited here" in b.text("#toasts"), "refused")
        n = self.status()["dead"]
        self.page(b, "/queues/{q}/dead/2")
        b.js(edit)
        until(lambda: b.text("dialog textarea") is not None, "the body")
        assert b.js("return document.querySelector('textarea').value") == "bad"
        assert f"mqdlq edit --body FILE {self.queue} 2" in b.text("dialog code")
        b.click("dialog .primary")
        until(lambda: "unchanged" in b.text("dialog .bad"), "refused")
        assert b.js("return document.querySelector('textarea').value") == "bad"
        b.js("document.querySelector('textarea').value = 'bad again'")
        b.click("dialog .primary")
        until(lambda: "Sent with the id" in b.text("#toasts"), "it was sent")
        until(lambda: self.status()["dead"] == n, "it died again")
        until(lambda: "bad again" in b.text("main"), "the page shows it")
        assert "Somebody" not in b.text("main"), "it was this person"
        letter = self.api(f"/api/v1/queues/{self.name}/letters/2")
        assert letter["body"] == "bad again", letter

    def follows_a_letter_that_others_change(self, b):
        """An old state is never shown; an edit survives a full queue."""
        queue = self.queue + "-l"
        path = os.path.join(self.state, "letters")
        with open(path, "w", encoding="utf-8") as out:
            for id_ in ("01M82WH2675BH7W7CEF6000001", "01M82WH2675BH7W7CEF6000002"):
                letter = json.loads(self.nasty_letter("exhausted", b""))
                letter |= {"message_id": id_, "header_base64": "",
                           "body_base64": base64.b64encode(b"one").decode()}
                print(json.dumps(letter), file=out)
        here = ("--state-dir", self.state)
        self.tool("mqctl", "create", "--queue-depth", "1", "--message-size",
                  "256", queue)
        self.tool("mqdlq", "import", *here, queue, path)
        self.tool("mqsend", queue, "in the way")
        self.page(b, "/queues/{q}/dead/2", queue=queue[1:])
        self.tool("mqdlq", "discard", *here, queue, "2")
        until(lambda: "is gone" in b.text("main"), "it says so")
        assert b.js("return ![...document.querySelectorAll('#bulk button')]"
                    ".some((e) => e.checkVisibility())"), "a button is left"
        self.page(b, "/queues/{q}/dead/1", queue=queue[1:])
        b.js("[...document.querySelectorAll('#bulk button')]"
             ".find((e) => e.textContent === 'Edit and replay…').click()")
        until(lambda: b.text("dialog textarea") is not None, "the body")
        b.js("document.querySelector('textarea').value = 'two'")
        b.click("dialog .primary")
        until(lambda: "sends it" in b.text("main .answer"), "the sentence", 60)
        assert b.text("dialog") is None
        until(lambda: b.text("pre[aria-label='Body as Text']") == "two", "body")
        assert "Somebody" not in b.text("main"), "it was this person"
        self.refuses_an_edit_of_another_body(b, queue, here)
        replay = self.start("mqdlq", "replay", *here, queue, "1")
        until(lambda: "killed before" in b.text("main"), "it may not be sent")
        replay.kill()
        replay.wait()
        self.worker = self.start("mqworker", *here, queue, "--", "true")
        b.js("[...document.querySelectorAll('#bulk button')]"
             ".find((e) => e.textContent === 'Send again').click()")
        assert (f"mqdlq replay --again {queue} 1") in b.text("dialog code")
        b.click("dialog .primary")
        until(lambda: "1 done" in b.text("main .answer"), "the outcome")
        until(lambda: "is gone" in b.text("main"), "it says so")
        self.worker.terminate()
        self.worker.wait()
        self.tool("mqctl", "remove", "--force", *here, queue)

    def refuses_an_edit_of_another_body(self, b, queue, here):
        """If two persons edit a letter, the second one loses no text."""
        b.js("[...document.querySelectorAll('#bulk button')]"
             ".find((e) => e.textContent === 'Edit and replay…').click()")
        until(lambda: b.text("dialog textarea") is not None, "the body")
        b.js("document.querySelector('textarea').value = 'mine'")
        path = os.path.join(self.state, "theirs")
        with open(path, "w", encoding="utf-8") as out:
            out.write("theirs")
        # The queue is full, so their edit is stored and not sent.
        subprocess.run([os.path.join(self.bin_dir, "mqdlq"), "edit", *here,
                        "--wait", "0s", "--body", path, queue, "1"],
                       stderr=subprocess.DEVNULL, check=False, timeout=30)
        b.click("dialog .primary")
        until(lambda: "another message now" in b.text("dialog .bad"), "refused")
        assert b.js("return document.querySelector('textarea').value") == "mine"
        b.click("dialog .buttons button:last-child")
        until(lambda: b.text("pre[aria-label='Body as Text']") == "theirs", "body")
        assert "Somebody edited" in b.text("main")

    def finds_the_reason_and_replays_after_the_fix(self, b):
        """All is done on the page, from the finding to the last letter."""
        began = time.monotonic()
        n = self.status()["dead"]
        b.go(self.url)
        until(lambda: re.search(LETTERS, b.text("#findings") or ""), "the finding")
        b.click(f'tr[data-key="{self.queue}"] .dead-cell a')
        group = "#letters .group"
        until(lambda: "exit 3: *" in (b.text(group) or "") or
              "exit 3: bad" in (b.text(group) or ""), "by error")
        b.click("#letters [title='exit 3: bad']")
        until(lambda: b.text("#letters tbody th a"), "its letters")
        # After one letter was discarded, the button does not mean all letters.
        box = "#letters tbody tr:last-child input"
        b.click(box)
        b.click("#letters .letters .danger")
        b.click("dialog .danger")
        hear(b, "1 of 1 discarded")
        until(lambda: b.text("#letters .letters .danger") == "Discard…"
              and b.js("return document.querySelector("
                       "'#letters .letters .danger').ariaDisabled"), "no tick")
        n -= 1
        until(lambda: self.status()["dead"] == n, "one less")
        b.click("#letters tbody th a")
        until(lambda: b.text("h1[data-row]"), "one letter")
        assert "exit 3: bad" in b.text("main"), "the reason"
        open("fixed", "w").close()
        b.js("history.back()")
        until(lambda: b.text(group), "its groups")
        # Each group takes two clicks, on the button and in the question.
        until(lambda: sum(self.counts(b)) == n, "all counted")
        self.refuses_a_number_that_has_changed(b)
        for _ in range(len(self.counts(b))):
            b.js("[...document.querySelectorAll('#letters .primary')]"
                 ".find((e) => e.checkVisibility()).click()")
            assert "mqdlq replay" in b.text("dialog code")
            assert "--error 'exit 3: " in b.text("dialog code")
            if b.text("dialog input[name=canary]") is not None:
                b.click("dialog input[name=canary]")
                assert "--canary" in b.text("dialog code")
            b.click("dialog .primary")
            hear(b, r"Replay:.* done")
            assert "died again" not in b.text("#letters")
            until(lambda: sum(self.counts(b)) == self.status()["dead"],
                  "the rest", 40)
        until(lambda: self.status()["dead"] == 0, "all done")
        print("from the finding to the end:", time.monotonic() - began)

    def refuses_a_number_that_has_changed(self, b):
        """A letter seems discarded since; the button shows the refusal."""
        button = "#letters .primary"
        b.js(r"""const f = fetch;
            window.fetch = (url, how) => {
              if (how?.method !== "POST") return f(url, how);
              window.fetch = f;
              const body = JSON.parse(how.body);
              body.expect_count++;
              return f(url, {...how, body: JSON.stringify(body)});
            };""")
        b.click(button)
        b.click("dialog .primary")
        until(lambda: "were expected; reload" in b.text("#toasts"), "the refusal")
        self.answers_beside(b, button, "#letters .group > .answer")
        b.click("#toasts button")

    @staticmethod
    def counts(b):
        """Return the numbers on the buttons that replay a group."""
        return [int(text.split()[-1]) for text in b.js(
            "return [...document.querySelectorAll('#letters .primary')]"
            ".filter((e) => e.checkVisibility()).map((e) => e.textContent)")]

    def says_when_the_queue_is_all_right(self, b):
        self.page(b, "/dead")
        until(lambda: "There are no dead letters" in b.text("main"), "it says so")

    def run(self):
        rules = "--host-resolver-rules=MAP evil.test 127.0.0.1"
        b = Browser(args=[rules])
        b.cdp("Page.addScriptToEvaluateOnNewDocument", source=LISTEN)
        try:
            for step in (self.logs_in_by_the_fragment,
                         self.shows_a_hostile_letter_as_text,
                         self.shows_all_fields_of_a_letter_as_text,
                         self.is_there_for_everybody,
                         self.updates_without_moving_the_focus,
                         self.loads_in_seven_tabs,
                         self.comes_back_after_a_restart,
                         self.tells_a_finding_once,
                         self.gives_findings_room_when_the_table_is_not_used,
                         self.writes_times_as_people_say_them,
                         self.shows_no_button_where_nothing_may_change,
                         self.pauses_and_resumes,
                         self.pauses_all_that_are_ticked,
                         self.sets_and_says_what_was,
                         self.steers_what_waits,
                         self.closes_and_opens_a_group,
                         self.finds_a_message_in_any_queue,
                         self.says_when_the_worker_is_killed,
                         self.says_when_the_queue_is_removed,
                         self.edits_a_letter,
                         self.follows_a_letter_that_others_change,
                         self.finds_the_reason_and_replays_after_the_fix,
                         self.says_when_the_queue_is_all_right):
                step(b)
                print("ok", step.__name__, flush=True)
            for line in b.log():
                assert "Security Policy" not in line["message"], line
                assert "Uncaught" not in line["message"], line
            for step in (self.is_closed_to_other_sites,
                         self.is_closed_to_other_names):
                step(b)
                print("ok", step.__name__, flush=True)
        finally:
            b.close()
            for p in (self.worker, self.server):
                if p and p.poll() is None:
                    p.terminate()
                    p.wait()


if __name__ == "__main__":
    gone = missing()
    if gone:
        print("no", gone)
        sys.exit(77)
    Test(*sys.argv[1:7]).run()
