"""Workers die, drivers are killed, files vanish: the result is the same, or one sentence."""

import os
import shutil
import signal
from dataclasses import dataclass, replace

import pytest
from depth import IS_DEEP

from evencover import InputError, StandardPredictor, predict_to_folder
from evencover.data import as_source
from evencover.data.readers import Reader
from evencover.engine.executors import results_in_order

from .conftest import write_parts


def test_a_task_that_kills_every_worker_is_given_up_with_one_sentence(client, monkeypatch):
    if not IS_DEEP:  # dask gives up after four deaths, and another worker starts after each
        monkeypatch.setattr(client.cluster.scheduler, "allowed_failures", 1)
    with pytest.raises(InputError, match=r"workers .*tcp:"):
        list(results_in_order(client, os._exit, [1]))


@pytest.fixture
def deadly(parts, tmp_path):
    """The parts, but the first worker to reach the middle of one is killed there, once."""
    marker, here = str(tmp_path / "somebody died"), os.getpid()

    @dataclass(frozen=True, kw_only=True)
    class Deadly(Reader):  # local, so that it travels to the workers as a whole
        reader: Reader

        def split(self):
            return [Deadly.of(part) for part in self.reader.split()]

        @classmethod
        def of(cls, reader):
            kept = {name: getattr(reader, name) for name in ("n_rows", "n_classes", "first_row")}
            return cls(reader=reader, name=reader.name, **kept)

        def identity_of_rows(self):
            return self.reader.identity_of_rows()

        def row_blocks(self):
            row = self.first_row
            for block in self.reader.row_blocks():
                if row > 200 and os.getpid() != here:
                    self.die_once()
                yield block
                row += len(block.rows)

        def die_once(self):
            try:
                os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return
            os.kill(os.getpid(), signal.SIGKILL)

    def killed_somebody():
        if not os.path.exists(marker):
            return False
        os.remove(marker)
        return True

    source = as_source(parts)
    contents = replace(source.contents, reader=Deadly.of(source.reader))
    return replace(source, contents=contents, reader=contents.reader), killed_somebody


def test_a_worker_that_is_killed_changes_nothing_but_time(deadly, client, parts, tmp_path):
    source, killed_somebody = deadly
    expected = StandardPredictor(score="aps").fit(parts)
    found = StandardPredictor(score="aps").fit(source, executor=client)
    assert killed_somebody()
    assert found.thresholds_.tobytes() == expected.thresholds_.tobytes()
    assert found.fit_.groups.scores.scores.tobytes() == expected.fit_.groups.scores.scores.tobytes()
    assert found.fit_.inputs.fingerprints == expected.fit_.inputs.fingerprints

    predict_to_folder(found, source, tmp_path / "there", executor=client)
    assert killed_somebody()
    predict_to_folder(expected, parts, tmp_path / "here")
    for file in (tmp_path / "here").iterdir():
        assert (tmp_path / "there" / file.name).read_bytes() == file.read_bytes()


def test_a_lost_part_is_named(client, parts, tmp_path):
    folder = shutil.copytree(parts, tmp_path / "rows")
    predictor, source = StandardPredictor().fit(parts), as_source(folder)
    (folder / "rows-1.parquet").unlink()
    for executor in (client, None):
        sets = tmp_path / f"sets-{executor is None}"
        with pytest.raises(InputError, match=r"rows-1\.parquet.*no such file"):
            StandardPredictor().fit(source, executor=executor)
        with pytest.raises(InputError, match=r"rows-1\.parquet.*no such file"):
            predict_to_folder(predictor, source, sets, executor=executor)
        assert not (sets / "part-00001.parquet").exists()


def test_a_bad_row_is_named_by_its_file_and_place(client, table, tmp_path):
    rows = table.rows.copy()
    rows[1_400 + 17, 3] = float("nan")
    write_parts(tmp_path, table._replace(rows=rows), [0, 1_400, 1_500])
    for executor in (client, None):
        with pytest.raises(InputError, match=r"row 17 .*rows-1\.parquet.*class 3"):
            StandardPredictor().fit(tmp_path, executor=executor)
        with pytest.raises(InputError, match=r"row 1417.*class 3"):
            StandardPredictor().fit(rows, table.labels, executor=executor)
