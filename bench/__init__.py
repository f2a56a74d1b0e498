"""Benchmarks: problems x adapters x config. `python -m bench --help` says how to run them, `python -m bench table` prints
the results that are kept in `bench/results`."""
