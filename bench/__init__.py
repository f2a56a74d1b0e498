"""Benchmarks of Shoal and other libraries on the same problems.

`python -m bench --help` lists the suites; `python -m bench table` prints the tracked results in `bench/results`.
"""
