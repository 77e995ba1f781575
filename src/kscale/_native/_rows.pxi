# Part of _names. Rows of tables that are columns (kscale/table_rows.hpp).

from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS,
    PyBUF_FORMAT,
    PyBUF_SIMPLE,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t
from libc.string cimport strchr
from libcpp cimport bool as cbool
from libcpp.vector cimport vector


cdef extern from "kscale/table_rows.hpp" namespace "kscale" nogil:
    void c_scatter "kscale::scatter"(char* to, const int64_t* values, size_t width, const int64_t* rows, size_t n)
    void c_changes "kscale::note_changes"(const char* column, const int64_t* values, size_t width, const int64_t* rows,
                                          size_t n, int64_t bit, int64_t* changed)
    cdef struct c_Texts "kscale::StoredTexts":
        const int32_t* source
        const int32_t* size
        const int32_t* uid_size
    void c_release "kscale::release_texts"(const c_Texts& texts, const int64_t* rows, size_t n, int64_t* live,
                                           const int64_t* whole, vector[int64_t]& few) except +
    cdef struct c_Placed "kscale::PlacedRows":
        const int64_t* rows
        size_t n
        const int8_t* state
        int8_t placed
        const int32_t* class_of
        const int32_t* at
    cbool c_fits "kscale::placed_fit"(const c_Placed& pods, int64_t nodes)
    cbool c_known "kscale::placed_known"(const c_Placed& pods, const uint8_t* known, int64_t classes,
                                         vector[int64_t]& more) except +
    cbool c_none "kscale::placed_take_none"(const c_Placed& pods, const int64_t* amounts, int64_t classes)
    void c_add "kscale::add_placed"(const c_Placed& pods, const int64_t* amounts, int64_t sign, int64_t* sums)
    void c_prefetch "kscale::prefetch_text"(const char* text)
    bint c_same_text "kscale::same_text"(const char* a, const char* b, int64_t size)


cdef struct c_Column:
    char* data
    size_t width
    Py_ssize_t size


cdef class _Buffers:
    """Buffers of one-dimensional arrays, held as long as this is."""

    cdef Py_buffer[32] held
    cdef int count

    cdef c_Column take(self, object array, const char* formats, Py_ssize_t width, int flags) except *:
        """``formats``: those of entries, in the machine's order of bytes; ``width``: bytes of an entry, 0 = any."""
        cdef c_Column made
        if self.count == 32:
            raise NativeError("too many columns")
        PyObject_GetBuffer(array, &self.held[self.count], flags)
        cdef Py_buffer* one = &self.held[self.count]
        self.count += 1
        if one.ndim != 1 or (width and one.itemsize != width):
            raise NativeError("a column of another shape")
        if one.format == NULL or one.format[0] == 0 or one.format[1] != 0 or strchr(formats, one.format[0]) == NULL:
            raise NativeError("a column of other numbers")
        made.data, made.width, made.size = <char*>one.buf, one.itemsize, one.len // one.itemsize
        return made

    def __dealloc__(self):
        while self.count:
            self.count -= 1
            PyBuffer_Release(&self.held[self.count])


cdef int _READ = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT
cdef int _WRITE = _READ | PyBUF_WRITABLE
cdef const char* _INTEGERS = "?bBiIlLqQ"
cdef const char* _SIGNED = "bilq"


def changes(const int64_t[::1] rows, list columns, const int64_t[:, ::1] values):
    """int64[n]: which of at most 32 columns have other entries in each row than ``values``: bit ``k`` is 1 where
    ``columns[k][rows[i]] != values[k, i]``. ``values`` may have more entries than there are rows. The columns are
    one-dimensional and of signed integers."""
    cdef Py_ssize_t k, n = rows.shape[0]
    cdef _Buffers held = _Buffers()
    cdef c_Column[32] of
    if len(columns) != values.shape[0] or values.shape[1] < n:
        raise NativeError("changes: shapes do not match")
    cdef int64_t highest = _highest(rows)
    for k in range(len(columns)):
        of[k] = held.take(columns[k], _SIGNED, 0, _READ)
        if highest >= of[k].size:
            raise NativeError("changes: a row out of bounds")
    out = np.zeros(n, dtype=np.int64)
    cdef int64_t[::1] to = out
    if n:
        for k in range(len(columns)):
            c_changes(of[k].data, &values[k, 0], of[k].width, &rows[0], n, <int64_t>1 << k, &to[0])
    return out


cdef int64_t _highest(const int64_t[::1] rows) except -2:
    """The highest row, -1 if there is none. Raises NativeError for a negative one."""
    cdef Py_ssize_t i
    cdef int64_t highest = -1, every = 0
    for i in range(rows.shape[0]):
        every |= rows[i]
        if rows[i] > highest:
            highest = rows[i]
    if every < 0:
        raise NativeError("a row out of bounds")
    return highest


def scatter(const int64_t[::1] rows, list columns, const int64_t[:, ::1] values):
    """``columns[k][rows] = values[k]`` for one-dimensional columns of integers that ``values`` fit into, as numpy does it;
    of a row that comes twice the last value counts. What is wrong is found before anything is written."""
    cdef Py_ssize_t k, n = rows.shape[0]
    cdef _Buffers held = _Buffers()
    cdef c_Column[32] to
    if len(columns) != values.shape[0] or values.shape[1] != n:
        raise NativeError("scatter: shapes do not match")
    cdef int64_t highest = _highest(rows)
    for k in range(len(columns)):
        to[k] = held.take(columns[k], _INTEGERS, 0, _WRITE)
        if highest >= to[k].size:
            raise NativeError("scatter: a row out of bounds")
    if n:
        for k in range(len(columns)):
            c_scatter(to[k].data, &values[k, 0], to[k].width, &rows[0], n)


def release_texts(const int64_t[::1] rows, const int32_t[::1] source, const int32_t[::1] size,
                  const int32_t[::1] uid_size, int64_t[::1] live, const int64_t[::1] whole):
    """Subtract what the texts of different rows use from ``live``, by buffer. Return those of these buffers of which less
    than half of ``whole`` is used now, or nothing: a list of int, ascending.

    By row: ``source`` the buffer (negative: none), ``size`` of the text in bytes, or if that is 0 ``uid_size``.
    """
    cdef Py_ssize_t i, n = rows.shape[0], count = source.shape[0]
    cdef vector[int64_t] few
    cdef c_Texts texts
    if size.shape[0] != count or uid_size.shape[0] != count or live.shape[0] != whole.shape[0]:
        raise NativeError("release_texts: columns of different sizes")
    for i in range(n):
        if not 0 <= rows[i] < count or source[rows[i]] >= live.shape[0]:
            raise NativeError("release_texts: out of bounds")
    if n and live.shape[0]:
        texts.source, texts.size, texts.uid_size = &source[0], &size[0], &uid_size[0]
        with nogil:
            c_release(texts, &rows[0], n, &live[0], &whole[0], few)
    return [few[i] for i in range(<Py_ssize_t>few.size())]


def add_placed(const int64_t[::1] rows, state, int placed, class_of, at, int sign, known, count, list sums,
               list amounts):
    """Add what the pods of some rows take of their nodes, ``sign`` 1 or -1 times, where ``state[row]`` (int8) is
    ``placed``: the rows of those that take more than is told here. None, and nothing is added, if what some pod takes is
    not known, or of what has no sums.

    ``class_of``, ``at`` int32: the pods' classes and nodes; ``known`` uint8 by class: 0 = not known, 2 = takes more;
    ``amounts[k]`` int64 by class; ``count`` int64 by node: of pods; ``sums[k]``: None, or int64 by node. Sums wrap.
    """
    cdef Py_ssize_t i, k, n = rows.shape[0], kinds = len(amounts)
    cdef cbool fine, done
    cdef _Buffers held = _Buffers()
    cdef c_Column[8] of_sums, of_amounts
    if len(sums) != kinds or kinds > 8:
        raise NativeError("add_placed: not as many sums as amounts")
    if not -128 <= placed <= 127:
        raise NativeError("add_placed: no such state")
    cdef c_Column states = held.take(state, _SIGNED, 1, _READ)
    cdef c_Column classes = held.take(class_of, _SIGNED, 4, _READ)
    cdef c_Column nodes = held.take(at, _SIGNED, 4, _READ)
    cdef c_Column knowns = held.take(known, "B", 1, _READ)
    cdef c_Column counts = held.take(count, _SIGNED, 8, _WRITE)
    for k in range(kinds):
        of_amounts[k] = held.take(amounts[k], _SIGNED, 8, _READ)
        of_sums[k].data = NULL
        if sums[k] is not None:
            of_sums[k] = held.take(sums[k], _SIGNED, 8, _WRITE)
            if of_sums[k].size < counts.size:
                raise NativeError("add_placed: not as many sums as nodes")
        if of_amounts[k].size < knowns.size:
            raise NativeError("add_placed: not as many amounts as classes")
    cdef c_Placed pods
    cdef vector[int64_t] more
    if not (states.size == classes.size == nodes.size):
        raise NativeError("add_placed: columns of different sizes")
    for i in range(n):
        if not 0 <= rows[i] < states.size:
            raise NativeError("add_placed: a row out of bounds")
    pods.rows = &rows[0] if n else NULL
    pods.n, pods.placed = n, placed
    pods.state = <const int8_t*>states.data
    pods.class_of, pods.at = <const int32_t*>classes.data, <const int32_t*>nodes.data
    with nogil:
        fine = c_fits(pods, counts.size)
    if not fine:
        raise NativeError("add_placed: a number out of bounds")
    for k in range(kinds):
        with nogil:
            done = of_sums[k].data != NULL or c_none(pods, <const int64_t*>of_amounts[k].data, knowns.size)
        if not done:
            return None
    with nogil:
        done = c_known(pods, <const uint8_t*>knowns.data, knowns.size, more)
        if done:
            c_add(pods, NULL, sign, <int64_t*>counts.data)
            for k in range(kinds):
                if of_sums[k].data != NULL:
                    c_add(pods, <const int64_t*>of_amounts[k].data, sign, <int64_t*>of_sums[k].data)
    return [more[i] for i in range(<Py_ssize_t>more.size())] if done else None


def same_texts(list buffers, const int32_t[::1] source, const int64_t[::1] at, const int64_t[::1] size,
               const unsigned char[::1] data, const int64_t[::1] other_at, const int64_t[::1] other_size):
    """bool[n]: whether ``buffers[source[i]][at[i]:][:size[i]]`` is ``data[other_at[i]:][:other_size[i]]``."""
    cdef Py_ssize_t i, n = source.shape[0]
    cdef Py_buffer held
    cdef vector[const char*] texts  # in the buffers, which the list keeps alive
    if at.shape[0] != n or size.shape[0] != n or other_at.shape[0] != n or other_size.shape[0] != n:
        raise NativeError("same_texts: shapes do not match")
    out = np.zeros(n, dtype=np.bool_)
    cdef uint8_t[::1] to = out.view(np.uint8)
    texts.resize(n)
    for i in range(n):
        if size[i] != other_size[i]:
            continue
        if not 0 <= source[i] < len(buffers):
            raise NativeError("same_texts: no such buffer")
        PyObject_GetBuffer(buffers[source[i]], &held, PyBUF_SIMPLE)
        PyBuffer_Release(&held)
        if size[i] < 0 or at[i] < 0 or at[i] > held.len - size[i] or other_at[i] < 0 \
                or other_at[i] > data.shape[0] - size[i]:
            raise NativeError("same_texts: outside the buffer")
        texts[i] = <const char*>held.buf + at[i]
        c_prefetch(texts[i])
    for i in range(n):
        if size[i] == other_size[i]:
            to[i] = not size[i] or c_same_text(texts[i], <const char*>&data[0] + other_at[i], size[i])
    return out
