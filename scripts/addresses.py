"""Write the project's addresses into the copy of the checkout that ``scripts/release`` builds from.

No file of the repository names its own address, since a fork has another one. SOURCE_URL
and DOCS_URL become ``project_urls``. README.rst names its recordings by their paths in the
repository. An index page cannot show those: with DOCS_URL they get addresses, without it they go.
"""

import os
import re
import sys
from pathlib import Path
from urllib.parse import urlsplit

IMAGE = re.compile(r"^\.\. image:: docs/(_static/\S+)\n((?:   .*\n)*)\n", re.M)


def address(variable: str) -> str | None:
    """The address without a slash at its end; ``None`` when the variable is not set."""
    given = os.environ.get(variable)
    if not given:
        return None
    parts = urlsplit(given)
    if parts.scheme != "https" or not parts.netloc or not given.isprintable() or " " in given:
        sys.exit(f"{variable} is {given!r}: give an address that begins with https://")
    return given.rstrip("/")


def main(directory: Path) -> None:
    source, site = address("SOURCE_URL"), address("DOCS_URL")
    named = [
        f"    {what} = {where}\n"
        for what, where in (
            ("Source", source),
            ("Documentation", site),
            ("Changelog", site and f"{site}/project/changelog.html"),
        )
        if where
    ]
    if named:
        config = directory / "setup.cfg"
        text = config.read_text()
        whole = text.replace(
            "\nclassifiers =\n", f"\nproject_urls =\n{''.join(named)}classifiers =\n"
        )
        if whole == text:
            sys.exit("setup.cfg has no classifiers: nowhere to put project_urls")
        config.write_text(whole)
    readme = directory / "README.rst"
    shown = rf".. image:: {site}/\1\n\2\n" if site else ""
    text, images = IMAGE.subn(shown, readme.read_text())
    if not images:
        sys.exit("README.rst shows no image of docs/_static")
    readme.write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
