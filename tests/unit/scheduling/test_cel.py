"""Selectors of devices: what CEL says of them, and what it does not know."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscale.objects.api.resource import Device, DeviceAttribute, DeviceCapacity
from kscale.objects.quantity import Quantity
from kscale.scheduling.devices import cel
from unit.scheduling.devices_cases import GPU

# -- CEL ---------------------------------------------------------------------------------------------------------------

DEVICE = Device(
    attributes={
        "model": DeviceAttribute(string="x"),
        "lanes": DeviceAttribute(int_=8),
        "ecc": DeviceAttribute(bool_=True),
        "driver": DeviceAttribute(version="1.10.0"),
        "other.example.com/rack": DeviceAttribute(string="r1"),
    },
    capacity={"memory": DeviceCapacity(value=Quantity("40Gi"))},
)


OWN = f"device.attributes['{GPU}']"
LANES, MODEL, DRIVER = f"{OWN}.lanes", f"{OWN}.model", f"{OWN}.driver"


@pytest.mark.parametrize(
    ("expression", "truth"),
    [
        ("device.driver == 'gpu.example.com'", True),
        ("device.attributes['gpu.example.com'].model == 'x'", True),
        ("device.attributes['gpu.example.com'].lanes > 4 && device.attributes['gpu.example.com'].ecc", True),
        ("device.attributes['other.example.com'].rack == 'r1'", True),
        ("'nowhere.example.com' in device.attributes", False),
        ("has(device.attributes['nowhere.example.com'].rack)", False),
        ("device.capacity['gpu.example.com'].memory.compareTo(quantity('40960Mi')) == 0", True),
        ("device.capacity['gpu.example.com'].memory.isGreaterThan(quantity('80Gi'))", False),
        ("device.capacity['gpu.example.com'].memory.isLessThan(quantity('80Gi'))", True),
        ("device.attributes['gpu.example.com'].driver.isGreaterThan(semver('1.9.3'))", True),
        ("device.attributes['gpu.example.com'].driver.compareTo(semver('1.10.0')) == 0", True),
        ("isQuantity('x1') || isSemver('1.2')", False),
        ("cel.bind(own, device.attributes['gpu.example.com'], own.model == 'x' && own.lanes == 8)", True),
        ("cel.bind(a, 'cel.bind(', cel.bind(b, a + ',', b == 'cel.bind(,'))", True),
        ("device.attributes['gpu.example.com'].?model.orValue('y') == 'x'", True),
        ("device.attributes['gpu.example.com'].?absent.orValue('.?y(') == '.?y('", True),
        ("device.attributes['nowhere.example.com'].?absent.hasValue()", False),
        ("device.capacity['gpu.example.com'].?memory.orValue(quantity('0')).isGreaterThan(quantity('1'))", True),
        ("quantity('1').add(quantity('500m')).sub(quantity('1')).compareTo(quantity('0.5')) == 0", True),
        ("quantity('2').asInteger() == 2 && quantity('-1').sign() == -1 && !quantity('1m').isInteger()", True),
        ("quantity('1500m').asApproximateFloat() == 1.5", True),
        ("semver('1.2.3').major() + semver('1.2.3').minor() + semver('1.2.3').patch() == 6", True),
        ("'A-b'.lowerAscii().split('-').join('+') == 'a+b' && 'ab'.upperAscii() == 'AB'", True),
        (
            "semver('v01.2', true) == semver('1.2.0') && isSemver('v1', true) && !isSemver('1.0.00')",
            True,
        ),
        ("device.attributes[?'gpu.example.com'].?model.hasValue()", True),
        ("device.attributes[?'gpu.example.com'].model.value() == 'x'", True),
        ("device.attributes['gpu.example.com'][?'absent'].or(optional.of('z')).value() == 'z'", True),
        ("device.attributes.?nowhere.?absent.optMap(v, v == 'x').orValue(false)", False),
        ("device.attributes[device.driver].?model.optMap(v, v + 'y').orValue('') == 'xy'", True),
        (
            "device.attributes[device.driver].?lanes.optFlatMap(v, optional.of(v)).hasValue()",
            True,
        ),
        ("device.attributes[device.driver].?model.orValue(device.attributes[device.driver].absent) == 'x'", True),
        (
            "optional.of(1) == optional.of(1) && optional.of(1) != optional.none() && [1, 2][?5] == optional.none()",
            True,
        ),
        ("optional.ofNonZeroValue('').hasValue() || optional.ofNonZeroValue(0).hasValue()", False),
        ("sets.contains([1, 2, 3], [2]) && sets.equivalent([1, 1], [1]) && !sets.intersects(['a'], ['b'])", True),
        ("[1, 2, 3].isSorted() && [3, 1].max() == 3 && [3, 1].min() == 1 && [1, 2].sum() == 3 && [].sum() == 0", True),
        (
            "['a', 'b', 'a'].indexOf('a') == 0 && ['a', 'b', 'a'].lastIndexOf('a') == 2 && ['a'].indexOf('c') == -1",
            True,
        ),
        (
            "'a1b2'.find('[0-9]') == '1' && 'a1b2'.findAll('[0-9]') == ['1', '2'] && 'abc'.findAll('.', 2).size() == 2",
            True,
        ),
        ("'abca'.indexOf('a', 1) == 3 && 'abca'.lastIndexOf('a', 2) == 0 && 'abc'.charAt(3) == ''", True),
        (
            "'a,b,c'.split(',', 2) == ['a', 'b,c'] && 'ab'.split('') == ['a', 'b'] && 'a'.split(',', 0).size() == 0",
            True,
        ),
        ("strings.quote('a\\nb') == '\"a\\\\nb\"'", True),
        (
            "ip('::1').family() + ip('127.0.0.1').family() == 10 && ip('::1') == ip('0:0::1') && !isIP('fe80::1%eth0')",
            True,
        ),
        ("isIP('01.2.3.4') || isIP('::ffff:1.2.3.4') || ip.isCanonical('2001:DB8::1') || isIP(device.driver)", False),
        ("ip('127.0.0.1').isLoopback() && ip('::').isUnspecified() && ip('ff12::1').isLinkLocalMulticast()", True),
        ("ip('192.168.0.1').isGlobalUnicast() && !ip('255.255.255.255').isGlobalUnicast()", True),
        ("ip('169.254.1.1').isLinkLocalUnicast() && ip('fec0::1').isGlobalUnicast()", True),
        ("ip('224.0.1.1').isLinkLocalMulticast() || ip('ff01::1').isLinkLocalMulticast()", False),
        ("cidr('192.168.0.1/24').masked() == cidr('192.168.0.0/24') && cidr('::/0').prefixLength() == 0", True),
        ("cidr('192.168.0.1/24').ip() == ip('192.168.0.1') && string(cidr('fd00::/8')) == 'fd00::/8'", True),
        ("isCIDR('10.0.0.0/08') || isCIDR('10.0.0.0/33') || isCIDR('1.2.3.4') || isCIDR('1.2.3.4/255.0.0.0')", False),
        ("cidr('10.0.0.0/8').containsIP('10.1.2.3') && !cidr('10.0.0.0/8').containsIP(ip('::1'))", True),
        (
            "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && !cidr('10.1.0.0/16').containsCIDR(cidr('10.0.0.0/8'))",
            True,
        ),
        ("[?optional.of(1), 2, ?optional.none()] == [1, 2] && [0, ?[7][?0]][1] == 7", True),
        ("[?device.attributes[device.driver].?absent, 'a'] == ['a'] && [[?optional.none()]] == [[]]", True),
        ("{'a': true ? 1 : 2, ?'b': optional.of('?'), ?'c': optional.none()} == {'a': 1, 'b': '?'}", True),
        ("[2, 1].all(i, v, i < v) || ![3, 4].exists(i, v, i == 1 && v == 4) || [5].existsOne(x, x == 6)", False),
        ("[1, 1, 1].existsOne(i, v, i == v) && [1, 2].existsOne(x, x == 2) && {'a': 'a'}.all(k, v, k == v)", True),
        ("[4, 5].transformList(i, v, i * v) == [0, 5] && [4, 5].transformList(i, v, v > 4, i) == [1]", True),
        ("{'a': 1, 'b': 2}.transformMap(k, v, v + 1) == {'a': 2, 'b': 3}", True),
        ("['x', 'y'].transformMap(i, v, i > 0, v + v) == {1: 'yy'}", True),
        ("{'a': 'x', 'b': 'y'}.transformMapEntry(k, v, k != 'b', {v: k}) == {'x': 'a'}", True),
        ("[[1, 2], [3]].all(i, w, w.exists(j, v, v == i + 1 || v == 3)) && [[1].all(i, v, v == 1)].all(b, b)", True),
        ("string(true) + string(1) + string(ip('1.2.3.4')) == 'true11.2.3.4'", True),
        ("[1, 2].map(x, x > 1, x * 2) == [4] && {'a': 1}.map(k, k == 'a', k + k) == ['aa']", True),
        ("[[1, 2], [3]].map(r, r.size() > 1, r.map(c, c > 1, c * r.size())) == [[4]]", True),
        ("[1, 2,].size() == 2 && {'a': 1,}.size() == 1 && 'a' in ['a', 'b',] && [,].size() == 0", True),
        ("[?optional.of(1),].size() == 1 && 1 in [?optional.of(1)] && {?'a': optional.of(1),}.size() == 1", True),
        (f"{LANES} == 8.0 && {LANES} == 8u && {LANES} < 8.5 && {LANES} > -1.5 && {LANES} in [8.0]", True),
        (f"{LANES} != 8.0 || {LANES} == '8' || {MODEL} == 8 || {LANES} == true || {MODEL} in [1, 2]", False),
        (f"{MODEL} != 8 && {MODEL} != null && {DRIVER} != '1.10.0' && {DRIVER} != null", True),
        (f"'1.10.0' == {DRIVER} || dyn([1]) == 1 || dyn([1]) == dyn(['a']) || dyn(b'a') == dyn('a')", False),
        ("dyn([1]) == dyn([1.0]) && dyn({1: 1}) == dyn({1u: 1.0}) && dyn(1u) in {1: 2} && null == null", True),
        ("dyn(9007199254740993) == dyn(9007199254740992.0) && dyn(-1) < dyn(0u)", True),
        ("optional.none() == dyn(1) || dyn(optional.of(1)) == dyn({'a': 1})", False),
        (
            "type('a') == string && type(1) == int && type(1u) == uint && type(1.5) == double && type(true) == bool",
            True,
        ),
        ("type(b'') == bytes && type([1]) == list && type({1: 1}) == map && type(null) == null_type", True),
        ("type(type(1)) == type && type(device) == map && type(optional.of(1)) == optional_type", True),
        (f"type({DRIVER}) == type(semver('1.0.0')) && type({LANES}) != string && type(1) != dyn('int')", True),
        ("device.attributes[device.driver].exists(k, v, type(v) == string && v == 'x')", True),
        ("'\\u1680\\v\\u2003x\\u00a0\\u0085'.trim() == 'x' && '\\x1cx\\u200b'.trim().size() == 3", True),
        ("' abc '.trim().substring(1).replace('c', 'd') == 'bd' && 'abca'.lastIndexOf('a') == 3", True),
    ],
)
def test_cel(expression: str, *, truth: bool) -> None:
    assert cel.selects(expression, GPU, DEVICE) is truth


@pytest.mark.parametrize(
    "expression",
    [
        "device.driver ==",
        "device.driver",
        "quantity('x1').compareTo(quantity('1')) == 0",
        "1 + 'a' == 2",
        "quantity('1m').asInteger() == 1",
        "'x'.sign() == 1",
        "'abc'.substring(7) == ''",
        "optional.none().value()",
        "'abc'.substring(2, 1) == ''",
        "[].max() == 1",
        "cel.bind(a, 1) == 1",
        "[?1].size() == 1",
        "[1, ?2",
        "[1,,].size() == 1",
        "[1][0,] == 1",
        "size('a',) == 1",
        "[1, 2].map(x, x > 1, x > 0, x) == [1]",
        "[1].all(i, i, true)",
        "[1].all(i + 1, v, true)",
        "[1].transformList(v, v) == [1]",
        "1.all(i, v, true)",
        "{'a': 1, 'b': 2}.transformMapEntry(k, v, {'c': v}).size() == 1",
        "device.driver == \x009\0",  # stands for a literal while the text is changed
    ],
)
def test_cel_errors(expression: str) -> None:
    with pytest.raises(cel.SelectorError):
        cel.selects(expression, GPU, DEVICE)


@given(st.lists(st.integers(0, 3), max_size=4))
def test_macros_of_two_variables(items: list[int]) -> None:
    pairs = list(enumerate(items))
    answers = {
        "all(i, v, v >= i)": all(v >= i for i, v in pairs),
        "exists(i, v, v == i)": any(v == i for i, v in pairs),
        "existsOne(i, v, v == i)": sum(v == i for i, v in pairs) == 1,
        f"transformList(i, v, v > i, v - i) == {[v - i for i, v in pairs if v > i]}": True,
        f"transformMap(i, v, v + i) == { ({i: v + i for i, v in pairs}) }": True,
        f"transformMapEntry(i, v, {{i: v}}).all(i, v, v == {items}[i])": True,
    }
    for call, truth in answers.items():
        assert cel.selects(f"{items}.{call}", GPU, DEVICE) is truth, call


@pytest.mark.parametrize("expression", ["!" * 5000 + "true", "1" + " + 1" * 3000 + " == 3001"])
def test_a_selector_may_be_too_deep(expression: str) -> None:
    with pytest.raises(cel.SelectorError, match="nested too deep"):
        cel.selects(expression, GPU, DEVICE)


@pytest.mark.parametrize(
    ("expression", "truth"),
    [
        (f"[1, 2].exists(x, x == 1 ? {OWN}.absent : true)", True),
        (f"[1, 2].all(x, x == 1 ? {OWN}.absent : false)", False),
        (f"cel.bind(x, {OWN}.absent, {OWN}.ecc || x)", True),
        (f"has({MODEL}.x) || {MODEL}.?x.hasValue()", False),
        (f"[{DRIVER}] == [{MODEL}]", True),  # as in cel-go, where an error of an element is no inequality
        (f"{DRIVER} != {MODEL} && !({MODEL} == {DRIVER})", True),
        # cel-go has no result for these two
        (f"{DRIVER} in {{semver('1.10.0'): 1}} && !({DRIVER} in {{{MODEL}: 1}})", True),
        ("ip(dyn(cidr('10.0.0.1/8'))) == ip('10.0.0.1') && cidr('10.0.0.1/8').ip() == ip('10.0.0.1')", True),
        ("[1, 2][dyn(1.0)] == 2 && {1: 2}[dyn(1u)] == 2 && {1: 1, 1: 2}[1] == 2", True),
        (f"type({LANES}) == int && type(type({MODEL})) == type && timestamp({LANES}) > timestamp(7)", True),
        ("int(duration('1.5s')) == 1500000000 && duration('1s') + duration('1s') == duration('2s')", True),
    ],
)
def test_errors_that_do_not_decide(expression: str, truth: bool) -> None:
    assert cel.selects(expression, GPU, DEVICE) is truth


def no_overload(operator: str, types: str, line: str, dots: int) -> str:
    text = f"ERROR: <input>:1:{dots + 1}: found no matching overload for '{operator}' applied to '({types})'"
    return f"compilation failed: {text}\n | {line}\n | {'.' * dots}^"


ABSENT, ECC = f"{OWN}.absent", f"{OWN}.ecc"
NO_KEY = (
    "no such key: absent. consider using CEL optional chaining (.? followed by orValue()) or guarding the check with "
    "has() for optional fields"
)


def at(text: str, line: str, dots: int) -> str:
    return f"compilation failed: ERROR: <input>:1:{dots + 1}: {text}\n | {line}\n | {'.' * dots}^"


def open_quote(rest: str, line: str, dots: int) -> str:
    text = f"ERROR: <input>:1:{dots + 1}: Syntax error: token recognition error at: '{rest}'"
    return f"compilation failed: {text}\n | {line}\n | {'.' * dots}^"


def undeclared(where: str, name: str, line: str, dots: int) -> str:
    text = f"compilation failed: ERROR: <input>:{where}: undeclared reference to '{name}' (in container '')"
    return f"{text}\n | {line}\n | {'.' * dots}^"


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (
            "true ||\n  nosuch(device.driver)",
            undeclared("2:9", "nosuch", "  nosuch(device.driver)", 8),
        ),
        (
            "device.driver.nosuch() == 'nosuch()'",
            undeclared("1:21", "nosuch", "device.driver.nosuch() == 'nosuch()'", 20),
        ),
        ("nosuchvar", undeclared("1:1", "nosuchvar", "nosuchvar", 0)),
        ("device.driver", "must evaluate to bool or the unknown type, not string"),
        ("device.driver == '' ? 1 : (2 * 3 - -size('a'))", "must evaluate to bool or the unknown type, not int"),
        ("quantity('1').add(1)", "must evaluate to bool or the unknown type, not kubernetes.Quantity"),
        ("semver('1.2.3')", "must evaluate to bool or the unknown type, not kubernetes.Semver"),
        ("'a' + device.driver.lowerAscii()", "must evaluate to bool or the unknown type, not string"),
        ("1.5 / double('2')", "must evaluate to bool or the unknown type, not double"),
        ("null", "must evaluate to bool or the unknown type, not null_type"),
        ("1 == 1.0", no_overload("_==_", "int, double", "1 == 1.0", 2)),
        ("device.driver == null", no_overload("_==_", "string, null", "device.driver == null", 14)),
        ("true || 1 < 'a'", no_overload("_<_", "int, string", "true || 1 < 'a'", 10)),
        ("'a' in [1, 2]", no_overload("@in", "string, list(int)", "'a' in [1, 2]", 4)),
        (f"{MODEL} < 8", "no such overload"),
        (f"{DRIVER} == '1.10.0'", "no such overload"),
        (f"{MODEL} + 1 == 2", "no such overload"),
        (f"{ECC} + 1 == 2", "no such overload: _+_"),
        (f"{DRIVER} >= {DRIVER}", "no such overload: _>=_"),
        (
            f"{DRIVER} >= semver('1.2.0')",
            no_overload("_>=_", "dyn, kubernetes.Semver", f"{DRIVER} >= semver('1.2.0')", len(DRIVER) + 1),
        ),
        (f"{MODEL} * 2 == 2", "no such overload"),
        (f"{LANES} / 0 == 1", "division by zero"),
        (f"9223372036854775807 + {LANES} == 1", "integer overflow"),
        (f"double({ECC}) < 0.5", "no such overload: double(bool)"),
        (f"int({MODEL}) == 1", "type conversion error from 'string' to 'int'"),
        (f"size({LANES}) == 1", "no such overload: size"),
        (f"{LANES}.matches('x')", "no such overload: matches"),
        (f"{LANES}.startsWith('x')", "no such overload"),
        (f"{MODEL}.split({LANES})[0] == 'x'", "no such overload: split(string, int)"),
        (f"[{ECC}].sum() == 1", "no such overload: sum(list)"),
        (f"({ABSENT} + ',y').trim().split(',')[0] == 'x'", NO_KEY),
        (f"'a'.replace('a', {ABSENT}) == 'x'", NO_KEY),
        (f"{{'a': {ABSENT}}}.size() == 1", NO_KEY),
        (f"has({ABSENT}.x)", NO_KEY),
        (f"{MODEL}.absent == 1", NO_KEY),
        (f"[1, 2][{LANES}] == 1", "index out of bounds: 8"),
        (f"[1, 2][{MODEL}] == 1", "unsupported index type 'string' in list"),
        (f"{MODEL}[{DRIVER}] == 1", "invalid qualifier type: cel.Semver"),
        (f"{MODEL}.exists(x, x == 1)", "got 'types.String', expected iterable type"),
        (f"[1, 2].exists(x, x == 1 ? {ABSENT} : {MODEL})", NO_KEY),
        (f"[1, 2].all(x, x == 1 ? {MODEL} : {ABSENT})", "no such overload"),
        (f"[1, 2].map(x, x == 1 ? {ABSENT} : {ECC} + 1)[0] == 1", NO_KEY),
        (f"[1, 2].filter(x, x == 1 ? {ABSENT} : {ECC} + 1)[0] == 1", "no such overload: _+_"),
        (f"[1, 2].exists_one(x, x == 1 ? {ABSENT} : {ECC} + 1)", "no such overload: _+_"),
        (f"cel.bind(x, {ABSENT}, x)", NO_KEY),
        (f"{{'absent': 1, 'other': 2}}.all(k, {OWN}[k] == 1)", NO_KEY),
        (f"{{'other': 1, 'absent': 2}}.filter(k, {OWN}[k] == 1) == []", NO_KEY),
        ("[1, 2].transformMapEntry(k, v, {'a': v}) == {}", "insert failed: key a already exists"),
        ("[1, 2].transformMapEntry(k, v, {true: v}) == {}", "insert failed: key true already exists"),
        (f"[1].transformMapEntry(k, v, {LANES}) == {{}}", "no such overload: cel.@mapInsert(map, int)"),
        ("has(device)", at("invalid argument to has() macro", "has(device)", 4)),
        ("[1].exists(1, true)", at("argument must be a simple name", "[1].exists(1, true)", 11)),
        (
            MODEL,
            (
                "CEL result of type string could not be converted to bool: "
                "unsupported native conversion from string to 'bool'"
            ),
        ),
        (
            DRIVER,
            (
                "CEL result of type kubernetes.Semver could not be converted to bool: "
                "type conversion error from 'Semver' to 'bool'"
            ),
        ),
        (f"({MODEL} < 8) || ({MODEL}.compareTo(semver('1.2.0')) == 0)", "no such overload"),
        (
            f"({MODEL}.compareTo(semver('1.2.0')) == 0) && ({MODEL} < 8)",
            "no such overload: compareTo(string, kubernetes.Semver)",
        ),
        (f"{MODEL} < 8 ? true : false", "no such overload"),
        (f"{MODEL} ? true : false", "no such overload"),
        (f"{MODEL}.compareTo(semver('1.2.0')) >= 0", "no such overload: compareTo(string, kubernetes.Semver)"),
        (
            f"{DRIVER}.isGreaterThan(quantity('1'))",
            "no such overload: isGreaterThan(kubernetes.Semver, kubernetes.Quantity)",
        ),
        ("'abc", open_quote("'abc", "'abc", 0)),
        ("true == \"a'", open_quote("\"a'", "true == \"a'", 8)),
        ('"""a"', open_quote('"""a"', '"""a"', 0)),
        ("'''" + "\\" * 80 + "'", open_quote("'''" + "\\" * 80 + "'", "'''" + "\\" * 80 + "'", 0)),
        ("isURL(device.driver)", "compilation failed: kscale does not have the function 'isURL'"),
        ("ip('::ffff:1.2.3.4').family() == 6", 'IPv4-mapped IPv6 address "::ffff:1.2.3.4" is not allowed'),
        ("ip('fe80::1%a').family() == 6", 'IP address "fe80::1%a" with zone value is not allowed'),
        ("ip('x').family() == 6", 'IP Address "x" parse error during conversion from string'),
        ("cidr('10.0.0.0/8').containsIP('x')", "no such overload"),
        ("quantity('1m').asInteger() == 1", "cannot convert value to integer"),
        ("'abc'.substring(7) == ''", "index out of range: 7"),
    ],
)
def test_unknown_cel_names_are_errors(expression: str, text: str) -> None:
    with pytest.raises(cel.SelectorError) as raised:
        cel.selects(expression, GPU, DEVICE)
    assert str(raised.value) == text


def test_compiled_program_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cel, "_PROGRAMS", 2)
    library = cel.CelLibrary()
    for number in (0, 1, 2, 3, 3):
        assert library.program(f"{number} == {number}").evaluate({})
    cache = library.program.cache_info()
    assert (cache.currsize, cache.hits) == (2, 1)


def test_unprintable_library_error_is_a_selector_error() -> None:
    expression = "0-device.?iice.?ice.?e.e.?i[[]].?e.?ee.?i-[[]].?e.?00-device.?i[[]].?e.?ee.?0-device.e"
    with pytest.raises(cel.SelectorError, match=r"\Ano such overload\Z"):
        cel.selects(expression, GPU, DEVICE)
