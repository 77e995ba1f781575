# Part of _engine. The properties of pod classes besides requests and the row of static verdicts, read once from dicts.

from libc.stdint cimport int32_t
from libcpp.memory cimport make_shared, shared_ptr
from libcpp.vector cimport vector

from kscale._native._columns cimport in_range

cdef int32_t _MOST = 1 << 30


cdef int _rows(vector[int32_t]& into, object rows, str what) except -1:
    for row in rows:
        into.push_back(in_range(row, 0, _MOST, what))
    return 0


cdef shared_ptr[const Extra] _extra(dict given) except *:
    cdef shared_ptr[Extra] made = make_shared[Extra]()
    cdef Extra* x = made.get()
    cdef SpreadUse use
    cdef Port port
    cdef Disk disk
    cdef Volume volume
    for key, specific in given.get("ports", ()):
        port.key = in_range(key, 0, _MOST, "port key")
        port.specific = in_range(specific, -1, _MOST, "port")
        x.ports.push_back(port)
    for row, max_skew, min_domains, self_match in given.get("spread", ()):
        use.row = in_range(row, 0, _MOST, "row")
        use.max_skew = max_skew
        use.min_domains = min_domains
        use.self = self_match
        x.spread.push_back(use)
    _rows(x.spread_touch, given.get("spread_touch", ()), "spread_touch")
    if "affinity_group" in given:
        x.affinity_group = in_range(given["affinity_group"], 0, _MOST, "affinity_group")
        x.self_affine = given["self_affine"]
        _rows(x.affinity, given["affinity"], "affinity")
    _rows(x.own_anti, given.get("own_anti", ()), "own_anti")
    _rows(x.blocked_by, given.get("blocked_by", ()), "blocked_by")
    _rows(x.touch, given.get("touch", ()), "touch")
    _rows(x.rwop, given.get("rwop", ()), "rwop")
    _rows(x.claims, given.get("claims", ()), "claims")
    for identity, read_only in given.get("disks", ()):
        disk.id = in_range(identity, 0, _MOST, "disk")
        disk.read_only = read_only
        x.disks.push_back(disk)
    for handle, driver, plugin in given.get("volumes", ()):
        volume.plugin = in_range(plugin, -1, 32, "plugin")
        volume.handle = in_range(handle, 0, _MOST, "handle")
        volume.driver = in_range(driver, 0, _MOST, "driver")
        x.volumes.push_back(volume)
    x.devices = bool(given.get("devices", False))
    return <shared_ptr[const Extra]>made


cdef class Extras:
    """A list of them, None = no such properties. The engine that takes them checks their numbers.

    Keys of an entry: ``ports`` [(port key, port or -1)], ``spread`` [(row, max skew, min domains, self)],
    ``spread_touch`` [row], ``affinity_group``, ``self_affine``, ``affinity`` [row], ``own_anti`` [row], ``blocked_by``
    [row], ``touch`` [row], ``rwop`` [claim], ``claims`` [claim], ``disks`` [(disk, read only)], ``volumes`` [(handle,
    driver, in-tree plug-in or -1)], ``devices`` bool.
    """

    def __init__(self, given=()):
        for each in given:
            self.append(each)

    def __len__(self):
        return self.items.size()

    def append(self, dict given):
        """Append an entry."""
        self.items.emplace_back()
        self.set(self.items.size() - 1, given)

    def set(self, number, dict given):
        """Replace an entry; engines that have it keep the old one."""
        cdef int32_t at = in_range(number, 0, self.items.size(), "number")
        if given is None:
            self.items[at].reset()
        else:
            self.items[at] = _extra(given)
