"""Families of instance types, discounts, own prices, and reserved machines."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

import kscale
from kscale import InputError
from kscale.capacity.catalogue import read_catalogue
from kscale.capacity.machine_types import Cloud, TypeName, parse_type_name
from kscale.capacity.price_list import apply_prices, price_list_from, reservations_of

ROOT = Path(__file__).parents[3]
CATALOGUE = b"""instance_type,arch,vcpu,memory_mib,gpu,ondemand_usd_per_hour_us_east_1,ondemand_usd_per_hour_us_west_2
m5.large,amd64,2,8192,0,0.096,0.2
m5.2xlarge,amd64,8,32768,0,0.384,
m7g.large,arm64,2,8192,0,0.08,0.09
c5.large,amd64,2,4096,0,0.085,0.085
plain,amd64,2,4096,0,,
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("m5.2xlarge", TypeName(Cloud.AWS, "m5", "m", 5, "2xlarge")),
        ("c7gn.metal", TypeName(Cloud.AWS, "c7gn", "c", 7, "metal")),
        ("u-6tb1.56xlarge", TypeName(Cloud.AWS, "u-6tb1", "u", 1, "56xlarge")),
        ("mac2-m2.metal", TypeName(Cloud.AWS, "mac2-m2", "mac", 2, "metal")),
        ("Standard_D8s_v5", TypeName(Cloud.AZURE, "Dsv5", "D", 5, "8")),
        ("Standard_D8", TypeName(Cloud.AZURE, "D", "D", 1, "8")),
        ("Standard_M128-64ms", TypeName(Cloud.AZURE, "Mms", "M", 1, "128-64")),
        ("Standard_NC24ads_A100_v4", TypeName(Cloud.AZURE, "NCads_A100_v4", "NC", 4, "24")),
        ("n2-standard-8", TypeName(Cloud.GOOGLE, "n2-standard", "n", 2, "8")),
        ("c3d-highmem-8-lssd", TypeName(Cloud.GOOGLE, "c3d-highmem", "c", 3, "8-lssd")),
        ("e2-micro", TypeName(Cloud.GOOGLE, "e2-micro", "e", 2, "")),
        ("large", TypeName()),
        ("", TypeName()),
    ],
)
def test_the_name_of_a_type_says_its_family(name: str, expected: TypeName) -> None:
    assert parse_type_name(name) == expected


def test_families_are_those_of_the_cloud_itself() -> None:
    with (ROOT / "examples/data/aws.csv").open() as file:
        for row in csv.DictReader(file):
            name = parse_type_name(row["instance_type"])
            assert (name.family, name.category, str(name.generation)) == (
                row["family"],
                row["category"],
                row["generation"],
            )


def test_types_are_chosen_by_family_and_exclusion() -> None:
    types = read_catalogue(CATALOGUE)

    def names(*patterns: str, **more: list[str]) -> list[str]:
        return [kind.name for kind in types.select(patterns or ["*"], **more)]

    assert names(families=["m*"]) == ["m5.large", "m5.2xlarge", "m7g.large"]
    assert names("*.large", families=["m5", "c5"], exclude=["c5*"]) == ["m5.large"]
    assert names(exclude=["*.large"]) == ["m5.2xlarge", "plain"]
    for arguments, text in (
        ({"families": ["m5a"]}, 'no family "m5a" in the catalogue; did you mean m5?'),
        ({"exclude": ["x9*"]}, 'no instance type like "x9*"'),
        ({"exclude": ["*"]}, "every type is excluded"),
    ):
        with pytest.raises(InputError) as raised:
            names(**arguments)
        assert text in str(raised.value)
    with pytest.raises(InputError, match="no type has both"):
        names("plain", families=["m5"])


def test_the_first_rule_that_matches_gives_the_price() -> None:
    rules = price_list_from(
        [
            {"instanceType": "m5.large", "discount": 50, "region": "us-west-2"},
            {"family": "m5", "discount": 25},
            {"instanceType": "plain", "price": 0.01},
            {"instanceType": "m5.large", "reserved": 3, "price": 0},
        ]
    )
    types = apply_prices(read_catalogue(CATALOGUE), rules, 10)
    assert types["m5.large"].prices == {"us_east_1": 0.072, "us_west_2": 0.1}
    assert types["m5.2xlarge"].prices == {"us_east_1": 0.288}
    assert types["m7g.large"].prices == {"us_east_1": 0.072, "us_west_2": 0.081}
    assert types["plain"].prices == {"us_east_1": 0.01, "us_west_2": 0.01}
    unchanged = read_catalogue(CATALOGUE)
    assert apply_prices(unchanged, [])["m5.large"].prices == unchanged["m5.large"].prices


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ({"discount": 5}, "[0]: instanceType: give either instanceType or family"),
        ({"family": "m5", "instanceType": "m5.large", "discount": 5}, "give either instanceType or family"),
        ({"family": "m5"}, "price: give either discount or price"),
        ({"family": "m5", "discount": 5, "price": 1}, "price: give either discount or price"),
        ({"family": "m5", "discount": 101}, "discount: 101 is not a number of percent"),
        ({"family": "m5", "price": -1}, "price: -1.0 is not a price"),
        ({"family": "m5", "price": 1, "reserved": 2}, "reserved machines are of one instance type"),
        ({"instanceType": "m5.large", "price": 1, "reserved": 0}, "reserved: 0 is not a number of machines"),
        ({"instanceType": "m5.large", "price": 1, "zone": "a"}, "zone: has an effect only with reserved"),
        ({"family": "m5", "percent": 5}, "percent"),
    ],
)
def test_a_mistake_in_a_price_list_is_named(rule: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError) as raised:
        price_list_from([rule], source="prices.yaml")
    assert text in str(raised.value)
    assert "prices.yaml" in str(raised.value)


def test_a_rule_about_no_type_is_refused() -> None:
    types = read_catalogue(CATALOGUE)
    with pytest.raises(InputError, match="the price list names family m6i: there is no such type"):
        apply_prices(types, price_list_from([{"family": "m6i", "discount": 5}]))
    with pytest.raises(InputError, match='no prices of region "mars"'):
        apply_prices(types, price_list_from([{"family": "m5", "discount": 5, "region": "mars"}]))


def test_a_reservation_is_in_one_zone() -> None:
    types = read_catalogue(CATALOGUE)
    rules = price_list_from(
        [
            {"instanceType": "m5.large", "reserved": 3, "price": 0, "zone": "a"},
            {"instanceType": "c5.large", "reserved": 1, "price": 0},
            {"instanceType": "m5.large", "reserved": 3, "price": 0, "region": "us-west-2"},
        ]
    )
    kinds = list(types.values())

    def places(zones: list[str], region: str = "us-east-1") -> list[tuple[str, str]]:
        return [(kind.name, zone) for _, kind, zone in reservations_of(rules, kinds, zones, region)]

    assert places([""]) == [("m5.large", "a"), ("c5.large", "")]
    assert places(["b"]) == [("c5.large", "b")]
    assert places(["a"], "us_west_2") == [("m5.large", "a"), ("c5.large", "a"), ("m5.large", "a")]
    with pytest.raises(InputError, match=r"reserved c5\.large: there are several zones"):
        places(["a", "b"])


def test_the_bound_counts_reserved_machines_up_to_their_number() -> None:
    def offer(name: str, price: float, **more: Any) -> kscale.Offer:
        node = read_catalogue(CATALOGUE)["m5.2xlarge"].node(name=name)
        return kscale.Offer(name=name, template=kscale.NodeTemplate(node=node), price=price, type="m5.2xlarge", **more)

    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "5"}}}]}
    pods = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{i}"}, "spec": spec} for i in range(7)
    ]  # one on each node
    offers = [offer("bought", 0.4), offer("paid", 0.0, most=3, capacity_type="reserved")]
    plan = kscale.mix(kscale.load(pods), offers)
    assert plan.offers == {"bought": 4, "paid": 3}
    assert (plan.cost, plan.bound.cost) == (1.6, 1.6)
    assert {line.capacity_type: line.nodes for line in plan.lines} == {"on-demand": 4, "reserved": 3}
