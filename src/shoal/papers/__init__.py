"""Papers, run again: each file holds one paper's experiments and, as data, what it claims and what it has published."""
