"""Archives given as a model: each is refused by what is in it, and read if it is unpacked."""

import io
import re
import zipfile
from pathlib import Path

import pytest

from celosia.generators.frontend.other_files import refuse_other
from celosia.generators.frontend.sources import load_source

ZOO = Path(__file__).parent / "data" / "zoo"


def archive(*names: str) -> bytes:
    """Return an archive of empty files."""
    with zipfile.ZipFile(file := io.BytesIO(), "w") as made:
        for name in names:
            made.writestr(name, "")
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "start"),
    [
        (archive("model/data.pkl", "model/data/0"), "it is PyTorch's own, which may run code"),
        (archive("config.json", "metadata.json", "model.weights.h5"), "it is Keras'; export it in"),
        (archive("bert/config.json"), "it is an archive; unpack it, and give the folder with conf"),
    ],
)
def test_archives_are_known_by_the_files_in_them(content, start, tmp_path) -> None:
    path = tmp_path / "model.zip"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"^File {re.escape(str(path))} is not read: {start}"):
        refuse_other(path)


def test_an_archive_that_is_unpacked_is_read(tmp_path) -> None:
    path = tmp_path / "model.zip"
    folder = ZOO / "0_BertForSequenceClassification"
    with zipfile.ZipFile(path, "w") as made:
        for file in folder.iterdir():
            made.write(file, f"bert/{file.name}")
    with pytest.raises(ValueError, match="it is an archive; unpack it"):
        load_source(str(path))
    with zipfile.ZipFile(path) as made:
        made.extractall(tmp_path)
    assert load_source(str(tmp_path / "bert")).description.layers
