"""scripts/rooms.py on small trees that break one rule each."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TABLE = {"low": (), "side": ("low",), "high": ("side", "other/types.h"), "other": ()}
PAGE = """
| room | holds | may use |
|---|---|---|
| `core/low` | the ground | libc |
| `core/side` | a wall | low |
| `core/high` | the roof | side, `other/types.h` |
| `core/other` | a shed | libc |
"""


@pytest.fixture(scope="module")
def rooms():
    spec = importlib.util.spec_from_file_location("rooms", ROOT / "scripts" / "rooms.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["rooms"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["rooms"]


@pytest.fixture
def broken(rooms, tmp_path):
    """The findings about a tree of these files."""

    def look(page=PAGE, **files):
        for name, text in {"docs/architecture.md": page, **files.get("at", {})}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return rooms.findings(tmp_path, TABLE)

    return look


SOUND = {
    "core/low/low.h": '/* #include "high/high.h" */\nint tt_low(int x);\n',
    "core/low/low.c": '#include "low/low.h"\nint tt_low(int x) { return x; }\n',
    "core/side/side.h": '#include "low/low.h"\nint tt_side(void);\n',
    "core/side/side.c": '#include "side/side.h"\nint tt_side(void) { return tt_low(1); }\n',
    "core/high/high.c": '#include <stdio.h>\n#include "side/side.h"\n'
    "static int tt_high(void) { return tt_side() + tt_low(2); }\n",
}


def test_sound_tree_has_no_findings(broken):
    assert broken(at=SOUND) == []


def test_arrow_that_the_table_does_not_have(broken):
    (found,) = broken(at=SOUND | {"core/low/more.c": '\n#include "other/types.h"\n'})
    assert found.startswith('core/low/more.c:2: low includes "other/types.h", but')
    assert "no arrow low -> other; low may use nothing." in found


def test_table_may_name_a_single_header(broken):
    files = {"core/high/one.c": '#include "other/types.h"\n', "core/high/two.c": ""}
    assert broken(at=SOUND | files) == []
    (found,) = broken(at={"core/high/two.c": '#include "other/more.h"\n'})
    assert "core/high/two.c:1" in found and "no arrow high -> other" in found


def test_room_without_a_row(broken):
    (found,) = broken(at=SOUND | {"core/attic/box.c": ""})
    assert found == "core/attic: the house's table (scripts/rooms.py) has no row for this room."


def test_circle_of_includes(broken):
    files = {
        "core/low/a.h": "",
        "core/low/a.c": '#include "low/b.h"\n',
        "core/low/b.h": '#include "low/c.h"\n',
        "core/low/c.h": "",
        "core/low/c.c": '#include "low/a.h"\n',
    }
    (found,) = broken(at=SOUND | files)
    assert found.startswith("3 files need one another in a circle: core/low/a, core/low/b, core")
    assert 'core/low/a needs core/low/b ("low/b.h"); core/low/b needs core/low/c' in found


def test_circle_of_calls_behind_one_header(broken):
    files = {
        "core/low/all.h": "int tt_a(int n);\nint tt_b(int n);\n",
        "core/low/a.c": '#include "low/all.h"\nint tt_a(int n) { return tt_b(n); }\n',
        "core/low/b.c": '#include "low/all.h"\nint tt_b(int n) {\n  return n ? tt_a(0) : 0;\n}\n',
    }
    (found,) = broken(at=SOUND | files)
    assert "core/low/a needs core/low/b (tt_b); core/low/b needs core/low/a (tt_a)" in found


def test_def_names_what_its_includer_needs(broken):
    files = {
        "core/low/table.h": "int tt_find(void);\n",
        "core/low/table.c": 'int tt_find(void) {\n#include "low/rows.def"\n}\n',
        "core/low/rows.def": "ROW(tt_row)\n",
        "core/low/rows.c": "int tt_row(void) { return tt_find(); }\n",
    }
    (found,) = broken(at=SOUND | files)
    assert found.startswith(
        "3 files need one another in a circle: core/low/rows, core/low/rows.def"
    )


def test_public_function_that_nobody_outside_calls(broken):
    files = {
        "core/low/low.h": "int tt_low(int x);\nint tt_idle(void);\n",
        "core/low/idle.c": '#include "low/low.h"\nint tt_idle(void) { return 0; }\n',
        "core/low/user.c": '#include "low/low.h"\nstatic int tt_x(void) { return tt_idle(); }\n',
    }
    (found,) = broken(at=SOUND | files)
    assert found == (
        "core/low/low.h: tt_idle is declared, but nothing calls it outside core/low and in no test."
    )
    assert broken(at={"tests/core/test_low.c": "void f(void) { tt_idle(); }\n"}) == []


def test_function_of_an_inner_header(broken):
    files = {
        "core/low/inner.h": "int tt_inner(void);\nstatic inline int tt_open(void) { return 1; }\n",
        "core/low/inner.c": '#include "low/inner.h"\nint tt_inner(void) { return tt_open(); }\n'
        '/* tt_inner() */ const char *text = "tt_inner";\n',
    }
    found = broken(at=SOUND | files)
    assert [line.split()[1] for line in found] == ["tt_inner", "tt_open"]
    assert all("outside the file that defines it" in line for line in found)
    user = "#define NOW tt_inner() + tt_open()\n"
    assert broken(at={"core/low/user.c": user}) == []


def test_page_that_says_something_else(broken):
    page = PAGE.replace("a wall | low", "a wall | low, other").replace("core/other", "core/else")
    assert broken(page=page, at=SOUND) == [
        "docs/architecture.md: core/else is in its table, but not in scripts/rooms.py.",
        "docs/architecture.md: its table has no row for core/other.",
        "docs/architecture.md: core/side may use low, other there, low in scripts/rooms.py.",
    ]
