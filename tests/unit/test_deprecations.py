"""What goes away warns first, with the line of who asked for it, and the check of releases lets it go then only."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from pkgutil import resolve_name

import pytest

import kscale
from kscale import ca
from kscale.deprecations import LEAVING, Leaving, warn_leaving

ROOT = Path(__file__).parents[2]
MINOR = re.compile(r"\d+\.\d+")


@pytest.fixture
def leaving(monkeypatch: pytest.MonkeyPatch) -> dict[str, Leaving]:
    monkeypatch.setitem(LEAVING, "kscale.old_fit", Leaving("0.2", "kscale.scheduling.fit.fit"))
    monkeypatch.setitem(LEAVING, "kscale.ca.OLD", Leaving("0.2", "nothing", held="kscale.objects.quantity.Quantity"))
    monkeypatch.setitem(LEAVING, "kscale.fit(old=)", Leaving("0.3", "pods"))
    return LEAVING


def test_a_name_that_goes_is_there_and_warns_whoever_asks(leaving: dict[str, Leaving]) -> None:
    text = r"^kscale\.old_fit goes away: deprecated since 0\.2; instead: kscale\.scheduling\.fit\.fit$"
    with pytest.warns(DeprecationWarning, match=text) as told:
        assert kscale.old_fit is kscale.fit
    assert told[0].filename == __file__
    with pytest.warns(DeprecationWarning, match="instead: nothing"):
        assert ca.OLD is kscale.Quantity
    with pytest.warns(DeprecationWarning, match=text):
        from kscale import old_fit
    assert old_fit is kscale.fit


def test_a_name_that_goes_is_in_no_list_of_what_there_is(leaving: dict[str, Leaving]) -> None:
    assert "old_fit" not in kscale.__all__
    assert "old_fit" not in dir(kscale)


def test_a_name_that_there_never_was() -> None:
    for module in (kscale, ca):
        with pytest.raises(AttributeError, match=rf"^module '{module.__name__}' has no attribute 'nosuch'$"):
            module.nosuch  # noqa: B018 - asked for, that is all


def test_a_parameter_that_goes_warns_where_it_is_given(leaving: dict[str, Leaving]) -> None:
    def fit(old: int | None = None) -> None:
        if old is not None:
            warn_leaving("kscale.fit(old=)")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit()
    with pytest.warns(DeprecationWarning, match=r"^kscale\.fit\(old=\) goes away") as told:
        fit(old=1)
    assert told[0].filename == __file__


def test_what_stands_in_the_table_is_there_and_in_the_changelog() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    for name, each in LEAVING.items():
        assert MINOR.fullmatch(each.since), name
        assert name.rpartition(".")[2].partition("(")[0] in changelog, name
        home, _, word = name.partition("(")[0].rpartition(".")
        if name.endswith("=)"):
            resolve_name(f"{home}.{word}")
            continue
        assert word not in resolve_name(home).__all__, name
        with pytest.warns(DeprecationWarning, match=rf"^{re.escape(name)} goes away"):
            getattr(resolve_name(home), word)
