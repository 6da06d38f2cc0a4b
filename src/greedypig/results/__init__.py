"""What is kept of a run: its file, curves and notes, and how people are told of them."""
