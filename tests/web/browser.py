#!/usr/bin/env python3
"""browser.py - mqctl serve as a person with a browser sees it

Usage: browser.py URL READ_ONLY_URL TOKEN QUEUE MQSEND

Both servers show one state directory. The worker of QUEUE gives up on each
message until the file `fixed` is there. One letter is there already, with what
tests/e2e/serve/test_serve_browser.c put into its body and its stderr. Status
0; 77 and a word if a program is missing; else the reason is on stderr.
"""
import http.server
import json
import subprocess
import sys
import threading
import urllib.request

from webdriver import Browser, missing, until

PAGES = ("/", "/q/{q}", "/q/{q}/dead", "/q/{q}/dead/1", "/dead", "/find?id=1")

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


class Site:
    """Another origin on this machine."""

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


class Test:
    def __init__(self, url, read_only, token, queue, mqsend):
        self.url, self.read_only, self.token = url, read_only, token
        self.queue, self.name, self.mqsend = queue, queue.lstrip("/"), mqsend
        self.port = url.rsplit(":", 1)[1]

    def api(self, path):
        request = urllib.request.Request(
            self.url + path, headers={"Authorization": "Bearer " + self.token})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def status(self):
        return self.api("/api/v1/queues/" + self.name)

    def page(self, b, path, url=None):
        b.go((url or self.url) + path.format(q=self.name))

    # ---- what is tried, in this order ----

    def logs_in_by_the_fragment(self, b):
        b.go(f"{self.url}/#t={self.token}")
        until(lambda: b.text("#queues"), "the overview")
        assert "#" not in b.js("return location.href"), "the token stays"
        assert b.js("return document.cookie") == "", "scripts see the cookie"

    def shows_a_hostile_letter_as_text(self, b):
        for path in PAGES:
            self.page(b, path)
            assert b.js("return document.querySelectorAll("
                        "'main script, main img, main iframe').length") == 0
            text = b.text("main")
            assert not any(c in text for c in "\u202e\u0000\u0001"), path
        self.page(b, "/q/{q}/dead/1")
        assert "<script>alert(1)</script>" in b.text("main")

    def updates_without_moving_the_focus(self, b):
        self.page(b, "/")
        dead = f'tr[data-queue="{self.queue}"] [data-f="dead"]'
        until(lambda: b.text(dead) == "1", "one letter")
        b.js("const a = document.querySelector(arguments[0] + ' a'); a.focus();"
             "getSelection().selectAllChildren(a); window.kept = a", dead)
        subprocess.run([self.mqsend, self.queue, "bad"], check=True)
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
            until(lambda: b.js("return document.readyState") == "complete", path)
            assert b.js("return document.querySelectorAll('#actions button,"
                        "#bulk button').length") == 0, path

    def pauses_and_resumes(self, b):
        b.go(f"{self.url}/#t={self.token}")
        self.page(b, "/q/{q}")
        until(lambda: b.js("return document.querySelectorAll("
                           "'#actions button').length") >= 3, "buttons")
        b.click("#actions button")
        until(lambda: self.status()["paused"], "paused")
        until(lambda: "paused" in b.text("h1"), "the page says so")
        b.js("[...document.querySelectorAll('#actions button')]"
             ".find(x => x.textContent === 'Resume').click()")
        until(lambda: not self.status()["paused"], "resumed")

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

    def replays_after_the_fix(self, b):
        open("fixed", "w").close()
        self.page(b, "/q/{q}/dead")
        until(lambda: b.text("#bulk button"), "the button")
        assert "mqdlq replay" in b.text("#bulk code")
        b.js("document.querySelector('#bulk input[type=checkbox]').click()")
        assert "--canary" in b.text("#bulk code")
        b.click("#bulk button")
        b.accept()
        until(lambda: "ended" in (b.text("#live") or ""), "the end of the job")
        until(lambda: self.status()["dead"] == 0, "all done")

    def says_when_the_queue_is_all_right(self, b):
        self.page(b, "/dead")
        assert "There is none" in b.text("main")

    def run(self):
        rules = "--host-resolver-rules=MAP evil.test 127.0.0.1"
        b = Browser(args=[rules])
        try:
            for step in (self.logs_in_by_the_fragment,
                         self.shows_a_hostile_letter_as_text,
                         self.updates_without_moving_the_focus,
                         self.loads_in_seven_tabs,
                         self.shows_no_button_where_nothing_may_change,
                         self.pauses_and_resumes,
                         self.replays_after_the_fix,
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


if __name__ == "__main__":
    gone = missing()
    if gone:
        print("no", gone, "here")
        sys.exit(77)
    Test(*sys.argv[1:6]).run()
