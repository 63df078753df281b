"""A small HTTP server in Python, as somebody would write one: kept connections, one answer.

It takes requests without a body, whole in one read, or with one of a known length. Options make it a daemon, give it workers or a
process for each connection, or make it wrong in some way.
"""

import argparse
import os
import selectors
import signal
import socket
import sys
import time


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--path", default="/")
    parser.add_argument("--bytes", type=int, default=128)
    parser.add_argument("--body", type=int, default=0, help="take POSTs with so many bytes only")
    parser.add_argument("--status", default="200 OK")
    parser.add_argument("--workers", type=int, default=0, help="processes that answer")
    parser.add_argument("--fork", action="store_true", help="a process for each connection")
    parser.add_argument("--daemon", action="store_true", help="leave the process that was started")
    parser.add_argument("--pid-file", help="where a daemon writes its number")
    parser.add_argument("--requests", type=int, default=0, help="answers before it is out of order")
    parser.add_argument("--cold", type=int, default=0, help="answers that cost five times more")
    parser.add_argument("--dearer", action="store_true", help="each answer costs more")
    parser.add_argument("--backlog", type=int, default=1024)
    parser.add_argument("--alone", action="store_true", help="serve one connection at a time")
    parser.add_argument("--no-pipeline", action="store_true", help="answer one of several requests")
    parser.add_argument("--delay", type=float, default=0, help="seconds before each answer")
    parser.add_argument("--die", type=int, default=0, help="end at this request")
    parser.add_argument("--ignore-term", action="store_true")
    parser.add_argument("--silent", action="store_true", help="take requests, never answer")
    return parser.parse_args()


class Server:
    def __init__(self, asked, listener):
        head = f"HTTP/1.1 {asked.status}\r\nContent-Length: {asked.bytes}\r\n\r\n"
        self.answer = head.encode() + b"x" * asked.bytes
        self.other = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
        self.start = f"{'POST' if asked.body else 'GET'} {asked.path} ".encode()
        self.asked, self.listener, self.left = asked, listener, asked.requests
        self.answered = 0
        self.selector = selectors.DefaultSelector()
        self.selector.register(listener, selectors.EVENT_READ)

    def serve(self):
        while True:
            for key, _ in self.selector.select():
                self.accept() if key.fileobj is self.listener else self.read(key.fileobj)
            self.reap()

    def reap(self):
        try:
            while self.asked.fork and os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass  # none is left

    def accept(self):
        try:
            connection, _ = self.listener.accept()
        except BlockingIOError:
            return  # another worker was faster
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.asked.alone:
            self.selector.unregister(self.listener)
        if not self.asked.fork:
            self.selector.register(connection, selectors.EVENT_READ)
        elif os.fork():
            connection.close()
        else:
            connection.setblocking(True)
            while self.read(connection):
                pass
            os._exit(0)

    def spend(self):
        self.answered += 1
        if self.answered <= self.asked.cold:
            sum(range(6000))
        elif self.asked.dearer:
            sum(range(min(self.answered, 1_000_000)))

    def whole(self, connection):
        data = connection.recv(65536)
        while data and self.asked.body:
            head, end, body = data.partition(b"\r\n\r\n")
            if end and len(body) >= self.asked.body:
                is_right = body == b"x" * self.asked.body
                return head + end if is_right and b": %d" % len(body) in head else b"?" + end
            more = connection.recv(65536)
            data = data + more if more else b""
        return data

    def read(self, connection):
        try:
            data = self.whole(connection)
        except ConnectionError:
            data = b""
        if data and not self.asked.silent:
            self.spend()
            one = self.answer if data.startswith(self.start) else self.other
            self.asked.die -= 1
            if self.asked.die == 0:
                print("server.py: no more", file=sys.stderr, flush=True)
                os._exit(7)
            time.sleep(self.asked.delay)
            connection.sendall(one * (1 if self.asked.no_pipeline else data.count(b"\r\n\r\n")))
            self.left -= 1
            if self.left == 0:
                self.answer = self.answer[:-64].replace(b"Length: 128", b"Length: 64")
        is_last = not data or b"Connection: close" in data
        if is_last:
            if not self.asked.fork:
                self.selector.unregister(connection)
            if self.asked.alone:
                self.selector.register(self.listener, selectors.EVENT_READ)
            connection.close()
        return not is_last


def main():
    asked = options()
    listener = socket.create_server(("127.0.0.1", asked.port), backlog=asked.backlog)
    if asked.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    listener.setblocking(False)
    if asked.daemon:
        if os.fork():
            os._exit(0)
        os.setsid()
    if asked.pid_file:
        with open(asked.pid_file, "w") as file:
            file.write(str(os.getpid()))
    print(f"server.py: port {listener.getsockname()[1]}", file=sys.stderr, flush=True)
    for _ in range(asked.workers):
        if os.fork() == 0:
            break
    else:
        if asked.workers:
            return os.wait()
    Server(asked, listener).serve()


main()
