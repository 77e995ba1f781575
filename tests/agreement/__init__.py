"""kscale against the reference, on random input."""

import celpy

celpy.Environment()  # raises the recursion limit, which Hypothesis does not accept during a test
