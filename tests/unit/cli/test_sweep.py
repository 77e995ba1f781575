"""``kscale sweep``: combinations, a fleet, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unit.cli.support import kscale

EXAMPLES = Path(__file__).parents[3] / "examples"
MORE = ("-q", "-g", EXAMPLES / "groups.yaml", "--now", "2026-07-01T00:00:00Z", "--jobs", 1)


def test_combinations_and_scenarios() -> None:
    dump = ("-f", EXAMPLES / "cluster.json.gz")
    got = kscale("sweep", *dump, *MORE, "--vary", "flags.expander=price,most-pods", "--vary", "prices.*=x1,x2")
    assert got.code == 0
    assert got.stdout.splitlines()[0] == (
        "4 of 4 scenarios decided; the cheapest is flags.expander=price prices.*=x1, $28.02/h."
    )
    report = json.loads(kscale("sweep", EXAMPLES / "scenarios.yaml", *dump, *MORE, "-o", "json").stdout)
    assert [row["scenario"] for row in report["rows"]] == [
        "by-price", "cheap-memory", "no-compute", "zone-a-lost", "smaller-requests",
    ]  # fmt: skip
    twice = kscale("sweep", *dump, *MORE, "--vary", "flags.expander=price,price")
    assert twice.code == 2
    assert '--vary: "price" occurs twice in "flags.expander=price,price"' in twice.stderr
    for values in ("²", "0..inf:3", "1..2:٣", "nan", "1..2: 3"):
        wrong = kscale("sweep", *dump, *MORE, "--vary", f"groups.nope.max={values}")
        assert (wrong.code, "--vary" in wrong.stderr) == (2, True), (values, wrong.stderr)
    wrong = kscale("sweep", *dump, *MORE, "--vary", "groups.nope.price=1,2")
    assert (wrong.code, 'there is no node group "nope"' in wrong.stdout) == (2, True)


def test_a_fleet_is_one_table(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.json.gz").write_bytes((EXAMPLES / "cluster.json.gz").read_bytes())
    got = kscale("sweep", "-f", tmp_path / "*.json.gz", *MORE, "-o", "csv")
    rows = [line.split(",") for line in got.stdout.splitlines()]
    assert [row[0] for row in rows[1:]] == [str(tmp_path / f"{name}.json.gz") for name in ("one", "two")]
    assert rows[1][1:] == rows[2][1:]
    assert kscale("sweep", "-f", tmp_path / "*.yaml", *MORE).code == 2


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--executor", "spark://x"), "is neither dask://HOST:PORT nor ray://HOST:PORT"),
        (("--executor", "ray://"), "is neither dask://HOST:PORT nor ray://HOST:PORT"),
        (("--executor", "dask://127.0.0.1"), "is neither dask://HOST:PORT nor ray://HOST:PORT"),
        (("--executor", "dask://127.0.0.1:http"), "is neither dask://HOST:PORT nor ray://HOST:PORT"),
        (("--executor", "dask://[::1:8786"), "is neither dask://HOST:PORT nor ray://HOST:PORT"),
        (("--executor", "ray://127.0.0.1:99999"), "is neither dask://HOST:PORT nor ray://HOST:PORT"),
        (("--executor", "dask://127.0.0.1:1", "--jobs", 2), "exclude each other"),
    ],
)
def test_bad_usage(more: tuple[object, ...], message: str) -> None:
    got = kscale("sweep", "-f", EXAMPLES / "cluster.json.gz", *more)
    assert (got.code, message in got.stderr) == (2, True)
