"""The prefix tree: every distinct prefix of a batch of sequences, once.

Rollouts of one group share their prompt, prompts share a system message, and short structured answers share most of their own
tokens. A causal model computes a token from its prefix alone, so a prefix needs to go through the model once, however many
sequences run through it. A node is one distinct prefix, named by its last token; its hidden state depends on its ancestors and
nothing else, which is all that attention has to be told.

A forward pass over the tree is exact: node u sees exactly its ancestors and itself, at the positions they have in the sequence.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np


@dataclass
class PrefixTree:
    """Token, parent and depth of each node, parents before children.

    Attributes:
        token: Token id of each node, length U.
        parent: Index of the node before it, -1 at a root.
        depth: Position of the token in its sequence, 0 at a root.
        count: How many sequences run through the node.
    """

    token: list[int] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    depth: list[int] = field(default_factory=list)
    count: list[int] = field(default_factory=list)
    _child: dict[tuple[int, int], int] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.token)

    def add(self, sequence: Sequence[int]) -> np.ndarray:
        """Put a sequence into the tree.

        Returns:
            int64 [len(sequence)]: the node of each of its tokens.
        """
        path = np.empty(len(sequence), dtype=np.int64)
        node = -1
        for position, token in enumerate(sequence):
            child = self._child.get((node, token))
            if child is None:
                child = len(self.token)
                self._child[node, token] = child
                self.token.append(token)
                self.parent.append(node)
                self.depth.append(position)
                self.count.append(0)
            self.count[child] += 1
            path[position] = node = child
        return path

    def new_tokens(self, sequence: Sequence[int]) -> int:
        """How many nodes `add` would make."""
        node, known = -1, 0
        for token in sequence:
            child = self._child.get((node, token))
            if child is None:
                break
            node, known = child, known + 1
        return len(sequence) - known

    def path(self, node: int) -> list[int]:
        """The ancestors of a node and the node itself, root first; empty for -1."""
        path = []
        while node >= 0:
            path.append(node)
            node = self.parent[node]
        return path[::-1]

    def blocks(self, size: int) -> list[Block]:
        """Cut the tree into blocks of at most `size` nodes each, so that attention need not compare every node with every other.

        A block is a run of sibling subtrees, or a piece of a chain above larger subtrees. Of a `sorted_tree` only.
        """
        nodes = len(self.token)
        below = np.ones(nodes, dtype=np.int64)  # size of each node's subtree
        for node in range(nodes - 1, 0, -1):
            if self.parent[node] >= 0:
                below[self.parent[node]] += below[node]
        blocks, start = [], 0
        while start < nodes:
            parent, stop = self.parent[start], start
            while stop < nodes and self.parent[stop] == parent and stop + below[stop] - start <= size:
                stop += int(below[stop])
            if stop == start:
                stop += 1
                while stop - start < size and stop < nodes and self.parent[stop] == stop - 1 and below[stop] > size:
                    stop += 1
            blocks.append(Block(start, stop, np.array(self.path(parent), dtype=np.int64), self._mask(start, stop)))
            start = stop
        return blocks

    def _mask(self, start: int, stop: int) -> np.ndarray:
        mask = np.eye(stop - start, dtype=bool)
        for node in range(start + 1, stop):
            parent = self.parent[node] - start
            if parent >= 0:
                mask[node - start, : parent + 1] |= mask[parent, : parent + 1]
        return mask


@dataclass(frozen=True)
class Block:
    """A range of nodes with the same ancestors above them.

    Attributes:
        start: First node.
        stop: One behind the last.
        above: int64 [A], the nodes outside the block that every node of it sees: its ancestors.
        mask: bool [n, n], which of each other the n nodes see: themselves and what is above them within the block.
    """

    start: int
    stop: int
    above: np.ndarray
    mask: np.ndarray


def sorted_tree(sequences: Sequence[Sequence[int]]) -> tuple[PrefixTree, list[np.ndarray]]:
    """The tree of some sequences, numbered depth first so that every subtree is a range of nodes; and the path of each sequence."""
    tree, paths = PrefixTree(), {}
    for index in sorted(range(len(sequences)), key=sequences.__getitem__):
        paths[index] = tree.add(sequences[index])
    return tree, [paths[index] for index in range(len(sequences))]


def pack(sequences: Sequence[Sequence[int]], budget: int, groups: Sequence[Hashable] | None = None) -> list[list[int]]:
    """Split sequences into packs of at most `budget` distinct tokens each, neighbours together.

    A group shares its prompt, so splitting it costs a second reading of that prompt, and it is split only above the whole budget. Joining
    two groups gains little, and costs memory: they share a pack up to half of the budget. A single sequence longer than the budget is a
    pack of its own. Order is kept.

    Args:
        sequences: Token ids of each sequence.
        budget: Most tree nodes of a pack.
        groups: What the members of a group, which are neighbours, have in common; None takes all sequences for one group.

    Returns:
        Indices of the sequences of each pack.
    """
    packs: list[list[int]] = []
    tree = PrefixTree()
    key = groups.__getitem__ if groups is not None else lambda _: None
    for members in [list(run) for _, run in groupby(range(len(sequences)), key)]:
        for index in members:
            tree.add(sequences[index])
        if packs and len(tree) <= budget // 2:
            packs[-1].extend(members)
            continue
        tree, part = PrefixTree(), []
        for index in members:
            if part and len(tree) + tree.new_tokens(sequences[index]) > budget:
                packs.append(part)
                tree, part = PrefixTree(), []
            tree.add(sequences[index])
            part.append(index)
        if part:
            packs.append(part)
    return packs
