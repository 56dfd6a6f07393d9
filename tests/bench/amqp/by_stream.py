#!/usr/bin/python3
"""by_stream.py - a handler for --stream, for the benchmark

Usage: by_stream.py WARM N FILE
It writes to FILE how many messages a second came, from number WARM to N.
"""
import sys
import time

warm, n = int(sys.argv[1]), int(sys.argv[2])
seen = begun = 0
messages = sys.stdin.buffer
while head := messages.readline():
    _, message, size, *_ = head.split()
    body = messages.read(int(size) + 1)  # and the newline behind it
    seen += 1
    if seen == warm:
        begun = time.monotonic()
    if seen == n:
        with open(sys.argv[3], "w") as out:
            print((n - warm) / (time.monotonic() - begun), file=out)
    sys.stdout.buffer.write(b"OK %s\n" % message)
    sys.stdout.buffer.flush()
