# cython: language_level=3
# What bindings check of the columns that they are given.


cdef inline int same(str what, Py_ssize_t n, Py_ssize_t length) except -1:
    """A column must have as many entries as the others of its family."""
    if n != length:
        from kscale.errors import NativeError

        raise NativeError(f"{what}: {length} entries, expected {n}")
    return 0


cdef inline int all_same(Py_ssize_t n, dict lengths) except -1:
    """All columns of a family, by name."""
    for what, length in lengths.items():
        same(what, n, length)
    return 0
