"""The strictest namespace there is: what works by it works by CuPy's."""

from array_api_strict import *  # noqa: F403
