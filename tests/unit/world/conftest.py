"""Cases that several test files share explain their asserts, too."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("unit.world.informer_cases", "unit.world.stores_cases", "unit.world.writer_cases")
