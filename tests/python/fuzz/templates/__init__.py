"""What a program's steps are made of, by kind."""

# The order of the modules is part of a seed's meaning: it numbers the templates.
# isort: off
from .step import TEMPLATES, Step
from .pointwise import make
from . import views, writes
from .indexing import index_write, scatter_write
from .rest import foreach
from . import aliases, loops, images

# isort: on

__all__ = [
    "TEMPLATES",
    "Step",
    "aliases",
    "foreach",
    "images",
    "index_write",
    "loops",
    "make",
    "scatter_write",
    "views",
    "writes",
]
