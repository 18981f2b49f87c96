"""A ring survives the way through text, and nothing else passes for one."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hashring.core.ring import Ring
from hashring.core.ringfile import RingFile, dump_ring, load_ring
from hashring.errors import RingFileError

RING = Ring({"a": [0, 7], "bé": [5]}, "crc-32c")


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
        st.lists(st.integers(0, 2**32 - 1), min_size=1),
    )
)
def test_a_ring_comes_back_as_it_was(points):
    ring = Ring(points)
    assert load_ring(dump_ring(ring)).ring == ring


def test_its_place_in_history_comes_back_too():
    text = dump_ring(RING, name="accounts", epoch=7, tag="ab", at=9)
    assert load_ring(text) == RingFile(RING, "accounts", 7, "ab", 9)
    assert load_ring(text.encode()).ring == RING


@given(st.integers(0, len(dump_ring(RING)) - 3))
def test_a_file_cut_short_anywhere_is_refused(length):
    with pytest.raises(RingFileError, match="is not whole JSON"):
        load_ring(dump_ring(RING)[:length], "r.json")


def changed(**fields):
    return json.dumps({**json.loads(dump_ring(RING)), **fields})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[]", "is no ring file"),
        ("{}", "is no ring file"),
        (changed(version=2), "has version 2, and this hashring reads up to 1: upgrade"),
        (changed(version="1"), "has the version '1', which is none"),
        (changed(version=True), "has the version True, which is none"),
        (changed(nodes={"a": [0]}), "states fingerprint"),
        (changed(nodes={"a": [2**32]}), "lacks or garbles a field"),
        (changed(nodes={"a": ["7"]}), "lacks or garbles a field"),
        (changed(nodes={"": [7]}), "lacks or garbles a field"),
        (changed(nodes=[]), "lacks or garbles a field"),
        (changed(hash_algorithm="md5"), "describes no ring: hash_algorithm='md5': unknown"),
        (changed(hash_algorithm="crc-32"), "states fingerprint"),
        (changed(epoch=-1), "lacks or garbles a field"),
        (changed(name=None), "lacks or garbles a field"),
    ],
)
def test_what_is_no_ring_file_is_refused_with_the_reason(text, why):
    with pytest.raises(RingFileError) as caught:
        load_ring(text, "r.json")
    assert caught.value.source == "r.json"
    assert str(caught.value).startswith("ring file r.json ")
    assert why in str(caught.value)
