"""`python -m shoal` is `shoal`."""

from .cli.main import main

if __name__ == "__main__":
    main()
