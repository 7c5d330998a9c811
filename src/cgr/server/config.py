"""What `cgr serve` can be told, in one picklable object: every worker process gets the same one."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from cgr.drive.answer import Style
from cgr.engines.open import ModelOptions
from cgr.server.audit.options import PromiseOptions
from cgr.settings import Settings

When = Literal["boxed", "always", "asked"]
LogFormat = Literal["text", "json", "off"]
Mode = Literal["on", "off", "shadow"]
ABSTAINED = "I am not certain enough to answer this."
RECORD_LIMIT = 100_000


@dataclass(frozen=True, slots=True)
class ShadowConfig:
    """Requests that are answered plainly, probed behind their reply, and recorded.

    `share`: of all prompts. `folder`: of the recording. `text`: keep the texts. `limit`: traces of the run. `worker`: the
    number of this worker, if there are several: each has a run of its own.
    """

    share: float
    folder: Path
    text: bool = False
    limit: int = RECORD_LIMIT
    worker: int | None = None

    @property
    def run_folder(self) -> Path:
        """The folder of this worker's run."""
        return self.folder if self.worker is None else self.folder / f"worker-{self.worker}"


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """The options of `cgr serve`.

    `settings`: the defaults of requests. `sessions`: requests that are thought about at once; `queue`: those that may wait,
    `queue_seconds` for how long. `keys`: SHA-256 hashes of the API keys; none: everybody may use the server.
    `baseline_tokens`: mean thinking tokens without early stops, if known from a report. `promise`: of a calibration.
    `shadow`: some requests are only recorded, and without a promise nothing is stopped by default.
    """

    model: ModelOptions = field(default_factory=ModelOptions)
    settings: Settings = field(default_factory=lambda: Settings(instruction=""))
    host: str = "127.0.0.1"
    port: int = 8321
    workers: int = 1
    when: When = "boxed"
    shadow: ShadowConfig | None = None
    answer_style: Style = "full"
    wrap_up: str = ""
    sentence_end: bool = True
    stream_probes: bool = False
    abstain_message: str = ABSTAINED
    show_withheld: bool = False
    sessions: int = 1
    queue: int = 256
    queue_seconds: float = 60.0
    max_body: int = 8 << 20
    shutdown_seconds: float = 30.0
    ping_seconds: float = 15.0
    client_seconds: float = 60.0
    keys: frozenset[bytes] = frozenset()
    cors: tuple[str, ...] = ()
    log: LogFormat = "text"
    baseline_tokens: float | None = None
    promise: PromiseOptions | None = None

    @property
    def quiet(self) -> bool:
        """Whether replies of an upstream are passed back without an object of ours: nothing changes for clients."""
        return self.shadow is not None and self.promise is None

    @property
    def gateway(self) -> bool:
        """Whether the model is on other servers, to which requests can be passed on."""
        return bool(self.model.addresses)
