#!/usr/bin/python3
"""Lines between network devices that take their time, for kernels without netem: each frame from one end goes out at the other
one after a delay.

usage: delay_line.py SEED MILLISECONDS JITTER PORT WIRE [PORT WIRE ...]

Each way of each line delays a frame by MILLISECONDS and a random part of JITTER, and keeps the order, as a queue in a switch
does. It says "ready" when it hears both ends of all lines. At the end of its input it hears nothing more, sends what waits at
once, and says how many frames it has delayed.
"""
import collections
import random
import select
import socket
import sys
import time

ALL_FRAMES = 3  # ETH_P_ALL
SOL_PACKET, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING, SO_RCVBUFFORCE = 263, 15, 23, 33
LARGEST = 1 << 17  # a frame that the sender's device would have cut up has up to 64 KiB
BUFFER = 64 << 20


def packet_socket(device):
    """All frames that come in by a device. Each has a header in front that says what the sender's device left to do: checksums, and
    cutting it up; with the same header it goes out as it was."""
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    end.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    end.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    for option in (SO_RCVBUFFORCE, socket.SO_SNDBUF):
        end.setsockopt(socket.SOL_SOCKET, option, BUFFER)
    end.bind((device, ALL_FRAMES))
    end.setblocking(False)
    return end


class Way:
    """The frames that go from one end to the other."""

    def __init__(self, source, sink, delay):
        self.source, self.sink, self.delay = source, sink, delay
        self.waiting = collections.deque()  # (when it goes out, frame)
        self.frames = 0

    def hear(self):
        while True:
            try:
                frame = self.source.recv(LARGEST)
            except BlockingIOError:
                return
            due = time.monotonic() + self.delay()
            self.waiting.append((max(due, self.waiting[-1][0]) if self.waiting else due, frame))
            self.frames += 1

    def send(self, now):
        """Sends what is due; returns when the next frame is, or None."""
        while self.waiting and self.waiting[0][0] <= now:
            try:
                self.sink.send(self.waiting.popleft()[1])
            except OSError:  # the device's queue is full: a frame is lost, as in any network
                pass
        return self.waiting[0][0] if self.waiting else None


def main():
    chance, milliseconds, jitter = random.Random(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    devices = [packet_socket(name) for name in sys.argv[4:]]
    ways = {}
    for port, wire in zip(devices[::2], devices[1::2]):
        for source, sink in ((port, wire), (wire, port)):
            ways[source] = Way(source, sink, lambda: (milliseconds + jitter * chance.random()) / 1e3)
    print("ready", flush=True)
    while True:
        due = [at for at in (way.send(time.monotonic()) for way in ways.values()) if at is not None]
        wait = max(0.0, min(due) - time.monotonic()) if due else None
        heard, _, _ = select.select([sys.stdin, *ways], [], [], wait)
        if sys.stdin in heard:
            break
        for source in heard:
            ways[source].hear()
    for way in ways.values():
        way.send(float("inf"))
    print(sum(way.frames for way in ways.values()), flush=True)


if __name__ == "__main__":
    main()
