"""Has the package of a coverage build be found where the checkout's own is installed."""

import sys

sys.meta_path[:] = [one for one in sys.meta_path if "ScikitBuild" not in type(one).__name__]
