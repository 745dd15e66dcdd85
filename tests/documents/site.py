"""Hooks of `mkdocs.yml`: what documents say to readers of the repository, said to readers of the site.

mkdocs calls the functions that begin with `on_`. Comments that tell tests how to run a block are left out. A link to a file
that is no document becomes the name of that file, because the site does not have it.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[2]
DRAWING: Final = ROOT / "build" / "mermaid" / "mermaid.min.js"
"""The program that draws diagrams in a browser. `.ci/site` puts it there; without it, pages load it from elsewhere."""
DRAWING_URI: Final = "assets/javascripts/mermaid.min.js"

_FENCED: Final = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
_COMMENT: Final = re.compile(r"<!-- .*? -->\n?", re.DOTALL)
_LINK: Final = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_PAGES: Final = {"README.md": "index.md"}
"""Files outside of docs/ that a page of the site stands for."""


def on_files(files: Files, /, *, config: MkDocsConfig) -> Files:
    """Add the program that draws diagrams, if it is there."""
    from mkdocs.structure.files import File

    if DRAWING.exists():
        files.append(File.generated(config, DRAWING_URI, abs_src_path=str(DRAWING)))
    return files


def on_post_page(output: str, /, *, page: Page, config: MkDocsConfig) -> str:
    """Let a page with a diagram load the program that draws it."""
    if 'class="mermaid"' not in output or not DRAWING.exists():
        return output
    program = posixpath.relpath(DRAWING_URI, posixpath.dirname(page.file.dest_uri) or ".")
    return output.replace("</head>", f'<script src="{program}"></script></head>', 1)


def on_page_markdown(markdown: str, /, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the text of a page as the site shows it."""
    return for_the_site(markdown, page.file.src_uri)


def for_the_site(text: str, name: str) -> str:
    """Return the text of a document without comments, and with links that work on the site.

    Args:
        text: Markdown, with links relative to the document's folder.
        name: the document's path below docs/.
    """
    parts = []
    end = 0
    for fenced in _FENCED.finditer(text):
        parts += [_prose(text[end : fenced.start()], name), fenced[0]]
        end = fenced.end()
    return "".join([*parts, _prose(text[end:], name)])


def _prose(text: str, name: str) -> str:
    return _LINK.sub(lambda link: _link(link, name), _COMMENT.sub("", text))


def _link(link: re.Match[str], name: str) -> str:
    image, shown, target = link.groups()
    path = target.partition("#")[0]
    if "://" in target or not path:
        return link[0]
    folder = posixpath.join("docs", posixpath.dirname(name))
    file = posixpath.normpath(posixpath.join(folder, path))
    if file.startswith("docs/"):
        return link[0]
    if file in _PAGES:
        target = posixpath.relpath(posixpath.join("docs", _PAGES[file]), folder)
        return f"{image}[{shown}]({target})"
    return shown if file in shown else f"{shown} (`{file}`)"
