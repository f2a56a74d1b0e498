"""`python -m shoal` is `shoal`."""

from .cli import start

if __name__ == "__main__":
    start()
