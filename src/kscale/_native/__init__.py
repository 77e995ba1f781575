"""The compiled floor: arrays in, arrays out. The modules listed here are the only doors to it.

_build      how the binary was made
"""
