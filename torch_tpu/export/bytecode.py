"""StableHLO's versioned bytecode, which no PJRT plugin writes: by the package jaxlib."""

# Artifacts have no CHLO, whose erf, atan and others are series of operators of StableHLO.
PURE = "builtin.module(func.func(chlo-legalize-to-stablehlo))"


def portable(text: str, version: str | None = None) -> bytes:
    """A module's portable artifact. Raises ImportError, with advice, where jaxlib is missing.

    version: of StableHLO, such as "1.8.0"; None: jaxlib's own.
    """
    try:
        from jaxlib.mlir import ir, passmanager
        from jaxlib.mlir._mlir_libs import _jax_mlir_ext
        from jaxlib.mlir.dialects import chlo, stablehlo
    except ImportError as error:
        raise ImportError(
            "versioned bytecode is made by the package jaxlib, as PJRT plugins make none: install "
            f"it, or hand on the text ({error})"
        ) from None
    with ir.Context() as context:
        registry = ir.DialectRegistry()
        _jax_mlir_ext.register_dialects(registry)
        context.append_dialect_registry(registry)
        context.load_all_available_dialects()
        stablehlo.register_dialect(context)
        chlo.register_dialect(context)
        stablehlo.register_stablehlo_passes()
        module = ir.Module.parse(text)
        passmanager.PassManager.parse(PURE).run(module.operation)
        version = version or stablehlo.get_current_version()
        made: bytes = stablehlo.serialize_portable_artifact_str(str(module), version)
    return made
