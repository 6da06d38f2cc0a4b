"""The templates as whole pages: escaped texts, and a policy that names the page's own code."""

from __future__ import annotations

import base64
import hashlib
import struct
import zlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.enough import ENOUGH
from ..core.errors import MissingPackage
from ..results.wording import chance, of_the_rise, percent, short_percent, shown, signed

if TYPE_CHECKING:
    from jinja2 import Environment

FOLDER = Path(__file__).parent
JOINED = "\n\t\u00a0\u202f\u200c\u200d"
"""Signs that are not printable, but are text: spaces without a break, and the joiners that are part
of some scripts' spelling."""


class Cell(NamedTuple):
    """A cell of a table, where it is more than a text."""

    text: str
    small: str = ""
    bold: bool = False
    bar: tuple[float, float, bool] | None = None
    """A bar above the text: where it starts and how long it is, in percent, and is it below 0?"""


def render(template: str, data: Any = None, **context: Any) -> str:
    """A whole page. data: what its script draws from; without it there is no script."""
    style = (FOLDER / "page.css").read_text("utf-8")
    script = "" if data is None else (FOLDER / "page.js").read_text("utf-8")
    policy = [
        "default-src 'none'",
        f"style-src '{_digest(style)}'",
        f"script-src '{_digest(script)}'" if script else "script-src 'none'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    page = environment().get_template(template)
    return page.render(data=data, style=style, script=script, policy="; ".join(policy), **context)


@cache
def environment() -> Environment:
    """Jinja2 with autoescaping; every text is also freed from signs that could disguise it."""
    try:
        import jinja2
        from markupsafe import Markup
    except ImportError as error:
        raise MissingPackage(
            "Expected the package jinja2 for pages (it is not installed). "
            'Try pip install "greedypig[cli]".'
        ) from error

    def finalize(value: Any) -> Any:
        return value if isinstance(value, Markup | jinja2.Undefined) else clean(str(value))

    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    templates.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    templates.globals |= {"enough": ENOUGH, "rise": of_the_rise()}
    templates.filters |= {
        "chance": chance,
        "percent": lambda share: percent(share).replace(" ", "\u00a0"),
        "short_percent": lambda share: short_percent(share).replace(" ", "\u00a0"),
        "shown": shown,
        "signed": signed,
        "thousands": lambda number: f"{number:,}",
        "decimals": _decimals,
        "own_code": Markup,  # For the style and script that this package brings.
    }
    return templates


def _decimals(number: float, digits: int = 3) -> str:
    return f"{number:.{digits}f}"


def clean(text: str) -> str:
    """Text without control characters, which are no HTML, and without right-to-left overrides."""
    return "".join(c if c.isprintable() or c in JOINED else "\ufffd" for c in text)


def packed(values: NDArray[np.uint8]) -> str:
    """Bytes, deflated, as base64."""
    return base64.b64encode(zlib.compress(values.tobytes())).decode()


def reduced(pixels: NDArray[np.uint8], step: int) -> NDArray[np.uint8]:
    """(h, w, 3) levels with step × step pixels averaged into one."""
    height, width, _ = pixels.shape
    padded = np.pad(pixels, ((0, -height % step), (0, -width % step), (0, 0)), mode="edge")
    squares = padded.reshape(len(padded) // step, step, -1, step, 3)
    return np.asarray(squares.mean((1, 3)).round().astype(np.uint8))


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
    return f"data:image/png;base64,{base64.b64encode(whole).decode()}"


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
