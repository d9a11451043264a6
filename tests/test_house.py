"The house stands: each rule of `tests/house.py` holds, and each is able to fail."
import ast
import json

import house
import parameters
import pytest


@pytest.mark.parametrize("rule", house.RULES)
def test_the_house_keeps_its_rules(rule):
    faults = house.RULES[rule]()
    assert not faults, f"{len(faults)} {rule}:\n" + "\n".join(faults[:40])


def test_an_import_inside_a_function_counts():
    tree = ast.parse("def f():\n    from .pool import compute\n    from ..core import rng\n"
                     "    import fewshot_nb.samplers")
    known = {"engine.pool": 0, "core": 0, "samplers": 0, "engine.results": 0}
    assert house.imported(tree, "engine.results", False, known) == {"engine.pool", "core", "samplers"}


def _book(folder, *chapters):
    (folder/"nbs/api").mkdir(parents=True)
    for name, *sources in chapters:
        cells = [dict(cell_type="code", source=s) for s in sources]
        (folder/"nbs/api"/f"{name}.ipynb").write_text(json.dumps(dict(cells=cells)))


def test_what_breaks_the_rules_is_found(tmp_path, monkeypatch):
    wide = "x = 1  # " + "y"*120
    _book(tmp_path, ("100_a", "#| default_exp a", "from fewshot_nb.b import c"), ("110_b", "#| default_exp b", wide),
          ("110_d", "#| default_exp e", "#| export\n" + "x = 1\n"*26))
    monkeypatch.setattr(house, "ROOT", tmp_path)
    (tmp_path/"setup.py").write_text("")
    assert house.later() == ["100_a.ipynb imports the later 110_b"]
    assert house.numbers_twice() == ["110: 110_b.ipynb, 110_d.ipynb"]
    assert house.misnamed() == ["110_d.ipynb holds e"]
    assert len(house.wide()) == 1 and len(house.long_cells()) == 1


def test_lines_that_explain_a_parameter_do_not_count(tmp_path, monkeypatch):
    told = ("#| export\n%time 1\ndef f(\n    x,  # a number\n    y: int = 1,  # another\n    z=2,\n):\n"
            "    return x  # sum\n\n@dataclass\nclass C:\n    a: int  # a field\n    def g(self): pass\n\n"
            "def h(\n    a: Annotated[int, Option(\n        help='an option')] = 1,\n): pass\n")
    assert house.documented(told) == {4, 5, 12, 16, 17}
    assert house.length(told) == 10 and house.length("#| export\n# long: no\nx = 1\n\ny = 2") == 2
    params = "".join(f"    x{i},  # a number\n" for i in range(30))
    _book(tmp_path, ("100_a", "#| default_exp a", f"#| export\ndef f(\n{params}):\n    return x0"),
          ("110_b", "#| default_exp b", f"#| export\n# long: why\ndef f(\n{params}):\n    return x0"),
          ("120_c", "#| default_exp c", "#| export\n# long: why\n" + "x = 1\n"*26))
    monkeypatch.setattr(house, "ROOT", tmp_path)
    assert house.long_cells() == []
    assert house.excused_in_vain() == ["110_b.ipynb: 3 lines from 'def f('"]


def test_circles_methods_and_shared_names_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr(house, "PACKAGE", tmp_path)
    (tmp_path/"a.py").write_text("__all__ = ['f', 'g']\nfrom .b import g\ndef f(self): pass\nclass C: pass\nC.f = f\n")
    (tmp_path/"b.py").write_text("__all__ = ['g']\ndef g():\n    from .a import f\n")
    assert len(house.circles()) == 1 and house.shared_names() == ["g: a, b"]
    assert house.exported_methods() == ["a.f", "a: C.f = f"]
    for i in range(house.TOP + 1): (tmp_path/f"m{i}.py").write_text("")
    assert len(house.crowded()) > house.TOP


def test_every_public_parameter_is_explained():
    total, lacking = parameters.unexplained()
    assert total > 3000 and not lacking, f"{len(lacking)} of {total} without a comment:\n" + "\n".join(lacking[:40])


def test_a_parameter_without_a_comment_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(parameters, "PACKAGE", tmp_path)
    (tmp_path/"a.py").write_text(
        "__all__ = ['f', 'g', 'C']\ndef f(x, y=1):  # both\n    pass\ndef g(\n    x=1,  # a number\n): pass\n"
        "class C:\n    def near(self, z):  # a point\n        pass\n    def _far(self, z): pass\n")
    (tmp_path/"b.py").write_text(
        "__all__ = ['D']\nclass D:\n    def near(self, z): pass\n    def other(self, z): pass\n")
    assert parameters.unexplained() == (6, ["a.f(x)", "a.f(y)", "b.D.other(z)"])
