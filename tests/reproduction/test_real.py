"""The paper's network on a real photo, as cheaply as can be."""

import json

import pytest

pytest.importorskip("PIL", reason="needs the extra images")

from greedypig.images.networks.pretrained import MOBILENET_FILE
from greedypig.network.assets_folder import assets_folder

there = (assets_folder() / MOBILENET_FILE).is_file() and (assets_folder() / "photos").is_dir()


@pytest.mark.slow
@pytest.mark.skipif(not there, reason="needs make assets")
def test_a_real_photo_through_the_paper_s_network(tmp_path, capsys):
    from reproduction.__main__ import main

    code = main(
        ["sic", "--limit", "1", "--methods", "ig", "--budget", "4", "--objective", "softmax",
         "--judge", "none", "--out", str(tmp_path), "--json"]
    )  # fmt: skip
    record = json.loads(capsys.readouterr().out)
    assert code == 0
    (row,) = record["rows"]
    assert (row["gradients"], row["photos"]) == (4, 1)
    assert 0.05 < row["sic"] < 1
    assert record["settings"]["model"] == "mobilenet-v2"
