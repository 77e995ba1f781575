# cython: language_level=3

from libcpp.memory cimport shared_ptr
from libcpp.vector cimport vector

from kscale._native._engine cimport Extra


cdef class Extras:
    cdef vector[shared_ptr[const Extra]] items
