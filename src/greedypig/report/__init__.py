"""A result as one HTML file that explains itself: no network, no other files, no model.

    report.write(a, "photo.html")           # or report.html(a) for the text
    report.write_index({"photo.html": a, …}, "index.html")

The page is a function of the result alone, so it is the same when made again from the saved file.
Everything a file brings is escaped, and a Content-Security-Policy allows this page's own script and
style by their hashes and nothing else.
"""

from __future__ import annotations

from .index import index_html, write_index
from .page import html, write

__all__ = ["html", "index_html", "write", "write_index"]
