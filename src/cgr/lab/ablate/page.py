"""All ablations of a run on one page: a file that needs nothing else, not even a network."""

from __future__ import annotations

from base64 import b64encode
from html import escape
from pathlib import Path

from cgr.lab.ablate.result import Ablations, Made, Missing
from cgr.lab.output.table import Table

FILE = "index.html"
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2.6rem; }
p.said { font-size: 1.05rem; border-left: 4px solid #009E73; padding-left: .8rem; }
p.note, figcaption, .about { color: #555; font-size: .9rem; }
figure { margin: 1rem 0; } figure img { max-width: 100%; height: auto; }
.wide { overflow-x: auto; } .tall { max-height: 28rem; overflow: auto; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: .4rem 0; }
th, td { padding: .25rem .6rem; text-align: right; white-space: nowrap; border-bottom: 1px solid #e4e4e4; }
th:first-child, td:first-child { text-align: left; } th { background: #f6f6f6; position: sticky; top: 0; }
code { background: #f3f3f3; padding: .1rem .3rem; border-radius: 3px; overflow-wrap: anywhere; }
nav a { margin-right: 1rem; }
@media (prefers-color-scheme: dark) {
  body { background: #16181b; color: #e6e6e6; } p.note, figcaption, .about { color: #a8a8a8; }
  th { background: #24272b; } th, td { border-color: #34383d; } code { background: #24272b; } a { color: #7ab8ff; }
  figure img { background: white; border-radius: 4px; }
}
"""


def write(found: Ablations, folder: Path) -> Path:
    """The figures are taken from beside it."""
    path = folder / FILE
    path.write_text(html(found, folder / "figures"), encoding="utf-8")
    return path


def html(found: Ablations, figures: Path) -> str:
    title = f"Ablations of {escape(found.run.name)}"
    links = "".join(f'<a href="#{one.name}">{escape(one.title)}</a>' for one in found.made)
    sections = "".join(_section(one, figures) for one in found.made)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head><body>'
        f"<h1>{title}</h1><p class=about>{escape(_about(found))}</p><nav>{links}</nav>{sections}{_missing(found.missing)}"
        "</body></html>\n"
    )


def _about(found: Ablations) -> str:
    return (
        f"{found.run.model}, {found.questions} questions × {found.seeds} seeds, budget {found.run.budget:,}, threshold "
        f"{found.threshold:g}. Intervals are 95%, paired bootstrap over questions; shares are of the thinking of the run "
        "as it was; net is less the tokens that probes decoded."
    )


def _section(one: Made, figures: Path) -> str:
    done = one.ablated
    picture = b64encode((figures / f"{one.name}.png").read_bytes()).decode()
    notes = "".join(f"<p class=note>{escape(note)}</p>" for note in done.notes)
    image = f'<img alt="{escape(done.caption, quote=True)}" src="data:image/png;base64,{picture}">'
    return (
        f'<section id="{one.name}"><h2>{escape(one.title)}</h2><p class=said>{escape(done.conclusion)}</p>'
        f"<figure>{image}<figcaption>{escape(done.caption)}</figcaption></figure>{_table(done.table)}{notes}</section>"
    )


def _table(table: Table) -> str:
    heads = "".join(f"<th>{escape(head.label)}</th>" for head in table.heads)
    lines = (
        "".join(f"<td>{escape(head.text(cell))}</td>" for head, cell in zip(table.heads, row, strict=True))
        for row in table.rows
    )
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return (
        f'<div class="wide tall"><table><caption>{escape(table.caption)}</caption><thead><tr>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _missing(missing: tuple[Missing, ...]) -> str:
    if not missing:
        return ""
    items = "".join(
        f"<li><b>{escape(one.title)}</b>: {escape(one.why)} Record it: <code>{escape(one.command)}</code></li>"
        for one in missing
    )
    return f"<section id=missing><h2>Not recorded</h2><ul>{items}</ul></section>"
