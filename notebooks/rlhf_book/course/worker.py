"""The process in which a student's code runs. It is started by `isolation.py`, and nothing that it says is trusted.

It reads requests from its standard input and writes one reply a request: four bytes of length, then JSON. Nothing is
pickled. This file imports torch and the standard library only: the exercises, their references and the checkers are
not here.
"""

import base64
import json
import os
import sys
import types
from collections.abc import Callable
from typing import Any, BinaryIO

import torch

LARGEST = 24 * 2**20  # bytes of a message
NUMBERS = 10**6  # in one tensor, as in the checker
DEPTH = 4  # of lists in lists
KINDS = {
    str(kind).removeprefix("torch."): kind
    for kind in (
        torch.float64,
        torch.float32,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
    )
}


# ── messages: both sides use these ───────────────────────────────────────────────────


def encode(x: Any, depth: int = 0) -> dict[str, Any]:
    """A value as plain JSON; what is no number, text, tensor or list of them is only named."""
    if isinstance(x, torch.Tensor):
        x = x.detach().cpu()
        if x.is_complex() or x.layout is not torch.strided or x.numel() > NUMBERS:
            return {"other": f"tensor of {x.dtype}, {x.numel():,} numbers"}
        kind = str(x.dtype).removeprefix("torch.")
        if kind not in KINDS:
            x, kind = x.double(), "float64"
        data = base64.b64encode(x.contiguous().numpy().tobytes()).decode()
        return {"tensor": kind, "shape": list(x.shape), "data": data}
    if x is ...:
        return {"ellipsis": True}
    if x is None or type(x) in (bool, int, float, str):
        return {"plain": x}
    if isinstance(x, list | tuple) and depth < DEPTH and len(x) <= 10_000:
        kind = "tuple" if isinstance(x, tuple) else "list"
        return {kind: [encode(part, depth + 1) for part in x]}
    if hasattr(x, "__array__") or hasattr(x, "__float__"):
        try:
            return encode(torch.as_tensor(x), depth)
        except (TypeError, ValueError, RuntimeError):
            pass
    return {"other": type(x).__name__[:80]}


def decode(said: Any, depth: int = 0) -> Any:
    """The value of a message.

    Raises:
        ValueError: anything that `encode` would not have written.
    """
    if not isinstance(said, dict) or depth > DEPTH:
        raise ValueError("no value")
    if "tensor" in said:
        kind, shape = KINDS.get(str(said["tensor"])), said.get("shape")
        if kind is None or not isinstance(shape, list) or len(shape) > 16:
            raise ValueError("no tensor")
        if not all(type(n) is int and 0 <= n <= NUMBERS for n in shape):
            raise ValueError("no shape")
        data = bytearray(base64.b64decode(str(said.get("data")), validate=True))
        count = 1
        for n in shape:
            count *= n
        if count > NUMBERS or len(data) != count * kind.itemsize:
            raise ValueError("a shape that the numbers do not fill")
        if not data:
            return torch.zeros(shape, dtype=kind)
        if kind is torch.bool and max(data) > 1:
            raise ValueError("no truth value")
        return torch.frombuffer(data, dtype=kind).reshape(shape)
    if "ellipsis" in said:
        return ...
    if "plain" in said:
        value = said["plain"]
        if value is None or type(value) in (bool, int, float, str):
            return value
        raise ValueError("no plain value")
    for name, kind_of in (("tuple", tuple), ("list", list)):
        if isinstance(said.get(name), list) and len(said[name]) <= 10_000:
            return kind_of(decode(part, depth + 1) for part in said[name])
    if "other" in said:
        name = "".join(c for c in str(said["other"])[:80] if c.isalnum() or c in "_ .,")
        return type(name or "object", (), {})()
    raise ValueError("no value")


def send(stream: BinaryIO, message: dict[str, Any]) -> None:
    """Write one message."""
    data = json.dumps(message).encode()
    stream.write(len(data).to_bytes(4, "big") + data)
    stream.flush()


# ── the worker ───────────────────────────────────────────────────────────────────────


def _without_solutions() -> dict[str, types.ModuleType]:
    """In the place of the book's package: what a handout imports, doing nothing."""

    def quiet(*_: Any, **__: Any) -> None:
        """Grading is elsewhere."""

    book, exercises = types.ModuleType("rlhf_book"), types.ModuleType("exercises")
    course = types.ModuleType("course")
    for name in ("check", "hint", "solution"):
        setattr(exercises, name, quiet)
    course.checker = lambda *_, **__: quiet  # type: ignore[attr-defined]
    book.exercises, book.course = exercises, course  # type: ignore[attr-defined]
    return {
        "rlhf_book": book,
        "rlhf_book.exercises": exercises,
        "rlhf_book.course": course,
    }


def _plain_python(source: str) -> str:
    """A cell as a notebook would run it: its %magics and !commands are calls of a shell, which does nothing.

    Jupyter runs what follows %%time and %%capture as Python; the text below any other %%magic is none.
    """
    try:
        compile(source, "cell", "exec")
        return source
    except (SyntaxError, ValueError):
        pass
    if source.lstrip().startswith("%%"):
        first, _, rest = source.lstrip().partition("\n")
        return (
            _plain_python(rest) if first.split()[0] in ("%%time", "%%capture") else ""
        )
    try:
        from IPython.core.inputtransformer2 import TransformerManager

        return TransformerManager().transform_cell(source)
    except (ImportError, SyntaxError, ValueError):
        return source  # to be compiled as it is, which says what is wrong with it


class _NoShell:
    """What stands for a notebook's shell: every %magic and !command does nothing and gives nothing."""

    def __getattr__(self, _: str) -> Callable[..., None]:
        return lambda *_, **__: None


def _said(error: BaseException) -> list[str]:
    try:
        return [type(error).__name__[:80], " ".join(str(error).split())[:200]]
    except BaseException:
        return [type(error).__name__[:80], ""]


def _run_cell(names: dict[str, Any], source: str, number: int) -> dict[str, Any]:
    try:
        exec(compile(_plain_python(source), f"cell {number}", "exec"), names)
    except BaseException as error:
        return {"error": _said(error)}
    return {"done": True}


def _call(names: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    function = names[request["name"]]
    torch.set_grad_enabled(True)
    given = [decode(x) for x in request["arguments"]]
    before = [x.clone() if isinstance(x, torch.Tensor) else x for x in given]
    leaves = [given[i].requires_grad_() for i in request["leaves"]]
    for i, leaf in zip(request["leaves"], leaves, strict=True):
        given[i] = leaf.clone()
    try:
        answer = function(*given)
    except BaseException as error:
        return {"error": _said(error)}
    reply: dict[str, Any] = {}
    if leaves and isinstance(answer, list | tuple):
        parts = [part for part in answer if isinstance(part, torch.Tensor)]
        if len(parts) == len(answer) > 0 and len({part.shape for part in parts}) == 1:
            answer = torch.stack([part.double() for part in parts])
    if leaves and isinstance(answer, torch.Tensor) and answer.requires_grad:
        try:
            ones = torch.ones_like(answer)
            found = torch.autograd.grad(answer, leaves, ones, allow_unused=True)
            reply["gradients"] = [encode(part) for part in found]
        except BaseException as error:
            reply["gradient_error"] = _said(error)
    try:
        reply["value"] = encode(answer)
    except BaseException as error:
        return {"error": _said(error)}
    reply["changed"] = [
        i
        for i, x in enumerate(before)
        if isinstance(x, torch.Tensor)
        and not torch.equal(x.nan_to_num(), given[i].detach().nan_to_num())
    ]
    return reply


def main() -> None:
    """Answer requests until there are none."""
    os.chdir(os.environ.get("HOME", "."))
    hear, speak = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):  # what a student prints goes nowhere
        os.dup2(nothing, number)
    torch.set_num_threads(1)
    names: dict[str, Any] = {
        "__name__": "__main__",
        "display": lambda *_, **__: None,
        "get_ipython": _NoShell,
    }
    sys.modules.update(_without_solutions())
    send(speak, {"ready": os.getpid()})
    while len(head := hear.read(4)) == 4:
        request = json.loads(hear.read(int.from_bytes(head, "big")))
        if request["do"] == "cell":
            reply = _run_cell(names, request["source"], request["number"])
        elif request["do"] == "has":
            reply = {"has": callable(names.get(request["name"]))}
        else:
            reply = _call(names, request)
        send(speak, reply)


if __name__ == "__main__":
    main()
