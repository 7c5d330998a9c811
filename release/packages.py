"""What is built: the wheel and the sdist hold what they should, and work in clean environments outside the repository."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import urllib.request
import venv
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
QUESTION = "Start with x=864. Apply x=(8x+97) mod 1000, 2 times. Find x."
SUFFIXES = {".py", ".typed", ".gguf", ".safetensors", ".json", ".jinja", ".html", ".css", ".js", ".svg", ".txt", ".toml"}
NEEDED = (
    "cgr/py.typed", "cgr/model/embedded.gguf", "cgr/model/prober.gguf", "cgr/model/hf/config.json",
    "cgr/model/hf/model.safetensors",
)  # fmt: skip
FOR_DEMO = ("Makefile", "pyproject.toml", "constraints.txt", "README.md", "src/cgr/__init__.py", "recipes/embedded.toml")
# A question to each installed extra, as the arguments of `cgr` and files that must be there afterwards.
EXPERIMENT = (
    ("generate", "--questions", "arithmetic", "--limit", "2", "--seeds", "1", "--budget", "128", "--probe", "--out", "run"),
    ("probe", "run", "--interval", "64"),
    ("export", "run", "run.jsonl"),
    ("import", "run.jsonl", "again"),
)
REPORT = (("report", "run"), ("compare", "run"), ("report", "run.jsonl", "--out", "from-file"))


class CheckFailed(Exception):
    """Something that a release must not have, in one sentence."""


def build(out: Path) -> tuple[Path, Path]:
    """Build both packages into a folder: the wheel and the sdist."""
    run([sys.executable, "-m", "build", "--outdir", str(out), str(ROOT)])
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return wheel, sdist


def check_wheel(wheel: Path) -> str:
    """The wheel holds the package, its models and pages, and nothing else."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    inside = [name for name in names if ".dist-info/" not in name]
    foreign = [name for name in inside if not name.startswith("cgr/") or Path(name).suffix not in SUFFIXES]
    missing = [name for name in NEEDED if name not in inside]
    if foreign or missing:
        raise CheckFailed(f"{wheel.name} has {foreign or 'nothing'} too much, and lacks {missing or 'nothing'}.")
    return f"{wheel.name}: {len(inside)} files, {wheel.stat().st_size / 1e6:.1f} MB"


def check_sdist(sdist: Path) -> str:
    """The sdist holds what `make demo` and `make test` need, and no recorded run or foreign data."""
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    missing = [name for name in FOR_DEMO if name not in names]
    foreign = [name for name in names if re.search(r"(^|/)(runs|\.venv|__pycache__|node_modules)(/|$)|\.sqlite$", name)]
    if foreign or missing:
        raise CheckFailed(f"{sdist.name} has {foreign[:5] or 'nothing'} too much, and lacks {missing or 'nothing'}.")
    return f"{sdist.name}: {len(names)} files, {sdist.stat().st_size / 1e6:.1f} MB"


HF_FOLDER = "from importlib.resources import files; print(files('cgr.model') / 'hf')"
ON_RAY = (
    "generate",
    "--questions",
    "arithmetic",
    "--limit",
    "2",
    "--seeds",
    "1",
    "--budget",
    "128",
    "--out",
    "runs/ray",
    "--ray",
)


def install(package: Path, extra: str, folder: Path) -> Path:
    """A clean environment with this package and one extra ("" for none); the folder of its programs."""
    venv.create(folder, with_pip=True)
    wanted = f"{package}[{extra}]" if extra else str(package)
    pip = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*pip, "--constraint", str(ROOT / "constraints.txt"), wanted])
    return folder / "bin"


def try_core(bin_folder: Path, folder: Path) -> None:
    """One question, an experiment without the lab, and the doctor, on an installed package."""
    solved = json.loads(cgr(bin_folder, folder, "solve", QUESTION, "--json"))
    if not solved["answer"] or not 0 <= solved["certainty"] <= 1:
        raise CheckFailed(f"`cgr solve --json` gave {solved['answer']!r} with certainty {solved['certainty']}.")
    for arguments in EXPERIMENT:
        cgr(bin_folder, folder, *arguments)
    cgr(bin_folder, folder, "rules")


def try_extra(extra: str, bin_folder: Path, folder: Path) -> None:
    """What this extra adds, on an installed package: it works with the extra."""
    try_core(bin_folder, folder)
    if extra == "lab":
        for arguments in REPORT:
            cgr(bin_folder, folder, *arguments)
    elif extra == "server":
        try_server(bin_folder, folder)
    elif extra == "transformers":
        weights = run([str(bin_folder / "python"), "-c", HF_FOLDER], folder).strip()
        solved = json.loads(cgr(bin_folder, folder, "solve", QUESTION, "--json", "--model", f"hf:{weights}"))
        if not solved["answer"]:
            raise CheckFailed("`cgr solve --model hf:FOLDER` gave no answer.")
    elif extra == "ray":
        cgr(bin_folder, folder, *ON_RAY)


def try_server(bin_folder: Path, folder: Path) -> None:
    """`cgr serve` on a free port, one request, and an end by SIGTERM."""
    call = [str(bin_folder / "cgr"), "serve", "--port", "0"]
    server = subprocess.Popen(
        call, cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        url = next(_addresses(server), "")
        body = json.dumps({"model": "embedded", "messages": [{"role": "user", "content": QUESTION}]}).encode()
        asked = urllib.request.Request(url + "/v1/chat/completions", body, {"content-type": "application/json"})
        with urllib.request.urlopen(asked, timeout=300) as reply:
            if "certainty" not in json.load(reply)["cgr"]:
                raise CheckFailed("The reply of `cgr serve` has no certainty.")
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate()
    if server.returncode not in (0, -signal.SIGTERM):
        raise CheckFailed(f"`cgr serve` ended with exit code {server.returncode} after SIGTERM.")


def _addresses(server: subprocess.Popen[str]) -> Iterator[str]:
    for line in server.stdout or ():
        if found := re.search(r"http://[\d.]+:\d+", line):
            yield found[0]
    raise CheckFailed("`cgr serve` printed no address.")


def environment() -> dict[str, str]:
    """The environment of a user: nothing of the repository on the path of Python."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "CGR_MODEL", "CGR_BASE_URL")}


def cgr(bin_folder: Path, folder: Path, *arguments: str) -> str:
    """What `cgr` with these arguments prints, run in this folder."""
    return run([str(bin_folder / "cgr"), *arguments], folder)


def run(call: Sequence[str], folder: Path | None = None) -> str:
    """What a command prints; a failure is a sentence with the end of its output."""
    done = subprocess.run(call, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        shown = " ".join(Path(part).name if os.sep in part else part for part in call)
        raise CheckFailed(f"`{shown}` ended with exit code {done.returncode}: {(done.stdout + done.stderr)[-800:]}")
    return done.stdout
