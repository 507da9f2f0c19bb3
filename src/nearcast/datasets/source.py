"""The base class of data sets: draws locations, and the tokens used there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from nearcast.errors import InvalidInput

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["Locations", "Profile", "Source"]


@dataclass(frozen=True)
class Profile:
    """The adjustable parameters of a data set.

    Parameters
    ----------
    message_tokens, keywords
        Minimum and maximum number of tokens per message, and of keywords per subscription.
    box_share
        Minimum and maximum area of a subscription's box, as a share of the world.
    """

    message_tokens: tuple[int, int]
    keywords: tuple[int, int]
    box_share: tuple[float, float]

    def __post_init__(self) -> None:
        for name in ("message_tokens", "keywords"):
            minimum, maximum = getattr(self, name)
            if not 1 <= minimum <= maximum:
                problem = "must be two whole numbers, 1 <= minimum <= maximum"
                raise InvalidInput(name, (minimum, maximum), problem)
        min_share, max_share = self.box_share
        if not 0 <= min_share <= max_share <= 1:
            problem = "must be two shares, 0 <= minimum <= maximum <= 1"
            raise InvalidInput("box_share", self.box_share, problem)


class Locations(NamedTuple):
    """Coordinates in degrees, and the number of the city that each point belongs to."""

    lon: NDArray[np.float64]
    lat: NDArray[np.float64]
    city: NDArray[np.int64]


class Source(ABC):
    """A data set. Its methods draw with the random generator passed to them."""

    summary: ClassVar[str]
    """A one-line description."""

    default: ClassVar[Any]
    """The default profile."""

    keeps_token_order: ClassVar[bool]
    """Whether texts list their words in the order of the token ids; otherwise they are shuffled."""

    def __init__(self, seed: int, profile: Any) -> None:
        self.seed = seed
        self.profile = profile

    @abstractmethod
    def locations(self, rng: np.random.Generator, count: int) -> Locations:
        """Draw locations."""

    @abstractmethod
    def message_tokens(
        self, rng: np.random.Generator, length: NDArray[Any], locations: Locations
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Draw the tokens of texts of these lengths; repeated tokens are dropped."""

    @abstractmethod
    def keyword_tokens(
        self, rng: np.random.Generator, length: NDArray[Any], locations: Locations
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Draw up to ``length[i]`` keywords for a subscription at location ``i``."""

    @abstractmethod
    def sides(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        """Draw the sides of boxes, as shares of the sides of the world."""

    @abstractmethod
    def words(self) -> pa.StringArray:
        """Return the word of each token id; the default tokenizer keeps each word unchanged."""
