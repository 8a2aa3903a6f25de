"""What a recording may cost."""

from __future__ import annotations

from dataclasses import dataclass, fields
from fractions import Fraction

from bubblescope.check import units


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits, each None where there is none. All are upper bounds that may be reached.

    max_reads: blocking reads a step, mean over the steps that count, whether they waited or not.
    max_reads_in_all: blocking reads in the window. max_idle_share: idle of a step, 0 to 1; of the
    window where there are no steps. max_idle_ns, max_step_ns, max_launches: a step, medians.
    """

    max_reads: Fraction | None = None
    max_reads_in_all: Fraction | None = None
    max_idle_share: Fraction | None = None
    max_idle_ns: int | None = None
    max_step_ns: int | None = None
    max_launches: Fraction | None = None

    @classmethod
    def parse(
        cls,
        *,
        max_reads: str | float | None = None,
        max_reads_in_all: str | int | None = None,
        max_idle: str | int | None = None,
        max_step: str | None = None,
        max_launches: str | float | None = None,
    ) -> Budget:
        """From limits as people write them; `max_idle` is "5%", "300us" or 0.

        Raises:
            BubblescopeError: a limit cannot be read.
        """
        idle = None if max_idle is None else str(max_idle)
        shared = idle is not None and units.is_share(idle)
        return cls(
            max_reads=None if max_reads is None else units.count(max_reads),
            max_reads_in_all=None if max_reads_in_all is None else units.count(max_reads_in_all),
            max_idle_share=units.share(idle) if idle is not None and shared else None,
            max_idle_ns=units.time_ns(idle) if idle is not None and not shared else None,
            max_step_ns=None if max_step is None else units.time_ns(str(max_step)),
            max_launches=None if max_launches is None else units.count(max_launches),
        )

    @property
    def empty(self) -> bool:
        """Whether nothing is limited."""
        return all(getattr(self, f.name) is None for f in fields(self))
