"""Values between a jail and the parent: what is data, and when two are the same."""

import collections
import json
import math
import time

import pytest
from hostile_code import FUZZ
from hypothesis import given, settings
from hypothesis import strategies as st

from earnest.rewards.code_child import NotPlainError, decode, dumps, encode
from earnest.rewards.code_compare import Equality, canonical, same

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.integers(-3, 3)
    | st.just(-(10**400)) | st.floats()
    | st.sampled_from([0.0, -0.0, 1.0, 2.0**60]) | st.text(max_size=5)
    | st.text(st.characters(), max_size=3) | st.binary(max_size=4) | st.complex_numbers()
)  # fmt: skip


HASHABLE = st.recursive(SCALARS, lambda v: st.lists(v, max_size=3).map(tuple) | st.frozensets(v, max_size=3), max_leaves=5)


VALUES = st.recursive(
    HASHABLE,
    lambda v: (
        st.lists(v, max_size=3) | st.lists(v, max_size=3).map(tuple) | st.sets(HASHABLE, max_size=3)
        | st.dictionaries(HASHABLE, v, max_size=3) | st.dictionaries(HASHABLE, v, max_size=3).map(collections.OrderedDict)
        | st.binary(max_size=3).map(bytearray) | st.lists(HASHABLE, max_size=3).map(collections.Counter)
    ),
    max_leaves=8,
)  # fmt: skip


def typed(value):
    """A slow reading of "equal with equal types": types beside values, sets and mappings sorted by text."""
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [typed(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return type(value).__name__, sorted((typed(item) for item in value), key=repr)
    if isinstance(value, dict):
        return type(value).__name__, sorted(((typed(k), typed(v)) for k, v in value.items()), key=repr)
    if isinstance(value, complex):
        return "complex", typed(value.real), typed(value.imag)
    if isinstance(value, float):
        return "float", repr(value + 0.0)
    return type(value).__name__, value


def tree(value):
    return json.loads(dumps(encode(value)))


@given(VALUES)
def test_a_value_comes_back_from_the_jail_with_its_types(value):
    assert typed(decode(tree(value))) == typed(value)
    assert same(tree(value), encode(value)) and same(tree(value), encode(value), Equality(exact=False))


@settings(max_examples=400 * FUZZ)
@given(VALUES, VALUES)
def test_two_values_are_the_same_when_value_and_types_are(a, b):
    assert same(encode(a), encode(b)) == (typed(a) == typed(b))
    assert (canonical(encode(a)) == canonical(encode(b))) == (typed(a) == typed(b))


WITHOUT_NAN = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.0, -0.0, 1.0, 2.5, 2.0**70, 1e300, math.inf, 2**70])
    | st.text(max_size=2),
    lambda v: st.lists(v, max_size=3).map(tuple),
    max_leaves=4,
)  # fmt: skip


PLAIN_WITHOUT_NAN = (
    WITHOUT_NAN
    | st.lists(WITHOUT_NAN, max_size=3)
    | st.sets(WITHOUT_NAN, max_size=3)
    | st.dictionaries(WITHOUT_NAN, WITHOUT_NAN, max_size=3)
)


@settings(max_examples=400 * FUZZ)
@given(PLAIN_WITHOUT_NAN, PLAIN_WITHOUT_NAN)
def test_inexact_types_mean_what_python_calls_equal(a, b):
    assert same(encode(a), encode(b), Equality(exact=False)) == (a == b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (True, 1), (0, False), (1, 1.0), ([1], (1,)), ("1", 1), (b"a", "a"), ({1}, frozenset({1})), ([], ()), ({}, set()), (None, 0),
        ("", None),
        ([True], [1]), ({"a": 1}, {"a": 1.0}), ({1: 2}, {True: 2}), (collections.Counter("a"), {"a": 1}), (bytearray(b"a"), b"a"),
        (1, 1 + 0j),
        (math.nan, math.inf), (math.nan, 0.0), ("\ud800", "\\ud800"), ("\ud800", "d800"), ("nan", math.nan),
        ("0x" + "f" * 20, int("f" * 20, 16)),
        ([1, 2], [1]), ([1, 2], [2, 1]), ({1: 2}, {1: 3}), ({1: 2, 3: 4}, {1: 2}),
    ],
)  # fmt: skip
def test_types_are_kept_apart(a, b):
    assert not same(encode(a), encode(b)) and not same(encode(b), encode(a))


@pytest.mark.parametrize(
    ("got", "expected", "relative", "absolute", "right"),
    [
        (0.3, 0.1 + 0.2, 0, 0, False), (0.3, 0.1 + 0.2, 1e-9, 0, True), (0.3, 0.1 + 0.2, 0, 1e-9, True), (105.0, 100.0, 0.01, 0, False),
        (1e-9, 0.0, 0.5, 0, False), (1e-9, 0.0, 0, 1e-6, True), (math.nan, 1.0, 1, 1e9, False), (1.0, math.nan, 1, 1e9, False),
        (math.nan, math.nan, 0, 0, True),
        (math.inf, 1e308, 1, 1e308, False), (math.inf, math.inf, 0, 0, True), (-math.inf, math.inf, 1, 1, False), (3, 4, 1, 10, False),
        (True, 0.9, 1, 1, False),
        ([1.0, 2.0], [1.0, 2.1], 0, 0.2, True), ({"a": 1.0}, {"a": 1.1}, 0, 0.2, True), ({1.0}, {1.1}, 0, 0.2, False),
        (1 + 1j, 1 + 1.1j, 0, 0.2, True),
        (10**400, 1.0, 1, 1, False), (10**400, 1, 1, 1, False), (10**400, math.nan, 1, 1, False), (1.0, 10**400, 1, 1, False),
        (10**400, math.inf, 1, 1, False), (0.0, 0, 1, 1, False),
    ],
)  # fmt: skip
def test_tolerance_is_for_floats(got, expected, relative, absolute, right):
    assert same(encode(got), encode(expected), Equality(True, relative, absolute)) is right


def test_a_float_may_stand_for_an_expected_integer_only_within_the_absolute_tolerance():
    rule = Equality(exact=False, relative=1e-6, absolute=1e-6)
    assert same(3.0000001, 3, rule) and not same(1000000008.0, 1000000007, rule) and not same(1000000008, 1000000007, rule)
    assert same(1000000008.0, 1000000007.0, rule)


class Always:
    def __eq__(self, other):
        return True

    __hash__ = None


class Int(int):
    pass


class Renamed(list):
    pass


Renamed.__name__, Renamed.__module__ = "Counter", "collections"


@pytest.mark.parametrize(
    "value",
    [Always(), Int(3), Renamed(), type("str", (str,), {})("a"), (i for i in "ab"), range(3), iter([1]), int, len, object(), [Always()],
    {1: {2: Int(1)}},
     collections.namedtuple("P", "x")(1), type("Counter", (dict,), {"__module__": "collections"})()],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_is_no_plain_data_has_no_encoding(value):  # S-CS-15
    with pytest.raises(NotPlainError):
        encode(value)


def test_a_value_nested_too_deeply_or_in_itself_has_no_encoding():
    value = []
    value.append(value)
    with pytest.raises(NotPlainError):
        encode(value)


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda t: (
        st.lists(t, max_size=3)
        | st.dictionaries(
            st.sampled_from(["int", "float", "tuple", "set", "dict", "Counter", "bytes", "complex", "utf-16", "frozenset", "object"]),
            t,
            min_size=1,
            max_size=2,
        )
    ),
    max_leaves=8,
)


@settings(max_examples=400 * FUZZ)
@given(TREES, VALUES)
def test_a_forged_tree_is_well_formed_or_the_same_as_nothing(forged, value):
    for rule in (Equality(), Equality(exact=False, relative=0.1, absolute=0.1)):
        assert same(forged, encode(value), rule) in (True, False) and same(forged, encode(10**400), rule) in (True, False)
    if same(forged, encode(value)):
        assert typed(decode(forged)) == typed(value)


@pytest.mark.parametrize(
    "kind", ["namedtuple", "deque", "UserDict", "ChainMap", "abc", "object", "list", "eval", "__import__", "OrderedDict "]
)
def test_a_tree_of_an_unknown_kind_stands_for_nothing(kind):
    with pytest.raises(NotPlainError):
        decode({kind: [["a", 1]]})


def test_numbers_whose_hashes_collide_cost_no_more_than_others():
    colliding = {"set": [{"int": hex(i * (2**61 - 1))} for i in range(1, 20_000)]}
    begin = time.process_time()
    assert not same(colliding, encode({1})) and not same(
        {"dict": [[i, 0] for i in colliding["set"]]}, encode({1: 2}), Equality(exact=False)
    )
    assert time.process_time() - begin < 10
