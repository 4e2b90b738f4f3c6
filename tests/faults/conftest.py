"""What makes faults take less time than they would take users."""

from __future__ import annotations

import pytest

from sparkdml.placement import side_job


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of others get the slots that a fit holds after a moment, and not after a second."""
    monkeypatch.setattr(side_job, "PATIENCE_SECONDS", 0.2)
