"""SIGINT and SIGTERM: what can stop in order is asked to, all else is interrupted; what takes too long is not waited for.

A thread hears of a signal by a socket, so that it need not wait for the main thread, which may be deep in a kernel.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import click

from .errors import Signalled, complain

GRACE = 0.7  # seconds
CURSOR = "\x1b[?25h"  # which a progress bar hides; click leaves it out where there is no terminal
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(BaseException):
    """A signal came. No KeyboardInterrupt: Python may end itself by SIGINT after one that passed through an `exec`."""


class Stopper:
    """Which signal came, if any; whom to ask to stop; what to tell the user then."""

    def __init__(self) -> None:
        self.number = 0
        self.advice = ""
        self.ask: Callable[[], None] | None = None  # while there is nobody to ask, the main thread is interrupted
        self.is_writing: Callable[[], bool] = lambda: False  # what is half written is waited for

    def error(self) -> Signalled:
        name = signal.Signals(self.number or signal.SIGINT).name
        return Signalled(f"stopped by {name}" + (f": {self.advice}" if self.advice else ""), self.number or signal.SIGINT)

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """In the main thread, between two lines of Python."""
        self.number = self.number or number
        if self.ask is None:
            raise Interrupted

    def listen(self, ear: socket.socket) -> None:
        """In a thread: end the process, unless it does so itself. A second signal waits for nothing."""
        data = ear.recv(1)
        while data and data[0] not in SIGNALS:
            data = ear.recv(1)
        if not data:
            return
        self.number = self.number or data[0]
        if self.ask is not None:
            self.ask()
        ear.settimeout(GRACE)
        while True:
            try:
                if not ear.recv(1):  # closed: it has ended in order
                    return
                break
            except TimeoutError:
                if not self.is_writing():
                    break
        complain(self.error().message)
        click.echo(CURSOR, file=sys.__stderr__, nl=False)
        os._exit(128 + self.number)


@contextlib.contextmanager
def stopping() -> Iterator[Stopper]:
    """Answer SIGINT and SIGTERM in order, here; but those that the caller wants to be ignored are."""
    stopper = Stopper()
    if threading.current_thread() is not threading.main_thread():  # only that one may set handlers
        yield stopper
        return
    mouth, ear = socket.socketpair()
    mouth.setblocking(False)
    thread = threading.Thread(target=stopper.listen, args=(ear,), daemon=True)
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number in [number for number, handler in before.items() if handler is not signal.SIG_IGN]:
        signal.signal(number, stopper.interrupt)
    fd = signal.set_wakeup_fd(mouth.fileno(), warn_on_full_buffer=False)
    thread.start()
    try:
        yield stopper
    finally:
        signal.set_wakeup_fd(fd)
        mouth.close()
        thread.join()
        ear.close()
        for number, handler in before.items():
            signal.signal(number, handler)
