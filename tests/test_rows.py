"""Rows come from their files unchanged, and every complaint names file and line."""

import json
from pathlib import Path

import pytest

from earnest import Task, UserError
from earnest.rows import load_rows


def rows_of(source, folder=Path("."), data=None):
    task = Task(rows=source, prompt=lambda row: [], rewards=[], check=lambda text, row: True, folder=folder)
    return load_rows(task, data)


def file_rows(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return rows_of(path.name, path.parent)


def refused(*words):
    return pytest.raises(UserError, match="(?s)" + ".*".join(words))


PLAIN = b'{"q": "a"}\n{"q": "b"}\n'


@pytest.mark.parametrize(
    "content",
    [
        PLAIN,
        b"\xef\xbb\xbf" + PLAIN,
        PLAIN.replace(b"\n", b"\r\n"),
        PLAIN + b"\n",
        PLAIN.replace(b"\n", b"\r\n") + b"\r\n",
        PLAIN.rstrip(),
        b"\xef\xbb\xbf" + PLAIN.replace(b"\n", b"\r\n") + b"  \r\n",
    ],
)
def test_bom_crlf_and_blank_last_lines_change_nothing(tmp_path, content):  # case S-DL-01
    rows = file_rows(tmp_path / "rows.jsonl", content)
    assert rows.split("train") == [{"id": "train-1", "split": "train", "q": "a"}, {"id": "train-2", "split": "train", "q": "b"}]


def test_places_count_blank_lines(tmp_path):
    rows = file_rows(tmp_path / "rows.jsonl", '{"q": 1}\n\n{"q": 2}\n')
    assert [place for place, _ in rows.everything()] == [f"{tmp_path / 'rows.jsonl'}:{n}" for n in (1, 3)]


def test_unicode_line_ends_inside_a_text_do_not_end_the_line(tmp_path):
    text = "a\u2028b\x85c\x0bd\u2029e"
    assert file_rows(tmp_path / "r.jsonl", json.dumps({"q": text}, ensure_ascii=False)).split("train")[0]["q"] == text
    assert file_rows(tmp_path / "r.csv", f"q,a\n{text},1\n").split("train")[0] == {"id": "train-1", "split": "train", "q": text, "a": "1"}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{broken", ["not JSON"]),
        ("[1, 2]", ["list", "not an object"]),
        ("3", ["int", "not an object"]),
        ("null", ["NoneType", "not an object"]),
        ('{"a": NaN}', ["NaN"]),
        ('{"a": [-Infinity]}', ["-Infinity"]),
        ('{"a": 1e999}', ["1e999"]),
        ('{"a": 1} {"a": 2}', ["Extra data"]),
        ('{"gold": "x", "gold": "y"}', ["'gold' stands twice"]),
        ('{"meta": {"a": 1, "b": 2, "a": 3}}', ["'a' stands twice"]),
        ('{"a": "\\ud83d"}', ["half of a"]),
        ("[" * 100_000, ["not JSON"]),
    ],
)
def test_a_broken_line_names_file_and_number(tmp_path, line, words):
    with refused(r"r\.jsonl:3: ", *words):
        file_rows(tmp_path / "r.jsonl", '{"a": 1}\n\n' + line + '\n{"a": 2}\n')


def test_an_escaped_character_beyond_the_basic_plane_is_kept(tmp_path):
    assert file_rows(tmp_path / "r.jsonl", '{"a": "\\ud83d\\ude00"}').split("train")[0]["a"] == "😀"


def test_a_text_that_is_not_utf8_names_the_line(tmp_path):
    with refused(r"r\.jsonl:2: not UTF-8"):
        file_rows(tmp_path / "r.jsonl", b'{"q": "a"}\n{"q": "caf\xe9"}\n')
    with refused(r"r\.csv:1: not UTF-8"):
        file_rows(tmp_path / "r.csv", "q\na\n".encode("utf-16"))


def test_nested_dicts_stay_as_they_are_without_invented_nulls(tmp_path):  # case S-DL-02
    lines = [{"meta": {"a": 1}, "call": {"x": 1}}, {"meta": {"b": 2}, "call": {"y": "s"}}]
    rows = file_rows(tmp_path / "r.jsonl", "\n".join(map(json.dumps, lines))).split("train")
    assert [{k: row[k] for k in ("meta", "call")} for row in rows] == lines
    assert set(rows[0]) == {"id", "split", "meta", "call"}


def test_a_row_keeps_its_own_id_and_split(tmp_path):
    rows = file_rows(tmp_path / "r.jsonl", '{"id": 7, "split": "dev", "q": 1}\n{"q": 2}\n')
    assert rows.by_split == {"train": [{"id": "train-1", "split": "train", "q": 2}], "dev": [{"id": 7, "split": "dev", "q": 1}]}
    assert rows.where == {("dev", 0): f"{tmp_path}/r.jsonl:1", ("train", 0): f"{tmp_path}/r.jsonl:2"}


@pytest.mark.parametrize("split", ["validation", "Train", "", None, 3, ["train"]])
def test_an_unknown_split_names_the_place_and_the_splits_there_are(tmp_path, split):
    with refused(r"r\.jsonl:2: unknown split", "train, dev, test"):
        file_rows(tmp_path / "r.jsonl", '{"q": 1}\n' + json.dumps({"split": split}))


def test_a_csv_cell_may_hold_newlines_commas_and_quotes(tmp_path):
    rows = file_rows(tmp_path / "r.csv", '\ufeffq,gold\r\n"two\r\nlines, and ""more""",x\r\nplain,y\r\n')
    assert [(r["q"], r["gold"]) for r in rows.split("train")] == [('two\r\nlines, and "more"', "x"), ("plain", "y")]
    assert [place.rpartition(":")[2] for place, _ in rows.everything()] == ["2", "4"]


def test_blank_csv_lines_are_passed_over_and_counted(tmp_path):
    rows = file_rows(tmp_path / "r.csv", "q,gold\n\na,b\n\n")
    assert [(place.rpartition(":")[2], row["q"]) for place, row in rows.everything()] == [("3", "a")]


@pytest.mark.parametrize("ragged", ["a", "a,b,c", "a,b,"])
def test_a_ragged_csv_row_names_its_line(tmp_path, ragged):
    with refused(r"r\.csv:4: this row has . cells?, the header 2"):
        file_rows(tmp_path / "r.csv", f'q,gold\n"x\ny",z\n{ragged}\n')


@pytest.mark.parametrize("header", [",q", "q,q", "q,"])
def test_a_csv_header_needs_distinct_names(tmp_path, header):
    with refused(r"r\.csv:1: every column of the header needs a name"):
        file_rows(tmp_path / "r.csv", header + "\n1,2\n")


def test_an_unclosed_csv_quote_names_where_it_starts(tmp_path):
    with refused(r"r\.csv:3: broken CSV"):
        file_rows(tmp_path / "r.csv", 'q,gold\na,b\n"open,c\nd,e\n')


def test_a_csv_cell_may_be_a_long_document(tmp_path):
    text = "word " * 60_000
    assert file_rows(tmp_path / "r.csv", f'q\n"{text}"\n').split("train")[0]["q"] == text


def test_parquet_rows_come_back_as_they_went_in(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    folder = tmp_path / "year=2024"  # a name that a reader of partitioned data would turn into a column
    folder.mkdir()
    lines = [{"id": 1, "q": "a", "tags": ["x", "y"], "meta": {"n": 1.5}}, {"id": 2, "q": None, "tags": [], "meta": {"n": None}}]
    parquet.write_table(pyarrow.Table.from_pylist(lines), folder / "r.parquet")
    rows = rows_of("r.parquet", folder)
    assert rows.split("train") == [{"split": "train"} | line for line in lines]
    assert [place for place, _ in rows.everything()] == [f"{folder}/r.parquet:row 1", f"{folder}/r.parquet:row 2"]


def test_a_broken_parquet_file_is_named(tmp_path):
    pytest.importorskip("pyarrow")
    with refused(r"r\.parquet' is not a readable Parquet file"):
        file_rows(tmp_path / "r.parquet", "no parquet")


def test_a_folder_holds_one_file_a_split(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"q": 1}\n{"q": 2}\n')
    (tmp_path / "test.csv").write_text("q\n3\n")
    rows = rows_of(str(tmp_path))
    assert {s: len(r) for s, r in rows.by_split.items()} == {"train": 2, "test": 1}
    assert rows.split("test") == [{"id": "test-1", "split": "test", "q": "3"}]
    with refused("The split 'dev'", r"train \(2\), test \(1\)"):
        rows.split("dev")


def test_a_folder_without_splits_says_what_it_should_hold(tmp_path):
    (tmp_path / "data.jsonl").write_text("{}")
    with refused("holds none of", r"train\.jsonl"):
        rows_of(str(tmp_path))


def test_a_folder_with_two_files_of_one_split_is_refused(tmp_path):
    for name in ("train.jsonl", "train.csv"):
        (tmp_path / name).write_text("{}")
    with refused(r"both train\.jsonl and train\.csv"):
        rows_of(str(tmp_path))


def test_a_row_may_not_contradict_the_split_of_its_file(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"q": 1}\n')
    (tmp_path / "dev.jsonl").write_text('{"q": 1, "split": "dev"}\n{"q": 2, "split": "train"}\n')
    with refused(r"dev\.jsonl:2: this row says split 'train' but was given as 'dev'"):
        rows_of(str(tmp_path))


def test_a_mapping_names_files_or_lists_by_split(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"q": 1}\n')
    rows = rows_of({"test": [{"q": 2}], "train": "a.jsonl"}, tmp_path)
    assert list(rows.by_split) == ["train", "test"]
    assert [place for place, _ in rows.everything()] == [f"{tmp_path}/a.jsonl:1", "row 1"]
    with refused("row 1: unknown split 'val'"):
        rows_of({"val": [{"q": 2}]})


def test_rows_in_memory_are_copied_and_stay_untouched():
    given = [{"q": 1}, {"q": 2, "split": "dev"}]
    rows = rows_of(given)
    assert rows.split("train") == [{"id": "train-1", "split": "train", "q": 1}] and rows.split("dev")[0]["id"] == "dev-1"
    assert given == [{"q": 1}, {"q": 2, "split": "dev"}]


@pytest.mark.parametrize("row", ["text", 3, None, ["q"], {1: "q"}])
def test_a_row_in_memory_must_be_a_dict_with_text_keys(row):
    with refused("Row 2 of the task's rows", "one dict a row"):
        rows_of([{"q": 1}, row])


def test_rows_of_another_kind_are_refused():
    for source in (3, None, {"train": 3}):
        with refused("The task's rows are"):
            rows_of(source)


@pytest.mark.parametrize("source", [[], {}, {"train": []}])
def test_no_rows_at_all_is_an_error(source):
    with refused("holds no rows"):
        rows_of(source)


@pytest.mark.parametrize(
    ("name", "content"), [("r.jsonl", ""), ("r.jsonl", "\n \n"), ("r.csv", ""), ("r.csv", "q,gold\n"), ("r.csv", "\n\n")]
)
def test_an_empty_file_is_an_error(tmp_path, name, content):
    with refused(name, "holds no rows"):
        file_rows(tmp_path / name, content)


@pytest.mark.parametrize("name", ["absent.jsonl", "absent.csv", "absent.json", "folder/absent.txt", "absent.jsonl.gz"])
def test_a_missing_file_is_named_and_never_sought_on_the_hub(tmp_path, name):
    with refused("There is no file", name):
        rows_of(name, tmp_path)


@pytest.mark.parametrize("name", ["./absent", "/absent", "a/b/c", "two words"])
def test_a_path_that_can_be_no_data_set_is_a_missing_path(tmp_path, name):
    with refused("There is no file or folder"):
        rows_of(name, tmp_path)


def test_a_file_of_an_unknown_kind_is_refused(tmp_path):
    with refused("unknown kind", r"\.jsonl, \.csv, \.parquet"):
        file_rows(tmp_path / "r.txt", "q")


def test_the_case_of_a_suffix_does_not_matter(tmp_path):
    assert len(file_rows(tmp_path / "R.JSONL", PLAIN).split("train")) == 2


def test_a_relative_path_starts_at_the_task_and_that_of_data_at_the_working_folder(tmp_path, monkeypatch):
    for folder, text in (("task", "own"), ("work", "other")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "r.jsonl").write_text(json.dumps({"q": text}))
    monkeypatch.chdir(tmp_path / "work")
    assert rows_of("r.jsonl", tmp_path / "task").split("train")[0]["q"] == "own"
    assert rows_of("r.jsonl", tmp_path / "task", data="r.jsonl").split("train")[0]["q"] == "other"
