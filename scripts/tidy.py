"""House rules that no formatter checks: line, function and file lengths, stray text.

usage: tidy.py [FILE]...   without files: every tracked or new file of the checkout
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

LINE, FUNCTION, FILE = 100, 70, 1000
CODE = {".c", ".h", ".cpp", ".def", ".py", ".pyi"}
TEXT = CODE | {".md", ".toml", ".cmake", ".sh", ".txt"}
STRAY = re.compile(r"/(home|work|root|Users)/\w|\b(XXX|FIXME)\b")
FREE_LENGTH = {".md", ".def", ".txt"}
C_FUNCTION = re.compile(r"^\w[^;={]*\)\s*(const\s*|noexcept\s*)*\{$")


def c_functions(lines: list[str]) -> Iterator[tuple[int, int, str]]:
    """Yields (first line, length, head) of each function, by the house's own layout."""
    start, head = 0, ""
    for number, line in enumerate(lines, 1):
        if not start and line and not line[0].isspace() and not line.startswith(("#", "/", "}")):
            joined = line
            for more in lines[number : number + 6]:
                if joined.endswith(("{", ";", "}")):
                    break
                joined += " " + more.strip()
            if C_FUNCTION.match(joined) and "namespace" not in joined:
                start, head = number, line
        elif start and line == "}":
            yield start, number - start + 1, head
            start = 0


def python_functions(source: str) -> Iterator[tuple[int, int, str]]:
    """Yields (first line, length without docstring, name) of each function."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
            doc = node.body[0]
            docstring = 0
            if isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant):
                docstring = (doc.end_lineno or doc.lineno) - doc.lineno + 1
            yield node.lineno, node.end_lineno - node.lineno + 1 - docstring, node.name


def findings(path: Path) -> Iterator[str]:
    """Yields one sentence per broken rule of a file."""
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    if path.suffix in CODE and len(lines) > FILE:
        yield f"{path}: {len(lines)} lines; split it, {FILE} is the limit"
    if source and not source.endswith("\n"):
        yield f"{path}: no newline at the end"
    for number, line in enumerate(lines, 1):
        if len(line) > LINE and path.suffix not in FREE_LENGTH and "://" not in line:
            yield f"{path}:{number}: {len(line)} columns; {LINE} is the limit"
        if line != line.rstrip() or ("\t" in line and path.name != "Makefile"):
            yield f"{path}:{number}: trailing blank or tab"
        if STRAY.search(line) and path.name != "tidy.py":
            yield f"{path}:{number}: a machine's path or a leftover mark: {line.strip()[:60]}"
    if path.suffix in {".c", ".cpp", ".h"}:
        functions = c_functions(lines)
    else:
        functions = python_functions(source) if path.suffix == ".py" else iter(())
    for number, length, name in functions:
        if length > FUNCTION:
            yield f"{path}:{number}: {length} lines in {name.strip()}; {FUNCTION} is the limit"


def files() -> list[Path]:
    """Every text file that git tracks or would track."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return [Path(name) for name in sorted(listed) if Path(name).is_file()]


def main() -> None:
    """Prints the findings; exits 1 if there are any."""
    chosen = [Path(name) for name in sys.argv[1:]] or files()
    found = [
        finding
        for path in chosen
        if path.suffix in TEXT or path.name in {"Makefile", ".gitignore"}
        for finding in findings(path)
    ]
    print("\n".join(found) or "house rules: nothing found")
    sys.exit(bool(found))


main()
