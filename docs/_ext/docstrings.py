"""Docstrings, written to be read as plain text, as the reStructuredText that autodoc expects.

In a docstring `x` is code, * and | stand for themselves in formulas, and an indented paragraph is a formula.
Names of this library in backticks become links, where they are documented.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

PACKAGES = {
    "gpflow_dkp": [
        "models",
        "layers",
        "gram",
        "distributions",
        "bijectors",
        "training",
        "selection",
        "saving",
        "likelihoods",
        "means",
        "networks",
        "mixture",
        "wasserstein",
        "random",
        "tables",
    ],
    "bayesian_benchmarks": [
        "datasets",
        "models",
        "tasks",
        "report",
        "sweep",
        "settings",
        "experiment",
        "configs",
        "store",
        "errors",
    ],
}

CODE = re.compile(r"(?P<double>``.+?``)|(?P<role>:[\w:]+:`[^`]+`)|`(?P<code>[^`]+)`", re.DOTALL)
FIELD = re.compile(r"\s*:\w[^:`]*:(?=\s|$)")
LETTER_AND_DOT = re.compile(r"^(\s*)([A-Za-z])([.)])(\s|$)")


def public_names(module: Any) -> list[str]:
    """What a module says it has: `__all__`, or all that is defined in it without an underscore."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]


@functools.cache
def documented() -> dict[str, Any]:
    """Every public class and function, by the name it is documented under."""
    found: dict[str, Any] = {}
    for package, parts in PACKAGES.items():
        for part in parts:
            module = importlib.import_module(f"{package}.{part}")
            for name in public_names(module):
                value = getattr(module, name)
                if inspect.isclass(value) or callable(value):
                    found[f"{module.__name__}.{name}"] = value
    return found


@functools.cache
def target_of(code: str, package: str) -> str | None:
    """The documented name that a piece of code is, of one's own package first; else None."""
    if not re.fullmatch(r"[A-Za-z_]\w*(\.\w+)*", code):
        return None
    if "." not in code and not (code[0].isupper() and len(code) > 2):
        return None
    for full in sorted(documented(), key=lambda name: not name.startswith(package)):
        if full == code or full.endswith("." + code):
            return full
        owner, _, member = code.rpartition(".")
        if (
            owner
            and owner[0].isupper()
            and (full == owner or full.endswith("." + owner))
            and hasattr(documented()[full], member)
        ):
            return f"{full}.{member}"
    return None


def inline(text: str, package: str) -> str:
    """A paragraph in reStructuredText."""
    parts: list[str] = []
    end = 0
    for match in CODE.finditer(text):
        parts.append(escaped(text[end : match.start()]))
        end = match.end()
        if match["code"] is None:
            parts.append(match[0])
            continue
        code = re.sub(r"\s+", " ", match["code"])
        target = target_of(code, package)
        before = text[match.start() - 1 : match.start()]
        after = text[end : end + 1]
        marked = f"``{code}``" if target is None else f":py:obj:`{code} <{target}>`"
        if code != code.strip():
            marked = f"``{code.strip()}``"
        parts.append(("\\ " if before and before not in " \n([{\"'-/" else "") + marked)
        if after and (after.isalnum() or after in "_`([{"):
            parts.append("\\ ")
    return "".join([*parts, escaped(text[end:])])


def escaped(text: str) -> str:
    """Text without a meaning in reStructuredText."""
    text = text.replace("\\", r"\\").replace("*", r"\*").replace("|", r"\|").replace("`", r"\`")
    return re.sub(r"(?<=\w)_(?=\W|$)", r"\_", text)


def converted(lines: list[str], package: str) -> list[str]:
    """A docstring's lines."""
    result: list[str] = []
    for block in blocks(lines):
        first = block[0]
        if first.startswith(">>>"):
            result += [*block, ""]
        elif first.startswith(" ") and not (result and is_continued(result)):
            result += ["::", "", *(f"    {line}" for line in block), ""]
        else:
            result += [*paragraph(block, package), ""]
    return result


def is_continued(lines: list[str]) -> bool:
    """Whether an indented paragraph belongs to a list item or a field before it."""
    last = [line for line in lines if line.strip() and not line.startswith(" ")]
    return bool(last) and bool(last[-1].startswith("- ") or FIELD.match(last[-1]))


def blocks(lines: list[str]) -> list[list[str]]:
    """Paragraphs, as lines without blank ones."""
    found: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            found[-1].append(line)
        elif found[-1]:
            found.append([])
    return [block for block in found if block]


def paragraph(block: list[str], package: str) -> list[str]:
    """A paragraph; lists and fields in it stand on their own."""
    pieces: list[list[str]] = []
    for line in block:
        begins = line.lstrip().startswith("- ") or FIELD.match(line)
        if not pieces or begins:
            pieces.append([line])
        else:
            pieces[-1].append(line)
    result: list[str] = []
    for number, piece in enumerate(pieces):
        text = "\n".join(piece)
        field = FIELD.match(text)
        head = field[0] if field else ""
        body = inline(text[len(head) :], package)
        body = LETTER_AND_DOT.sub(r"\1\\\2\3\4", body)
        begins = field or text.lstrip().startswith("- ")
        before = pieces[number - 1][0] if number else ""
        if (number and begins and bool(field) != bool(FIELD.match(before))) or (
            number and begins and not field and not before.lstrip().startswith("- ")
        ):
            result.append("")
        result += (head + body).split("\n")
    return result


def convert(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """The hook of autodoc."""
    package = name.partition(".")[0]
    lines[:] = converted(lines, package)
    if what == "class" and package in PACKAGES:
        lines += inherited(obj)


def inherited(cls: Any) -> list[str]:
    """A sentence for each documented base class, with what the class has from it."""
    names = {value: name for name, value in documented().items() if inspect.isclass(value)}
    if cls not in names:
        return []
    sentences: list[str] = []
    for base in cls.__mro__[1:]:
        if base not in names:
            continue
        members = [
            member
            for member, value in vars(base).items()
            if not member.startswith("_")
            and getattr(cls, member, None) is getattr(base, member)
            and (inspect.isfunction(value) or isinstance(value, property))
            and inspect.getdoc(value)
        ]
        if members:
            links = ", ".join(f":py:obj:`{m} <{names[base]}.{m}>`" for m in members)
            sentences += [f"From :py:obj:`{base.__name__} <{names[base]}>`: {links}.", ""]
    return sentences


def skip(app: Any, what: str, name: str, obj: Any, skipped: bool, options: Any) -> bool | None:
    """Leave out a named tuple's fields, which `:param:` describes, and what others' metaclasses add."""
    module = getattr(inspect.unwrap(obj) if callable(obj) else obj, "__module__", None)
    if inspect.isroutine(obj) and module and module.partition(".")[0] not in PACKAGES:
        return True
    if (getattr(obj, "__doc__", None) or "").startswith("Alias for field number"):
        return True
    return True if name in ("model_config", "model_post_init") else None


class Exported(SphinxDirective):
    """A table of what a package exports from its parts: name, and the first sentence on it."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Each name with its summary."""
        package = importlib.import_module(self.arguments[0])
        targets = {id(value): name for name, value in documented().items()}
        lines = [".. list-table::", "   :widths: 30 70", ""]
        for name in package.__all__:
            value = getattr(package, name)
            target = targets[id(value)]
            summary = (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")
            lines.append(f"   * - :py:obj:`{name} <{target}>`")
            lines.append(f"     - {inline(summary, package.__name__)}")
        return self.parse_text_to_nodes(StringList(lines, source=self.arguments[0]))


def setup(app: Any) -> dict[str, Any]:
    """Connect."""
    app.connect("autodoc-process-docstring", convert)
    app.add_directive("exported", Exported)
    app.connect("autodoc-skip-member", skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
