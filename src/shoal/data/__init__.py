"""Row sources, rows as blocks, coordinate frames, statistics, preprocessing and input validation."""
