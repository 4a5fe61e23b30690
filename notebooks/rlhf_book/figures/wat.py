"""An assembler for the part of WebAssembly's text format in which `engine/kernel.wat` is written.

One imported memory, one exported function, folded instructions, names for parameters, locals and labels. What it does
not know it refuses. The text is the source; no file of bytes lies beside it.
"""

import re

_TYPES = {"i32": 0x7F, "v128": 0x7B}
_SIMPLE = {
    "i32.lt_u": [0x49],
    "i32.add": [0x6A],
    "i32.sub": [0x6B],
    "i32.mul": [0x6C],
    "i32.shl": [0x74],
}
_SIMD = {"f32x4.add": 0xE4, "f32x4.mul": 0xE6}
_LOADS = {
    "v128.load": (0x00, 4),
    "v128.load32_splat": (0x09, 2),
    "v128.store": (0x0B, 4),
}  # code, log2 of the alignment
_LOCALS = {"local.get": 0x20, "local.set": 0x21, "local.tee": 0x22}
_TOKEN = re.compile(r';;[^\n]*|"[^"]*"|[()]|[^\s()";]+')

Expression = list  # of words and further expressions


def assemble(text: str) -> bytes:
    """The bytes of a module.

    Args:
        text: The module in the text format.

    Returns:
        The module in the binary format, version 1.

    Raises:
        ValueError: Something that this assembler does not know, or brackets that do not match.

    Example:
        >>> text = '(module (import "m" "m" (memory 1)) (func (export "f") (param $x i32) (local.set $x (i32.const 1))))'
        >>> assemble(text)[:8]
        b'\\x00asm\\x01\\x00\\x00\\x00'
    """
    kind, imported, function = _only(_parse(text))
    if kind != "module" or imported[0] != "import" or function[0] != "func":
        raise ValueError(
            "expected (module (import ...) (func ...)), an imported memory and one function"
        )
    _, module, name, (what, pages) = imported
    if what != "memory":
        raise ValueError(f"the import is a {what}, expected a memory")
    exported, parameters, locals_, body = "", [], [], []
    for part in function[1:]:
        match part[0]:
            case "export":
                exported = part[1]
            case "param":
                parameters.append(part[1:])
            case "local":
                locals_.append(part[1:])
            case _:
                body.append(part)
    names = {
        variable: number for number, (variable, _) in enumerate(parameters + locals_)
    }
    code = [byte for part in body for byte in _instruction(part, names, [])]
    runs = [[0x01, _TYPES[kind]] for _, kind in locals_]
    inner = [*_list(runs), *code, 0x0B]
    sections = {
        1: _list([[0x60, *_list([[_TYPES[kind]] for _, kind in parameters]), 0x00]]),
        2: _list([[*_name(module), *_name(name), 0x02, 0x00, *_unsigned(int(pages))]]),
        3: _list([[0x00]]),
        7: _list([[*_name(exported), 0x00, 0x00]]),
        10: _list([[*_unsigned(len(inner)), *inner]]),
    }
    whole = [
        byte
        for number, content in sections.items()
        for byte in (number, *_unsigned(len(content)), *content)
    ]
    return b"\x00asm\x01\x00\x00\x00" + bytes(whole)


def _instruction(
    part: Expression, names: dict[str, int], labels: list[str]
) -> list[int]:
    """A folded instruction: first what it works on, then itself."""
    name, *rest = part

    def code(operands: list) -> list[int]:
        return [
            byte
            for operand in operands
            for byte in _instruction(operand, names, labels)
        ]

    match name:
        case _ if name in _SIMPLE:
            return [*code(rest), *_SIMPLE[name]]
        case _ if name in _SIMD:
            return [*code(rest), 0xFD, *_unsigned(_SIMD[name])]
        case _ if name in _LOCALS:
            return [*code(rest[1:]), _LOCALS[name], *_unsigned(names[rest[0]])]
        case _ if name in _LOADS:
            number, align = _LOADS[name]
            offset = (
                int(rest.pop(0).removeprefix("offset="))
                if isinstance(rest[0], str)
                else 0
            )
            return [*code(rest), 0xFD, *_unsigned(number), align, *_unsigned(offset)]
        case "i32.const":
            return [0x41, *_signed(int(rest[0]))]
        case "v128.const" if rest == ["i32x4", "0", "0", "0", "0"]:
            return [0xFD, 0x0C, *[0] * 16]
        case "loop":
            inner = [
                byte
                for operand in rest[1:]
                for byte in _instruction(operand, names, [rest[0], *labels])
            ]
            return [0x03, 0x40, *inner, 0x0B]
        case "br_if":
            return [*code(rest[1:]), 0x0D, *_unsigned(labels.index(rest[0]))]
        case "if":
            condition, (then, *yes), (otherwise, *no) = rest
            if (then, otherwise) != ("then", "else"):
                raise ValueError(
                    f"(if ...) has {then} and {otherwise}, expected then and else"
                )
            inside = ["", *labels]
            yes, no = (
                [b for operand in side for b in _instruction(operand, names, inside)]
                for side in (yes, no)
            )
            return [*code([condition]), 0x04, 0x40, *yes, 0x05, *no, 0x0B]
    raise ValueError(f"{name} is no instruction that this assembler knows")


def _parse(text: str) -> Expression:
    stack: list[Expression] = [[]]
    for token in _TOKEN.findall(text):
        if token == "(":
            stack.append([])
        elif token == ")":
            if len(stack) < 2:
                raise ValueError("a bracket is closed that was not opened")
            done = stack.pop()
            stack[-1].append(done)
        elif not token.startswith(";;"):
            stack[-1].append(token.strip('"'))
    if len(stack) != 1:
        raise ValueError(f"{len(stack) - 1} brackets are not closed")
    return stack[0]


def _only(expressions: Expression) -> Expression:
    if len(expressions) != 1 or len(expressions[0]) != 3:
        raise ValueError("expected one module with an import and a function")
    return list(expressions[0])


def _unsigned(number: int) -> list[int]:
    """LEB128: seven bits a byte, the lowest first."""
    out = []
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return [*out, number]


def _signed(number: int) -> list[int]:
    out = []
    while not -64 <= number < 64:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return [*out, number & 0x7F]


def _name(text: str) -> list[int]:
    return [len(text), *text.encode()]


def _list(parts: list[list[int]]) -> list[int]:
    return [*_unsigned(len(parts)), *[byte for part in parts for byte in part]]
