"""The licences of everything that an install brings along are compatible with Apache-2.0.

Run inside an installed environment: `python licences.py` prints each package whose licence is not known to be compatible,
and exits with 1 if there is one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions

# Permissive licences, and weak copyleft that does not reach a program which only imports the package.
COMPATIBLE = re.compile(
    r"apache|\bmit\b|\bbsd\b|\bisc\b|\bpsf|python software foundation|mpl|mozilla public|unlicense|\b0bsd\b|zlib|"
    r"public domain|cc0|hpnd|matplotlib|historical permission|boost",
    re.IGNORECASE,
)
OWN_TERMS = re.compile(r"\b(agpl|lgpl|gpl|sspl|busl|commercial|proprietary|non-?commercial)", re.IGNORECASE)


def licence_of(found: Distribution) -> str:
    """The licence that a package states: the expression, the classifiers, the first line of the text or of a file."""
    metadata = found.metadata
    expression = _first(metadata.get_all("License-Expression"))
    classifiers = [text.rpartition("::")[2].strip() for text in metadata.get_all("Classifier") or () if "License" in text]
    files = [found.read_text(f"licenses/{name}") or "" for name in metadata.get_all("License-File") or ()]
    return expression or "; ".join(classifiers) or _first(metadata.get_all("License")) or _first(files)


def _first(values: list[str] | None) -> str:
    """The first line of the first value of a field."""
    lines = (values or [""])[0].strip().splitlines()
    return lines[0] if lines else ""


def name_of(found: Distribution) -> str:
    """The name of a package as in its metadata."""
    return str(found.metadata["Name"])


def is_compatible(licence: str) -> bool:
    """Whether an Apache-2.0 program may depend on a package with this licence. Of alternatives ("A OR B") one is enough."""
    return any(COMPATIBLE.search(one) and not OWN_TERMS.search(one) for one in re.split(r"\bOR\b", licence))


def incompatible() -> Iterator[tuple[str, str]]:
    """Installed packages whose licence is not known to be compatible, with what they state."""
    for found in distributions():
        if not is_compatible(licence := licence_of(found)):
            yield name_of(found), licence or "nothing stated"


if __name__ == "__main__":
    wrong = sorted(incompatible())
    sys.stdout.write("".join(f"{name}: {licence}\n" for name, licence in wrong))
    sys.exit(1 if wrong else 0)
