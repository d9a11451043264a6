"""Parameters of public functions and methods that nobody explains: `python tests/parameters.py` lists them.

A parameter is explained by a comment at the end of its line, or above it, or by the help of a command's option. A
method is explained where it first stands with this parameter: `answer(way)` of every method means the same.
"""
import ast
import io
import tokenize
from pathlib import Path

PACKAGE = Path(__file__).parents[1]/"fewshot_nb"

def modules():
    "`(path, source, syntax tree)` of each module."
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.name in ("_modidx.py", "__main__.py"): continue
        source = path.read_text(encoding="utf-8")
        yield path, source, ast.parse(source)

def patched_class(function):
    "The class that a function with `@patch` extends, or None."
    first = function.args.args[:1]
    patches = any("patch" in ast.unparse(d) for d in function.decorator_list)
    return ast.unparse(first[0].annotation) if patches and first and first[0].annotation else None

def public_functions(tree):
    "`(name, function, whether it is a method)` of what others may call."
    exported = {e.value for n in tree.body if isinstance(n, ast.Assign) and
                getattr(n.targets[0], "id", "") == "__all__" for e in n.value.elts}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            owner = patched_class(node)
            patch = owner and not owner.startswith("_") and not node.name.startswith("_")
            if node.name in exported or patch: yield node.name, node, owner is not None
        elif isinstance(node, ast.ClassDef) and node.name in exported:
            for inner in [n for n in node.body if isinstance(n, ast.FunctionDef)]:
                called = inner.name in ("__init__", "__call__") or not inner.name.startswith("_")
                if called: yield f"{node.name}.{inner.name}", inner, True

def arguments(function, method):
    "The arguments that a caller gives."
    a = function.args
    found = [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, [a.vararg, a.kwarg])]
    static = any(ast.unparse(d) == "staticmethod" for d in function.decorator_list)
    return found[1:] if method and not static else found

def options(parsed):
    "Names of annotations that carry the help of a command's option."
    assigned = [n for _, _, tree in parsed for n in tree.body if isinstance(n, ast.Assign)]
    return {n.targets[0].id for n in assigned if "help=" in ast.unparse(n.value) and hasattr(n.targets[0], "id")}

def explained(function, args, source, comments, helped):
    "Names of the arguments that stand alone on their line and have a comment, or are options with help."
    lines, a = source.splitlines(), function.args
    defaults = [d for d in [*a.defaults, *a.kw_defaults] if d is not None]
    found = set()
    for i, arg in enumerate(args):
        if sum(other.lineno == arg.lineno for other in args) > 1: continue
        place = arg.lineno, arg.col_offset
        until = (args[i + 1].lineno, args[i + 1].col_offset) if i + 1 < len(args) else (10**9, 0)
        own = [d for d in defaults if place < (d.lineno, d.col_offset) < until]
        end = max([arg.end_lineno, *[d.end_lineno for d in own]])
        text = "\n".join(lines[arg.lineno - 1:end])
        option = arg.annotation is not None and ast.unparse(arg.annotation) in helped
        over = lines[arg.lineno - 2].strip()
        above = over.startswith("#") and not over.startswith("# %%")  # the head of a cell explains nothing
        if end in comments or above or option or "help=" in text or "typer.Context" in text: found.add(arg.arg)
    return found

def unexplained():
    "How many parameters there are, and `module.function(parameter)` of those without an explanation."
    parsed, total, missing, known = list(modules()), 0, [], set()
    helped = options(parsed)
    for path, source, tree in parsed:
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        comments = {t.start[0] for t in tokens if t.type == tokenize.COMMENT}
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        for name, function, method in public_functions(tree):
            args, short = arguments(function, method), name.split(".")[-1]
            own = explained(function, args, source, comments, helped)
            total += len(args)
            if method and short != "__init__": known |= {(short, a) for a in own}
            missing += [(module, name, a.arg, method) for a in args if a.arg not in own and a.arg != "_"]
    lacking = [m for m in missing if not (m[3] and (m[1].split(".")[-1], m[2]) in known)]
    return total, [f"{module}.{name}({arg})" for module, name, arg, _ in lacking]

if __name__ == "__main__":
    total, lacking = unexplained()
    print(*lacking, f"{len(lacking)} of {total} parameters of public functions are not explained", sep="\n")
