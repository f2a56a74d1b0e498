"""Files: rows out of them (`open_rows`); models, and the state of a running fit, into them and back (`save`, `load`,
`Checkpoint`).

Nothing that is read here is ever unpickled, mapped into memory or believed before it has been checked against the size of
the file.
"""
