"""The command line: arguments and messages, no maths."""


def start() -> None:
    """What `shoal` and `python -m shoal` call. Signals end the process at once until `main` answers them itself."""
    import signal

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python would show what was being imported
    from .main import main

    try:
        main()
    finally:  # all is told and written: a signal on the way out would only hide that
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
