"""``kscale run vpa-recommender``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Annotated, ClassVar, Final

import msgspec
import typer

from kscale.cli.commands.run import run_if_simulated
from kscale.cli.go_flags import GoCommand, Idle, StructFlags, flags_given_of, read_int, struct_flags, struct_of
from kscale.cli.options import OptionGroup, Switch
from kscale.cli.process import print_record, run_program
from kscale.cli.process_flags import IDLE, ApiFlags, LeaseFlags, ProcessFlags, WorldFlags
from kscale.cli.recommend_options import setting_of
from kscale.cli.registry import strategy_names
from kscale.effects import duration, timedelta_of
from kscale.errors import InputError, Problem
from kscale.files import read_file
from kscale.objects.times import parse_duration
from kscale.series.prometheus import PrometheusHistory, authorization, parse_prometheus_duration
from kscale.vpa.options import RecommenderOptions
from kscale.vpa.recommender.strategy_advice import MAX_RESPONSE_BYTES, StrategyAdvisor
from kscale.vpa.strategies import PercentileLimitStrategy, PercentileStrategy, RecommenderStrategy, find_strategy

__all__ = ["COMMAND", "command"]

_BUILT_IN: Final = (RecommenderStrategy.name, PercentileStrategy.name, PercentileLimitStrategy.name)


@struct_flags(RecommenderOptions, without=("min_checkpoints",))
class RecommenderFlags(StructFlags):
    """Flags of the recommender's decisions."""

    title = "Decisions"
    common = ("recommender_interval", "storage")


@struct_flags(PrometheusHistory, without=("container_name_label", "namespace"))
class HistoryFlags(StructFlags):
    """Flags for the history that Prometheus has."""

    title = "History"


class COMMAND(GoCommand):
    """The typer command, with upstream's flags and those of strategies and plans."""

    idle: ClassVar[Mapping[str, Idle]] = {
        **IDLE,
        "min-checkpoints": Idle("--update-worker-count sets the minimum number, as in upstream", read_int),
    }


@dataclass(eq=False, repr=False, init=False)
class Process(ProcessFlags):
    """Process flags with the recommender's port."""

    address: str = ":8942"


@dataclass(eq=False, repr=False, init=False)
class Lease(LeaseFlags):
    """Leader election flags with the recommender's lease."""

    leader_elect: Switch = False
    leader_elect_resource_name: str = "vpa-recommender-lease"


@dataclass(eq=False, repr=False, init=False)
class PrometheusFlags(OptionGroup):
    """Flags for Prometheus' address and credentials.

    Attributes
    ----------
    prometheus_address : URL
        URL of Prometheus.
    prometheus_insecure
        Do not verify Prometheus's TLS certificate.
    prometheus_max_response_bytes : BYTES
        Largest response, decompressed.
    prometheus_query_timeout : TIME
        Timeout of one Prometheus query.
    username
        User name for Prometheus; default: the environment variable PROMETHEUS_USERNAME.
    password
        Password for Prometheus; default: the environment variable PROMETHEUS_PASSWORD.
    prometheus_bearer_token
        Bearer token for Prometheus, instead of user name and password.
    prometheus_bearer_token_file : FILE
        File that contains the bearer token for Prometheus.
    """

    title = "History"
    common = ("prometheus_address",)

    prometheus_address: str = "http://prometheus.monitoring.svc"
    prometheus_insecure: Switch = False
    prometheus_max_response_bytes: Annotated[int, typer.Option(min=1 << 16)] = 512 << 20
    prometheus_query_timeout: str = "5m"
    username: str = ""
    password: str = ""
    prometheus_bearer_token: str = ""
    prometheus_bearer_token_file: str = ""

    def timeout(self) -> timedelta:
        """Return the timeout of each query. Raises InputError if it is no duration."""
        try:
            return timedelta_of(parse_prometheus_duration(self.prometheus_query_timeout))
        except ValueError as error:
            raise InputError(Problem(str(error), field="--prometheus-query-timeout")) from None

    def authorization(self) -> str:
        """Return the value of the Authorization header. The token file is read on every call.

        Raises InputError if several credentials are set or the file cannot be read.
        """
        credentials = (self.prometheus_bearer_token, self.prometheus_bearer_token_file, self.username)
        if sum(map(bool, credentials)) > 1:
            text = (
                "--bearer-token, --bearer-token-file and --username are mutually exclusive and can't be set together."
            )
            raise InputError(text)
        token = self.prometheus_bearer_token
        if self.prometheus_bearer_token_file:
            try:
                token = read_file(self.prometheus_bearer_token_file).decode().strip()
            except (OSError, UnicodeDecodeError) as error:
                text = f"cannot be read: {getattr(error, 'strerror', None) or error}"
                raise InputError(
                    Problem(text, self.prometheus_bearer_token_file, field="--prometheus-bearer-token-file")
                ) from None
        return authorization(bearer_token=token, username=self.username, password=self.password, environment=os.environ)


@dataclass(eq=False, repr=False, init=False)
class StrategyFlags(OptionGroup):
    """Flags for the strategy that computes the target.

    Attributes
    ----------
    setting : NAME=VALUE
        Setting of the strategy, by its name. Repeatable.
    strategy_interval : DURATION
        Time between two Prometheus queries for the samples of --history-length.
    strategy_answer_bytes : N
        Maximum size in bytes of a response of Prometheus to a strategy's query; a longer one is an error.
    """

    title = "Strategy"
    common = ("strategy",)

    strategy: Annotated[
        str,
        typer.Option(
            autocompletion=strategy_names,
            help=f"Strategy that sets targets: {', '.join(_BUILT_IN)}, another that is installed, or your own: "
            "module:Class, file.py:Class. A strategy that reads samples needs --storage=prometheus.",
        ),
    ] = RecommenderStrategy.name
    setting: list[str] | None = None
    strategy_interval: str = "1h0m0s"
    strategy_answer_bytes: Annotated[int, typer.Option(min=1)] = MAX_RESPONSE_BYTES

    def advisor(
        self, options: RecommenderOptions, history: PrometheusHistory, timeout: timedelta
    ) -> StrategyAdvisor | None:
        """Return the advisor that runs the strategy; None for upstream's own recommendation.

        Raises InputError if a flag has no effect, if the strategy is unknown or needs samples that checkpoints do not
        have, or if its interval is malformed or not above 0.
        """
        strategy = find_strategy(self.strategy, dict(map(setting_of, self.setting or ())))
        is_upstreams = type(strategy) is RecommenderStrategy
        if not strategy.needs_samples:  # other strategies run at --strategy-interval
            useless = (
                ("--strategy-interval", "--strategy-answer-bytes") if is_upstreams else ("--strategy-answer-bytes",)
            )
            for flag in flags_given_of(self):
                if flag in useless:
                    raise InputError(Problem("has no effect without a --strategy of samples", field=flag))
        if is_upstreams:
            return None
        if strategy.needs_samples and options.use_checkpoints:
            text = f"{self.strategy} needs the samples of the past days, which checkpoints do not hold: "
            raise InputError(Problem(text + "--storage=prometheus asks Prometheus for them", field="--strategy"))
        try:
            interval = parse_duration(self.strategy_interval)
        except ValueError as error:
            raise InputError(Problem(str(error), field="--strategy-interval")) from None
        if interval <= 0:
            raise InputError(Problem(f"{self.strategy_interval} is not more than 0", field="--strategy-interval"))
        return StrategyAdvisor(
            strategy,
            history,
            interval=interval,
            timeout=duration(timeout),
            most_bytes=self.strategy_answer_bytes,
        )


@dataclass(eq=False, repr=False, init=False)
class ExplainFlags(OptionGroup):
    """Flags for what is reported in each round, before it writes.

    Attributes
    ----------
    explain
        In each round, before it writes: print a VPARoundPlan (one line of JSON on stdout) with the effect on nodes if
        all pods had their recommendations, and emit an event if the plan has changed.
    """

    title = "Process"
    common = ("explain",)

    explain: bool = False


def command(
    *,
    process: Process,
    api: ApiFlags,
    lease: Lease,
    flags: RecommenderFlags,
    prometheus: PrometheusFlags,
    history: HistoryFlags,
    strategy: StrategyFlags,
    explaining: ExplainFlags,
    world: WorldFlags,
) -> None:
    """Recommend requests for the pods of VPAs, each minute, as upstream's vpa-recommender does.

    Usage comes from metrics-server (or external metrics), the history from checkpoints or Prometheus. Runs instead of
    the stock recommender, or beside it under another --recommender-name.

    Raises
    ------
    InputError
        If flags or files cannot be used.
    """
    options = struct_of(flags, RecommenderOptions)
    idle = [process, api, lease, prometheus, history, strategy, explaining]
    if run_if_simulated(world, "vpa_recommender", options, idle=idle):
        return
    prometheus.authorization()
    history_options = msgspec.structs.replace(
        struct_of(history, PrometheusHistory),
        namespace=options.vpa_object_namespace,
        container_name_label=options.container_name_label,
    )
    history_options.range_queries(0)  # report bad durations now, before the program runs
    advisor = strategy.advisor(options, history_options, prometheus.timeout())
    from kscale.drivers.vpa_recommender import recommender_program
    from kscale.world.prometheus import Prometheus

    source = None
    if not options.use_checkpoints:
        source = Prometheus(
            prometheus.prometheus_address,
            authorization=prometheus.authorization,
            insecure=prometheus.prometheus_insecure,
            timeout=None,  # each query has --prometheus-query-timeout
            response_bytes=prometheus.prometheus_max_response_bytes,
        )
    run_program(
        "vpa-recommender",
        process,
        partial(
            recommender_program,
            options=options,
            history=history_options,
            query_timeout=prometheus.timeout(),
            prometheus=source,
            explain=print_record if explaining.explain else None,
            advisor=advisor,
        ),
        election=lease.election(),
        qps=api.kube_api_qps,
        burst=api.kube_api_burst,
    )
