"""Handle SIGINT and SIGTERM: ask a fit to stop at the next step, interrupt other commands, and exit after a grace period.

A thread receives the signals through a socket, because the main thread may be in a compiled kernel for a long time.
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

from .errors import StoppedBySignalError, print_error

GRACE_SECONDS = 0.7  # seconds between a signal and the forced exit
CURSOR = "\x1b[?25h"  # show the cursor, which a progress bar hides; click strips it where there is no terminal
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(BaseException):
    """A signal arrived. Not a KeyboardInterrupt: Python may kill itself by SIGINT after one that passed through `exec`."""


class SignalHandler:
    """State of signal handling: the signal received, how to stop the work, and the message for the user."""

    def __init__(self) -> None:
        self.number = 0
        self.resume_hint = ""
        self.request_stop: Callable[[], None] | None = None  # if None, the main thread is interrupted
        self.is_writing: Callable[[], bool] = lambda: False  # a file being written is waited for

    def to_error(self) -> StoppedBySignalError:
        """Return the exception that reports the signal."""
        name = signal.Signals(self.number or signal.SIGINT).name
        return StoppedBySignalError(
            f"stopped by {name}" + (f": {self.resume_hint}" if self.resume_hint else ""), self.number or signal.SIGINT
        )

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """Python-level signal handler; runs in the main thread."""
        self.number = self.number or number
        if self.request_stop is None:
            raise Interrupted

    def watch_socket(self, receiver: socket.socket) -> None:
        """Wait in a thread for a signal; exit the process after the grace period, or at once on a second signal."""
        data = receiver.recv(1)
        while data and data[0] not in SIGNALS:
            data = receiver.recv(1)
        if not data:
            return
        self.number = self.number or data[0]
        if self.request_stop is not None:
            self.request_stop()
        receiver.settimeout(GRACE_SECONDS)
        while True:
            try:
                if not receiver.recv(1):  # closed: the command has ended by itself
                    return
                break
            except TimeoutError:
                if not self.is_writing():
                    break
        print_error(self.to_error().message)
        click.echo(CURSOR, file=sys.__stderr__, nl=False)
        os._exit(128 + self.number)


@contextlib.contextmanager
def handle_signals() -> Iterator[SignalHandler]:
    """Handle SIGINT and SIGTERM in the body. Signals that the parent process set to be ignored stay ignored."""
    handler = SignalHandler()
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield handler
        return
    sender, receiver = socket.socketpair()
    sender.setblocking(False)
    thread = threading.Thread(target=handler.watch_socket, args=(receiver,), daemon=True)
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number in [number for number, previous in before.items() if previous is not signal.SIG_IGN]:
        signal.signal(number, handler.interrupt)
    fd = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    thread.start()
    try:
        yield handler
    finally:
        signal.set_wakeup_fd(fd)
        sender.shutdown(socket.SHUT_RDWR)  # ends the thread even if a forked process still holds the socket
        sender.close()
        thread.join()
        receiver.close()
        for number, previous in before.items():
            signal.signal(number, previous)
