# Part of _engine. Runs a compiled scorer over every pod and node.

from libc.stdint cimport int32_t, int64_t, uintptr_t


cdef extern from "kscale/scoring.hpp" namespace "kscale" nogil:
    ctypedef int32_t (*RowScorer "kscale::ScoreRow")(const int64_t*, const int64_t*, int64_t, int64_t, double*) noexcept
    Py_ssize_t c_score_all "kscale::score_all"(
        const int64_t*, Py_ssize_t, const int64_t*, Py_ssize_t, Py_ssize_t, RowScorer, double*, Py_ssize_t) except +


def score_all(const int64_t[:, ::1] request not None, const int64_t[:, ::1] free not None, plugin not None, *,
              Py_ssize_t threads=1):
    """Return float64[pods, nodes]: scores by request int64[pods, columns] and free int64[nodes, columns].

    Raises NativeError naming the first pod for which the plug-in failed.
    """
    cdef Py_ssize_t pods = request.shape[0]
    cdef Py_ssize_t columns = request.shape[1]
    cdef Py_ssize_t nodes = free.shape[0]
    if free.shape[1] != columns:
        raise NativeError(f"free has {free.shape[1]} columns, request has {columns}")
    cdef uintptr_t address = plugin.address  # `plugin` stays referenced for the whole call
    if not address:
        raise NativeError(f"plug-in {plugin.name!r} has no code")
    cdef Py_ssize_t failed = pods
    scores = np.empty((pods, nodes), dtype=np.float64)
    cdef double[:, ::1] out = scores
    if pods and nodes and columns:
        with nogil:
            failed = c_score_all(&request[0, 0], pods, &free[0, 0], nodes, columns, <RowScorer>address, &out[0, 0],
                                 threads)
    if failed != pods:
        raise NativeError(f"plug-in {plugin.name!r} failed on pod {failed}")
    return scores
