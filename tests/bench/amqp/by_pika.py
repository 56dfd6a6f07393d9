#!/usr/bin/python3
"""by_pika.py - a consumer as people write it, for the benchmark

Usage: by_pika.py PORT QUEUE PREFETCH WARM N FILE
It writes to FILE how many messages a second came, from number WARM to N.
"""
import sys
import time

import pika

port, queue, prefetch, warm, n = sys.argv[1:6]
seen = begun = 0


def on_message(channel, method, properties, body):
    global seen, begun
    seen += 1
    if seen == int(warm):
        begun = time.monotonic()
    channel.basic_ack(method.delivery_tag)
    if seen == int(n):
        with open(sys.argv[6], "w") as out:
            print((int(n) - int(warm)) / (time.monotonic() - begun), file=out)
        channel.stop_consuming()


link = pika.BlockingConnection(
    pika.ConnectionParameters("127.0.0.1", int(port)))
taken = link.channel()
taken.basic_qos(prefetch_count=int(prefetch))
taken.basic_consume(queue, on_message)
taken.start_consuming()
link.close()
