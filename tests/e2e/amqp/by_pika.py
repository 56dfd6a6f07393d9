"""A foreign producer and consumer of the queue of test_amqp_main_job.

Usage: by_pika.py send PORT QUEUE FILE   a message for each line of FILE, which
                                         is its first line and ends with a CRC
                                         and the size of what follows; each is
                                         confirmed
       by_pika.py take PORT QUEUE N FILE acknowledge N, append first lines
"""
import sys

import pika


def body_of(line):
    """The first line, and as many letters as it says."""
    return line.encode() + b"x" * int(line.split()[3])


def send(channel, queue, path):
    channel.confirm_delivery()
    with open(path, encoding="ascii") as lines:
        for line in lines:
            channel.basic_publish(
                "", queue, body_of(line),
                pika.BasicProperties(delivery_mode=2), mandatory=True)


def take(channel, queue, count, path):
    channel.basic_qos(prefetch_count=4)
    with open(path, "a", encoding="ascii") as ended:
        for method, _, body in channel.consume(queue):
            ended.write(body.split(b"\n", 1)[0].decode() + "\n")
            ended.flush()
            channel.basic_ack(method.delivery_tag)
            count -= 1
            if count == 0:
                break
    channel.cancel()


def main():
    verb, port, queue = sys.argv[1:4]
    connection = pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", int(port)))
    channel = connection.channel()
    if verb == "send":
        send(channel, queue, sys.argv[4])
    else:
        take(channel, queue, int(sys.argv[4]), sys.argv[5])
    connection.close()


main()
