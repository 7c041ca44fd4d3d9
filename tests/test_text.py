from distlaunch.text import Table, duration

SHOWN = {
    -1: "0.0 s",
    1.84: "1.8 s",
    9.99: "10.0 s",
    10: "10 s",
    59.9: "59 s",
    60: "1 min",
    123.4: "2 min 3 s",
    3_605: "1 h",
    3_660: "1 h 1 min",
    86_399: "23 h 59 min",
    180_000: "2 d 2 h",
}


def test_duration():
    assert {seconds: duration(seconds) for seconds in SHOWN} == SHOWN


def test_colours_in_cells_count_for_nothing():
    table = Table([("STATE", "B"), ("\x1b[31mOK\x1b[0m", "1")], flush_left=True)
    assert str(table) == "STATE  B\n\x1b[31mOK\x1b[0m     1"
