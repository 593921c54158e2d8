"""The configuration file as a tree: each value checked, with the line it stands on.

Broken YAML and wrong types stop, and all wrong types are reported at once; an unknown key only warns. The tree is
walked along the known names, so that what is unknown is never built.
"""

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from fanjoin.ipc.config_file import NEXT_STEP, Config, Located
from fanjoin.ipc.config_kinds import UnexpectedValueError, expectation
from fanjoin.ipc.config_schema import ALIASES, FILE_KEYS, NAMED, NOT_BUILT, SECTIONS, Key
from fanjoin.ipc.errors import ConfigError
from fanjoin.ipc.text import clean

_KNOWN = [*FILE_KEYS, *ALIASES, *SECTIONS, *NAMED]
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float", "tag:yaml.org,2002:bool")
_NULL = "tag:yaml.org,2002:null"
_LAST_PART = 0.88  # a name that is alike as a whole comes before one that only ends like it


def read_into(config: Config, text: str) -> None:
    """Parse the text of a configuration file and put its values, routes and warnings into ``config``.

    Raises:
        ConfigError: it is not YAML, or holds values of a wrong type.
    """
    root = _compose(config, text)
    reader = _Reader(config)
    if root is not None and not _is_absent(root):
        reader.section("", root)
    if reader.problems:
        raise ConfigError("\n".join([*reader.problems, NEXT_STEP]))


def _compose(config: Config, text: str) -> Node | None:
    """Return the syntax tree, whose nodes know their lines."""
    bad = yaml.reader.Reader.NON_PRINTABLE.search(text)
    if bad:
        raise _broken(config, text.count("\n", 0, bad.start()), f"the character U+{ord(bad[0]):04X} is not allowed")
    try:
        return _parse(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        # Only the parser's own words: the excerpt of the file that it offers may show a key.
        raise _broken(config, mark.line if mark else 0, error.problem or "it cannot be understood") from error
    except RecursionError as error:
        raise _broken(config, 0, "it is nested too deeply") from error


def _parse(text: str) -> Node | None:
    """Parse with libyaml; where that refuses, let the parser in Python decide (it knows surrogates and explains)."""
    try:
        return yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError:
        return yaml.compose(text, Loader=yaml.SafeLoader)


def _broken(config: Config, line: int, problem: str) -> ConfigError:
    return ConfigError(f"{config.place(line + 1)}: this is not valid YAML: {problem}.\n{NEXT_STEP}")


class _Reader:
    """Walks the tree and files what it finds."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.problems: list[str] = []

    def section(self, prefix: str, node: Node) -> None:
        """Read the members of a section; ``prefix`` is its dotted name with a dot at the end, or empty."""
        for name, child in self._members(prefix, node):
            given = prefix + name
            key = ALIASES.get(given, given)
            if key in FILE_KEYS:
                self._value(key, given, child)
            elif key in NAMED:
                self._named(key, child)
            elif key in SECTIONS:
                self.section(f"{key}.", child)
            else:
                self._unknown(given, child, _KNOWN)

    def _named(self, section: str, node: Node) -> None:
        """Read a section whose members the user names."""
        known = NAMED[section]
        for name, member in self._members(f"{section}.", node):
            prefix = f"{section}.{name}."
            fields = self._config.named(section).setdefault(name, {})
            for field, child in self._members(prefix, member):
                if field in known:
                    self._store(fields, field, prefix + field, child, known[field])
                else:
                    self._unknown(prefix + field, child, [prefix + word for word in known])

    def _value(self, key: str, given: str, node: Node) -> None:
        values = self._config.values
        earlier = values.get(key)
        self._store(values, key, given, node, FILE_KEYS[key])
        if earlier and values[key].value != earlier.value:
            self._problem(node, given, f"line {earlier.line} gives another value to {key}, which is the same setting")
        if key in NOT_BUILT and key in values and values[key].value:
            self._warn(node, f"{key} is true, but what it switches on is not available in this version")

    def _store(self, values: dict[str, Located], key: str, given: str, node: Node, row: Key) -> None:
        value = _plain(node)
        try:
            values[key] = Located(row.kind(value), _line(node))
        except UnexpectedValueError as error:
            self._problem(node, given, expectation(error, value, secret=row.secret))

    def _members(self, prefix: str, node: Node) -> list[tuple[str, Node]]:
        """Return the members of a mapping that are neither null nor blank, in order."""
        section = prefix.rstrip(".") or "the file"
        if not isinstance(node, MappingNode):
            self._problem(node, section, f'expected a section, whose lines are "name: value", not {_form(node)}')
            return []
        lines: dict[str, int] = {}
        members: list[tuple[str, Node]] = []
        for key, child in node.value:
            name = clean(key.value) if isinstance(key, ScalarNode) else "<<"
            if name == "<<":
                self._problem(key, section, "a name has to be a plain text, and sections cannot be merged into it")
            elif name in lines:
                self._problem(key, prefix + name, f"line {lines[name]} gives it already; one of the two has to go")
            elif not _is_absent(child):
                members.append((name, child))
            lines.setdefault(name, _line(key))
        return members

    def _unknown(self, given: str, node: Node, known: list[str]) -> None:
        nearest = _nearest(given, known)
        self._warn(node, f"{given} is not a setting, so it has no effect; the nearest known name is {nearest}")

    def _problem(self, node: Node, key: str, problem: str) -> None:
        self.problems.append(f"{self._config.place(_line(node))}: {key}: {problem}.")

    def _warn(self, node: Node, warning: str) -> None:
        self._config.warnings.append(f"{self._config.place(_line(node))}: {warning}.")


def _is_absent(node: Node) -> bool:
    """Whether nothing is given here: null, or the empty text that people leave as a placeholder."""
    return isinstance(node, ScalarNode) and (node.tag == _NULL or not str(node.value).strip())


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1


def _form(node: Node) -> str:
    return "a list" if isinstance(node, SequenceNode) else "a single value"


def _plain(node: Node) -> object:
    """Return what a scalar or a list stands for: dates and the like stay text, and a section has no meaning here."""
    if isinstance(node, SequenceNode):
        return [_plain(item) if isinstance(item, ScalarNode) else None for item in node.value]
    if node.tag == _NULL or not isinstance(node, ScalarNode):
        return None
    return _number(node) if node.tag in _NUMBERS else str(node.value)


def _number(node: ScalarNode) -> object:
    """Return a number or truth value; digits that make no number (too many, an odd base) stay text."""
    try:
        return yaml.constructor.SafeConstructor().construct_object(node)
    except ValueError:
        return str(node.value)


def _nearest(given: str, known: list[str]) -> str:
    """Return the known name that looks most like the given one, as a whole or in its last part."""
    import difflib

    def likeness(name: str) -> tuple[float, float]:
        whole = difflib.SequenceMatcher(None, given, name).ratio()
        last = difflib.SequenceMatcher(None, given.rpartition(".")[2], name.rpartition(".")[2]).ratio()
        return max(whole, _LAST_PART * last), whole + last

    return max(known, key=likeness)
