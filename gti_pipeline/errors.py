"""The one exception a user is meant to read."""

from collections.abc import Iterable


class GtiError(Exception):
    """Bad input, configuration or state: says what, where, the offending value and how to mend it.

    The command line prints it without a traceback and exits with code 2.
    """


def raise_all(title: str, problems: Iterable[str]) -> None:
    """Raises one `GtiError` that lists every problem; does nothing where there is none."""
    lines = list(problems)
    if lines:
        raise GtiError(title + "".join(f"\n  - {line}" for line in lines))
