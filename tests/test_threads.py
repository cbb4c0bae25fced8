"""Pieces read ahead come in their order, few at a time, and errors come where they belong."""

import threading
from functools import partial

import pytest

from evencover import InputError
from evencover.threads import map_on_threads

MOST_READERS = 4
read_ahead = partial(map_on_threads, most_threads=MOST_READERS, ahead=1)


@pytest.fixture(params=[1, 2, 9])
def threads(request, monkeypatch):
    monkeypatch.setenv("EVENCOVER_THREADS", str(request.param))
    return request.param


def test_pieces_come_in_order(threads):
    assert list(read_ahead(lambda piece: -piece, range(50))) == [-piece for piece in range(50)]


def test_no_more_are_read_than_there_are_readers(threads):
    read = []
    pieces = read_ahead(lambda piece: read.append(piece) or piece, range(100))
    for n_taken in range(1, 20):
        next(pieces)
        assert len(read) <= n_taken + min(threads, MOST_READERS)


def test_an_error_comes_in_the_place_of_its_piece(threads):
    def read(piece):
        if piece == 3:
            raise InputError("piece 3 is bad")
        return piece

    pieces = read_ahead(read, range(10))
    assert [next(pieces) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(InputError, match="piece 3 is bad"):
        next(pieces)


def test_whoever_stops_early_leaves_no_thread_behind(threads):
    before = threading.active_count()
    pieces = read_ahead(lambda piece: piece, range(100))
    next(pieces)
    pieces.close()
    assert threading.active_count() == before
