"""Hooks of mkdocs.yml: the site also shows what lies outside docs/, at its place in the clone.

- Pages and pictures of reproduction/, benchmarks/ and the changelog are those that their scripts
  wrote: nothing is copied by hand. Links of docs/ that lead there are rewritten.
- A notebook is a page: its text, code and outputs as they were saved by `make notebooks`.
"""

from __future__ import annotations

import base64
import json
import posixpath
import re
from itertools import count
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
OUTSIDE = (
    "CHANGELOG.md", "CONTRIBUTING.md", "CITATION.cff", "LICENSE", "benchmarks/*.md",
    "benchmarks/*.py", "examples/*.py", "reproduction/**/*.md", "reproduction/**/*.png",
    "reproduction/**/*.jpg", "reproduction/**/*.csv", "reproduction/**/*.py",
    "reproduction/**/*.toml", "tools/assets/*.py",
)  # fmt: skip
LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")
_html: dict[str, str] = {}
"""Placeholder → HTML of an output, put back once Markdown has been rendered."""


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the files from outside docs/ and a page for each notebook."""
    _html.clear()
    for pattern in OUTSIDE:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    for file in list(files):
        if file.src_uri.endswith(".ipynb"):
            notebook = json.loads(Path(str(file.abs_src_path)).read_text())
            text, pictures = notebook_page(notebook, Path(file.src_uri))
            files.append(File.generated(config, file.src_uri[:-6] + ".md", content=text))
            for name, content in pictures.items():
                files.append(File.generated(config, name, content=content))
    return files


def notebook_page(notebook: dict[str, Any], path: Path) -> tuple[str, dict[str, bytes]]:
    """Markdown of a notebook, and its pictures by their place in the site."""
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    numbers = count(1)
    for cell in notebook["cells"]:
        source = "".join(cell["source"]).rstrip()
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        shown = [line for line in source.splitlines() if not line.startswith("%")]
        source = "\n".join(shown).strip()
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {"text/plain": output.get("text", "")})
            if "text/html" in data:
                key = f"output-{path.stem}-{next(numbers)}"
                _html[key] = "".join(data["text/html"])
                parts.append(f'<div class="output" id="{key}"></div>')
            elif kind := next((k for k in ("image/png", "image/jpeg") if k in data), None):
                name = f"{path.stem}-{next(numbers)}.{kind[6:]}"
                content = base64.b64decode("".join(data[kind]))
                pictures[(path.parent / name).as_posix()] = content
                parts.append(f"![output of the code above]({name})")
            elif text := "".join(data.get("text/plain", "")).rstrip():
                parts.append(f"```{{.text .output}}\n{text}\n```")
    parts.append(f"[Download this notebook]({path.name})")
    return "\n\n".join(parts), pictures


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make links that are right in the clone right in the site."""
    here = page.file.src_uri
    inside = (Path(config.docs_dir) / here).exists() or here.startswith("notebooks/")
    folder = posixpath.dirname(f"docs/{here}" if inside else here)

    def rewrite(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, match[2]))
        if "://" in match[2] or not (ROOT / target).exists():
            return match[0]
        if (ROOT / target).is_dir():
            target += "/README.md"
        target = "index.md" if target == "README.md" else target.removeprefix("docs/")
        if target.endswith(".ipynb") and target != here.replace(".md", ".ipynb"):
            target = target.replace(".ipynb", ".md")  # The page; on it, the file to download.
        return match[1] + posixpath.relpath(target, posixpath.dirname(here) or ".") + match[3]

    return LINK.sub(rewrite, markdown)


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put the HTML outputs of a notebook into their places."""

    def fill(match: re.Match[str]) -> str:
        return f'<div class="output">{_html[match[1]]}</div>'

    return re.sub(r'<div class="output" id="(output-[\w-]+)"></div>', fill, html)
