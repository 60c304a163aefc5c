"""How often the tests of chance draw (decision 145): `make test` fewer times than CI, which sets CONVGPU_THOROUGH."""

import os

IS_THOROUGH = "CONVGPU_THOROUGH" in os.environ


def rounds(all_of_them: int, *, few: int) -> int:
    """Return how often a test repeats what differs by chance only.

    Args:
        all_of_them: in CI.
        few: in `make test`; as many as show a fault of the kind that the test is there for.
    """
    return all_of_them if IS_THOROUGH else few
