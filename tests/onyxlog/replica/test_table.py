"""The table beside a dictionary, and what its order and its sum are for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onyxlog.replica import table as module
from onyxlog.replica.table import MODULUS, MOVES_MAX, Table, item_hash

keys = st.sampled_from([f"k{number}" for number in range(20)])
changes = st.lists(
    st.one_of(
        st.tuples(st.just("update"), st.dictionaries(keys, st.integers(0, 3), max_size=12)),
        st.tuples(st.just("without"), st.lists(keys, max_size=12)),
        st.tuples(st.just("replaced"), st.dictionaries(keys, st.integers(0, 3), max_size=12)),
        st.tuples(st.just("where_not"), keys),
    ),
    max_size=12,
)


@given(changes, st.booleans())
def test_a_table_is_a_dictionary_in_order_and_its_sum_that_of_its_items(
    steps: list[tuple[str, object]], watched: bool
) -> None:
    table: Table[str, int] = Table()
    model: dict[str, int] = {}
    for step in steps:
        before = (table, dict(model))
        match step:
            case ("update", dict() as items):
                table, model = table.update(items), {**model, **items}
            case ("replaced", dict() as items):
                table, model = table.replaced(items), dict(items)
            case ("without", list() as gone):
                table, model = table.without(*gone), {k: v for k, v in model.items() if k not in gone}
            case (_, limit):
                table = table.where_not(lambda key, limit=limit: key < limit)  # type: ignore[misc]
                model = {k: v for k, v in model.items() if not k < str(limit)}
        if watched:  # the order and the sum are carried along, or made anew
            assert list(table) == sorted(model)
            assert table.sum == sum(item_hash(k, v) for k, v in model.items()) % MODULUS
        assert dict(table) == model
        assert dict(before[0]) == before[1]
        if model == before[1]:
            assert table is before[0]
    assert list(table) == sorted(model)
    assert table == Table(model)
    assert table.sum == Table(model).sum
    assert hash(table) == hash(Table(model))


def test_the_order_is_that_of_the_keys_not_of_their_insertion() -> None:
    """Onyx iterated maps whose order, up to eight keys, was that of insertion."""
    one = Table([("b", 1), ("a", 2)])
    other = Table[str, int]().set("a", 2).set("b", 1)
    assert list(one.items()) == list(other.items()) == [("a", 2), ("b", 1)]


def test_the_sum_tells_different_tables_apart() -> None:
    tables: list[Table[str, int]] = [
        Table(),
        Table({"a": 1}),
        Table({"a": 2}),
        Table({"b": 1}),
        Table({"a": 1, "b": 1}),
    ]
    assert len({table.sum for table in tables}) == len(tables)


def test_a_change_costs_hashes_for_what_changed_only(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table({f"k{number}": number for number in range(1_000)})
    assert table.sum
    hashed: list[str] = []

    def counting(key: str, value: int) -> int:
        hashed.append(key)
        return item_hash(key, value)

    monkeypatch.setattr(module, "item_hash", counting)
    changed = table.update({"k7": 0, "new": 1, "k9": 9}).without("k8")
    assert changed.sum
    assert sorted(hashed) == ["k7", "k7", "k8", "new"]


def test_a_few_keys_more_do_not_cost_sorting_all() -> None:
    table = Table({f"k{number:04}": number for number in range(100)})
    assert list(table)
    few = table.update({f"m{number}": number for number in range(MOVES_MAX)})
    many = table.update({f"m{number}": number for number in range(MOVES_MAX + 1)})
    assert few._keys is not None
    assert many._keys is None
    assert list(few) == sorted(few._items)
    assert list(many) == sorted(many._items)
