"""Every log says what training has cost so far; a run that goes on counts on."""

from __future__ import annotations

import json
import shutil

from training_run import Run


def test_the_log_counts_seconds_and_memory_up(run: Run):
    run.start()
    logs = [line for line in run.metrics if "loss" in line]
    assert len(logs) == 6
    for what in ("seconds", "cpu_seconds", "peak_mib"):
        assert [log[what] for log in logs] == sorted(log[what] for log in logs)
        assert logs[0][what] > 0
    assert 50 < logs[-1]["peak_mib"] < 20_000
    assert not [line for line in run.metrics if "eval_accuracy" in line and "cpu_seconds" in line]


def test_a_run_that_goes_on_counts_from_its_checkpoint(run: Run):
    run.start()
    shutil.rmtree(run.out / "checkpoint-6")
    (run.out / "model.safetensors").unlink()
    state_file = run.out / "checkpoint-3" / "trainer_state.json"
    state = json.loads(state_file.read_text())
    for log in state["log_history"]:
        log |= {"cpu_seconds": 1000.0, "seconds": 2000.0, "peak_mib": 77_777} if "cpu_seconds" in log else {}
    state_file.write_text(json.dumps(state))
    run.start("--resume")
    after = [line for line in run.metrics if line["step"] > 3 and "loss" in line]
    assert all(1000 < log["cpu_seconds"] < 1100 and 2000 < log["seconds"] < 2100 for log in after)
    assert {log["peak_mib"] for log in after} == {77_777}
