"""Exits 0 if this Python has every requirement of a file, and the ones named after it.

usage: check_env.py REQUIREMENTS [NAME==VERSION]...
"""

import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

try:
    from packaging.requirements import Requirement
except ImportError:  # a bare environment
    sys.exit(1)


def missing(requirement: str) -> str | None:
    parsed = Requirement(requirement)
    try:
        found = version(parsed.name)
    except PackageNotFoundError:
        return f"{requirement}: not installed"
    if parsed.specifier.contains(found.split("+")[0], prereleases=True):
        return None
    return f"{requirement}: {found} is installed"


def main() -> None:
    lines = Path(sys.argv[1]).read_text().splitlines()
    wanted = [line for line in lines if line and not line.startswith("#")] + sys.argv[2:]
    problems = [problem for problem in map(missing, wanted) if problem]
    for problem in problems:
        print("needs", problem)
    sys.exit(bool(problems))


main()
