"""The prefix tree against sets of prefixes, which is what it stands for."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from earnest.engine.tree import PrefixTree, pack

SEQUENCES = st.lists(st.lists(st.integers(0, 2), max_size=7), max_size=8)  # three tokens: much is shared


def tree_of(sequences):
    tree = PrefixTree()
    return tree, [tree.add(sequence) for sequence in sequences]


def prefixes(sequences):
    return {tuple(s[: i + 1]) for s in sequences for i in range(len(s))}


@given(SEQUENCES)
def test_there_is_one_node_a_distinct_prefix(sequences):
    tree, _ = tree_of(sequences)
    assert len(tree) == len(tree.token) == len(tree.parent) == len(tree.depth) == len(tree.count) == len(prefixes(sequences))


@given(SEQUENCES)
def test_a_path_spells_its_sequence_and_goes_from_parent_to_child(sequences):
    tree, paths = tree_of(sequences)
    for sequence, path in zip(sequences, paths, strict=True):
        assert path.dtype == np.int64
        assert [tree.token[node] for node in path] == sequence
        assert [tree.depth[node] for node in path] == list(range(len(sequence)))
        assert [tree.parent[node] for node in path] == [-1, *path[:-1].tolist()][: len(path)]


@given(SEQUENCES)
def test_two_sequences_share_a_node_exactly_where_they_share_a_prefix(sequences):
    _, paths = tree_of(sequences)
    node_of = {}
    for sequence, path in zip(sequences, paths, strict=True):
        for i, node in enumerate(path.tolist()):
            assert node_of.setdefault(tuple(sequence[: i + 1]), node) == node
    assert len(set(node_of.values())) == len(node_of)


@given(SEQUENCES)
def test_parents_come_before_children_and_count_is_the_sequences_through_a_node(sequences):
    tree, paths = tree_of(sequences)
    assert all(parent < node for node, parent in enumerate(tree.parent))
    naive = [sum(node in path for path in paths) for node in range(len(tree))]
    assert tree.count == naive
    assert sum(tree.count) == sum(len(s) for s in sequences)


@given(SEQUENCES, st.lists(st.integers(0, 2), max_size=7))
def test_new_tokens_is_what_adding_adds_and_changes_nothing(sequences, another):
    tree, _ = tree_of(sequences)
    before = len(tree)
    promised = tree.new_tokens(another)
    assert len(tree) == before
    tree.add(another)
    assert len(tree) - before == promised


@given(SEQUENCES, st.integers(1, 12))
def test_the_blocks_of_a_sorted_tree_show_every_node_itself_and_its_ancestors_and_nothing_else(sequences, size):
    tree, _ = tree_of(sorted(sequences))
    naive = np.zeros((len(tree), len(tree)), dtype=bool)
    for node in range(len(tree)):
        ancestor = node
        while ancestor >= 0:
            naive[node, ancestor] = True
            ancestor = tree.parent[ancestor]
    shown = np.zeros_like(naive)
    covered = []
    for block in tree.blocks(size):
        assert 0 < block.stop - block.start <= size
        covered += range(block.start, block.stop)
        shown[block.start : block.stop, block.above] = True
        shown[block.start : block.stop, block.start : block.stop] = block.mask
        assert not set(block.above.tolist()) & set(range(block.start, block.stop))
    assert covered == list(range(len(tree)))
    np.testing.assert_array_equal(shown, naive)


@given(SEQUENCES, st.permutations(range(8)))
def test_the_order_of_sequences_changes_no_size(sequences, order):
    shuffled = [sequences[i] for i in order if i < len(sequences)]
    assert len(tree_of(sequences)[0]) == len(tree_of(shuffled)[0])


@given(SEQUENCES, st.integers(1, 12), st.none() | st.lists(st.integers(0, 2), min_size=8, max_size=8))
def test_packs_hold_each_sequence_once_in_order_within_the_budget(sequences, budget, groups):
    packs = pack(sequences, budget, groups)
    assert [i for part in packs for i in part] == list(range(len(sequences)))
    assert all(part for part in packs)
    for part in packs:
        assert len(part) == 1 or len(prefixes([sequences[i] for i in part])) <= budget


@given(SEQUENCES, st.integers(1, 12))
def test_a_new_pack_starts_only_where_the_next_sequence_did_not_fit(sequences, budget):
    packs = pack(sequences, budget)
    for part, following in pairwise(packs):
        assert len(prefixes([sequences[i] for i in [*part, following[0]]])) > budget


def test_an_example_by_hand():
    tree, paths = tree_of([[5, 6, 7], [5, 6], [5, 8], [9]])
    assert tree.token == [5, 6, 7, 8, 9]
    assert tree.parent == [-1, 0, 1, 0, -1]
    assert tree.depth == [0, 1, 2, 1, 0]
    assert tree.count == [3, 2, 1, 1, 1]
    assert [path.tolist() for path in paths] == [[0, 1, 2], [0, 1], [0, 3], [4]]
    assert pack([[5, 6, 7], [5, 6], [5, 8], [9]], 4) == [[0, 1, 2], [3]]
    assert pack([[1, 2, 3], [4]], 2) == [[0], [1]]  # longer than the budget: on its own, not refused
    assert pack([], 3) == []


def test_groups_share_a_pack_up_to_half_the_budget_and_are_split_above_all_of_it():
    sequences = [[1, 2], [1, 3], [4, 5], [4, 6], [7, 8]]  # groups of three, three and two distinct tokens
    by_first = [1, 1, 4, 4, 7]
    assert pack(sequences, 12, by_first) == [[0, 1, 2, 3], [4]]  # six are half of twelve
    assert pack(sequences, 11, by_first) == [[0, 1], [2, 3, 4]]
    assert pack(sequences, 3, by_first) == [[0, 1], [2, 3], [4]]
    assert pack(sequences, 2, by_first) == [[0], [1], [2], [3], [4]]
