"""What runs inside the jail, beside code nobody trusts. Sent there as source: it may import only what Python ships with.

The parent sends names and arguments, never an expected value, and reads back plain data as JSON with type tags. What a process
here says can be forged by the answer that runs in it; that gains nothing, because to be right it would have to say the value
that the parent waits for, and that value is not in the jail. The types the parent may rely on are those of `encode`: an object
that claims to equal everything is no plain data, and a subclass is not its base.
"""

import marshal
import os
import sys
from types import ModuleType

READY = "ready"  # said before the answer is loaded: whoever never says it failed without the answer's doing
DEPTH = 60  # how deep a value may nest
MODULE = "answer"  # the name under which an answer is loaded

try:
    from _json import encode_basestring_ascii as quoted  # without `json`, which would cost a third of the start-up time
except ImportError:
    from json.encoder import py_encode_basestring_ascii as quoted


class NotPlainError(Exception):
    """A value that is no plain data, with the name of its type."""


def encode(value, depth=0):
    """A value as what JSON can hold, with tags for what JSON lacks.

    None, booleans, integers of 53 bits, finite floats, strings and lists stand for themselves; anything else is an object with one
    member, named after the type.

    Raises:
        NotPlainError: A type that is not listed here, subclasses included; or deeper than `DEPTH`.
    """
    if depth > DEPTH:
        raise NotPlainError("too deeply nested value")
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        return value if -(2**53) < value < 2**53 else {"int": hex(value)}
    if kind is float:
        return value if abs(value) < float("inf") else {"float": repr(value)}
    if kind is str:
        return value if value.isascii() or _is_unicode(value) else {"utf-16": value.encode("utf-16-be", "surrogatepass").hex()}
    if kind is list:
        return [encode(item, depth + 1) for item in value]
    if kind in (tuple, set, frozenset):
        return {kind.__name__: [encode(item, depth + 1) for item in value]}
    if kind in (bytes, bytearray):
        return {kind.__name__: value.hex()}
    if kind is complex:
        return {"complex": [encode(value.real), encode(value.imag)]}
    if kind is dict or (kind.__module__ == "collections" and kind.__name__ in ("Counter", "OrderedDict", "defaultdict")):
        import collections  # already loaded whenever the second half is true

        if kind is dict or kind is getattr(collections, kind.__name__):
            return {kind.__name__: [[encode(key, depth + 1), encode(member, depth + 1)] for key, member in value.items()]}
    raise NotPlainError(kind.__name__)


def decode(tree):
    """The value that an encoded one stands for. A defaultdict comes back without its factory.

    Raises:
        NotPlainError: A tree of a kind that `encode` does not write; a malformed one may raise anything.
    """
    if type(tree) is list:
        return [decode(item) for item in tree]
    if type(tree) is not dict:
        return tree
    ((kind, content),) = tree.items()
    if kind in ("tuple", "set", "frozenset"):
        return {"tuple": tuple, "set": set, "frozenset": frozenset}[kind](decode(content))
    if kind in ("bytes", "bytearray"):
        return {"bytes": bytes, "bytearray": bytearray}[kind].fromhex(content)
    if kind == "complex":
        return complex(*decode(content))
    if kind == "utf-16":
        return bytes.fromhex(content).decode("utf-16-be", "surrogatepass")
    if kind in ("int", "float"):
        return int(content, 16) if kind == "int" else float(content)
    if kind not in ("dict", "Counter", "OrderedDict", "defaultdict"):
        raise NotPlainError(kind)
    members = dict(decode(content))
    if kind == "dict":
        return members
    import collections

    return collections.defaultdict(None, members) if kind == "defaultdict" else getattr(collections, kind)(members)


def _is_unicode(text):
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def dumps(tree):
    """JSON text of an encoded value."""
    if tree is None:
        return "null"
    if tree is True or tree is False:
        return "true" if tree else "false"
    if type(tree) is str:
        return quoted(tree)
    if type(tree) is list:
        return "[" + ",".join([dumps(item) for item in tree]) + "]"
    if type(tree) is dict:
        return "{" + ",".join([quoted(key) + ":" + dumps(member) for key, member in tree.items()]) + "}"
    return repr(tree)


def take_channel():
    """The pipe to the parent. Stdin, stdout and stderr of everything that follows are empty."""
    channel = os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    return channel


def say(channel, tree):
    """One line to the parent."""
    data = (dumps(tree) + "\n").encode()
    while data:
        data = data[os.write(channel, data) :]


def read_request():
    """What the parent sent on stdin."""
    return marshal.loads(sys.stdin.buffer.read())


def load(source):
    """Run an answer's source as a module."""
    module = ModuleType(MODULE)
    sys.modules[MODULE] = module  # dataclasses and typing look their module up
    exec(compile(source, "answer.py", "exec", dont_inherit=True), module.__dict__)
    return module


def find(module, path):
    """A function of a module, or `Class.method` of a fresh object."""
    found = module
    for name in path.split("."):
        found = getattr(found() if isinstance(found, type) else found, name)
    return found


def outcome(function, args, kwargs):
    """What a call came to: a value, an exception, or something that is no data."""
    try:
        value = function(*args, **kwargs)
    except BaseException as error:
        kind = type(error)
        base = next(known.__name__ for known in kind.__mro__ if known.__module__ == "builtins")
        return {"raised": kind.__name__, "message": str(error)[:200], "module": str(kind.__module__), "base": base}
    try:
        return {"value": encode(value)}
    except NotPlainError as error:
        failed = "returned a value of type " + str(error)[:60] + ", which is no plain data"
        try:
            return {"failed": failed, "truth": bool(value)}
        except BaseException:
            return {"failed": failed}
    except BaseException as error:
        return {"failed": "returned a value that cannot be read: " + type(error).__name__[:60]}


def call():
    """Load an answer and call its functions: one line of outcome for each call, in order."""
    request = read_request()
    channel = take_channel()
    say(channel, READY)
    try:
        module = load(request["source"])
    except BaseException as error:
        say(channel, {"unloadable": type(error).__name__[:60]})
        os._exit(0)
    for path, args, kwargs in request["calls"]:
        try:
            function = find(module, path)
        except BaseException:
            say(channel, {"failed": "has no " + path[:60]})
        else:
            say(channel, outcome(function, decode(args), decode(kwargs)))
    os._exit(0)  # without what the answer has asked to be done at exit, and without waiting for its threads
