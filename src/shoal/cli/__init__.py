"""The command line: arguments, messages and files. The computations are in the library."""


def start() -> None:
    """Entry point of `shoal` and `python -m shoal`. Signals end the process at once until `main` handles them."""
    import gc
    import signal

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # avoids a traceback during imports
    from .main import main

    try:
        main()
    finally:  # the command has ended; a signal must not change its exit code now
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        gc.freeze()  # no search for unreachable objects among those of Numba at exit, which takes 0.15 s
