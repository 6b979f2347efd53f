"""The house's table: which room of core/ uses which, and what the includes make of it.

Four rules; each finding is one sentence that says what breaks which of them, and where:

1. An include leads from a room only into the rooms that the table allows it.
2. Files need one another in no circle. A file and its header are one; it needs what it includes,
   and the files in which the functions that it calls are defined.
3. Every function of a room has a caller. One that is declared in a *public* header (a header that
   somebody outside the room includes, tests aside) is called outside the room or in a test; one of
   any other header is called outside the file that defines it.
4. The table in docs/architecture.md says the same as the one here.

usage: rooms.py [ROOT]
"""

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path

# What each room may include: rooms, with all that those may include, and single headers.
TABLE: dict[str, tuple[str, ...]] = {
    "base": (),
    "hlo": ("base",),
    "pjrt": ("base", "hlo/types.h"),
    "lapack": ("pjrt",),
    "ops": ("hlo", "pjrt/target.h"),
    "call": ("ops",),
    "kernels": ("ops", "pjrt"),
    "graph": ("call",),
    "program": ("graph", "pjrt"),
    "stream": ("program", "kernels"),
    "export": ("stream",),
    "dist": ("stream",),
    "session": ("dist", "lapack"),
}
ARCHITECTURE = "docs/architecture.md"
CALLERS = ("glue", "bench", "tools", "tests/core")  # beside core/
SUFFIXES = {".c", ".h", ".def", ".cpp"}

TEXT = r"""'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*\""""
NOT_CODE = re.compile(rf"(?P<comment>/\*.*?\*/|//[^\n]*)|{TEXT}", re.DOTALL)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.MULTILINE)
NAME = re.compile(r"\btt_\w+")
ATTRIBUTE = re.compile(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)")
FUNCTION = re.compile(r"^[^=]*?\b(tt_\w+)\s*\((?!\s*\*)", re.DOTALL)


def without(text: str, strings: bool) -> str:
    """Returns C text whose comments, and on request whose strings, are blank; lines stay."""

    def blank(match: re.Match[str]) -> str:
        keep = not match["comment"] and not strings
        return match[0] if keep else " " + "\n" * match[0].count("\n")

    return NOT_CODE.sub(blank, text)


def outermost(code: str) -> Iterator[tuple[str, str]]:
    """Yields what stands at a C file's outermost level, and "{" or ";" for how it ends."""
    depth, start = 0, 0
    for at, char in enumerate(code):
        if char == "{":
            if depth == 0:
                yield code[start:at], "{"
            depth += 1
        elif char == "}":
            depth -= 1
            start = at + 1
        elif char == ";" and depth == 0:
            yield code[start:at], ";"
            start = at + 1


@dataclass(frozen=True)
class Source:
    """One file: what it includes, names, declares and defines."""

    path: str
    text: str

    @property
    def stem(self) -> str:
        """A file and its header are one; a .def is a file of its own."""
        return re.sub(r"\.(c|h)$", "", self.path)

    @property
    def room(self) -> str:
        """The folder beneath core/, or the folder beside it."""
        parts = self.path.split("/")
        return parts[1] if parts[0] == "core" else parts[0]

    @cached_property
    def includes(self) -> list[tuple[int, str]]:
        """The line and the name of each include in quotation marks."""
        text = without(self.text, strings=False)
        found = INCLUDE.finditer(text)
        return [(text.count("\n", 0, match.start(1)) + 1, match[1]) for match in found]

    @cached_property
    def code(self) -> str:
        """The text without comments and strings."""
        return without(self.text, strings=True)

    @cached_property
    def names(self) -> frozenset[str]:
        """Every tt_ name in it, in macros too."""
        return frozenset(NAME.findall(self.code))

    def mentions(self, name: str) -> int:
        """How often it names something."""
        return len(re.findall(rf"\b{name}\b", self.code))

    @cached_property
    def functions(self) -> tuple[frozenset[str], frozenset[str]]:
        """The functions that it declares (or has inline, in a header), and those it defines."""
        declared, defined = set(), set()
        for head, end in outermost(DIRECTIVE.sub("", self.code)):
            head = ATTRIBUTE.sub("", head).strip()
            match = FUNCTION.match(head)
            if not match or head.startswith("typedef") or not head.endswith(")"):
                continue
            static = re.match(r"static\b", head)
            if end == "{" and not static:
                defined.add(match[1])
            elif self.path.endswith(".h"):
                declared.add(match[1])
        return frozenset(declared), frozenset(defined)


@dataclass
class House:
    """The files of a checkout, and what the rules make of them."""

    sources: list[Source]
    table: dict[str, tuple[str, ...]] = field(default_factory=lambda: TABLE)

    @classmethod
    def read(cls, root: Path, table: dict[str, tuple[str, ...]] | None = None) -> "House":
        """Reads core/ and the folders that call it."""
        paths = sorted(
            path
            for folder in ("core", *CALLERS)
            for path in (root / folder).rglob("*")
            if path.suffix in SUFFIXES
        )
        files = [Source(p.relative_to(root).as_posix(), p.read_text("utf-8")) for p in paths]
        return cls(files, TABLE if table is None else table)

    @cached_property
    def core(self) -> list[Source]:
        """The files in rooms."""
        return [source for source in self.sources if source.path.startswith("core/")]

    @cached_property
    def files(self) -> dict[str, Source]:
        """The files in rooms by the names that includes give them."""
        return {source.path.removeprefix("core/"): source for source in self.core}

    @cached_property
    def definitions(self) -> dict[str, str]:
        """The file in which each function is defined, without its suffix."""
        return {
            name: source.stem
            for source in self.core
            if source.path.endswith(".c")
            for name in source.functions[1]
        }

    def allowed(self, room: str) -> set[str]:
        """The rooms and headers that a room may include."""
        found: set[str] = set()
        left = list(self.table.get(room, ()))
        while left:
            entry = left.pop()
            if entry not in found:
                found.add(entry)
                left += self.table.get(entry, ())
        return found

    def arrows(self) -> Iterator[str]:
        """Rule 1."""
        for room in sorted({source.room for source in self.core} - set(self.table)):
            yield f"core/{room}: the house's table (scripts/rooms.py) has no row for this room."
        for source in self.core:
            if source.room not in self.table:
                continue
            allowed = self.allowed(source.room)
            for line, name in source.includes:
                room = name.partition("/")[0]
                if room != source.room and not {room, name} & allowed:
                    may = ", ".join(sorted(allowed)) or "nothing"
                    yield (
                        f'{source.path}:{line}: {source.room} includes "{name}", but the '
                        f"house's table has no arrow {source.room} -> {room}; "
                        f"{source.room} may use {may}."
                    )

    def needs(self) -> dict[str, dict[str, str]]:
        """For each file, without its suffix, the files that it needs, and what of them."""
        graph: dict[str, dict[str, str]] = {source.stem: {} for source in self.core}
        for source in self.core:
            for name in source.names:
                home = self.definitions.get(name)
                if home and home != source.stem and name not in source.functions[0]:
                    graph[source.stem][home] = min(name, graph[source.stem].get(home, name))
            for _, name in source.includes:
                target = self.files.get(name)
                if target and target.stem != source.stem:
                    graph[source.stem].setdefault(target.stem, f'"{name}"')
        return graph

    def circles(self) -> Iterator[str]:
        """Rule 2."""
        graph = self.needs()
        for members in components(graph):
            way = shortest_circle(graph, members)
            steps = [f"{a} needs {b} ({graph[a][b]})" for a, b in pairwise(way)]
            many = f"{len(members)} files need one another in a circle: {', '.join(members)}. "
            yield f"{many}One way around: {'; '.join(steps)}."

    def idle(self) -> Iterator[str]:
        """Rule 3."""
        public = self.public_headers()
        by_name: dict[str, list[Source]] = {}
        for source in self.sources:
            for name in source.names:
                by_name.setdefault(name, []).append(source)
        for header in self.core:
            if not header.path.endswith(".h"):
                continue
            for name in sorted(header.functions[0]):
                home = self.definitions.get(name, header.stem)
                users = [s for s in by_name[name] if s.path != header.path and s.stem != home]
                if header.path in public:
                    users = [s for s in users if s.room != header.room]
                if users or header.mentions(name) > 1:  # its own inline functions and macros
                    continue
                where = (
                    f"outside core/{header.room} and in no test"
                    if header.path in public
                    else "outside the file that defines it"
                )
                yield f"{header.path}: {name} is declared, but nothing calls it {where}."

    def public_headers(self) -> set[str]:
        """The headers that somebody outside their rooms includes, tests aside."""
        return {
            self.files[name].path
            for source in self.sources
            if not source.path.startswith("tests/")
            for _, name in source.includes
            if name in self.files and self.files[name].room != source.room
        }


def components(graph: dict[str, dict[str, str]]) -> list[list[str]]:
    """The sets of nodes that reach one another, each sorted, those of one node left out."""
    reach = {node: reachable(graph, node) for node in graph}
    found: list[list[str]] = []
    seen: set[str] = set()
    for node in sorted(graph):
        if node in reach[node] and node not in seen:
            members = sorted(other for other in reach[node] if node in reach[other])
            seen.update(members)
            found.append(members)
    return found


def reachable(graph: dict[str, dict[str, str]], start: str) -> set[str]:
    """The nodes that a way of at least one step leads to."""
    found: set[str] = set()
    left = list(graph[start])
    while left:
        node = left.pop()
        if node not in found:
            found.add(node)
            left += graph[node]
    return found


def shortest_circle(graph: dict[str, dict[str, str]], members: Iterable[str]) -> list[str]:
    """A shortest way from one of the members back to it."""
    inside, best = set(members), list[str]()
    for start in sorted(inside):
        ways = [[start, other] for other in sorted(graph[start]) if other in inside]
        seen: set[str] = set()
        while ways and not (best and len(ways[0]) >= len(best)):
            way = ways.pop(0)
            if way[-1] == start:
                best = way
                break
            if way[-1] not in seen:
                seen.add(way[-1])
                ways += [[*way, other] for other in sorted(graph[way[-1]]) if other in inside]
    return best


def page_table(page: str) -> dict[str, tuple[str, ...]]:
    """The rows `| core/x | holds | may use |` of a Markdown page; "libc" is nothing."""
    rows: dict[str, tuple[str, ...]] = {}
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        match = re.fullmatch(r"`core/(\w+)`", cells[0])
        if match and len(cells) == 3:
            entries = re.findall(r"[\w/.]+", cells[2])
            rows[match[1]] = tuple(entry for entry in entries if entry != "libc")
    return rows


def differences(page: str, table: dict[str, tuple[str, ...]]) -> Iterator[str]:
    """Rule 4."""
    rows = page_table(page)
    for room in sorted({*rows, *table}):
        if room not in rows:
            yield f"{ARCHITECTURE}: its table has no row for core/{room}."
        elif room not in table:
            yield f"{ARCHITECTURE}: core/{room} is in its table, but not in scripts/rooms.py."
        elif set(rows[room]) != set(table[room]):
            says, wants = (", ".join(sorted(some)) or "libc" for some in (rows[room], table[room]))
            yield f"{ARCHITECTURE}: core/{room} may use {says} there, {wants} in scripts/rooms.py."


def findings(root: Path, table: dict[str, tuple[str, ...]] | None = None) -> list[str]:
    """Returns one sentence for each thing that breaks a rule."""
    house = House.read(root, table)
    page = (root / ARCHITECTURE).read_text("utf-8")
    return [*house.arrows(), *house.circles(), *house.idle(), *differences(page, house.table)]


def main() -> None:
    """Prints the findings; exits 1 if there are any."""
    found = findings(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
    print("\n".join(found) or "rooms: nothing found")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
