"""The engine: it knows a set function g with a gradient, and nothing of where g comes from."""
