"""Shows notebooks as pages of the site: a hook of MkDocs that turns each into Markdown, with its outputs.

Nothing is run here, and nothing but the standard library is needed.
"""

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

PICTURE = "What the code above draws"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds a page for each notebook."""
    for file in [file for file in files if file.src_uri.endswith(".ipynb")]:
        text = page(Path(file.abs_src_path).read_text(encoding="utf-8"), Path(file.src_uri).name)
        files.append(File.generated(config, file.src_uri.replace(".ipynb", ".md"), content=text))
    return files


def on_page_markdown(markdown: str, **kwargs: Any) -> str:
    """Links to a notebook lead to its page."""
    return re.sub(r"\]\(([^()\s]+)\.ipynb\)", r"](\1.md)", markdown)


def page(content: str, name: str) -> str:
    """A notebook as Markdown; the first heading is followed by a link to the notebook itself."""
    parts = []
    for cell in json.loads(content)["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        parts += [shown for output in cell["outputs"] if (shown := show(output))]
    heading, _, rest = "\n\n".join(parts).partition("\n")
    link = f'<p><a href="{name}" download>Download this notebook</a></p>'
    return f"{heading}\n\n{link}\n{rest}\n"


def show(output: dict[str, Any]) -> str:
    """An output as HTML, the richest form of it that there is."""
    data = output.get("data", {})
    if "image/png" in data:
        picture = _joined(data["image/png"]).strip()
        return f'<p><img alt="{PICTURE}" src="data:image/png;base64,{picture}"></p>'
    if "text/html" in data:
        # Markdown takes a block of HTML to end at an empty line.
        block = re.sub(r"\n\s*\n", "\n", _joined(data["text/html"]))
        return f'<div class="output">{block}</div>'
    text = _joined(output.get("text", data.get("text/plain", "")))
    return f"```text\n{text.rstrip()}\n```" if text.strip() else ""


def _joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)
