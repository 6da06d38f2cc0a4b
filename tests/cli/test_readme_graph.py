"""The numbers of README's compressed graph are those of the graph that `make assets` brings."""

import json
import re
from pathlib import Path

import pytest

from greedypig.cli.main import main
from greedypig.network.assets_folder import assets_folder

README = (Path(__file__).parents[2] / "README.md").read_text()
CORA = assets_folder() / "graphs" / "cora.npz"
TITLES = {"greedy-pig": "Greedy PIG", "ig": "PIG (one shot)", "random": "random edges"}


@pytest.mark.slow
@pytest.mark.skipif(not CORA.is_file(), reason="needs make assets")
def test_readme_shows_what_the_reader_of_assets_cora_sees(tmp_path, capsys):
    assert "$ greedypig compress ~/.cache/greedypig/graphs/cora.npz --keep 0.4\n" in README
    assert main(["compress", str(CORA), "--keep", "0.4", "--out", str(tmp_path), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    full = re.search(r"GCN 1433-64-64-7; accuracy ([\d.]+), G −([\d.]+) with all edges", README)
    assert float(full[1]) == pytest.approx(record["accuracy_full"], abs=0.01)
    assert -float(full[2]) == pytest.approx(record["g_full"], abs=0.02)
    for name, title in TITLES.items():
        curve = record["methods"][name]
        at = curve["fractions"].index(0.4)
        row = re.search(rf"^{re.escape(title)} +([\d.]+) +([\d.]+) +−([\d.]+)", README, re.M)
        assert float(row[1]) == pytest.approx(curve["accuracy"][at], abs=0.01)
        assert float(row[2]) == pytest.approx(curve["agreement"][at], abs=0.01)
        assert -float(row[3]) == pytest.approx(curve["g"][at], abs=0.02)
