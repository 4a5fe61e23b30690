"""Exports a run to a production library: the settings that a row's cells mean there, and files that start the run.

    row of the table  ->  trl_settings   ->  export_trl    a folder with a script, the start, and what makes the prompts
                          verl_settings  ->  export_verl

The files of a task such as `exact:FILE.jsonl` are copied into the folder, which runs wherever it is moved to.

A row that a library cannot express is refused with an error that names the cell. Small differences are listed in the
exported script. For every translation of a cell, tests compare loss and gradient with the other library's own.
"""

import math
import os
import pprint
import shlex
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from string import Template
from typing import Any

from transformers import PreTrainedModel

from rlhf_minimal import contrib
from rlhf_minimal.config import Config
from rlhf_minimal.functional import advantages, aggregation, corrections, filters, gates, ratios
from rlhf_minimal.lab.jsonl import files_of
from rlhf_minimal.models import TokenizerVocabulary, Vocabulary
from rlhf_minimal.objective import Algorithm
from rlhf_minimal.tasks import TASKS, get_task
from rlhf_minimal.train import Recipe
from rlhf_minimal.training import save_policy, write_folder

NEVER = 1e9  # a bound that no ratio reaches
ONLY_VERIFIER = "only runs that train for the task's own verifier are exported"


@dataclass(frozen=True)
class Settings:
    """One library's settings for a row.

    Attributes:
        trainer: The class, or the estimator, that trains it.
        settings: Its arguments.
        differs: What the library does differently, one sentence each.
    """

    trainer: str
    settings: dict[str, Any]
    differs: tuple[str, ...] = ()


def trl_settings(algorithm: Algorithm) -> Settings:
    """A row as settings of TRL 1.16 (`GRPOConfig`, `RLOOConfig`, `GMPOConfig`).

    Args:
        algorithm: A row of the table, or a variant of one.

    Returns:
        The trainer's name and the arguments of its config that give this row's loss. Arguments that do not change the
        loss are left out.

    Raises:
        ValueError: If TRL has no such loss; the message names the cell.

    Example:
        >>> from rlhf_minimal import ALGORITHMS
        >>> trl_settings(ALGORITHMS["dr_grpo"]).settings["loss_type"]
        'dr_grpo'
        >>> trl_settings(ALGORITHMS["ppo"])
        Traceback (most recent call last):
        ValueError: the export to TRL cannot express this row's advantage, gae: TRL has no trainer with a critic
    """
    _check_columns(algorithm, "TRL")
    (advantage, _), (ratio, _), (gate, _), (aggregate, _) = map(_cell, _main(algorithm))
    differs = list(_left_out(algorithm, "TRL", filters_groups=False))
    if advantage is advantages.gae:
        raise _lacks("TRL", "advantage", advantage, "TRL has no trainer with a critic")
    if algorithm.normalize is not None:
        raise _lacks("TRL", "normalize", _cell(algorithm.normalize)[0], "none of its trainers whitens over tokens")
    if advantage is advantages.leave_one_out:
        if (ratio, gate, aggregate) != (ratios.on_policy, gates.none, aggregation.sequence_sum):
            raise _lacks("TRL", "ratio", ratio, "its RLOO has one loss, REINFORCE with a clip")
        differs.append(
            "TRL clips the product of a completion's ratios. With one update per batch all ratios are 1, and the "
            "gradient is this row's."
        )
        return Settings("RLOOTrainer", {"epsilon": 0.2, "beta": _reward_kl(algorithm, "TRL")}, tuple(differs))
    if advantage not in TRL_SCALES:
        raise _lacks("TRL", "advantage", advantage, "its GRPO trainer compares completions of a group only")
    if ratio not in (ratios.token, ratios.sequence, ratios.sequence_token) and gate is not contrib.gates.vespo:
        raise _lacks("TRL", "ratio", ratio, "it has the ratio of tokens and of sequences")
    if ratio is ratios.sequence_token:
        differs.append("TRL uses the sequence ratio; with one advantage per completion the two are equal.")
    common: dict[str, Any] = {
        "scale_rewards": TRL_SCALES[advantage],
        "importance_sampling_level": "token" if ratio in (ratios.token, contrib.ratios.product_token) else "sequence",
        "epsilon": 0.2,
        **_trl_trust(algorithm),
        **_loss_kl(algorithm, "TRL"),
        **_trl_correct(algorithm),
    }
    if algorithm.correct is not None:
        differs.append("TRL corrects only what vLLM has sampled: the script needs it, and a GPU.")
    trainer, loss = _trl_loss(algorithm)
    return Settings(trainer, {**common, **loss}, tuple(differs))


TRL_SCALES: dict[Callable[..., Any], str] = {
    advantages.group_normalized: "group",
    advantages.group_centered: "none",
    contrib.advantages.batch_std: "batch",
}


def _trl_loss(algorithm: Algorithm) -> tuple[str, dict[str, Any]]:
    """TRL's trainer for groups, and its settings for gate and aggregate."""
    _, (ratio, _), (gate, bounds), (aggregate, _) = map(_cell, _main(algorithm))
    if gate is contrib.gates.vespo and (ratio, aggregate) == (contrib.ratios.product_token, aggregation.token_mean):
        numbers = {f"vespo_{name.replace('lam', 'lambda')}": x for name, x in (GAMMA | bounds).items()}
        return "GRPOTrainer", {"loss_type": "vespo", **numbers}
    if (ratio, gate, aggregate) == (ratios.sequence, gates.clip, aggregation.sequence_sum):
        return "GRPOTrainer", {"loss_type": "luspo", "epsilon": bounds["low"], "epsilon_high": bounds["high"]}
    losses = {
        aggregation.sequence_mean: "grpo",
        aggregation.token_mean: "dapo",
        aggregation.fixed_length: "dr_grpo",
        aggregation.geometric_mean: "gmpo",
    }
    if aggregate not in losses:
        raise _lacks("TRL", "aggregate", aggregate, f"it has {', '.join(cell.__name__ for cell in losses)}")
    loss = losses[aggregate]
    if gate is gates.clip and loss == "gmpo":
        low, high = round(-math.log1p(-bounds["low"]), 12), round(math.log1p(bounds["high"]), 12)
        return "GMPOTrainer", {"epsilon": low, "epsilon_high": high}
    if gate in (gates.clip, contrib.gates.dual_clip):
        delta = {"delta": bounds["c"]} if gate is contrib.gates.dual_clip else {}
        return "GRPOTrainer", {"loss_type": loss, "epsilon": bounds["low"], "epsilon_high": bounds["high"], **delta}
    if gate is gates.clip_weight and loss == "dapo":  # the bound is absolute, unlike the other losses' of the same name
        return "GRPOTrainer", {"loss_type": "cispo", "epsilon_high": bounds["cap"]}
    if gate is gates.sigmoid and loss == "grpo":
        taus = {"sapo_temperature_pos": bounds["tau_pos"], "sapo_temperature_neg": bounds["tau_neg"]}
        return "GRPOTrainer", {"loss_type": "sapo", **taus}
    raise _lacks("TRL", "gate", gate, f"not together with {aggregate.__name__}")


GAMMA = {"k_pos": 2.0, "k_neg": 3.0, "lam_pos": 3.0, "lam_neg": 2.0}


def _trl_trust(algorithm: Algorithm) -> dict[str, Any]:
    """TRL's setting for the tokens that are left out."""
    if algorithm.trust is None:
        return {}
    cell, options = _cell(algorithm.trust)
    if cell is contrib.trust.high_entropy:
        return {"top_entropy_quantile": options.get("share", 0.2)}
    if cell is contrib.trust.off_policy_sequence:
        return {"off_policy_mask_threshold": options.get("delta", 0.5)}
    raise _lacks("TRL", "trust", cell, "it has off_policy_sequence and high_entropy")


def _trl_correct(algorithm: Algorithm) -> dict[str, Any]:
    """TRL's settings for the weight from the engine that sampled."""
    if algorithm.correct is None:
        return {}
    kind, low, high, level = _correction(algorithm, "TRL")
    return {
        "use_vllm": True,
        "vllm_importance_sampling_correction": True,
        "vllm_importance_sampling_mode": f"{level}_{kind}",
        "vllm_importance_sampling_clip_min": low or None,
        "vllm_importance_sampling_clip_max": high,
    }


def _correction(algorithm: Algorithm, library: str) -> tuple[str, float, float, str]:
    """("mask" or "truncate", smallest weight, largest weight, level) of the correct column."""
    cell, options = _cell(algorithm.correct or contrib.corrections.masked_importance)
    level = options.get("level", "token")
    if cell is contrib.corrections.masked_importance:
        return "mask", options.get("low", 0.5), options.get("high", 2.0), level
    if cell is corrections.truncated_importance:
        return "truncate", options.get("floor", 0.0), options.get("cap", 2.0), level
    raise _lacks(library, "correct", cell, "it has masked_importance and truncated_importance")


def verl_settings(algorithm: Algorithm, budget: int) -> Settings:
    """A row as settings of verl 0.9: overrides of its `main_ppo`.

    Args:
        algorithm: A row of the table, or a variant of one.
        budget: Tokens that a completion may have: the constant of a fixed-length mean.

    Raises:
        ValueError: If verl has no such loss; the message names the cell.

    Example:
        >>> from rlhf_minimal import ALGORITHMS
        >>> verl_settings(ALGORITHMS["gspo"], 512).settings["actor_rollout_ref.actor.policy_loss.loss_mode"]
        'gspo'
    """
    _check_columns(algorithm, "verl")
    differs = list(_left_out(algorithm, "verl", filters_groups=True))
    settings = _verl_advantage(algorithm)
    aggregate = _cell(algorithm.aggregate)[0]
    if aggregate in VERL_MEANS:
        settings[f"{ACTOR}.loss_agg_mode"] = VERL_MEANS[aggregate]
    if aggregate is aggregation.fixed_length:
        settings[f"{ACTOR}.loss_scale_factor"] = budget
    loss, difference = _verl_loss(algorithm)
    settings |= loss | _verl_correct(algorithm)
    differs += difference
    if any(kl.place == "loss" and kl.coef for kl in algorithm.kl):
        given = _loss_kl(algorithm, "verl")
        settings |= {f"{ACTOR}.use_kl_loss": True, f"{ACTOR}.kl_loss_type": given["type"]}
        settings[f"{ACTOR}.kl_loss_coef"] = given["beta"]
        differs += ["verl clamps k3."] if given["type"] == "low_var_kl" else []
    elif algorithm.kl:
        settings |= {"algorithm.use_kl_in_reward": True, "algorithm.kl_ctrl.kl_coef": _reward_kl(algorithm, "verl")}
    if algorithm.keep is not None and _cell(algorithm.keep)[0] is filters.mixed_outcomes:
        settings["algorithm.filter_groups.enable"] = True
    return Settings(settings["algorithm.adv_estimator"], settings, tuple(differs))


ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
VERL_MEANS = {
    aggregation.sequence_mean: "seq-mean-token-mean",
    aggregation.sequence_sum: "seq-mean-token-sum",
    aggregation.token_mean: "token-mean",
    aggregation.fixed_length: "seq-mean-token-sum-norm",
}
VERL_ESTIMATORS: dict[Callable[..., Any], str] = {
    advantages.group_normalized: "grpo",
    advantages.group_centered: "grpo",
    advantages.leave_one_out: "rloo",
    contrib.advantages.greedy_baseline: "remax",
    contrib.advantages.opo: "opo",
    contrib.advantages.best_minus_second: "grpo_passk",
    contrib.advantages.gpg: "gpg",
}
VERL_WHITENED: dict[Callable[..., Any], str] = {
    advantages.gae: "gae",
    advantages.returns_to_go: "reinforce_plus_plus",
    advantages.group_centered: "reinforce_plus_plus_baseline",
}


def _verl_advantage(algorithm: Algorithm) -> dict[str, Any]:
    """Verl's settings for the advantage."""
    advantage, options = _cell(algorithm.advantage)
    whitens = algorithm.normalize is not None
    if algorithm.normalize is not None and _cell(algorithm.normalize)[0] is not advantages.whiten:
        raise _lacks("verl", "normalize", _cell(algorithm.normalize)[0], "verl whitens over tokens or not at all")
    estimators = VERL_WHITENED if whitens else VERL_ESTIMATORS
    if advantage not in estimators:
        raise _lacks("verl", "advantage", advantage, "not with this row's normalize cell")
    settings: dict[str, Any] = {"algorithm.adv_estimator": estimators[advantage]}
    if advantage is advantages.group_centered and not whitens:
        settings["algorithm.norm_adv_by_std_in_grpo"] = False
    if advantage is advantages.gae:
        settings |= {"algorithm.gamma": options["gamma"], "algorithm.lam": options["lam"]}
    return settings


def _verl_loss(algorithm: Algorithm) -> tuple[dict[str, Any], list[str]]:
    """Verl's settings for ratio and gate, and what its loss does differently."""
    _, (ratio, _), (gate, bounds), (aggregate, _) = map(_cell, _main(algorithm))
    mode = f"{ACTOR}.policy_loss.loss_mode"
    if gate is gates.clip_weight and ratio is ratios.token:
        return {mode: "cispo", f"{ACTOR}.clip_ratio_low": 1, f"{ACTOR}.clip_ratio_high": bounds["cap"] - 1}, []
    if gate is gates.sigmoid and aggregate is aggregation.sequence_mean:  # verl always takes a mean of means there
        return {mode: "sapo", f"{ACTOR}.tau_pos": bounds["tau_pos"], f"{ACTOR}.tau_neg": bounds["tau_neg"]}, []
    if (ratio, gate) == (ratios.on_policy, gates.none) and aggregate in VERL_MEANS:
        return {mode: "gpg"}, []
    if gate not in (gates.clip, contrib.gates.dual_clip):
        raise _lacks("verl", "gate", gate, "with these numbers and this ratio")
    low, high, differs = bounds["low"], bounds["high"], list[str]()
    if aggregate is aggregation.geometric_mean and gate is gates.clip and ratio is ratios.token:
        settings, low, high = {mode: "geo_mean"}, -math.log1p(-low), math.log1p(high)
    elif (gate, aggregate) == (gates.clip, aggregation.sequence_mean) and ratio is not ratios.token:
        settings = {mode: "gspo"}
        differs.append("verl clamps the sequence's log-ratio at 10.")
    elif ratio is ratios.token and aggregate in VERL_MEANS:
        settings = {f"{ACTOR}.clip_ratio_c": bounds.get("c", NEVER)}  # verl always has this second bound, 3 by default
        differs.append("verl clamps log-ratios at 20.")
    else:
        raise _lacks("verl", "ratio", ratio, "not together with this gate and mean")
    return {**settings, f"{ACTOR}.clip_ratio_low": round(low, 12), f"{ACTOR}.clip_ratio_high": round(high, 12)}, differs


def _verl_correct(algorithm: Algorithm) -> dict[str, Any]:
    """Verl's settings for the weight from the engine that sampled."""
    if algorithm.correct is None:
        return {}
    kind, low, high, level = _correction(algorithm, "verl")
    if kind == "truncate" and low:
        raise _lacks("verl", "correct", corrections.truncated_importance, "it has no floor there")
    threshold = high if kind == "truncate" else f"{low or 1e-9}_{high}"  # a band is a text in verl
    return {
        f"{ROLLOUT}.calculate_log_probs": True,
        "algorithm.rollout_correction.rollout_is": level,
        "algorithm.rollout_correction.rollout_is_threshold": threshold,
        "algorithm.rollout_correction.bypass_mode": False,
    }


def check_exportable(recipe: Recipe) -> None:
    """Refuses settings of our training loop that the other libraries' loops do not have.

    Raises:
        ValueError: A setting that cannot be exported, or a reward other than the task's verifier.
    """
    task = recipe.task
    if recipe.reward is not None or (
        (get_task(task.name) if task.name in (*TASKS, "stack") else task).verify != task.verify  # stack:tests=visible
    ):
        raise ValueError(ONLY_VERIFIER)
    config, plain = recipe.config, Config()
    for name in (
        *("reference", "kl_control", "score_scaling", "score_clip", "missing_eos_penalty", "target_kl", "critic"),
        *("value_warm_up", "value_epochs", "value_minibatches", "value_layers", "value_width"),
    ):
        if getattr(config, name) != getattr(plain, name):
            raise ValueError(
                f"this run cannot be exported: no export translates its {name}, {getattr(config, name)}; start a run "
                "without it"
            )


def trl_arguments(recipe: Recipe) -> dict[str, Any]:
    """All arguments of TRL's config for a recipe: those of the row and those of its `Config`.

    They are those of one process; of several, each takes an equal part of `per_device_train_batch_size`.

    Args:
        recipe: Algorithm, task and numbers.

    Raises:
        ValueError: As `trl_settings` and `check_exportable`, or if the completions of a step cannot be cut evenly.
    """
    check_exportable(recipe)
    config, rows = recipe.config, recipe.config.prompts * recipe.config.group_size
    pieces = config.minibatches * config.micro_batches
    if rows % pieces or (rows // config.minibatches) % config.group_size:
        raise ValueError(
            f"TRL cuts the {rows} completions of a step evenly and between groups of {config.group_size}, and "
            f"{config.minibatches} minibatches x {config.micro_batches} micro-batches do not allow that"
        )
    return {
        **trl_settings(recipe.algorithm).settings,
        "max_steps": config.steps * config.epochs * config.minibatches,  # of the optimiser
        "per_device_train_batch_size": rows // pieces,
        "gradient_accumulation_steps": config.micro_batches,
        "steps_per_generation": pieces,
        "num_iterations": config.epochs,
        "num_generations": config.group_size,
        "max_completion_length": recipe.budget,
        "temperature": config.temperature,
        "learning_rate": config.lr,
        "lr_scheduler_type": "constant",
        "weight_decay": 0.0,
        "adam_epsilon": config.adam_eps,
        "max_grad_norm": config.grad_clip,
        "seed": config.seed,
        "bf16": config.precision == "bfloat16",
        "gradient_checkpointing": config.gradient_checkpointing == "on",
        "save_strategy": "no",
        "report_to": [],
    }


def verl_overrides(recipe: Recipe) -> dict[str, Any]:
    """All overrides of verl's `main_ppo` for a recipe: those of the row and those of its `Config`.

    Args:
        recipe: Algorithm, task and numbers.

    Raises:
        ValueError: As `verl_settings` and `check_exportable`, or if the prompts of a step cannot be cut evenly.
    """
    check_exportable(recipe)
    config, words = recipe.config, verl_settings(recipe.algorithm, recipe.budget)
    if config.prompts % config.minibatches:
        raise ValueError(
            f"verl cuts a step between prompts, and {config.prompts} prompts are not {config.minibatches} equal parts"
        )
    piece = -(-config.prompts * config.group_size // config.minibatches // config.micro_batches)
    optimizer = {
        "weight_decay": 0.0,
        "clip_grad": config.grad_clip,
        "override_optimizer_config": f"{{eps: {config.adam_eps}}}",  # further arguments of torch's AdamW
    }
    overrides = {
        **words.settings,
        "data.train_files": "$HERE/train.parquet",
        "data.val_files": "$HERE/test.parquet",
        "data.train_batch_size": config.prompts,
        "data.max_response_length": recipe.budget,
        "data.shuffle": False,
        "actor_rollout_ref.model.path": "$HERE/model",
        f"{ACTOR}.ppo_epochs": config.epochs,
        f"{ACTOR}.ppo_mini_batch_size": config.prompts // config.minibatches,
        f"{ACTOR}.ppo_micro_batch_size_per_gpu": piece,
        f"{ACTOR}.optim.lr": config.lr,
        **{f"{ACTOR}.optim.{name}": value for name, value in optimizer.items()},
        f"{ROLLOUT}.name": "vllm",
        f"{ROLLOUT}.n": config.group_size,
        f"{ROLLOUT}.temperature": config.temperature,
        f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": piece,
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": piece,
        "custom_reward_function.path": "$HERE/reward.py",
        "custom_reward_function.name": "compute_score",
        "trainer.total_training_steps": config.steps,
        "trainer.n_gpus_per_node": 1,
        "trainer.nnodes": 1,
        "trainer.logger": "console",
    }
    if config.gradient_checkpointing == "on":
        overrides["actor_rollout_ref.model.enable_gradient_checkpointing"] = True
    if config.lora_rank is not None:
        lora = {"lora_rank": config.lora_rank, "lora_alpha": config.lora_alpha, "target_modules": "all-linear"}
        overrides |= {f"actor_rollout_ref.model.{name}": value for name, value in lora.items()}
    if words.trainer == "gae":
        overrides |= {
            "critic.model.path": "$HERE/model",
            "critic.optim.lr": config.value_lr,
            **{f"critic.optim.{name}": value for name, value in optimizer.items()},
            "critic.ppo_micro_batch_size_per_gpu": piece,
            # verl always clips values, at 0.5 by default
            "critic.cliprange_value": NEVER if config.value_clip is None else config.value_clip,
        }
    return overrides


def _verl_differs(recipe: Recipe) -> tuple[str, ...]:
    """What verl does differently with a recipe: with its row, and with its `Config`."""
    words, config = verl_settings(recipe.algorithm, recipe.budget), recipe.config
    differs = list(words.differs)
    if config.precision == "float32":
        differs.append("verl samples and trains in bfloat16, with weights in float32; this run's precision is float32.")
    if words.trainer == "gae":
        differs.append(f"verl draws the critic's head; this run's value_head_init is {config.value_head_init}.")
    return tuple(differs)


def export_trl(
    recipe: Recipe, policy: PreTrainedModel, vocabulary: Vocabulary | TokenizerVocabulary, out: Path
) -> None:
    """Writes a folder from which `python train.py` runs this recipe with TRL.

        model/      the start, as `from_pretrained` reads it
        data/       the files of the task, if it has any
        train.py    prompts and rewards from this library's task, everything else from TRL
        fsdp.yaml   for `accelerate launch --config_file fsdp.yaml train.py`: the model is sharded over two processes

    Each process takes its part of the completions; the script refuses a number of them that does not divide.

    Args:
        recipe: Algorithm, task and numbers; its reward has to be the task's verifier.
        policy: The start.
        vocabulary: Its vocabulary.
        out: The folder; replaced if it exists.

    Raises:
        ValueError: As `trl_arguments`.
    """
    words, arguments, config = trl_settings(recipe.algorithm), trl_arguments(recipe), recipe.config
    if words.trainer == "RLOOTrainer":
        arguments = {name: value for name, value in arguments.items() if name not in ("scale_rewards", "loss_type")}
    # TRL applies the chat template to conversations and leaves texts unchanged; completions come back in the same form.
    chat = isinstance(vocabulary, TokenizerVocabulary) and vocabulary.chat
    prompt, text = (_conversation(recipe), 'text[0]["content"]') if chat else ("problem.prompt", "text")
    rank, alpha = config.lora_rank, f"{config.lora_alpha:g}"
    lora = f'LoraConfig(r={rank}, lora_alpha={alpha}, target_modules="all-linear")'
    script = _filled(
        "trl-train.py.txt",
        recipe,
        trainer=words.trainer,
        config=words.trainer.replace("Trainer", "Config"),
        home="trl.experimental.gmpo" if words.trainer == "GMPOTrainer" else "trl",
        differs=_comment("What is not the same as in rlhf_minimal:", *words.differs) if words.differs else "",
        settings=pprint.pformat(arguments, sort_dicts=False, width=100),
        prompt=prompt,
        text=text,
        lora_import="" if rank is None else "\nfrom peft import LoraConfig",
        lora="" if rank is None else f"\n        peft_config={lora},",
    )
    mixed = "bf16" if config.precision == "bfloat16" else "no"
    piece, rows = arguments["per_device_train_batch_size"], config.prompts * config.group_size
    fsdp = _filled("fsdp.yaml", recipe, mixed_precision=mixed, piece=piece, rows=rows)
    _write(out, recipe, policy, vocabulary, {"train.py": script, "fsdp.yaml": fsdp})


def export_verl(
    recipe: Recipe, policy: PreTrainedModel, vocabulary: Vocabulary | TokenizerVocabulary, out: Path
) -> None:
    """Writes a folder from which `bash train.sh` runs this recipe with verl, on a machine with a GPU.

        model/           the start
        data/            the files of the task, if it has any
        data.py          writes train.parquet and test.parquet from this library's task
        reward.py        its verifier in verl's calling form
        train.sh         both of the above, and verl's `main_ppo` with the overrides

    Args:
        recipe: Algorithm, task and numbers; its reward has to be the task's verifier.
        policy: The start.
        vocabulary: Its vocabulary.
        out: The folder; replaced if it exists.

    Raises:
        ValueError: As `verl_overrides`.
    """
    lines = [f"    {name}={_shell(value)}" for name, value in verl_overrides(recipe).items()]
    words = {
        "overrides": " \\\n".join(lines),
        "differs": _comment(*_verl_differs(recipe)),
        "problems": recipe.config.prompts * recipe.config.steps,
        "prompt": _conversation(recipe),
    }
    files = {"train.sh": "verl-train.sh", "data.py": "verl-data.py.txt", "reward.py": "verl-reward.py.txt"}
    _write(out, recipe, policy, vocabulary, {name: _filled(file, recipe, **words) for name, file in files.items()})


def _filled(template: str, recipe: Recipe, **words: object) -> str:
    """A file of `templates/`, filled with the values that all templates share and with ``words``."""
    text = (Path(__file__).parent / "templates" / template).read_text(encoding="utf-8")
    config = recipe.config
    kind, copies = recipe.task.name.partition(":")[0], _copies(recipe)
    task = f"{kind}:{','.join(copies)}" if copies else recipe.task.name
    common = {"task": repr(task), "seed": config.seed, "prompts": config.prompts, "steps": config.steps}
    return Template(text).substitute(common, **words)


def _comment(*sentences: str) -> str:
    """Sentences as comments of Python and of the shell, which a line end would end: a cell may have any name."""
    return "".join(f"# {''.join(c if c.isprintable() else ' ' for c in sentence)}\n" for sentence in sentences)


def _copies(recipe: Recipe) -> dict[str, str]:
    """Where each file of the task lies in the export, and where it comes from."""
    files = enumerate(files_of(recipe.task.name), start=1)  # two files may have one name, in two folders
    return {f"data/{number}-{os.path.basename(file)}": file for number, file in files}


def _write(
    out: Path,
    recipe: Recipe,
    policy: PreTrainedModel,
    vocabulary: Vocabulary | TokenizerVocabulary,
    files: dict[str, str],
) -> None:
    def write(new: Path) -> None:
        (new / "model").mkdir()
        save_policy(new / "model", policy, vocabulary)
        for name, text in files.items():
            (new / name).write_text(text, encoding="utf-8")
        for name, file in _copies(recipe).items():
            (new / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(file, new / name)

    write_folder(out, write)


def _conversation(recipe: Recipe) -> str:
    """The expression for a problem's prompt as a conversation."""
    system = f'{{"role": "system", "content": {recipe.task.instruction!r}}}, ' if recipe.task.instruction else ""
    return f'[{system}{{"role": "user", "content": problem.prompt}}]'


def _shell(value: object) -> str:
    text = str(value)
    return f'"{text}"' if text.startswith("$HERE/") else shlex.quote(text)  # these are paths of our own


def _cell(function: Callable[..., Any]) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The function of a cell and the options that are bound to it."""
    return (function.func, function.keywords) if isinstance(function, partial) else (function, {})


def _main(algorithm: Algorithm) -> tuple[Callable[..., Any], ...]:
    return algorithm.advantage, algorithm.ratio, algorithm.gate, algorithm.aggregate


def _lacks(library: str, column: str, cell: Callable[..., Any], why: str) -> ValueError:
    return ValueError(f"the export to {library} cannot express this row's {column}, {cell.__name__}: {why}")


def _check_columns(algorithm: Algorithm, library: str) -> None:
    """Refuses columns that no export translates, even if the library has something similar."""
    for column in (*(() if library == "TRL" else ("trust",)), "targets", "entropy_aggregate"):
        if (cell := getattr(algorithm, column)) is not None:
            raise _lacks(library, column, _cell(cell)[0], "no such cell is translated; remove it with replace()")
    if algorithm.entropy:
        raise ValueError(f"the export to {library} knows no entropy bonus: use a row without one")
    if any(kl.place == "advantage" and kl.coef for kl in algorithm.kl):
        raise ValueError(f"the export to {library} knows no KL in the advantage: put it into the reward or the loss")


def _left_out(algorithm: Algorithm, library: str, *, filters_groups: bool) -> Iterator[str]:
    """One sentence for each part of the row that is not in the loss and is left out of the export."""
    if algorithm.shape is not None:
        yield f"The reward's shaping, {_cell(algorithm.shape)[0].__name__}, is left out: add it to the reward function."
    if algorithm.keep is not None:
        name = _cell(algorithm.keep)[0].__name__
        if not (filters_groups and name == "mixed_outcomes"):
            yield f"Groups are not filtered ({name}): {library} trains on all that it samples."


def _loss_kl(algorithm: Algorithm, library: str) -> dict[str, Any]:
    """beta, and whether it is weighted by the ratio; 0 without a KL."""
    terms = [kl for kl in algorithm.kl if kl.coef]
    if not terms:
        return {"beta": 0.0}
    (kl, *others) = terms
    kinds = {"k3": "low_var_kl"} if library == "TRL" else {"k2": "mse", "k3": "low_var_kl"}
    here = (kl.place, kl.against, kl.level, kl.aggregate) == ("loss", "reference", "token", None)
    if others or not here or kl.estimator not in kinds:
        raise ValueError(
            f"the export to {library} cannot express this row's kl: with groups it has {' or '.join(kinds)} per "
            "token, in the loss, against the reference, averaged as the policy term is; set --kl-coef 0"
        )
    if library == "verl" and kl.weighted:
        raise ValueError("the export to verl cannot express this row's kl: verl does not weight it by the ratio")
    if library == "verl":
        return {"beta": kl.coef, "type": kinds[str(kl.estimator)]}
    return {"beta": kl.coef, "use_bias_correction_kl": kl.weighted}


def _reward_kl(algorithm: Algorithm, library: str) -> float:
    terms = [kl for kl in algorithm.kl if kl.coef]
    if any((kl.estimator, kl.place, kl.against) != ("k1", "reward", "reference") for kl in terms) or len(terms) > 1:
        raise ValueError(f"the export to {library} cannot express this row's kl: only k1 in the reward here")
    return float(terms[0].coef) if terms else 0.0
