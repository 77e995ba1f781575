# Part of _engine. Information about the build of the native modules.

cdef extern from "kscale/build_info.hpp" namespace "kscale" nogil:
    cdef struct c_BuildInfo "kscale::BuildInfo":
        const char* compiler
        const char* standard
        const char* cpu_level
        bint clones
        bint sanitized
        bint assertions
    c_BuildInfo c_build_info "kscale::build_info"() noexcept


def build_info():
    cdef c_BuildInfo info = c_build_info()
    return {
        "compiler": info.compiler.decode(),
        "standard": info.standard.decode(),
        "cpu_level": info.cpu_level.decode(),
        "clones": bool(info.clones),
        "sanitized": bool(info.sanitized),
        "assertions": bool(info.assertions),
    }
