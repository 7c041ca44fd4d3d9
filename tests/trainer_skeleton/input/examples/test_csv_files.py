"""Csv: types of columns, and errors with file, line and column."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from distlaunch_trainer import Csv
from distlaunch_trainer.cluster.role import Role
from distlaunch_trainer.errors import DataError


@pytest.fixture
def write(tmp_path):
    """Write files with lines; return their pattern."""

    def write(**files):
        for name, text in files.items():
            (tmp_path / f"{name}.csv").write_text(text, encoding="utf-8-sig")
        return f"{tmp_path}/*.csv"

    return write


def test_columns_have_the_types_of_their_values(write):
    pattern = write(
        a='age,size,name,kind\n7,1.5,"Ada, B.",x\n-1,NA,,y\n',
        b="kind,name,size,age\n\nx,C,,3\n",
    )
    loaded = Csv(pattern, label="kind", classes=("y", "x")).load()
    assert {name: values.dtype.name for name, values in loaded.x.items()} == {
        "age": "int64",
        "size": "float32",
        "name": "object",
    }
    assert loaded.x["age"].tolist() == [[7], [-1], [3]]
    assert loaded.x["name"].tolist() == [["Ada, B."], [""], ["C"]]
    np.testing.assert_array_equal(loaded.x["size"][:, 0], np.float32([1.5, np.nan, np.nan]))
    assert loaded.y.tolist() == [1, 0, 1]


def test_types_and_columns_can_be_given(write):
    pattern = write(a="zip;n;w;y;unused\n01234;1;0.5;2.5;z\n")
    types = {"zip": "string", "n": "float32"}
    options = {"columns": ["n", "zip"], "dtypes": types, "sample_weight": "w", "delimiter": ";"}
    loaded = Csv(pattern, "y", **options).load()
    assert [*loaded.x] == ["n", "zip"]
    assert (loaded.x["n"].dtype.name, loaded.x["zip"].tolist()) == ("float32", [["01234"]])
    assert (loaded.y.tolist(), loaded.sample_weight.tolist()) == ([2.5], [0.5])


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("x,y\n1,2\n3\n", {}, r"a.csv line 3 has 1 values, and the first line names 2 columns"),
        ("x,y\n1,2\nb,2\n", {"dtypes": {"x": "int64"}}, "line 3, column x: 'b' is not a whole num"),
        ("x,y\n1,2\nb,2\n", {"dtypes": {"x": "float32"}}, "line 3, column x: 'b' is not a number"),
        ("x,y\n1,a\n", {}, "line 2: the label y is text: give classes="),
        ("x,y\n1,1\n1,\n", {}, "line 3, column y: the label is missing"),
        ("x,y\n1,a\n1,b\n", {"classes": ["a"]}, "line 3, column y: 'b' is not one of classes= a"),
        ("x,z\n1,2\n", {}, "a.csv has no column 'y', but x, z"),
        ("x,y\n1,2\n", {"columns": ["z"]}, "a.csv has no column 'z', but x, y"),
        ("x,x\n1,2\n", {}, "a.csv names a column twice: x, x"),
        ("", {}, "a.csv is empty: its first line must name the columns"),
        ("x,y\n", {}, "no line after the one that names the columns"),
        ('x,y\n"1"2,3\n', {}, "a.csv line 2: ',' expected after '\"'"),
    ],
)
def test_errors_have_file_and_line(write, text, options, message):
    with pytest.raises(DataError, match=message):
        Csv(write(a=text), "y", **options).load()


def test_files_of_other_columns_or_encoding_are_refused(write, tmp_path):
    pattern = write(a="x,y\n1,2\n", b="x,z\n1,2\n")
    with pytest.raises(DataError, match=r"b.csv has the columns x, z, and .*a.csv has x, y"):
        Csv(pattern, "y").load()
    (tmp_path / "b.csv").write_bytes("x,y\n1,é\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"b.csv is not UTF-8 at byte 6: convert it"):
        Csv(pattern, "y").load()
    with pytest.raises(DataError, match=r"^no file matches nosuch"):
        Csv("nosuch", "y").load()
    with pytest.raises(DataError, match="dtypes= int64 or float32 or string, got 'int' for x"):
        Csv(pattern, "y", dtypes={"x": "int"})


def test_tasks_that_see_different_files_are_refused(write):
    cluster = SimpleNamespace(role=Role(), all_equal=lambda _: False)
    with pytest.raises(DataError, match=r"see different files for .* \(chief sees 1\): put"):
        Csv(write(a="x,y\n1,2\n"), "y").open(cluster, "")


def test_missing_numbers_are_a_warning_for_each_column(write, cluster):
    pattern = write(
        a="n,size,w,kind,y\n1,2,3,,0\n,NA,3,x,1\n1,,,x,1\n", b="n,size,w,kind,y\n,1,1,,1\n"
    )
    source = Csv(pattern, "y", sample_weight="w").open(cluster, "")
    assert [text.rpartition("/")[2].partition(" numbers")[0] for text in source.warnings] == [
        "a.csv line 3, column n: 2 of 4",
        "a.csv line 3, column size: 2 of 4",
        "a.csv line 4, column w: 1 of 4",
    ]
