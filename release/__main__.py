"""`make release-check`: what must be true before a release."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from release import blocks, help_page, packages
from release.packages import CheckFailed

EXTRAS = ("", "lab", "server", "hub")
LARGE_EXTRAS = ("transformers", "ray")


def check_packages(scratch: Path) -> None:
    """Build both packages and look inside."""
    wheel, sdist = packages.build(scratch / "dist")
    blocks.say(f"  {packages.check_wheel(wheel)}")
    blocks.say(f"  {packages.check_sdist(sdist)}")


def check_installs(scratch: Path) -> None:
    """Install the wheel with each extra, and the sdist, each into a clean environment, and use it there."""
    wheel, sdist = packages.build(scratch / "dist")
    for package, extra in ((sdist, ""), *((wheel, extra) for extra in EXTRAS)):
        _check_install(package, extra, scratch)


def check_large_installs(scratch: Path) -> None:
    """The same for the extras that need torch or Ray."""
    wheel, _ = packages.build(scratch / "dist")
    for extra in LARGE_EXTRAS:
        _check_install(wheel, extra, scratch)


def _check_install(package: Path, extra: str, scratch: Path) -> None:
    name = f"{package.suffix.removeprefix('.')}-{extra or 'core'}"
    bin_folder = packages.install(package, extra, scratch / "envs" / name)
    folder = scratch / "work" / name
    folder.mkdir(parents=True)
    packages.try_extra(extra, bin_folder, folder)
    packages.run([str(bin_folder / "python"), str(Path(__file__).parent / "licences.py")])
    blocks.say(f"  {package.name}{f'[{extra}]' if extra else ''}: installed, used, licences compatible")


def check_help(scratch: Path) -> None:
    """The help texts in the docs are those of the program."""
    if help_page.words(help_page.PAGE.read_text(encoding="utf-8")) != help_page.words(help_page.page()):
        raise CheckFailed("docs/help.md is not what the program prints. Write it again: make help-page")
    blocks.say("  docs/help.md is current")


def check_docs(scratch: Path, names: Collection[str] = ()) -> None:
    """Every console block of the documentation runs, or says why not."""
    failures = []
    for page in (one for one in blocks.pages() if not names or one.name in names):
        found = list(blocks.blocks(page))
        started = time.monotonic()
        folder = scratch / "-".join(page.relative_to(blocks.ROOT).parts)  # two pages are called README.md
        failures += blocks.run_page(page, folder, Path(sys.executable).parent)
        left_out = sum(bool(block.skipped) for block in found)
        if found:
            seconds = time.monotonic() - started
            blocks.say(f"  {page.name}: {len(found) - left_out} blocks run, {left_out} marked as not run ({seconds:.0f} s)")
    if failures:
        listed = "\n".join(f"  {one.page}:{one.line}: {one.command}\n    {one.output}" for one in failures)
        raise CheckFailed(f"{len(failures)} commands of the documentation failed:\n{listed}")


CHECKS: Mapping[str, Callable[[Path], None]] = {
    "packages": check_packages,
    "help": check_help,
    "installs": check_installs,
    "large-installs": check_large_installs,
    "docs": check_docs,
}
QUICK = ("packages", "help")


@click.command(help=__doc__)
@click.option("--only", multiple=True, type=click.Choice(list(CHECKS)), help="Only this check; can be given several times.")
@click.option("--page", "pages", multiple=True, help="Of the docs, only this page, such as serve.md; repeatable.")
@click.option("--quick", is_flag=True, help="Only what takes seconds: the contents of the packages, and the help texts.")
def main(only: tuple[str, ...], pages: tuple[str, ...], quick: bool) -> None:
    if unknown := {*pages} - {page.name for page in blocks.pages()}:
        raise click.UsageError(f"There is no page {', '.join(sorted(unknown))}.")
    checks: Mapping[str, Callable[[Path], None]] = {**CHECKS, "docs": partial(check_docs, names=pages)}
    only = only or (("docs",) if pages else ())
    failed = 0
    for name in only or (QUICK if quick else tuple(CHECKS)):
        blocks.say(f"{name}: {(CHECKS[name].__doc__ or '').strip()}")
        with TemporaryDirectory(prefix="cgr-release-") as folder:
            try:
                checks[name](Path(folder))
            except CheckFailed as error:
                failed += 1
                blocks.say(f"  failed: {error}")
    blocks.say(f"{len(only or (QUICK if quick else tuple(CHECKS))) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
