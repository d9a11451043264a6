"""Action programs, their geometry, the renderer, and what is true of shapes: against slow references,
and against the official table where it is at hand."""
import warnings

import numpy as np
from hypothesis import given, settings, strategies as st

from fewshot_nb.core import InputError, rng
from fewshot_nb.data.bongard.logo import (
    CANVAS, MOVES, PEN, STROKES, Action, Poses, draw_poses, gather_shapes, ink_marks, pack_shapes,
    parse_action, parse_moves, parse_shape, path_bounds, stroke_overlap, unpack_shapes, walk_shapes)
from fewshot_nb.data.bongard.render import PictureBank, Pictures, rasterise
from fewshot_nb.data.bongard.shapes import (
    ATTRIBUTES, label_agreement, official_shapes, shape_attributes, shape_library, trace_shape)

thousandths = st.integers(0, 1000)

@given(st.sampled_from(STROKES), st.integers(1, 9999), thousandths, thousandths)
def test_official_strings_come_back_exactly(stroke, size, sweep, turn):
    for text in (
        f"line_{stroke}_{size / 1000:.3f}-{turn / 1000:.3f}",
        f"arc_{stroke}_{size / 1000:.3f}_{sweep / 1000:.3f}-{turn / 1000:.3f}"):
        assert str(parse_action(text)) == text

@given(st.text(max_size=30))
def test_any_other_string_is_refused_in_one_sentence(text):
    try: assert parse_action(text).kind in MOVES
    except InputError as e: assert "at position" in str(e) and "\n" not in str(e).replace(repr(text), "")

def random_shapes(seed, n=100):
    r = rng(seed, "shapes")
    return [tuple(Action(k := str(r.choice(MOVES)), r.uniform(0.1, 1), r.uniform(-180, 180),
                         r.uniform(-360, 360) if k == "arc" else 0.0,
                         str(r.choice(STROKES))) for _ in range(r.integers(1, 10))) for _ in range(n)]

def test_execution_agrees_with_a_turtle_step_by_step():
    shapes, r = random_shapes(0), rng(1)
    x, y, heading, scale = r.uniform(-100, 100, (4, 100))
    scale = np.abs(scale) + 1
    path, row = walk_shapes(pack_shapes(shapes), x, y, heading, scale), 0
    for i, s in enumerate(shapes):
        z, h = complex(x[i], y[i]), np.radians(heading[i])
        for a in s:
            h += np.radians(a.turn)
            if a.kind == "line": z += scale[i]*a.length*np.exp(1j*h)
            else:
                centre = z + 1j*scale[i]*a.length*np.exp(1j*h)
                z, h = centre + (z - centre)*np.exp(1j*np.radians(a.sweep)), h + np.radians(a.sweep)
            assert abs(complex(*path.at(row, 1.)[:2]) - z) < 1e-8
            row += 1

def test_packing_gathering_and_bounds():
    shapes = random_shapes(2)
    which = rng(3).integers(0, 100, 50)
    assert unpack_shapes(gather_shapes(pack_shapes(shapes), which)) == [shapes[i] for i in which]
    actions = pack_shapes(shapes)
    path = walk_shapes(actions)
    dots = np.stack([np.stack(path.at(np.arange(len(path.x)), t)[:2], 1) for t in np.linspace(0, 1, 400)], 1)
    box = path_bounds(path, actions.first)
    for i in range(100):
        own = dots[actions.first[i]:actions.first[i + 1]].reshape(-1, 2)
        assert np.all(own.min(0) >= box[i, :2] - 1e-9) and np.all(own.max(0) <= box[i, 2:] + 1e-9)
        assert np.abs(own.min(0) - box[i, :2]).max() < 1e-2 and np.abs(own.max(0) - box[i, 2:]).max() < 1e-2

def test_trace_passes_through_its_points():
    r = rng(4)
    for _ in range(50):
        z = r.uniform(-1, 1, (7, 2)) @ [1, 1j]
        sweeps = r.choice([0., 0, 90, -120, 200, -30], 6)
        path = walk_shapes(pack_shapes([trace_shape(z, sweeps)]))
        x, y, _ = path.at(np.arange(6), 1.)
        drawn = np.append(0, x + 1j*y)
        turn = (drawn[1] - drawn[0])/(z[1] - z[0])
        assert np.abs(drawn - turn*(z - z[0])).max() < 1e-9 and abs(abs(turn) - 1) < 1e-9

def test_poses_keep_ink_on_the_canvas_and_know_nothing_of_each_other():
    square = parse_moves("line_1.0, line_1.0, line_1.0, line_1.0", "L0--L90--L90--L90")
    many = pack_shapes([tuple(Action(a.kind, a.length, a.turn, a.sweep, s) for a in square) for s in STROKES]*1000)
    poses = draw_poses(rng(5), many, 80, 140)
    ink = ink_marks(many, poses)
    reach = np.where(ink.kind == 0, PEN/2, 1.5*ink.v)
    assert (np.maximum(np.abs(ink.x), np.abs(ink.y)) + np.where(ink.kind == 0, PEN/2, reach)).max() <= CANVAS + 3
    box = path_bounds(walk_shapes(many, *poses), many.first)
    mid = np.stack([box[:, 0] + box[:, 2], box[:, 1] + box[:, 3]])
    signals = np.stack([np.cos(np.radians(poses.heading)), np.sin(np.radians(poses.heading)), poses.scale, *mid])
    r = np.corrcoef(signals)[np.triu_indices(5, 1)]
    assert np.abs(r).max() < 5/np.sqrt(5000)

def test_overlap_tells_crossings_from_running_together():
    cross = parse_moves("line_1.0, line_0.707, line_1.0", "L0--L135--L135")
    same = parse_moves("line_1.0, line_0.3, line_0.9", "L0--L170--L5")
    back = parse_moves("line_1.0, line_1.0", "L0--L180")
    corner = parse_moves("line_1.0, line_1.0", "L0--L90")
    assert np.all(stroke_overlap(pack_shapes([corner, cross])) < 0.3) and np.all(
        stroke_overlap(pack_shapes([same, back])) > 0.5)

def test_the_two_engines_agree():
    some = pack_shapes(random_shapes(6, 30))
    ink = ink_marks(some, Poses(*np.zeros((3, 30)), np.full(30, 90.)))
    for size in (64, 200, 512):
        a, b = (rasterise(ink, size, e).astype(float)/255 for e in ("numba", "pillow"))
        assert (np.abs(a - b).mean() < 0.01 and (np.abs(a - b) > 0.5).mean() < 2e-3
                and abs(a.sum() / b.sum() - 1) < (0.08 if size == 64 else 0.05))

@settings(max_examples=20, deadline=None)
@given(st.integers(96, 300), st.floats(-100, 100), st.floats(0, 360))
def test_pen_lines_have_their_exact_area(size, at, heading):
    line = pack_shapes([parse_moves("line_1.0", "L0")])
    ink = ink_marks(line, Poses(np.array([at]), np.array([at/2]), np.array([heading]), np.array([200.])))
    zoom = size/783
    want = (200*PEN + np.pi*PEN**2/4)*zoom**2
    assert abs(rasterise(ink, size, "auto").sum()/255/want - 1) < .06

def test_stamps_hide_earlier_ink_and_not_later():
    line, stamp = Action(), Action("line", .02, 180, stroke="square")
    pose = Poses(np.array([-200.]), np.array([0.]), np.array([0.]), np.array([400.]))
    over, under = (rasterise(ink_marks(pack_shapes([s]), pose), 512)[0]
                   for s in ((line, stamp), (Action("line", 0.02, stroke="square"), Action(turn=0.0))))
    x, y = int((200 + 391.5)*512/783), 256
    assert over[y, x] < 60 and under[y, int((-184 + 391.5)*512/783)] == 255

def test_golden_picture():
    "A small picture kept as text: programs must look the same for ever."
    moon = tuple(
        Action(a.kind, a.length, a.turn, a.sweep, s)
        for a, s in zip(parse_moves("arc_0.5_210.0, arc_0.5_-150.0", "L0--R30.0"), ("normal", "circle"))
    )
    picture = Pictures(
        pack_shapes([moon]),
        Poses(np.array([0.0]), np.array([-200.0]), np.array([0.0]), np.array([480.0])),
        np.array([0])).draw(32)[0]
    seen = ["".join(" .:#"[min(3, v//25)] for v in row).rstrip() for row in picture if row.max() > 24]
    assert seen == GOLDEN, "\n" + "\n".join(seen)

GOLDEN = """\
             :#####
          ..:.     ##
          ......     #:
              ....    ##
                ....   #.
                 . .    #
                  ...   ::
                   ..    #
                   ...   #
                   ...   #
                    ..   #
                    ..   #
                    ..   #
                   . .   #
                   ..   #.
                   .    #
                  ...  #
                  ..  #.
                 ....#
               ...##:
               ..:""".splitlines()

def test_a_bank_of_programs_is_a_bank():
    shapes = shape_library().actions[:6]
    bank = PictureBank(
        Pictures(pack_shapes(shapes), draw_poses(rng(7), pack_shapes(shapes), 100, 150), np.arange(6)),
        [0, 0, 1, 1, 2, 2], 40)
    plain = bank.drawn()
    assert (bank.n == 6 and bank.classes == 3 and bank.shape == plain.shape
            and np.array_equal(bank.by_class(), plain.by_class()))
    assert (bank.take([[5, 1], [1, 0]]) == plain.take([[5, 1], [1, 0]])).all()
    assert (bank.select([2, 0]).take([0, 3]) == plain.select([2, 0]).take([0, 3])).all()

def test_attributes_by_hand():
    square = shape_attributes(parse_moves("line_1.0, line_1.0, line_1.0, line_1.0", "L0--L90--L90--L90"))
    assert {k for k, v in square.items() if v == 1} == {
        "convex", "has_straight_line", "symmetric", "self_transposed", "has_four_straight_lines",
        "closed_shape", "has_angle", "exist_regular", "exist_quadrangle"}
    s = shape_attributes(parse_moves("arc_0.5_90.0, arc_0.5_-90.0", "L0--L180.0"))
    assert {k for k, v in s.items() if v == 1} == {"has_curve", "self_transposed"} and s["convex"] == -1

def test_the_library_is_large_and_every_attribute_has_examples():
    own = shape_library()
    assert len(own) >= 300 and len(set(own.groups)) == 17
    drawn = {tuple((a.kind, round(a.length, 3), round(a.turn, 2), round(a.sweep, 2)) for a in s) for s in own.actions}
    assert len(drawn) == len(own)
    for a in ATTRIBUTES: assert (own.has(a) == 1).sum() >= 14 and (own.has(a) == 0).sum() >= 14, a

FIRST = (
    "has_curve has_straight_line closed_shape has_angle exist_triangle exist_quadrangle convex".split()
    + [f"has_{w}_straight_lines" for w in "three four five six seven eight".split()]
)
SECOND = ["symmetric", "self_transposed", "has_acute_angle", "has_obtuse_angle", "has_line_crossing",
          "exist_sector", "exist_regular"]

def test_geometry_agrees_with_the_official_table(shared):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # its one slip is known
        theirs = official_shapes(shared/"data"/"bongard_logo")
    assert theirs.has("unbalanced_two")[theirs.names.index("exist_triangle_three_lines4")] == -1
    assert len(theirs) == 627 and theirs.stamp.sum() == 312 and sum(map(len, theirs.actions)) == 2804 + 641
    table = label_agreement(theirs)
    assert (table.agree[FIRST] >= .97).all(), table.agree[FIRST]
    assert (table.agree[SECOND] >= .90).all(), table.agree[SECOND]
    assert (table.agree.drop(FIRST + SECOND) >= .95).all()

def test_the_official_strings_of_the_official_shapes(shared):
    for s in official_shapes(shared/"data").actions:
        texts = [str(a) for a in s]
        assert [str(a) for a in parse_shape(texts)] == texts
