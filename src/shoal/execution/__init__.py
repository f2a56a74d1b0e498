"""Threads, deadlines, memory plans and engines: who works on the rows, and within which limits."""
