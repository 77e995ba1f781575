"""Options and Hypothesis profiles for the whole test suite, and what is said at its end."""

from __future__ import annotations

import gc
import logging
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import golden_support as golden

# Cases that several test files share: their asserts are explained, too.
pytest.register_assert_rewrite("unit.world.informer_cases", "unit.world.stores_cases", "unit.world.writer_cases")

# Shells ignore SIGINT for what they run in the background, and nohup ignores SIGHUP; commands under test inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is loaded, as the command line does
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # before gRPC is loaded, as kscale.world.rpc does
os.environ["SKBUILD_EDITABLE_VERBOSE"] = "0"  # an editable install that rebuilds says so in the middle of an answer

# The default run is the same everywhere; the others look for what nobody has seen yet, and print how to see it again.
settings.register_profile(
    "default",
    deadline=None,
    max_examples=10,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
_SEARCHING: dict[str, Any] = {"derandomize": False, "print_blob": True}
settings.register_profile("fresh", settings.get_profile("default"), max_examples=60, **_SEARCHING)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=1000, **_SEARCHING)
settings.load_profile(os.environ.get("KSCALE_HYPOTHESIS", "default"))

_BEGUN = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("golden answers")
    group.addoption("--golden-dir", metavar="DIR", help="run the recorded cases of DIR instead of the vendored ones")
    group.addoption("--golden-kind", metavar="KIND", action="append", help="only this kind (repeatable)")
    group.addoption("--golden-case", metavar="TEXT", help="only cases with this text in their names, one test each")
    group.addoption(
        "--reference",
        choices=["sample", "most", "all"],
        default="sample",
        help="recorded cases of the reference: one of each pair of tags, all but the largest, or all",
    )
    plans = parser.getgroup("plans")
    plans.addoption("--plans", metavar="N", type=int, default=30, help="random instances per test of plans")
    plans.addoption("--plans-seed", metavar="N", type=int, default=0, help="seed of the first instance")
    parser.getgroup("hypothesis").addoption(
        "--property-time",
        metavar="SECONDS",
        type=float,
        help="run only tests of properties, in an order drawn from --hypothesis-seed; begin no test after this time",
    )


@pytest.hookimpl(trylast=True)  # Hypothesis has marked its tests by then
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("property_time") is None:
        return
    properties = [item for item in items if item.get_closest_marker("hypothesis") is not None]
    random.Random(config.getoption("hypothesis_seed")).shuffle(properties)
    config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("hypothesis") is None])
    items[:] = properties
    config.stash[_BEGUN] = time.monotonic()


def pytest_runtest_setup(item: pytest.Item) -> None:
    begun = item.config.stash.get(_BEGUN, None)
    if begun is not None and time.monotonic() - begun > item.config.getoption("property_time"):
        pytest.skip("the time of --property-time is over")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without the cyclic garbage collector, and exclude what is collected from its later passes.

    The modules and 17,000 tests stay until the end. Each full pass over them takes as long as hundreds of tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        gc.enable()


@pytest.fixture
def own_collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The cyclic garbage collector as Python sets it, and nobody who has it at ease: a round that another test has
    abandoned holds it until it is collected."""
    from kscale.snapshot.caches import GarbageCollectionPause

    before = gc.get_threshold()
    monkeypatch.setattr("kscale.snapshot.caches._PAUSE", GarbageCollectionPause())
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    """A command that a test runs in this process sets up the log: left so, each later test keeps its lines."""
    log = logging.getLogger("kscale")
    handlers, propagate, level = log.handlers, log.propagate, log.level
    yield
    if (log.handlers, log.propagate, log.level) != (handlers, propagate, level):
        log.handlers, log.propagate = handlers, propagate
        log.setLevel(level)  # not by assignment: each logger remembers what it is enabled for


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Under xdist the workers collect: each hands over what golden cases it left out."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["golden"] = {name: dict(counts) for name, counts in session.config.stash.get(golden.NOT_RUN, {}).items()}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Every worker collects every case: the last one's word will do."""
    result = getattr(node, "workeroutput", {}).get("golden")
    if result:
        node.config.stash[golden.NOT_RUN] = {name: Counter(counts) for name, counts in result.items()}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The golden cases that were not run are counted, and the count is printed."""
    not_run = config.stash.get(golden.NOT_RUN, None)
    if not_run is not None:
        terminalreporter.write_line(f"golden cases not run: {golden.summarize(not_run) or 'none'}")
