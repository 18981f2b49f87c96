"""How the site is built: ``scripts/docs``, or ``sphinx-build -W -n docs build/docs``."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
import zlib
from pathlib import Path

import hashring

DOCS = Path(__file__).resolve().parent
sys.path.append(str(DOCS / "_ext"))

project = "hashring"
author = "the hashring authors"
project_copyright = "the hashring authors; MIT licence"
version = release = hashring.__version__

extensions = [
    "generated",
    "public_names",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.intersphinx",
    "sphinx_click",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["benchmarks", "_pictures"]
nitpicky = True

# Where the site will be published, if that is known: an address that ends with a slash.
html_baseurl = os.environ.get("DOCS_URL", "")
html_theme = "furo"
html_title = f"hashring {release}"
html_static_path = ["_static"]
html_css_files = ["hashring.css"]
html_js_files = ["hashring.js"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}

autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_member_order = "bysource"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True


def inventory(names: Path) -> str:
    """Write the names of a file as an inventory that intersphinx reads without a network.

    Each line of the file is ``domain:role name address``; ``#`` begins a comment.
    """
    lines = [line.split() for line in names.read_text().splitlines() if line[:1] not in ("", "#")]
    body = "".join(f"{name} {role} 1 {address} -\n" for role, name, address in lines)
    head = f"# Sphinx inventory version 2\n# Project: {names.stem}\n# Version: \n"
    head += "# The remainder of this file is compressed using zlib.\n"
    folder = Path(tempfile.mkdtemp(prefix="inventory-"))
    atexit.register(shutil.rmtree, folder)
    (folder / "objects.inv").write_bytes(head.encode() + zlib.compress(body.encode()))
    return str(folder / "objects.inv")


intersphinx_mapping = {
    "python": ("https://docs.python.org/3", inventory(DOCS / "_inventories" / "python.txt")),
}

# The pictures show the rings, layers and actors of this very tree.
sys.path.append(str(DOCS.parent / "scripts"))
import pictures  # noqa: E402

pictures.main()


def measured() -> str:
    """Each measured value as a substitution: |join| is how long a join takes."""
    # Numbers of the benchmarks are written down in one place, and formatted by one program.
    sys.path.append(str(DOCS.parent / "scripts" / "bench"))
    from pages import found, kept  # noqa: PLC0415
    from result import number  # noqa: PLC0415

    return "".join(
        f".. |{key}| replace:: {number(line.value, line.unit)}\n"
        for key, line in found(kept()).items()
        if line.value is not None
    )


rst_epilog = measured()
