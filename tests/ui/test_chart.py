from __future__ import annotations

import re

from distlaunch.ui.chart import lines

FALLING = [(float(x), 10.0 ** (2 - x)) for x in range(5)]  # 100 to 0.01


def rows_of_marks(chart: str) -> list[int]:
    return [number for number, line in enumerate(chart.split("\n")) if "|" in line and "*" in line]


def test_losses_of_several_sizes_have_a_logarithmic_axis():
    chart = lines({"loss": FALLING}, height=9)
    assert rows_of_marks(chart) == [0, 2, 4, 6, 8]
    narrow = lines({"loss": FALLING}, columns=40, x_name="epoch")
    assert max(map(len, narrow.split("\n"))) == 40
    assert chart.endswith("* loss (log)")


def test_a_logarithmic_axis_can_be_requested_and_several_points_in_one_place_are_seen():
    loss = [(1.0, 2.0), (2.0, 0.2), (3.0, 0.1)]
    chart = lines({"loss": loss, "val_loss": loss[:2]}, x_name="epoch", is_log=True)
    assert chart.endswith("* loss  o val_loss  = several (log)")
    rows = [
        number for number, line in enumerate(chart.split("\n")) if re.search(r"\|.*[*o=]", line)
    ]
    assert rows == [0, 7, 9]  # a linear axis has the second point in the last row but one
    assert re.search(r"1 +epoch +3\n", chart)


def test_an_accuracy_and_a_value_of_zero_have_a_linear_axis():
    assert "(log)" not in lines({"accuracy": [(1.0, 0.2), (2.0, 0.9)]})
    chart = lines({"loss": [*FALLING, (5.0, 0.0)]}, height=9)
    assert "(log)" not in chart
    assert rows_of_marks(chart) == [0, 7, 8]
