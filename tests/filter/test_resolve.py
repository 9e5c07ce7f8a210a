"""Stars: nobody falls to one that falls, every fall is a verified pair, and what stays has no pair left to fall by."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datamask.filter import resolve
from datamask.filter.resolve import Edge, resolve_edges


@st.composite
def graphs(draw):
    count = draw(st.integers(2, 9))
    length = {d: draw(st.integers(1, 5)) for d in range(count)}
    fixed = range(draw(st.integers(0, 2)))
    edges = []
    for one in range(count):
        for other in range(one + 1, count):
            kind = draw(st.sampled_from(["", "", "near", "tie", "contained"]))
            if kind == "near":
                edges.append(Edge(one, other, "near", draw(st.floats(0.5, 1)), draw(st.sampled_from([one, other]))))
            elif kind == "tie":
                edges.append(Edge(one, other, "near", draw(st.floats(0.5, 1))))
            elif kind == "contained" and length[one] != length[other]:
                falls = one if length[one] < length[other] else other
                edges.append(Edge(one, other, "contained", 0.95, falls, only=True))
    return edges, length, fixed


@given(graphs())
def test_stars(graph):
    edges, length, fixed = graph
    fallen = resolve_edges(edges, length, fixed)
    pairs = {frozenset((e.one, e.other)): e for e in edges}
    for document, fall in fallen.items():
        assert fall.stays not in fallen and document not in fixed
        edge = pairs[frozenset((document, fall.stays))]
        assert fall.similarity == edge.similarity and fall.kind == edge.kind
        assert not edge.only or edge.falls == document
    for edge in edges:
        both_stay = edge.one not in fallen and edge.other not in fallen
        able = [d for d in (edge.one, edge.other) if d not in fixed and (not edge.only or edge.falls == d)]
        assert not (both_stay and able), edge


@given(graphs())
def test_what_was_listed_before_need_not_be_listed_again(graph):
    expected = resolve_edges(*graph)
    with pytest.MonkeyPatch.context() as patch:
        once = resolve._first_containers
        patch.setattr(resolve, "_first_containers", lambda document, around, listed: once(document, around, set()))
        assert resolve_edges(*graph) == expected


def test_a_pair_goes_by_who_lost_then_length_then_first_seen():
    assert set(resolve_edges([Edge(0, 1, "near", 0.9, falls=0)], {0: 9, 1: 1})) == {0}
    assert set(resolve_edges([Edge(0, 1, "near", 0.9)], {0: 1, 1: 9})) == {0}
    assert set(resolve_edges([Edge(0, 1, "near", 0.9)], {0: 5, 1: 5})) == {1}


def test_no_chains_a_document_like_one_that_falls_stays():
    fallen = resolve_edges([Edge(0, 1, "near", 0.9, falls=1), Edge(1, 2, "near", 0.9, falls=2)], {0: 3, 1: 2, 2: 1})
    assert set(fallen) == {1} and fallen[1].stays == 0
