"""The results of runs: their files, curves and notes, and the words that describe them."""
