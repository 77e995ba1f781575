"""Running the command line inside the test process, streams apart."""

from __future__ import annotations

from dataclasses import dataclass

from typer.testing import CliRunner

from kscale.cli.app import app


@dataclass(frozen=True)
class Run:
    code: int
    stdout: str
    stderr: str


def kscale(*arguments: object, stdin: bytes | str | None = None, env: dict[str, str] | None = None) -> Run:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin, env=env)
    return Run(result.exit_code, result.stdout, result.stderr)
