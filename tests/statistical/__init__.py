"""Tests by sampling, with a stated rate of false alarms.

Each check rejects a sampler without fault with probability at most ALPHA. There are fewer than MOST_CHECKS
of them, so a run of all raises a false alarm at most once in a million. In the short form, seeds are fixed
and nothing is left to chance; ``DISCREET_SEEDS=0-99`` tries a hundred. The long form (``make stats``) draws
from the operating system each time.

``checks`` has the tests themselves, ``laws`` the exact probabilities, ``test_power`` shows that each
check rejects what it should at the size it is used with.
"""

from __future__ import annotations

ALPHA = 1e-9
"""Largest probability that one check rejects a sampler without fault."""
MOST_CHECKS = 1_000
FALSE_ALARMS = ALPHA * MOST_CHECKS
"""Largest probability that a whole run does."""
SHORT, LONG = 1_000_000, 10_000_000
"""Draws per sampler in the usual form and under ``make stats``."""
