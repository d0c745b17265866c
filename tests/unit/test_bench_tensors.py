"""What the benchmark's loads send."""

import numpy as np
import tensors


def test_strings_have_all_lengths_from_nothing_to_the_longest_in_no_order():
    lengths = [len(each) for each in tensors.strings(1000)[0]]
    assert set(lengths) == set(range(tensors.LONGEST_STRING_BYTES + 1))
    assert lengths != sorted(lengths)


def test_strings_survive_the_wire():
    values = tensors.strings(1000)
    assert values.shape == (1, 1000)
    assert tensors.decode(tensors.encode(values), tensors.datatype(values)).tolist() == values[0].tolist()


def test_floats_survive_the_wire():
    values = tensors.floats(3)
    np.testing.assert_array_equal(tensors.decode(tensors.encode(values), tensors.datatype(values)), values[0])


def test_values_are_the_same_each_time():
    assert tensors.strings(9).tolist() == tensors.strings(9).tolist()
    np.testing.assert_array_equal(tensors.floats(9), tensors.floats(9))
