"""All ablations of a run as one HTML page that needs no other file and no network."""

from __future__ import annotations

from base64 import b64encode
from html import escape
from pathlib import Path

from cgr.files import write_text
from cgr.lab.ablate.result import Ablation, AblationResult, Ablations, MissingAblation
from cgr.lab.output import Table

FILE = "index.html"
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2.6rem; }
p.conclusion { font-size: 1.05rem; border-left: 4px solid #009E73; padding-left: .8rem; }
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
    """Write index.html with the figures of `folder` embedded; its path."""
    path = folder / FILE
    write_text(path, html(found, folder / "figures"))
    return path


def html(found: Ablations, figures: Path) -> str:
    """The page as text. `figures`: the folder of the PNG files."""
    title = f"Ablations of {escape(found.run.name)}"
    links = "".join(f'<a href="#{one.name}">{escape(one.title)}</a>' for one, _ in found.made)
    sections = "".join(_section(*made, figures) for made in found.made)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head><body>'
        f"<h1>{title}</h1><p class=about>{escape(_about(found))}</p><nav>{links}</nav>{sections}{_missing(found.missing)}"
        "</body></html>\n"
    )


def _about(found: Ablations) -> str:
    return (
        f"{found.run.model}, {found.questions} questions × {found.seeds} seeds, budget {found.run.budget:,}, threshold "
        f"{found.threshold:g}. Intervals are 95%, from a paired bootstrap over questions. Shares are of the thinking "
        "tokens of the recorded run; net savings subtract the tokens decoded by probes."
    )


def _section(one: Ablation, done: AblationResult, figures: Path) -> str:
    picture = b64encode((figures / f"{one.name}.png").read_bytes()).decode()
    notes = "".join(f"<p class=note>{escape(note)}</p>" for note in done.notes)
    image = f'<img alt="{escape(done.caption, quote=True)}" src="data:image/png;base64,{picture}">'
    return (
        f'<section id="{one.name}"><h2>{escape(one.title)}</h2><p class=conclusion>{escape(done.conclusion)}</p>'
        f"<figure>{image}<figcaption>{escape(done.caption)}</figcaption></figure>{_table(done.table)}{notes}</section>"
    )


def _table(table: Table) -> str:
    heads = "".join(f"<th>{escape(head.label)}</th>" for head in table.heads)
    rows = ("".join(f"<td>{escape(text)}</td>" for text in row) for row in table.texts())
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return (
        f'<div class="wide tall"><table><caption>{escape(table.caption)}</caption><thead><tr>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _missing(missing: tuple[MissingAblation, ...]) -> str:
    items = "".join(
        f"<li><b>{escape(one.title)}</b>: {escape(one.why)} Command to record it: <code>{escape(one.command)}</code></li>"
        for one in missing
    )
    return f"<section id=missing><h2>Not recorded</h2><ul>{items}</ul></section>" if missing else ""
