"""Moving subscribers on roads: the data set ``moving``.

Objects on roads move differently from points that drift: they crowd on fast roads, turn at
junctions, and a box around one is seldom left and entered along the same side. The model is that of
network-based generators (T. Brinkhoff, "A framework for generating network-based moving objects",
GeoInformatica 6(2), 2002): objects move along the edges of a network by fastest paths, their speed
depends on the class of the edge and of the object, and on how many others are there.

- **Network** (`RoadNetwork`): a map from files (`load_roads`) or a synthetic one (`lattice`). Only
  the largest part stays in which every node can be reached from every other one. Nodes that only
  bend a road become points of a polyline.
- **Speeds** (`meters_per_tick`): by the class of the road, in km/h or as a share of the size of the
  network, times ``velocity`` and a factor per mover (0.6, 0.8 or 1).
- **Routes** (`Routes`): 256 nodes are destinations. A table has the first arc of the fastest way
  from every node to each of them, so a mover is four numbers: arc, offset, goal and trip. At its
  goal it draws the next one. Movers with ``route="wander"`` draw an arc at every node instead.
- **Draws** are hashes of the seed, the mover and the trip or tick. Any part of the movers, in any
  order, moves as all of them would.
- **Ticks** (`Movers.tick`): in each, a share of the movers (``mobility``) moves for ``tick_s``
  seconds. With ``interval`` k a mover reports in every k-th tick, if it has moved since the last.
- **Messages** (`MovingWorkload`) are on random roads with noise, or at the places of another data
  set. All events of a tick have the same time: first the moves, then the messages.

What differs from that generator: destinations are few and fixed, there are no classes of external
objects, and movers never appear or disappear.
"""

from nearcast.datasets.roads.files import load_roads
from nearcast.datasets.roads.lattice import lattice
from nearcast.datasets.roads.movers import Motion, Movers, Moves
from nearcast.datasets.roads.network import Edges, RoadNetwork
from nearcast.datasets.roads.routes import Routes
from nearcast.datasets.roads.speeds import meters_per_tick
from nearcast.datasets.roads.tables import arrival_table, move_table, mover_table
from nearcast.datasets.roads.workload import MovingWorkload, Tick

__all__ = [
    "Edges",
    "Motion",
    "Movers",
    "Moves",
    "MovingWorkload",
    "RoadNetwork",
    "Routes",
    "Tick",
    "arrival_table",
    "lattice",
    "load_roads",
    "meters_per_tick",
    "move_table",
    "mover_table",
]
