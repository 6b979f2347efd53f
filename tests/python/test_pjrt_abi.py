"""Our declarations of the PJRT C ABI agree with the layout tables that pypjrt publishes."""

import ctypes
import os
import subprocess

import pytest

DUMP = os.environ.get("TT_ABI_DUMP")
pytestmark = pytest.mark.skipif(not DUMP, reason="TT_ABI_DUMP does not name the dump program")
abi = pytest.importorskip("pypjrt._abi.pjrt_0_114")

# We name a union's member, pypjrt flattens the union into its struct.
ALIASES = {("PJRT_NamedValue", "value"): "int64_value"}
# Error codes of our own, which no plugin sends.
OWN_CODES = {"LINALG_ERROR", "TYPE", "VALUE"}


@pytest.fixture(scope="module")
def facts():
    """The dump's lines, split into words and grouped by their first word."""
    text = subprocess.run([DUMP], check=True, capture_output=True, text=True, timeout=60).stdout
    groups = {}
    for line in text.splitlines():
        kind, *words = line.split(" ")
        groups.setdefault(kind, []).append(words)
    return groups


def buffer_type_name(mlir):
    """`ui8` -> `U8`, `complex<f32>` -> `C64`, ..."""
    special = {"i1": "PRED", "complex<f32>": "C64", "complex<f64>": "C128"}
    if mlir in special:
        return special[mlir]
    if mlir.startswith("ui"):
        return "U" + mlir[2:]
    if mlir.startswith("i"):
        return "S" + mlir[1:]
    return mlir.upper()


def test_struct_sizes(facts):
    assert len(facts["struct"]) > 40
    ours = {name: int(size) for name, size in facts["struct"]}
    assert ours == {name: getattr(abi, f"{name}_STRUCT_SIZE") for name in ours}


def test_field_offsets_and_sizes(facts):
    ours, theirs = {}, {}
    for struct, field, offset, size in facts["field"]:
        descriptor = getattr(getattr(abi, struct), ALIASES.get((struct, field), field))
        ours[struct, field] = int(offset), int(size)
        theirs[struct, field] = descriptor.offset, descriptor.size
    assert ours == theirs


def test_no_field_is_missing(facts):
    ours = {}
    for struct, field, _, _ in facts["field"]:
        ours.setdefault(struct, set()).add(ALIASES.get((struct, field), field))
    for struct, names in ours.items():
        fields = getattr(abi, struct)._fields_
        named = {name for name, *_ in fields if not name.startswith("_anon")}
        if struct != "PJRT_Api":
            assert named - {"extension_start"} <= names, struct


def test_slot_order(facts):
    ours = {name: int(index) for name, index in facts["slot"]}
    assert ours == abi.SLOT
    assert (
        len(ours) * ctypes.sizeof(ctypes.c_void_p) + abi.VTABLE_OFFSET == abi.PJRT_Api_STRUCT_SIZE
    )


def test_error_codes(facts):
    for name, number in facts["code"]:
        if name not in OWN_CODES:
            assert getattr(abi, f"PJRT_Error_Code_{name}") == int(number)


def test_element_types(facts):
    for name, number in facts["dtype"]:
        assert getattr(abi, f"PJRT_Buffer_Type_{buffer_type_name(name)}") == int(number)


def test_compile_option_fields(facts):
    for message, field, number in facts["proto"]:
        assert abi.PROTO_FIELDS[message][field] == int(number)


def test_enums(facts):
    for name, number in facts["enum"]:
        assert getattr(abi, name) == int(number)
