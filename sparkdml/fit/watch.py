"""Those who are told of every round."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sparkdml.algorithms.base import State
from sparkdml.core import Stop
from sparkdml.placement.base import OnRound
from sparkdml.report.history import History, Round

#: A user's function of all rounds so far; if it returns True the fit ends with what it has.
Callback = Callable[[History], "bool | None"]


def together(watchers: Sequence[OnRound]) -> OnRound:
    """Tell all of them; the first one that asks for it ends the fit."""

    def on_round(entry: Round, state: State) -> Stop | None:
        answers = [watcher(entry, state) for watcher in watchers]
        return next((answer for answer in answers if answer is not None), None)

    return on_round


def calling(callback: Callback, rounds: History) -> OnRound:
    """Tell a user's function of every round."""

    def on_round(entry: Round, state: State) -> Stop | None:
        if callback(rounds):
            return Stop("callback", f"the callback ended the fit after round {entry.round}")
        return None

    return on_round
