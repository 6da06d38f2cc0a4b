"""What `make docs` adds to mkdocs: pages from outside docs/, notebooks, tables of parameters."""
