"""What a data set must say about itself: where things are, and which words are used there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from nearcast.errors import InvalidInput

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["Profile", "Somewhere", "Source"]


@dataclass(frozen=True)
class Profile:
    """The numbers of a data set that can be changed.

    Parameters
    ----------
    message_tokens, keywords
        The least and most tokens of a message, and keywords of a subscription.
    box_share
        The least and most area of a subscription's box, as shares of the world's.
    """

    message_tokens: tuple[int, int]
    keywords: tuple[int, int]
    box_share: tuple[float, float]

    def __post_init__(self) -> None:
        for name in ("message_tokens", "keywords"):
            least, most = getattr(self, name)
            if not 1 <= least <= most:
                problem = "must be two whole numbers, 1 <= least <= most"
                raise InvalidInput(name, (least, most), problem)
        least_share, most_share = self.box_share
        if not 0 <= least_share <= most_share <= 1:
            problem = "must be two shares, 0 <= least <= most <= 1"
            raise InvalidInput("box_share", self.box_share, problem)


class Somewhere(NamedTuple):
    """Places in degrees, and the city that each belongs to."""

    lon: NDArray[np.float64]
    lat: NDArray[np.float64]
    city: NDArray[np.int64]


class Source(ABC):
    """A data set: draws places and words with a generator that is given to it."""

    summary: ClassVar[str]
    """One line for people who choose a data set."""

    default: ClassVar[Any]
    """The profile of the data set where nothing is changed."""

    in_order: ClassVar[bool]
    """Whether the words of a text read well in the order of their token ids."""

    def __init__(self, seed: int, profile: Any) -> None:
        self.seed = seed
        self.profile = profile

    @abstractmethod
    def places(self, rng: np.random.Generator, count: int) -> Somewhere:
        """Draw places."""

    @abstractmethod
    def message_tokens(
        self, rng: np.random.Generator, length: NDArray[Any], at: Somewhere
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Draw the tokens of texts of these lengths (a token drawn twice counts once)."""

    @abstractmethod
    def keyword_tokens(
        self, rng: np.random.Generator, length: NDArray[Any], at: Somewhere
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Draw that many tokens out of texts that could be written at these places."""

    @abstractmethod
    def sides(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        """Draw the sides of boxes, as shares of the world's sides."""

    @abstractmethod
    def words(self) -> pa.StringArray:
        """Return the word of every token id; the default tokenizer leaves each as it is."""
