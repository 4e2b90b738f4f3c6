"""Memory that a kernel will soon write to."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic


@intrinsic
def prefetch_to_write(typing_context: Any, array: Any, row: Any) -> Any:
    """``prefetch_to_write(array, row)`` in a kernel: fetch the cache line where that row of a C array (n, w) begins.

    It comes as this core's own, which a write needs; other cores lose theirs. Nothing waits for it.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        found = context.make_array(signature.args[0])(context, builder, arguments[0])
        width = builder.extract_value(found.shape, 1)
        byte, number = ir.IntType(8), ir.IntType(32)
        place = builder.bitcast(builder.gep(found.data, [builder.mul(arguments[1], width)]), byte.as_pointer())
        shape = ir.FunctionType(ir.VoidType(), [byte.as_pointer(), number, number, number])
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [byte.as_pointer()], shape)
        to_write, keep, data = number(1), number(3), number(1)
        builder.call(fetch, [place, to_write, keep, data])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate
