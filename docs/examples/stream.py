#!/usr/bin/env python3
"""stream.py - a long-lived handler that works at several messages at once

    mqworker --stream --window 8 /numbers -- ./stream.py

Each message is a list of whole numbers. Their sum is added to the file $SUMS
as a line "ID SUM", by one of a few threads; the answers come in whatever order
they are ready.
"""
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import unquote

SUMS = os.environ.get("SUMS", "sums")
say = threading.Lock()


def answer(*words):
    """One line at a time, and at once: the worker waits for it."""
    with say:
        print(*words, flush=True)


def handle(message, body, fields):
    try:
        total = sum(int(word) for word in body.split())
    except ValueError as why:
        return answer("DEAD", message, why)  # no retry can help
    try:
        # One write of a short line: lines of several threads do not mix.
        with open(SUMS, "a") as sums:
            sums.write(f"{message} {total}\n")
    except OSError as why:
        return answer("RETRY", message, "delay=200ms", why.strerror)
    if "group" in fields:
        print("sum for", unquote(fields["group"]), file=sys.stderr)
    answer("OK", message)


def main():
    stdin = sys.stdin.buffer
    with ThreadPoolExecutor(max_workers=8) as threads:
        # At the end of the input, finish what is open and go.
        while head := stdin.readline().decode():
            _, message, size, *words = head.split()
            body = stdin.read(int(size))
            stdin.readline()  # the newline behind the body
            fields = dict(word.split("=") for word in words)
            threads.submit(handle, message, body, fields)


main()
