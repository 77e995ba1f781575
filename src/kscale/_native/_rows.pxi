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
    """Return int64[n]: which of at most 32 columns differ from ``values`` in each row. Bit ``k`` is 1 where
    ``columns[k][rows[i]] != values[k, i]``. ``values`` may have more entries than there are rows. The columns are
    one-dimensional and of signed integers.
    """
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
    """Return the highest row, -1 if there is none. Raises NativeError for a negative one."""
    cdef Py_ssize_t i
    cdef int64_t highest = -1, every = 0
    for i in range(rows.shape[0]):
        every |= rows[i]
        if rows[i] > highest:
            highest = rows[i]
    if every < 0:
        raise NativeError("a row out of bounds")
    return highest


def add_placed(const int64_t[::1] rows, state, int placed, class_of, at, int sign, known, count, list sums,
               list amounts):
    """Add what the pods of some rows take of their nodes, ``sign`` 1 or -1 times, where ``state[row]`` (int8) is
    ``placed``: the rows of those that take more than is told here. None, and nothing is added, if what some pod takes is
    not known, or of what has no sums.

    ``class_of``, ``at`` int32: the pods' classes and nodes; ``known`` uint8 by class: 0 = not known, 2 = takes more;
    ``amounts[k]`` int64 by class; ``count`` int64 by node: of pods; ``sums[k]``: None, or int64 by node. Sums wrap.
    """
    cdef Py_ssize_t i, n = rows.shape[0]
    cdef _Buffers held = _Buffers()
    if not -128 <= placed <= 127:
        raise NativeError("add_placed: no such state")
    cdef c_Column states = held.take(state, _SIGNED, 1, _READ)
    cdef c_Column classes = held.take(class_of, _SIGNED, 4, _READ)
    cdef c_Column nodes = held.take(at, _SIGNED, 4, _READ)
    cdef _Sums to = _Sums(known, count, sums, amounts)
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
    if not to.fit(pods, more):
        return None
    to.add(pods, sign)
    return [more[i] for i in range(<Py_ssize_t>more.size())]


cdef class _Sums:
    """The sums and amounts of :func:`add_placed`."""

    cdef _Buffers held
    cdef c_Column known, count
    cdef c_Column[8] sums, amounts
    cdef Py_ssize_t kinds

    def __cinit__(self, known, count, list sums not None, list amounts not None):
        cdef Py_ssize_t k
        self.held = _Buffers()
        self.kinds = len(amounts)
        if len(sums) != self.kinds or self.kinds > 8:
            raise NativeError("add_placed: not as many sums as amounts")
        self.known = self.held.take(known, "B", 1, _READ)
        self.count = self.held.take(count, _SIGNED, 8, _WRITE)
        for k in range(self.kinds):
            self.amounts[k] = self.held.take(amounts[k], _SIGNED, 8, _READ)
            self.sums[k].data = NULL
            if sums[k] is not None:
                self.sums[k] = self.held.take(sums[k], _SIGNED, 8, _WRITE)
                if self.sums[k].size < self.count.size:
                    raise NativeError("add_placed: not as many sums as nodes")
            if self.amounts[k].size < self.known.size:
                raise NativeError("add_placed: not as many amounts as classes")

    cdef cbool fit(self, const c_Placed& pods, vector[int64_t]& more) except? False:
        """Check whether all amounts of the pods are known and have sums; ``more``: rows that take other resources, too."""
        cdef Py_ssize_t k
        cdef cbool fine
        with nogil:
            fine = c_fits(pods, self.count.size)
        if not fine:
            raise NativeError("add_placed: a number out of bounds")
        for k in range(self.kinds):
            with nogil:
                fine = self.sums[k].data != NULL or c_none(pods, <const int64_t*>self.amounts[k].data, self.known.size)
            if not fine:
                return False
        with nogil:
            fine = c_known(pods, <const uint8_t*>self.known.data, self.known.size, more)
        return fine

    cdef int add(self, const c_Placed& pods, int sign) except -1:
        """Add what the pods take, ``sign`` 1 or -1 times, after :meth:`fit` was True for them."""
        cdef Py_ssize_t k
        with nogil:
            c_add(pods, NULL, sign, <int64_t*>self.count.data)
            for k in range(self.kinds):
                if self.sums[k].data != NULL:
                    c_add(pods, <const int64_t*>self.amounts[k].data, sign, <int64_t*>self.sums[k].data)
        return 0


ROW_COLUMNS = ("state", "class_of", "at", "source", "size", "uid_size")
"""The columns of a table that :func:`put_rows` knows by name, in their order."""


def put_rows(const int64_t[::1] removed, const int64_t[::1] rows, Py_ssize_t existing, list columns,
             const int64_t[:, ::1] values, int64_t unchanged, tuple named, int gone, int placed, int64_t[::1] live,
             const int64_t[::1] whole, known, count, list sums, list amounts):
    """Remove the pods of some rows of a table, and put others into ``rows``, of which the first ``existing`` have a pod.
    None, and nothing is changed, if :func:`add_placed` returned None for some of them. All rows are different.

    ``columns[k][rows] = values[k]`` for one-dimensional columns of integers that ``values`` fit into; where bit ``k`` of ``unchanged`` is 1, column ``k`` has the values
    already in the existing rows, and is not written there. ``named``: where :data:`ROW_COLUMNS` are among the columns.
    Removed rows get the state ``gone`` and the source -1. What their texts and those of existing rows used is subtracted
    from ``live``, by buffer: ``size`` bytes of the buffer ``source`` (negative: none), or if that is 0 ``uid_size``. The
    pods whose state is ``placed`` count in the sums, see :func:`add_placed`.

    Returns ``(few, more, reclassified)``: those of these buffers of which less than half of ``whole`` is used now, or
    nothing, ascending; (node, class, sign) of each pod
    that takes more than is told here; and whether a pod in an existing row has another class than before.
    """
    cdef Py_ssize_t i, k, m = rows.shape[0], n = removed.shape[0], wide = len(columns)
    cdef _Buffers held = _Buffers()
    cdef c_Column[32] to
    cdef c_Column[6] own
    cdef int[6] place
    if values.shape[0] != wide or values.shape[1] != m or not 0 <= existing <= m or len(named) != 6:
        raise NativeError("put_rows: shapes do not match")
    if not -128 <= placed <= 127 or live.shape[0] != whole.shape[0]:
        raise NativeError("put_rows: no such state, or not one size a buffer")
    cdef int64_t highest = max(_highest(rows), _highest(removed))
    for k in range(wide):
        to[k] = held.take(columns[k], _INTEGERS, 0, _WRITE)
        if highest >= to[k].size:
            raise NativeError("put_rows: a row out of bounds")
    for k in range(6):
        place[k] = named[k]
        if not 0 <= place[k] < wide or to[place[k]].width != <size_t>(1 if k == 0 else 4):
            raise NativeError("put_rows: no such column")
        own[k] = to[place[k]]
    for i in range(n + existing):
        if (<const int32_t*>own[3].data)[removed[i] if i < n else rows[i - n]] >= live.shape[0]:
            raise NativeError("put_rows: no such buffer")
    cdef vector[int64_t] before, ordinal, more_before, more_after, few
    cdef vector[int8_t] state
    cdef vector[int32_t] class_of, at
    cdef vector[int64_t] other
    cdef cbool reclassified = False
    other.resize(existing)
    if existing:
        for k in range(3):
            c_changes(own[k].data, &values[place[k], 0], own[k].width, &rows[0], existing, <int64_t>1 << k, other.data())
    before.reserve(n + existing)
    for i in range(n):
        before.push_back(removed[i])
    for i in range(m):
        if i < existing:
            if not other[i]:
                continue
            reclassified = reclassified or other[i] & 2
            before.push_back(rows[i])
        ordinal.push_back(ordinal.size())
        state.push_back(<int8_t>values[place[0], i])
        class_of.push_back(<int32_t>values[place[1], i])
        at.push_back(<int32_t>values[place[2], i])
    cdef c_Placed old, new
    old.rows, old.n, old.placed = before.data(), before.size(), placed
    old.state = <const int8_t*>own[0].data
    old.class_of, old.at = <const int32_t*>own[1].data, <const int32_t*>own[2].data
    new.rows, new.n, new.placed = ordinal.data(), ordinal.size(), placed
    new.state, new.class_of, new.at = state.data(), class_of.data(), at.data()
    cdef _Sums total = _Sums(known, count, sums, amounts)
    if not total.fit(old, more_before) or not total.fit(new, more_after):
        return None
    more = [(old.at[row], old.class_of[row], -1) for row in more_before]
    more += [(at[row], class_of[row], 1) for row in more_after]
    total.add(old, -1)
    total.add(new, 1)
    for i in range(n):
        before[i] = removed[i]
    before.resize(n)
    for i in range(existing):
        before.push_back(rows[i])
    cdef c_Texts texts
    if before.size() and live.shape[0]:
        texts.source, texts.size = <const int32_t*>own[3].data, <const int32_t*>own[4].data
        texts.uid_size = <const int32_t*>own[5].data
        c_release(texts, before.data(), before.size(), &live[0], &whole[0], few)
    for i in range(n):
        (<int8_t*>own[0].data)[removed[i]] = <int8_t>gone
        (<int32_t*>own[3].data)[removed[i]] = -1
    for k in range(wide):
        if m == 0:
            break
        i = existing if unchanged >> k & 1 else 0
        if i < m:
            c_scatter(to[k].data, &values[k, i], to[k].width, &rows[i], m - i)
    return [few[i] for i in range(<Py_ssize_t>few.size())], more, reclassified


def have_uids(const int64_t[::1] rows, list buffers, const int32_t[::1] source, const int64_t[::1] offset,
              const int32_t[::1] uid_offset, const int32_t[::1] uid_size, const unsigned char[::1] data,
              const int64_t[::1] at, const int64_t[::1] size):
    """Return uint8[n]: whether the pods in rows have the UIDs ``data[at[i]:][:size[i]]``: 0 no; 1 yes, or one of the
    two has no UID; 2 the row's pod is in no buffer (its ``source`` is negative). ``source`` and the columns of
    places are by row: the number of the buffer, and where the UID is in it.
    """
    cdef Py_ssize_t i, n = rows.shape[0], count = source.shape[0]
    cdef Py_buffer held
    cdef int64_t row, begin
    cdef vector[const char*] texts
    if at.shape[0] != n or size.shape[0] != n:
        raise NativeError("have_uids: shapes do not match")
    if offset.shape[0] != count or uid_offset.shape[0] != count or uid_size.shape[0] != count:
        raise NativeError("have_uids: columns of different sizes")
    out = np.ones(n, dtype=np.uint8)
    cdef uint8_t[::1] to = out
    texts.resize(n)
    for i in range(n):
        row = rows[i]
        if not 0 <= row < count or source[row] >= len(buffers):
            raise NativeError("have_uids: a row out of bounds")
        if size[i] <= 0:
            continue
        if source[row] < 0:
            to[i] = 2
            continue
        if uid_size[row] <= 0:
            continue
        if uid_size[row] != size[i]:
            to[i] = 0
            continue
        begin = offset[row] + uid_offset[row]
        PyObject_GetBuffer(buffers[source[row]], &held, PyBUF_SIMPLE)
        PyBuffer_Release(&held)
        if begin < 0 or begin > held.len - size[i] or at[i] < 0 or at[i] > data.shape[0] - size[i]:
            raise NativeError("have_uids: outside the buffer")
        texts[i] = <const char*>held.buf + begin
        c_prefetch(texts[i])
    for i in range(n):
        if texts[i] != NULL:
            to[i] = c_same_text(texts[i], <const char*>&data[0] + at[i], size[i])
    return out


def number_values(const int32_t[::1] values not None):
    """Number the distinct values (none is negative) from 0, in the order of their first entries.

    Returns (number of each entry's value: int32[n], position of the first entry with each value: int64[k]).
    """
    cdef Py_ssize_t i, n = values.shape[0]
    cdef int32_t value, top = -1, count = 0
    cdef vector[int32_t] dense
    cdef unordered_map[int32_t, int32_t] sparse
    cdef vector[int64_t] first
    out = np.empty(n, dtype=np.int32)
    cdef int32_t[::1] number = out
    cdef int32_t* found
    for i in range(n):
        if values[i] < 0:
            raise NativeError("number_values: a negative value")
        top = max(top, values[i])
    cdef bint is_dense = top < 64 * n
    if is_dense:
        dense.resize(top + 1, 0)
    for i in range(n):
        value = values[i]
        found = &dense[value] if is_dense else &sparse[value]
        if found[0] == 0:
            first.push_back(i)
            found[0] = <int32_t>first.size()
        number[i] = found[0] - 1
    firsts = np.empty(first.size(), dtype=np.int64)
    cdef int64_t[::1] positions = firsts
    if not first.empty():
        memcpy(&positions[0], first.data(), first.size() * sizeof(int64_t))
    return out, firsts


def equivalence_groups(const int32_t[::1] controller not None, const int32_t[::1] shape not None, int32_t most):
    """Group pods with equal shape; a pod without a controller (-1) is a group of its own.

    So is every pod of a shape of a controller that has ``most`` other shapes before it. A shape has one controller.
    Returns (pods, group after group in the order of their first pods: int32[n]; where groups start in them, and n:
    int32[groups + 1]).
    """
    cdef Py_ssize_t i, n = controller.shape[0]
    cdef int32_t c, s, at = 0, shapes = 0, controllers = 0
    cdef vector[int32_t] first, known, leader, size, starts
    if shape.shape[0] != n:
        raise NativeError("equivalence_groups: shapes do not match")
    for i in range(n):
        c, s = controller[i], shape[i]
        if c >= 0 and not (0 <= s < n and c < n):
            raise NativeError("equivalence_groups: a number out of bounds")
    first.resize(n, -1)  # first pod of each shape; -2: the shape is not remembered
    known.resize(n, 0)
    leader.resize(n, 0)
    size.resize(n, 0)
    for i in range(n):
        leader[i] = <int32_t>i
        c = controller[i]
        if c >= 0:
            s = shape[i]
            if first[s] == -1:
                first[s] = <int32_t>i if known[c] < most else -2
                known[c] += 1
            if first[s] >= 0:
                leader[i] = first[s]
        size[leader[i]] += 1
    for i in range(n):
        if leader[i] == i:
            starts.push_back(at)
            at += size[i]
            size[i] = at - size[i]  # from now on: where the next pod of the group goes
    starts.push_back(at)
    pods = np.empty(n, dtype=np.int32)
    cdef int32_t[::1] to = pods
    for i in range(n):
        to[size[leader[i]]] = <int32_t>i
        size[leader[i]] += 1
    ends = np.empty(starts.size(), dtype=np.int32)
    cdef int32_t[::1] of_groups = ends
    memcpy(&of_groups[0], starts.data(), starts.size() * sizeof(int32_t))
    return pods, ends
