"""A method under test: a host of its own with seeded data, so that a unit test needs neither a model nor a run.

    from tunebox.bench import Bench

    import calm  # the method's module

    def test_the_loss_falls():
        with Bench(records=[{"text": "calm seas"}], seed=1) as run:
            before = run.step().metrics["loss"]
            assert run.step().metrics["loss"] < before

The host is the program `tunebox`, with the operations, limits and refusals of a real run; `TUNEBOX` names the program
where it is not on the path. In the `with` block a test may call functions of the contract itself. The method runs in
the process of the test, without a sandbox.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tunebox import component
from tunebox.declaration import declared
from tunebox_native.connection import GONE, NEXT, HostEnded, connect
from tunebox_native.serve import serve
from tunebox_native.values import Reader, text


class BenchError(Exception):
    """Why a bench does not work: there is no host, it ended the method, or it is gone."""


@dataclass
class Report:
    """Metrics and log lines of one call, as a run would record them."""

    #: The number of finished updates.
    step: int = 0
    #: Metrics by name, those of micro-batches put together; None where a number was not finite.
    metrics: dict[str, float] = field(default_factory=dict)
    #: The lines that the method logged.
    log: list[str] = field(default_factory=list)
    #: The norm of the gradient before clipping.
    gradient_norm: float | None = None
    #: The learning rate of the coming update.
    rate: float | None = None


class _Tested(component.Training):
    """The exports of a method in the process of its test, which keeps its own output and imports."""

    def init(self, given) -> None:
        self.begin(given)


class Bench:
    """Starts a host and calls `init` of the declared method; ends the host at the end of the `with` block.

    `settings` are the method's, by the names of `run.toml`; `records` are as in a data file, one micro-batch unless `set`
    has `train.batch`. Without records, `rows` of `width` tokens are generated in the method's shape. `sample` takes the
    tiny trained model in the place of one with random weights. `verifiers` are the tables `[[verifier]]` of `run.toml`, such as
    `{"use": "number"}`: `judge` and the rewards come from them. `set` gives further keys of `run.toml`, such as
    `{"train.accumulation": 2}`. `state` is what `state()` of another run gave.
    """

    def __init__(
        self,
        *,
        settings: dict[str, Any] | None = None,
        seed: int = 0,
        records: list[dict[str, Any]] | None = None,
        rows: int | None = None,
        width: int | None = None,
        sample: bool = False,
        verifiers: list[dict[str, Any]] | None = None,
        set: dict[str, Any] | None = None,  # noqa: A002  the option of the command line
        state: bytes | None = None,
    ) -> None:
        wanted = {"settings": settings or {}, "seed": seed, "sample": sample, "set": set or {}}
        optional = {"records": records, "rows": rows, "width": width, "verifiers": verifiers,
                    "state": None if state is None else state.hex()}
        self._wanted = wanted | {name: value for name, value in optional.items() if value is not None}
        #: The report of the last call.
        self.report = Report()

    def __enter__(self) -> "Bench":
        program = os.environ.get("TUNEBOX", "tunebox")
        ours, theirs = socket.socketpair()
        self._said = tempfile.TemporaryFile()
        try:
            self._host = subprocess.Popen([program, "host"], stdin=theirs, stdout=subprocess.DEVNULL, stderr=self._said)
        except OSError as error:
            hint = "install it, or name it: `TUNEBOX=/path/to/tunebox`"
            raise BenchError(f"cannot start `{program}`, on which a bench runs: {error.strerror}; {hint}") from None
        theirs.close()
        self._connection = connect(ours)
        self._method = _Tested()
        try:
            self._work(self._greet)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.end("the `with` block of the bench has ended")
        try:
            self._host.wait(5)
        except subprocess.TimeoutExpired:
            self._host.kill()
            self._host.wait()

    def step(self) -> Report:
        """Runs one update: `step` of each micro-batch, then the optimizer."""
        self._next("step")
        return self.report

    def finish(self) -> Report:
        """Calls the method's `finish`; call it last."""
        self._next("finish")
        return self.report

    def state(self) -> bytes:
        """Calls the method's `save_state` and returns the bytes."""
        reader = Reader(self._next("save-state"))
        return reader.take(reader.number("u32"))

    def _greet(self) -> bytes:
        self._connection.receive()
        folder = _folder()
        component.set_root(str(folder / "src"))
        self._connection.send(text(json.dumps(_manifest(folder))) + text(json.dumps(self._wanted)))
        return self._serve()

    def _next(self, what: str) -> bytes:
        def ask() -> bytes:
            self._connection.send(bytes([NEXT]) + text(what))
            return self._serve()

        return self._work(ask)

    def _serve(self) -> bytes:
        while True:
            reported = serve(self._connection, self._method)
            # Another end is for the method; why comes behind it.
            if reported is not None:
                self.report = Report(**json.loads(reported[0]))
                return reported[1]

    def _work(self, work: Any) -> bytes:
        """Runs `work`; an end of the host becomes an error with what the host said."""
        try:
            return work()
        except HostEnded as ended:
            self.__exit__()
            self._said.seek(0)
            said = self._said.read().decode(errors="replace").strip()
            # A host that stopped the method has said why already.
            reason = f"{ended}\n{said}" if str(ended).startswith(GONE) else str(ended)
            raise BenchError(reason) from self._connection.fault


def _folder() -> Path:
    """The folder of the declared method: the nearest one above its module that has a `pyproject.toml`."""
    module = Path(sys.modules[declared().kind.__module__].__file__ or "").resolve()
    for folder in module.parents:
        if (folder / "pyproject.toml").is_file():
            return folder
    raise BenchError(f"there is no `pyproject.toml` above `{module}`, the module of the method")


def _manifest(folder: Path) -> dict[str, Any]:
    """The manifest of the declared method, with name, version and description of its folder's `pyproject.toml`."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return declared().manifest() | {key: project[key] for key in ("name", "version", "description")}
