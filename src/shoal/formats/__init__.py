"""Read rows from files (`open_rows`); save and load models and checkpoints (`save`, `load`, `Checkpoint`).

Files are never unpickled or memory-mapped, and the sizes that they declare are checked against the size of the file before
anything is allocated.
"""
