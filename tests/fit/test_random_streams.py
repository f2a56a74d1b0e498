"""Random streams: results depend on their numbers, which must never change."""

from shoal.fit.random_streams import Stream, generator

NUMBERS = {
    "CODE_SAMPLE": 0,
    "CODE_DIRECTIONS": 1,
    "CODE_CENTERS": 2,
    "CODE_HYPERPLANES": 3,
    "CODE_BATCHES": 4,
    "PROBE_SIGNS": 1,
    "PROBE_ORDER": 2,
    "ROW_KEYS": 2**32,
    "BANDWIDTH_SAMPLE": 2**40,
    "DEGREE_SAMPLE": 2**41,
    "EIGENSOLVER": 2**42,
    "INITIAL_SUBSPACE": 2**43,
    "NYSTROM_SAMPLE": 2**44,
    "QUOTIENT_SAMPLE": 2**45,
    "NEAREST_CHECK": 2**46,
    "REPORT_SAMPLE": 2**48,
}


def test_numbers_never_change():
    assert {name: int(stream) for name, stream in Stream.__members__.items()} == NUMBERS


def test_a_name_and_its_number_give_the_same_stream():
    for number in NUMBERS.values():
        assert generator(3, Stream(number), 5).random() == generator(3, number, 5).random()
