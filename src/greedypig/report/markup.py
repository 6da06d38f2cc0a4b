"""The few pieces of HTML that pages are made of: escaped text, a sealed document, a small PNG."""

from __future__ import annotations

import base64
import hashlib
import html
import importlib.resources
import json
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.attribution import Attribution


def escape(text: object) -> str:
    """Text that is safe between tags and inside quoted attributes."""
    # Control characters are no HTML; a right-to-left override could disguise a name. The two
    # joiners are part of some scripts' spelling.
    shown = "".join(c if c.isprintable() or c in "\n\t\u200c\u200d" else "�" for c in str(text))
    return html.escape(shown, quote=True)


def data_block(data: Any) -> str:
    """JSON in a script element of a type that no browser runs; `</script>` cannot occur in it."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return f'<script type="application/json" id="data">{text}</script>'


def document(title: str, body: str, *, script: bool, data: Any = None) -> str:
    """A whole page around `body`, sealed by a policy that names its own style and script."""
    style, code = asset("page.css"), asset("page.js") if script else ""
    policy = [
        "default-src 'none'",
        f"style-src '{_digest(style)}'",
        f"script-src '{_digest(code)}'" if script else "script-src 'none'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    parts = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{"; ".join(policy)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>{escape(title)}</title>",
        f"<style>{style}</style>",
        "</head>",
        "<body>",
        body,
    ]
    if script:
        parts += [data_block(data), f"<script>{code}</script>"]
    return "\n".join([*parts, "</body>", "</html>", ""])


def page(
    a: Attribution, *, name: str, eyebrow: Sequence[str | None], title: str, lead: str, main: str,
    closing: str = "", skip: str = "the explanation", data: Any = None,
) -> str:  # fmt: skip
    """The page of a result. eyebrow: short texts above the title. title, lead, main and closing,
    the footer's last sentences, are HTML. Without data there is no script."""
    above = " · ".join(escape(part) for part in eyebrow if part) or "greedypig"
    version = escape(a.provenance.get("greedypig", ""))
    body = f"""
<a class="skip" href="#main">Skip to {skip}</a>
<header><p class="eyebrow">{above}</p>
<h1>{title}</h1>
<p class="lead">{lead}</p></header>
<main id="main">{main}</main>
<footer><p>Made by greedypig {version} from the result alone.
{closing}</p></footer>"""
    return document(name, body, script=data is not None, data=data)


def asset(name: str) -> str:
    """One of the text files beside this module."""
    return importlib.resources.files("greedypig.report").joinpath(name).read_text("utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def packed(raw: bytes) -> str:
    """Bytes as base64."""
    return base64.b64encode(raw).decode()


def png(pixels: NDArray[np.uint8]) -> str:
    """(h, w, 3) levels as a data URI."""
    height, width, _ = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)

    def chunk(name: bytes, content: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(name + content))
        return struct.pack(">I", len(content)) + name + content + check

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    whole = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head)
    whole += chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)) + chunk(b"IEND", b"")
    return f"data:image/png;base64,{packed(whole)}"


def table(heads: list[str], rows: list[list[str]], *, caption: str, words: int = 1) -> str:
    """A table of texts that are HTML already; all but the first `words` columns hold numbers."""
    kinds = ["" if i < words else ' class="num"' for i in range(len(heads))]
    top = "".join(f'<th scope="col"{k}>{h}</th>' for h, k in zip(heads, kinds, strict=True))
    body = "".join(
        f'<tr><th scope="row">{row[0]}</th>'
        + "".join(f"<td{k}>{cell}</td>" for cell, k in zip(row[1:], kinds[1:], strict=True))
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption>"
        f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )
