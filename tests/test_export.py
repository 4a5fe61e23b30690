"""`export`: settings read off the cells are those that the fidelity page prints, and TRL runs the script."""

import ast
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from unittest.mock import MagicMock

import pytest
import torch

from rlhf_minimal import ALGORITHMS, KL, contrib
from rlhf_minimal.cli import main
from rlhf_minimal.cli.starts import ASSETS
from rlhf_minimal.config import Config
from rlhf_minimal.functional import advantages, aggregation, corrections, gates, ratios
from rlhf_minimal.lab.export import (
    NEVER,
    check_exportable,
    export_trl,
    export_verl,
    trl_arguments,
    trl_settings,
    verl_overrides,
    verl_settings,
)
from rlhf_minimal.models import tiny_llama
from rlhf_minimal.tasks import get_task
from rlhf_minimal.train import Recipe
from rlhf_minimal.training import load_policy
from tests.commands import fails
from tests.test_fidelity import ENTRIES, TRL, load
from tests.test_golden_field import CASES

TASK = get_task("addition")


@pytest.mark.parametrize(("name", "entry"), TRL, ids=[name for name, _ in TRL])
def test_trls_settings_are_the_ones_on_the_fidelity_page(name, entry, tmp_path):
    """What is on the page was held to TRL's loss; what the export adds to it has TRL's default there."""
    pytest.importorskip("trl")
    from trl import GRPOConfig
    from trl.experimental.gmpo import GMPOConfig

    found = trl_settings(ALGORITHMS[name])
    assert found.trainer.replace("Trainer", "Config") == entry["class"]
    kind = {"GRPOConfig": GRPOConfig, "GMPOConfig": GMPOConfig}[entry["class"]]
    base = {"output_dir": str(tmp_path), "bf16": False, "use_cpu": True, "report_to": []}
    printed, ours = kind(**base, **entry["set"]), kind(**base, **found.settings)
    for setting in {*entry["set"], *found.settings, "beta", "loss_type", "epsilon", "importance_sampling_level"}:
        expected = getattr(printed, setting)
        if setting == "epsilon_high" and expected is None:
            expected = printed.epsilon
        if setting == "use_bias_correction_kl" and not ours.beta:
            continue
        if setting == "scale_rewards":
            assert str(getattr(ours, setting)) == str(expected)
            continue
        assert (
            getattr(ours, setting) == pytest.approx(expected, rel=1e-9)
            if isinstance(expected, float)
            else (getattr(ours, setting) == expected)
        )


@pytest.mark.parametrize("name", [name for name, entry in ENTRIES.items() if isinstance(entry["verl"].get("set"), str)])
def test_verls_settings_are_the_ones_on_the_fidelity_page(name):
    found = verl_settings(ALGORITHMS[name], budget=9).settings
    values = {"<very large>": NEVER, "<budget>": 9, "True": True, "False": False}
    for text in ENTRIES[name]["verl"]["set"].split("; "):
        key, value = text.split("=")
        key = key if key.startswith("algorithm.") else f"actor_rollout_ref.{key}"
        expected = values.get(value, value)
        if isinstance(expected, str):
            try:
                expected = float(expected)
            except ValueError:
                pass
        assert found[key] == expected, key


def test_every_setting_that_was_held_to_trl_live_is_found_from_its_cells():
    """The other direction: cells that tests/test_trl.py ran, variants among them, come out as what it ran them with."""
    trl = load("test_trl")
    defaults = {
        "importance_sampling_level": "token",
        "epsilon_low": 0.2,
        "epsilon_high": 0.2,
        "beta": 0.0,
        "delta": None,
    }
    tried = 0
    for name, (algorithm, ran) in trl.GRPO_SETTINGS.items():
        if algorithm.correct is not None or algorithm.entropy or ran["loss_type"] == "bnpo":
            continue  # not exported; TRL's bnpo is its dapo where there is one optimiser step a batch
        found = trl_settings(algorithm).settings
        for setting, default in defaults.items():
            ours = found.get(setting.replace("epsilon_low", "epsilon"), default)
            assert ours == ran.get(setting, default), (name, setting)
        assert found["loss_type"] == ran["loss_type"], name
        if found["beta"]:
            assert found["use_bias_correction_kl"] == ran["use_bias_correction_kl"]
        tried += 1
    assert tried > 12


grpo = ALGORITHMS["grpo"]


@pytest.mark.parametrize(
    ("algorithm", "says"),
    [
        (ALGORITHMS["ppo"], "advantage, gae"),
        (ALGORITHMS["reinforce"], "advantage, returns_to_go"),
        (ALGORITHMS["reinforce_pp"], "normalize, whiten"),
        (replace(grpo, ratio=ratios.on_policy, gate=gates.none), "ratio, on_policy"),
        (replace(grpo, gate=gates.none), "gate, none"),
        (replace(grpo, gate=partial(gates.clip_weight, cap=5.0)), "gate, clip_weight"),
        (replace(grpo, aggregate=aggregation.sequence_sum), "aggregate, sequence_sum"),
        (replace(ALGORITHMS["rloo"], aggregate=aggregation.sequence_mean), "ratio, on_policy"),
        (replace(grpo, kl=(KL(0.1, "k2"),)), "kl: "),
        (replace(grpo, kl=(KL(0.1, "k3"), KL(0.1, "k2"))), "kl: "),
        (replace(ALGORITHMS["rloo"], kl=(KL(0.1, "k3"),)), "kl: "),
        (replace(grpo, entropy=0.01), "entropy bonus"),
        (replace(grpo, kl=(KL(0.1, "k1", place="advantage"),)), "KL in the advantage"),
        (replace(grpo, kl=(KL(0.1, "k3", aggregate=aggregation.token_mean),)), "kl: "),
        (replace(grpo, correct=contrib.corrections.normalized_importance), "correct, normalized_importance"),
        (replace(ALGORITHMS["vespo"], aggregate=aggregation.sequence_mean), "gate, vespo"),
        (ALGORITHMS["dppo"], "trust, dppo_tv"),
        (ALGORITHMS["scalerl"], "aggregate, prompt_mean"),
        (ALGORITHMS["reinforce_pp_baseline"], "normalize, whiten"),
        (replace(grpo, advantage=contrib.advantages.leave_one_out_normalized), "advantage, leave_one_out_normalized"),
    ],
)
def test_what_trl_lacks_is_refused_with_the_cell(algorithm, says):
    with pytest.raises(ValueError, match="export to TRL (cannot express|knows)") as error:
        trl_settings(algorithm)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_verl_has_reinforce_pp_with_a_baseline():
    """Its estimator's numbers and its loss's are those of tests/test_golden_field.py."""
    found = verl_settings(ALGORITHMS["reinforce_pp_baseline"], 9).settings
    actor = "actor_rollout_ref.actor"
    assert found["algorithm.adv_estimator"] == "reinforce_plus_plus_baseline"
    assert "algorithm.norm_adv_by_std_in_grpo" not in found
    assert (found[f"{actor}.kl_loss_type"], found[f"{actor}.kl_loss_coef"]) == ("mse", 0.001)
    assert found[f"{actor}.loss_agg_mode"] == "token-mean"
    with pytest.raises(ValueError, match="export to verl cannot express this row's targets, gae"):
        verl_settings(replace(ALGORITHMS["ppo"], targets=advantages.gae), 9)
    for cells in ({"normalize": contrib.advantages.zscore_rows}, {"advantage": advantages.group_normalized}):
        with pytest.raises(ValueError, match="verl cannot express this row's"):
            verl_settings(replace(ALGORITHMS["reinforce_pp_baseline"], **cells), 9)


IN_VERL = {"reinforce_pp_baseline", "icepop", "olmo3", "opo", "pass_at_k", "remax"}


@pytest.mark.parametrize("name", [*(n for n in contrib.ALGORITHMS if n not in IN_VERL), "reinforce", "kimi_k2"])
def test_what_verl_lacks_is_refused(name):
    with pytest.raises(ValueError, match="verl cannot express this row's"):
        verl_settings(ALGORITHMS[name], 9)


def test_what_verl_lacks_beside_a_row_is_refused():
    for cells, says in (
        ({"correct": partial(corrections.truncated_importance, floor=0.5)}, "correct, truncated_importance"),
        ({"correct": contrib.corrections.normalized_importance}, "correct, normalized_importance"),
        ({"trust": contrib.trust.dppo_tv}, "trust, dppo_tv"),
        ({"gate": partial(gates.sigmoid, tau_pos=1.0, tau_neg=1.05), "aggregate": aggregation.token_mean}, "gate, sig"),
        ({"gate": gates.none}, "gate, none"),
    ):
        with pytest.raises(ValueError, match=f"verl cannot express this row's {says}"):
            verl_settings(replace(ALGORITHMS["dr_grpo"], **cells), 9)


ACTOR, CORRECTION = "actor_rollout_ref.actor", "algorithm.rollout_correction"
VERL_NAMES = {"loss_agg_mode": f"{ACTOR}.loss_agg_mode", "clip_ratio_c": f"{ACTOR}.clip_ratio_c"}
VERL_NAMES |= {name: f"{CORRECTION}.{name}" for name in ("rollout_is", "rollout_is_threshold")}
RUN_WITH = [  # the functions of both libraries ran with these settings, and the rows' gradients are theirs
    ("luspo", {}, "luspo: trl 2e-3/2.5e-3, sequence_sum"),
    ("vespo", {}, "vespo: trl k 2, 3 lambda 3, 2, token_mean"),
    ("high_entropy", {}, "high_entropy: trl top_entropy_quantile .2, token_mean"),
    ("deepseek_v32", {}, "deepseek_v32: trl off_policy_mask_threshold .5, k3 times ratio, beta .001, sequence_mean"),
    ("icepop", {}, "icepop: trl token_mask .5 to 2, sequence_mean"),
    ("olmo3", {}, "olmo3: trl clip .2/.272, token_truncate 2, no std, token_mean"),
    (
        "lite_ppo",
        {"correct": partial(corrections.truncated_importance, cap=2.0, floor=0.5), "advantage": grpo.advantage},
        "token_truncate .5 to 2: trl, token_mean",
    ),
    (
        "grpo",
        {"correct": partial(contrib.corrections.masked_importance, low=0.0, high=3.0, level="sequence"), "kl": ()},
        "icepop: trl sequence_mask, upper 3 (TRL's default), sequence_mean",
    ),
    ("icepop", {}, "icepop: verl 0.5_2.0, sequence_mean"),
    (
        "grpo",
        {"correct": partial(contrib.corrections.masked_importance, low=0.0, high=3.0, level="sequence"), "kl": ()},
        "sequence weight, masked above 3: verl 0_3, sequence_mean",
    ),
    ("opo", {}, "opo: none, sequence_sum"),
    ("pass_at_k", {}, "pass_at_k: none, sequence_sum"),
    ("remax", {}, "remax: none, sequence_sum"),
]


@pytest.mark.parametrize(("row", "cells", "case"), RUN_WITH, ids=[f"{row}: {case}" for row, _, case in RUN_WITH])
def test_settings_are_those_that_the_librarys_function_ran_with(row, cells, case):
    algorithm, ran = replace(ALGORITHMS[row], **cells), CASES[case]
    if ran["library"] == "trl":
        found = trl_settings(algorithm).settings
        names = {"epsilon_low": "epsilon"}
    else:
        found, names = verl_settings(algorithm, 9).settings, VERL_NAMES
    for setting, value in ran["library_settings"].items():
        if setting in ("clip_ratio_low", "clip_ratio_high"):
            assert found[f"{ACTOR}.{setting}"] == value
            continue
        expected = NEVER if value == "off" else value
        ours = found[names.get(setting, setting)]
        if "_" in str(value) and setting == "rollout_is_threshold":  # a band, as a text
            ours, expected = ([float(x) for x in str(band).split("_")] for band in (ours, expected))
        assert ours == expected, setting
    assert ran["library_settings"]
    if algorithm.ratio is ratios.on_policy:
        assert found[f"{ACTOR}.policy_loss.loss_mode"] == "gpg"
        wanted = {"opo": "opo", "pass_at_k": "grpo_passk", "remax": "remax"}
        assert found["algorithm.adv_estimator"] == wanted[row]
    if ran["library"] == "verl" and algorithm.correct is not None:
        assert found["actor_rollout_ref.rollout.calculate_log_probs"] is True


def test_vespos_and_sapos_numbers_are_exported():
    vespo = replace(ALGORITHMS["vespo"], gate=partial(contrib.gates.vespo, k_neg=4.0, lam_pos=1.5))
    found = trl_settings(vespo).settings
    assert [found[f"vespo_{name}"] for name in ("k_pos", "k_neg", "lambda_pos", "lambda_neg")] == [2.0, 4.0, 1.5, 2.0]
    sapo = replace(ALGORITHMS["sapo"], gate=partial(gates.sigmoid, tau_pos=2.0, tau_neg=3.0))
    found = verl_settings(sapo, 9).settings
    assert (found[f"{ACTOR}.tau_pos"], found[f"{ACTOR}.tau_neg"]) == (2.0, 3.0)


@pytest.mark.parametrize(
    "config",
    [
        Config(reference="ema"),
        Config(score_scaling="batch"),
        Config(score_clip=1.0),
        Config(missing_eos_penalty=1.0),
        Config(target_kl=0.1),
    ],
)
def test_what_only_our_loop_does_is_refused(config):
    with pytest.raises(ValueError, match="cannot be exported"):
        check_exportable(Recipe(grpo, TASK, config))


# Settings whose change leaves the files as they are: they are read only beside one that is refused, or one that these
# runs do not have; or they say how a run of ours computes or looks, and not what it trains.
OF_NO_EXPORT = {
    *("refresh_every", "ema_decay", "kl_control_target", "kl_control_horizon", "value_coef", "lora_alpha"),
    *("baseline", "baseline_decay", "max_refills", "verifier_timeout", "watch_kl", "fast", "decoding"),
}
OTHER = {  # of settings whose default is None or a word
    **{"value_clip": 0.2, "value_epochs": 2, "value_minibatches": 2, "value_layers": 1, "value_width": 32},
    **{"max_new_tokens": 5, "score_clip": 1.0, "missing_eos_penalty": 1.0, "target_kl": 0.1, "lora_rank": 2},
    **{"critic": "shared", "precision": "bfloat16", "gradient_checkpointing": "on"},
    **{"value_head_init": "normal", "score_scaling": "batch", "reference": "ema", "kl_control": "adaptive"},
}


KNOWN = [field.name for field in fields(Config) if field.name not in OF_NO_EXPORT]
OF_TRL = [(name, "grpo", export_trl) for name in KNOWN if name != "critic" and not name.startswith("value_")]


@pytest.mark.parametrize(("name", "row", "export"), [*OF_TRL, *((name, "ppo", export_verl) for name in KNOWN)])
def test_every_setting_is_written_or_listed_or_refused(name, row, export, tmp_path):
    vocabulary = load_policy(ASSETS / "addition")[1]
    start = tiny_llama(len(vocabulary), width=16, layers=1, heads=2)

    def files(config):
        export(Recipe(ALGORITHMS[row], TASK, config), start, vocabulary, tmp_path / "out")
        return {path.name: path.read_text() for path in (tmp_path / "out").glob("*.*")}

    plain = Config(prompts=4, group_size=4, steps=2, epochs=2)
    value = OTHER[name] if name in OTHER else getattr(plain, name) * 2 or 1
    try:
        same = files(replace(plain, **{name: value})) == files(plain)
    except ValueError as error:
        same = f"no export translates its {name}, {value}" not in str(error)
    assert not same


def test_verl_gets_the_numbers_of_its_optimizers_and_of_its_critic():
    """Names and defaults are those of verl 0.9.1: it clips values at 0.5, and every micro-batch has to be given."""
    config = Config(prompts=4, group_size=4, adam_eps=1e-5, grad_clip=0.5, value_clip=0.2, value_lr=1e-6)
    found = verl_overrides(Recipe(ALGORITHMS["ppo"], TASK, config))
    for model in (ACTOR, "critic"):
        assert found[f"{model}.optim.clip_grad"] == 0.5
        assert found[f"{model}.optim.weight_decay"] == 0.0
        assert found[f"{model}.optim.override_optimizer_config"] == "{eps: 1e-05}"
    assert (found["critic.optim.lr"], found["critic.cliprange_value"]) == (1e-6, 0.2)
    for name in (f"{ACTOR}.ppo", "critic.ppo", "actor_rollout_ref.ref.log_prob", "actor_rollout_ref.rollout.log_prob"):
        assert found[f"{name}_micro_batch_size_per_gpu"] == 16
    assert found["actor_rollout_ref.rollout.name"] == "vllm"
    found = verl_overrides(Recipe(ALGORITHMS["ppo"], TASK, Config(prompts=4, group_size=4)))
    assert found["critic.cliprange_value"] == NEVER
    assert not [name for name in verl_overrides(Recipe(grpo, TASK, config)) if name.startswith("critic.")]


def test_the_numbers_of_a_step_become_trls():
    config = Config(steps=7, prompts=8, group_size=4, epochs=3, minibatches=2, micro_batches=4, lr=1e-5, seed=3)
    found = trl_arguments(Recipe(grpo, TASK, config))
    assert found["per_device_train_batch_size"] * found["steps_per_generation"] == 32  # a generation is a step of ours
    assert found["per_device_train_batch_size"] * found["gradient_accumulation_steps"] == 16  # an optimiser step
    assert (found["num_iterations"], found["max_steps"]) == (3, 7 * 3 * 2)
    assert (found["learning_rate"], found["seed"], found["max_completion_length"]) == (1e-5, 3, TASK.max_new_tokens)
    with pytest.raises(ValueError, match="3 minibatches"):
        trl_arguments(Recipe(grpo, TASK, Config(prompts=8, group_size=4, minibatches=3)))


def run_of(folder, *words):
    tiny = ["--steps", "2", "--prompts", "4", "--group-size", "4", "--held-out", "10"]
    assert main(["train", *words, *tiny, "--out", str(folder)]) == 0


def imported(path):
    """A script that was exported, as a module."""
    spec = importlib.util.spec_from_file_location(f"exported_{path.stem}", path)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


@pytest.mark.parametrize(("row", "tasks"), [("grpo", "addition"), ("rloo", "addition"), ("gmpo", "even")])
def test_trl_trains_from_the_exported_folder(row, tasks, tmp_path, monkeypatch):
    """The script as it is written, two steps of it: the start that our run had, changed and saved."""
    pytest.importorskip("trl")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    run_of(tmp_path / "run", row, "--task", tasks, *([] if tasks == "addition" else ["--start", "untrained"]))
    assert main(["export", str(tmp_path / "run"), "--to", "trl"]) == 0
    out = tmp_path / "run-trl"
    start, _ = load_policy(out / "model")
    script = imported(out / "train.py")
    assert script.STEPS == 2
    trainer = script.main(use_cpu=True, disable_tqdm=True)
    assert trainer.state.global_step == 2
    assert all("reward" in entry for entry in trainer.state.log_history if "completions/mean_length" in entry)
    trained = trainer.model.state_dict()
    moved = max((trained[name] - value).abs().max().item() for name, value in start.state_dict().items())
    assert 0 < moved < 0.1
    if tasks == "addition":
        right = script.PROBLEMS[3].answer
        assert script.reward(["?"] * 2, [right, "x"], number=[3, 3], trainer_state=None) == [1.0, 0.0]


def test_a_real_models_run_is_exported_with_its_templates_and_its_savings(chat_model, tmp_path, monkeypatch):
    """Conversations, a verifier that needs its dataset's entry, LoRA and bfloat16: two steps by TRL's own loop."""
    pytest.importorskip("trl")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    task = "reasoning-gym:chain_sum,min_terms=2,max_terms=2,min_digits=1,max_digits=2"
    words = ["grpo", "--model", str(chat_model), "--task", task, "--lora-rank", "2", "--precision", "bfloat16"]
    run_of(tmp_path / "run", *words, "--max-new-tokens", "4", "--system", "Add.")
    assert main(["export", str(tmp_path / "run"), "--to", "trl"]) == 0
    script = imported(tmp_path / "run-trl" / "train.py")
    assert script.SETTINGS["bf16"] is True
    said = [[{"role": "assistant", "content": text}] for text in (script.PROBLEMS[1].answer, "no number")]
    assert script.reward(None, said, number=[1, 1])[0] == 1.0
    assert script.reward(None, said, number=[1, 1])[1] < 1.0
    trainer = script.main(use_cpu=True, disable_tqdm=True)
    asked = trainer.train_dataset[0]["prompt"]
    assert [message["role"] for message in asked] == ["system", "user"]
    assert asked[0]["content"] == "Add."
    assert {name for name, weight in trainer.model.named_parameters() if weight.requires_grad} == {
        name for name, _ in trainer.model.named_parameters() if "lora_" in name
    }
    assert main(["export", str(tmp_path / "run"), "--to", "verl"]) == 0
    assert "actor_rollout_ref.model.lora_rank=2" in (tmp_path / "run-verl" / "train.sh").read_text()


def test_accelerate_reads_the_config_for_sharding(tmp_path):
    from accelerate.commands.config.config_args import load_config_from_file

    run_of(tmp_path / "run", "grpo")
    assert main(["export", str(tmp_path / "run"), "--to", "trl"]) == 0
    found = load_config_from_file(str(tmp_path / "run-trl" / "fsdp.yaml"))
    assert found.distributed_type == "FSDP"
    assert found.fsdp_config["fsdp_version"] == 2
    assert found.mixed_precision == "no"


def test_processes_share_the_completions_of_a_step(tmp_path, monkeypatch):
    """TRL multiplies the batch of a process by their number; a sharded run has to train on as many as one process."""
    config = Config(prompts=4, group_size=4, steps=2, micro_batches=2)
    exported(tmp_path, TASK, grpo, config)
    assert "trains on 16 completions" in (tmp_path / "trl" / "fsdp.yaml").read_text()
    script = imported(tmp_path / "trl" / "train.py")
    for processes in (1, 2, 4):
        monkeypatch.setenv("WORLD_SIZE", str(processes))
        monkeypatch.setattr(script, "GRPOConfig", dict)
        monkeypatch.setattr(script, "GRPOTrainer", MagicMock())
        script.main()
        seen = script.GRPOTrainer.call_args.kwargs["args"]
        assert processes * seen["per_device_train_batch_size"] * seen["steps_per_generation"] == 16
        assert processes * seen["per_device_train_batch_size"] * seen["gradient_accumulation_steps"] == 16
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(ValueError, match="8 completions are no equal parts for 3 processes"):
        script.main()


def test_the_start_is_the_runs_own(tmp_path):
    run_of(tmp_path / "run", "grpo")
    assert main(["export", str(tmp_path / "run"), "--to", "trl", "--out", str(tmp_path / "out")]) == 0
    exported, shipped = (load_policy(f)[0].state_dict() for f in (tmp_path / "out" / "model", ASSETS / "addition"))
    assert all(torch.equal(exported[name], shipped[name]) for name in shipped)


def test_an_export_stands_beside_its_run_however_the_run_is_written(tmp_path):
    run_of(tmp_path / "run", "grpo")
    assert main(["export", f"{tmp_path / 'run'}/", "--to", "trl"]) == 0
    assert (tmp_path / "run-trl" / "train.py").exists()
    assert not (tmp_path / "run" / "-trl").exists()


def test_verls_folder(tmp_path):
    """Its shell script parses, its data and its reward are the task's; verl itself is not installed here."""
    run_of(tmp_path / "run", "dapo")
    assert main(["export", str(tmp_path / "run"), "--to", "verl"]) == 0
    out = tmp_path / "run-verl"
    assert subprocess.run(["bash", "-n", str(out / "train.sh")], check=False).returncode == 0
    text = (out / "train.sh").read_text()
    for words in ("algorithm.filter_groups.enable=True", "clip_ratio_high=0.28", "rollout.n=4", "train_batch_size=4"):
        assert words in text
    pytest.importorskip("datasets")
    subprocess.run([sys.executable, str(out / "data.py")], check=True, cwd=tmp_path)
    from datasets import Dataset

    rows = Dataset.from_parquet(str(out / "train.parquet"), cache_dir=str(tmp_path / "cache"))
    assert len(rows) == 8
    script = imported(out / "reward.py")
    row = rows[0]
    right = row["reward_model"]["ground_truth"]
    assert right == script.problems("train")[0].answer
    assert row["prompt"] == [{"role": "user", "content": script.problems("train")[0].prompt}]
    assert script.compute_score(row["data_source"], right, right, row["extra_info"]) == 1.0
    assert script.compute_score(row["data_source"], right + "1", right, row["extra_info"]) == 0.0


def test_bad_exports_are_one_line(tmp_path, capsys):
    export = partial(fails, capsys, "export")
    assert "no run in" in export(str(tmp_path / "nothing"), "--to", "trl")
    run_of(tmp_path / "run", "ppo")
    capsys.readouterr()
    assert "advantage, gae" in export(str(tmp_path / "run"), "--to", "trl")
    assert not (tmp_path / "run-trl").exists()
    (tmp_path / "mine").mkdir()
    assert "exists already" in export(str(tmp_path / "run"), "--to", "verl", "--out", str(tmp_path / "mine"))
    assert "was not written by export" in export(
        str(tmp_path / "run"), "--to", "verl", "--out", str(tmp_path / "mine"), "--overwrite"
    )
    settings = json.loads((tmp_path / "run" / "config.json").read_text())
    for other in ({"reward": "random"}, {"reward_model": "judge"}):
        (tmp_path / "run" / "config.json").write_text(json.dumps({**settings, **other}))
        assert "own verifier are exported" in export(str(tmp_path / "run"), "--to", "verl")


# Texts that would be code if they were pasted: in a docstring, a string, a comment, a shell word, a template.
HOSTILE = (
    '''q""" + open("PWNED", "w").name + """.jsonl''',
    """q' + open('PWNED', 'w').name + '.jsonl""",
    "q$(touch PWNED)`touch PWNED`.jsonl",
    'q"; touch PWNED; "${task}$steps.jsonl',
    'q\\"\\"\\" é \u2019 # -*- coding: utf-7 -*-.jsonl',
)


PLAIN = Config(prompts=4, group_size=4, steps=2)


def exported(folder, task, algorithm, config=PLAIN):
    """Both exports of a run of that task: the texts of all scripts."""
    recipe = Recipe(algorithm, task, config)
    vocabulary = load_policy(ASSETS / "addition")[1]
    export_trl(recipe, tiny_llama(len(vocabulary)), vocabulary, folder / "trl")
    export_verl(recipe, tiny_llama(len(vocabulary)), vocabulary, folder / "verl")
    return {path: path.read_text() for path in sorted(folder.glob("*/*.*"))}


ROWS = [{"prompt": f"What is {n} and 1?", "answer": str(n + 1)} for n in range(60)]
WORDED = [{"question": row["prompt"], "answer": f"So.\n#### {row['answer']}"} for row in ROWS]
FILES = {  # a task of every kind that reads files, and what its files hold
    "exact:q.jsonl": {"q.jsonl": ROWS},
    "exact:my, questions: 1.jsonl": {"my, questions: 1.jsonl": ROWS},
    "math:deep/er/q.jsonl": {"deep/er/q.jsonl": ROWS},
    "gsm8k:q.jsonl": {"q.jsonl": WORDED},
    "gsm8k-lenient:a/q.jsonl, b/q.jsonl": {"a/q.jsonl": WORDED[:40], "b/q.jsonl": WORDED[40:]},
    "qa:q.jsonl": {"q.jsonl": WORDED},
    "competition-math:q.jsonl": {
        "q.jsonl": [{"problem": row["prompt"], "solution": f"\\boxed{{{row['answer']}}}"} for row in ROWS]
    },
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("to", ["trl", "verl"])
def test_an_export_whose_task_reads_files_runs_wherever_it_lies(to, name, tmp_path, monkeypatch):
    """Moved, into a folder with a comma in its name, read from another folder, and with the run's own files gone."""
    if name.startswith(("math", "competition")):
        pytest.importorskip("math_verify")
    pytest.importorskip("datasets")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for file, rows in FILES[name].items():
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = get_task(name)
    wanted = task.problems("train", 8, seed=0)
    vocabulary = load_policy(ASSETS / "addition")[1]
    write = {"trl": export_trl, "verl": export_verl}[to]
    write(Recipe(ALGORITHMS["grpo"], task, PLAIN), tiny_llama(len(vocabulary)), vocabulary, Path("out"))
    moved = tmp_path / "there, and on"
    (tmp_path / "here" / "out").rename(moved)
    monkeypatch.chdir("/")
    shutil.rmtree(tmp_path / "here")
    if to == "trl":
        pytest.importorskip("trl")
        script = imported(moved / "train.py")
        assert script.PROBLEMS == wanted
        assert script.reward(None, [wanted[3].answer, "no"], number=[3, 3]) == [
            task.verify(wanted[3].answer, wanted[3]),
            0,
        ]
        return
    imported(moved / "data.py")  # which is run as a program in test_verls_folder
    from datasets import Dataset

    rows = Dataset.from_parquet(str(moved / "train.parquet"), cache_dir=str(tmp_path / "cache"))
    assert [row["reward_model"]["ground_truth"] for row in rows] == [problem.answer for problem in wanted]
    script = imported(moved / "reward.py")
    found = script.compute_score("", wanted[3].answer, wanted[3].answer, rows[3]["extra_info"])
    assert found == task.verify(wanted[3].answer, wanted[3])


def test_a_run_on_a_file_is_exported_by_the_command(tmp_path, chat_model, monkeypatch):
    """The path that the run was begun with is relative, and its file is gone when the export runs."""
    monkeypatch.chdir(tmp_path)
    Path("q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    run_of(Path("run"), "grpo", "--task", "exact:q.jsonl", "--model", str(chat_model), "--max-new-tokens", "2")
    for to in ("trl", "verl"):
        assert main(["export", "run", "--to", to]) == 0
    Path("q.jsonl").unlink()
    assert imported(tmp_path / "run-trl" / "train.py").TASK.name == "exact:data/1-q.jsonl"
    assert len(imported(tmp_path / "run-verl" / "reward.py").problems("train")) == 8


@pytest.mark.parametrize("to", ["trl", "verl"])
def test_programs_of_ones_own_are_refused(to, tmp_path, capsys):
    """A task or a step reward in a Python file is no part of an export."""
    run_of(tmp_path / "run", "grpo")
    settings = json.loads((tmp_path / "run" / "config.json").read_text())
    for own, says in (
        ({"task": "mine.py:TASK"}, "only tasks of the library"),
        ({"step_reward": "mine.py:F"}, "verifier"),
    ):
        (tmp_path / "run" / "config.json").write_text(json.dumps(settings | own))
        assert says in fails(capsys, "export", str(tmp_path / "run"), "--to", to)
        assert not (tmp_path / f"run-{to}").exists()


class Blank(ast.NodeTransformer):
    def visit_Constant(self, node):
        return ast.Constant("") if isinstance(node.value, str) else node


@pytest.mark.parametrize("text", HOSTILE)
def test_what_a_name_says_is_data_in_every_script(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    grpo = replace(ALGORITHMS["grpo"], shape=lambda rewards, lengths, *, budget: rewards)
    plain = exported(tmp_path / "plain", replace(TASK, name="q", instruction="q"), grpo)
    grpo.shape.__name__ = text + "\ntouch PWNED\n"  # a row of one's own may name its cells as it likes
    hostile = exported(tmp_path / "hostile", replace(TASK, name=text, instruction=text), grpo)
    assert len(plain) == len(hostile) == 5
    for one, other in zip(plain, hostile, strict=True):
        if one.suffix == ".py":
            before, after = ast.parse(plain[one]), ast.parse(hostile[other])
            said = [node.value for node in ast.walk(after) if isinstance(node, ast.Constant)]
            assert text in said
            assert ast.dump(Blank().visit(before)) == ast.dump(Blank().visit(after))
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text("#!/bin/sh\nexit 0\n")
    python.chmod(0o755)
    shell = {**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}"}
    subprocess.run(["bash", str(tmp_path / "hostile" / "verl" / "train.sh")], check=True, env=shell)
    assert not list(tmp_path.rglob("PWNED"))


@pytest.mark.usefixtures("drawn")
def test_the_title_of_a_learning_curve_is_no_formula(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = r"my$\frac$rows.py"
    Path(name).write_text("from rlhf_minimal import ALGORITHMS\nMINE = ALGORITHMS['grpo']\n")
    tiny = ["--steps", "1", "--prompts", "4", "--group-size", "4", "--held-out", "10"]
    assert main(["train", "--row", f"{name}:MINE", *tiny, "--out", "run"]) == 0
    assert Path("run/learning-curve.png").exists()


@pytest.mark.parametrize("line_end", ["\n", "\r", "\x1b[2J", "\u2028", "\x00", "\udcff"])
def test_names_with_control_characters_are_refused_at_the_door(line_end, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = f"q{line_end}touch PWNED"
    with pytest.raises(ValueError, match="control character"):
        replace(TASK, name=name)
    for words in (
        ("--task", f"exact:{name}.jsonl"),
        ("--out", name),
        ("--model", name),
        ("--start", name),
        ("--task", f"{name}.py:MINE"),
        ("--reward-model", name),
    ):
        assert "control character" in fails(capsys, "train", "grpo", *words)
    assert "control character" in fails(capsys, "sft", "--data", name)
    assert "control character" in fails(capsys, "sample", name)
    assert not list(tmp_path.iterdir())


def test_the_command_that_goes_on_is_quoted(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_of("my $(touch PWNED) run", "grpo")
    assert "sample 'my $(touch PWNED) run'" in capsys.readouterr().out
