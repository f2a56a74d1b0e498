"""The command line: arguments and messages, no maths."""
