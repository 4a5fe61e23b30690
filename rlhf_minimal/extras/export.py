"""The same run for a production library: settings read off the cells of a row, and files that start it there.

    row of the table  ->  trl_settings / verl_settings  ->  export_run: a folder with a script, the start, the prompts

What a library cannot express is refused, with the cell that it lacks. What it does a little differently is said in the
script. Every translation of a cell is one that `tests/` hold to the library's own loss, value and gradient.
"""

import math
import pprint
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from rlhf_minimal.functional import advantages, aggregation, filters, gates, ratios
from rlhf_minimal.models import TokenizerVocabulary, Vocabulary
from rlhf_minimal.objective import Algorithm
from rlhf_minimal.training import Config, Recipe, save_policy, write_folder

NEVER = 1e9  # a bound that no ratio reaches
ONLY_VERIFIER = "only runs that train for the task's own verifier are exported"


@dataclass(frozen=True)
class Settings:
    """One library's words for a row.

    Attributes:
        trainer: The class, or the estimator, that trains it.
        settings: Its arguments.
        differs: What the library does otherwise, one sentence each.
    """

    trainer: str
    settings: dict[str, Any]
    differs: tuple[str, ...] = ()


def trl_settings(algorithm: Algorithm) -> Settings:
    """A row in TRL's words (1.16: `GRPOConfig`, `RLOOConfig`, `GMPOConfig`).

    Args:
        algorithm: A row of the table, or a variant of one.

    Returns:
        The trainer's name and the arguments of its config that make its loss this one. Arguments that do not matter to
        the loss are left out.

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
    (advantage, _), (ratio, _), (gate, bounds), (aggregate, _) = map(_cell, _main(algorithm))
    differs = list(_left_out(algorithm, "TRL", filters_groups=False))
    if advantage is advantages.gae:
        raise _lacks("TRL", "advantage", advantage, "TRL has no trainer with a critic")
    if algorithm.normalize is not None:
        raise _lacks("TRL", "normalize", _cell(algorithm.normalize)[0], "no trainer whitens over tokens")
    _check_columns(algorithm, "TRL")

    if advantage is advantages.leave_one_out:
        if (ratio, gate, aggregate) != (ratios.on_policy, gates.none, aggregation.sequence_sum):
            raise _lacks("TRL", "ratio", ratio, "its RLOO has one loss, REINFORCE with a clip")
        differs.append(
            "TRL clips the product of a response's ratios; with one update a batch all ratios are 1, and the gradient "
            "is this row's."
        )
        return Settings("RLOOTrainer", {"epsilon": 0.2, "beta": _reward_kl(algorithm, "TRL")}, tuple(differs))
    if advantage not in (advantages.group_normalized, advantages.group_centered):
        raise _lacks("TRL", "advantage", advantage, "its GRPO trainer knows groups only")

    found: dict[str, Any] = {
        "scale_rewards": "group" if advantage is advantages.group_normalized else "none",
        "importance_sampling_level": "token",
        "epsilon": 0.2,
        **_loss_kl(algorithm, "TRL"),
    }
    trainer = "GRPOTrainer"
    if ratio in (ratios.sequence, ratios.sequence_token):
        found["importance_sampling_level"] = "sequence"
        if ratio is ratios.sequence_token:
            differs.append("TRL has the sequence form; for one advantage a response the two agree.")
    elif ratio is not ratios.token:
        raise _lacks("TRL", "ratio", ratio, "it has the ratio of tokens and of sequences")

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
        trainer = "GMPOTrainer"
        low, high = round(-math.log1p(-bounds["low"]), 12), round(math.log1p(bounds["high"]), 12)
        return Settings(trainer, {**found, "epsilon": low, "epsilon_high": high}, tuple(differs))
    if gate in (gates.clip, gates.dual_clip):
        found |= {"epsilon": bounds["low"], "epsilon_high": bounds["high"]}
        found |= {"delta": bounds["c"]} if gate is gates.dual_clip else {}
    elif gate is gates.clip_weight and loss == "dapo":
        loss = "cispo"
        found["epsilon_high"] = bounds["cap"]  # absolute, unlike the other losses' bound of the same name
    elif gate is gates.sigmoid and loss == "grpo":
        loss = "sapo"
        found |= {"sapo_temperature_pos": bounds["tau_pos"], "sapo_temperature_neg": bounds["tau_neg"]}
    else:
        raise _lacks("TRL", "gate", gate, f"not beside {aggregate.__name__}")
    return Settings(trainer, {"loss_type": loss, **found}, tuple(differs))


def verl_settings(algorithm: Algorithm, budget: int) -> Settings:
    """A row in verl's words (0.9), as overrides of its `main_ppo`.

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
    (advantage, options), (ratio, _), (gate, bounds), (aggregate, _) = map(_cell, _main(algorithm))
    differs = list(_left_out(algorithm, "verl", filters_groups=True))
    actor, found = "actor_rollout_ref.actor", dict[str, Any]()
    _check_columns(algorithm, "verl")

    estimators: dict[Callable[..., Any], str] = {
        advantages.group_normalized: "grpo",
        advantages.group_centered: "grpo",
        advantages.leave_one_out: "rloo",
    }
    whitens = algorithm.normalize is not None and _cell(algorithm.normalize)[0] is advantages.whiten
    if whitens:
        estimators = {
            advantages.gae: "gae",
            advantages.returns_to_go: "reinforce_plus_plus",
            advantages.group_centered: "reinforce_plus_plus_baseline",
        }
    elif algorithm.normalize is not None:
        raise _lacks("verl", "normalize", _cell(algorithm.normalize)[0], "verl's estimators whiten over tokens, or not")
    if advantage not in estimators:
        raise _lacks("verl", "advantage", advantage, "not with this row's normalize cell")
    found["algorithm.adv_estimator"] = estimators[advantage]
    if advantage is advantages.group_centered and not whitens:
        found["algorithm.norm_adv_by_std_in_grpo"] = False
    if advantage is advantages.gae:
        found |= {"algorithm.gamma": options["gamma"], "algorithm.lam": options["lam"]}

    modes = {
        aggregation.sequence_mean: "seq-mean-token-mean",
        aggregation.sequence_sum: "seq-mean-token-sum",
        aggregation.token_mean: "token-mean",
        aggregation.fixed_length: "seq-mean-token-sum-norm",
    }
    if aggregate in modes:
        found[f"{actor}.loss_agg_mode"] = modes[aggregate]
    if aggregate is aggregation.fixed_length:
        found[f"{actor}.loss_scale_factor"] = budget

    loss = f"{actor}.policy_loss.loss_mode"
    if gate in (gates.clip, gates.dual_clip):
        low, high = bounds["low"], bounds["high"]
        if aggregate is aggregation.geometric_mean and gate is gates.clip and ratio is ratios.token:
            found[loss], low, high = "geo_mean", -math.log1p(-low), math.log1p(high)
        elif ratio in (ratios.sequence, ratios.sequence_token) and gate is gates.clip:
            found[loss] = "gspo"
            differs.append("verl clamps the sequence's log-ratio at 10.")
        elif ratio is ratios.token and aggregate in modes:
            found[f"{actor}.clip_ratio_c"] = bounds.get("c", NEVER)  # verl always has a second clip, at 3 by default
            differs.append("verl clamps log-ratios at 20.")
        else:
            raise _lacks("verl", "ratio", ratio, "not beside this gate")
        found |= {f"{actor}.clip_ratio_low": round(low, 12), f"{actor}.clip_ratio_high": round(high, 12)}
    elif gate is gates.clip_weight and ratio is ratios.token:
        found |= {loss: "cispo", f"{actor}.clip_ratio_low": 1, f"{actor}.clip_ratio_high": bounds["cap"] - 1}
    elif gate is gates.sigmoid and bounds == {"tau_pos": 1.0, "tau_neg": 1.05}:
        found[loss] = "sapo"  # its temperatures are verl's own, and its mean is one of means
    else:
        raise _lacks("verl", "gate", gate, "with these numbers and this ratio")

    if any(kl.place == "loss" and kl.coef for kl in algorithm.kl):
        given = _loss_kl(algorithm, "verl")
        found |= {f"{actor}.use_kl_loss": True, f"{actor}.kl_loss_type": given["type"]}
        found[f"{actor}.kl_loss_coef"] = given["beta"]
        differs += ["verl clamps k3."] if given["type"] == "low_var_kl" else []
    elif algorithm.kl:
        found |= {"algorithm.use_kl_in_reward": True, "algorithm.kl_ctrl.kl_coef": _reward_kl(algorithm, "verl")}
    if algorithm.keep is not None and _cell(algorithm.keep)[0] is filters.mixed_outcomes:
        found["algorithm.filter_groups.enable"] = True
    return Settings(found["algorithm.adv_estimator"], found, tuple(differs))


def check_exportable(recipe: Recipe) -> None:
    """Refuses what is in no row but in the loop, and which the other library's loop has not.

    Raises:
        ValueError: Names the setting, or says that the reward is another one than the task's verifier.
    """
    if recipe.reward is not None:
        raise ValueError(ONLY_VERIFIER)
    plain = Config()
    for name, why in {
        "reference": "its KL refers to a reference that moves",
        "kl_control": "its KL coefficient follows a controller",
        "score_scaling": "its rewards are scaled",
        "score_clip": "its rewards are clipped",
        "missing_eos_penalty": "its truncated completions are fined",
        "target_kl": "its updates may end early",
        "critic": "its critic shares the policy's body",
    }.items():
        if getattr(recipe.config, name) != getattr(plain, name):
            raise ValueError(
                f"this run cannot be exported: {why} ({name} {getattr(recipe.config, name)}); begin one without"
            )


def trl_arguments(recipe: Recipe) -> dict[str, Any]:
    """All arguments of the TRL config that make a run of ours: the row's and the numbers of its `Config`.

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


FSDP = """\
# Fully sharded data parallel, version 2: every process holds its share of weights, gradients and moments, and gathers a
# layer's weights when it computes that layer. Raise num_processes to the number of GPUs.
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
mixed_precision: '{mixed_precision}'
num_machines: 1
num_processes: 2
machine_rank: 0
main_training_function: main
fsdp_config:
  fsdp_version: 2
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_reshard_after_forward: true
  fsdp_state_dict_type: FULL_STATE_DICT
  fsdp_cpu_ram_efficient_loading: true
  fsdp_offload_params: false
  fsdp_activation_checkpointing: false
"""


def export_trl(
    recipe: Recipe, policy: PreTrainedModel, vocabulary: Vocabulary | TokenizerVocabulary, out: Path
) -> None:
    """Writes a folder from which `python train.py` runs this recipe with TRL.

        model/      the start, as `from_pretrained` reads it
        train.py    prompts and rewards from this library's task, everything else TRL's
        fsdp.yaml   for `accelerate launch --config_file fsdp.yaml train.py`: two processes share what the model needs

    Args:
        recipe: Algorithm, task and numbers; its reward has to be the task's verifier.
        policy: The start.
        vocabulary: Its vocabulary.
        out: The folder; replaced if it exists.

    Raises:
        ValueError: As `trl_arguments`.
    """
    words = trl_settings(recipe.algorithm)
    arguments, kind = trl_arguments(recipe), words.trainer.replace("Trainer", "Config")
    home = "trl.experimental.gmpo" if words.trainer == "GMPOTrainer" else "trl"
    config, chat = recipe.config, isinstance(vocabulary, TokenizerVocabulary) and vocabulary.chat
    # TRL writes conversations with the chat template, and texts as they are; it hands completions over in kind.
    prompt, text = (_conversation(recipe), 'text[0]["content"]') if chat else ("problem.prompt", "text")
    lora_import = lora = ""
    if config.lora_rank is not None:
        lora_import = "\nfrom peft import LoraConfig"
        arguments_of_lora = f'r={config.lora_rank}, lora_alpha={config.lora_alpha:g}, target_modules="all-linear"'
        lora = f"\n        peft_config=LoraConfig({arguments_of_lora}),"
    if words.trainer == "RLOOTrainer":
        arguments = {name: value for name, value in arguments.items() if name not in ("scale_rewards", "loss_type")}
    script = f'''"""{_title(recipe)}, by TRL's {words.trainer}.

{_sentences(words.differs)}"""

from pathlib import Path

from datasets import Dataset{lora_import}
from transformers import AutoModelForCausalLM, AutoTokenizer
from {home} import {kind}, {words.trainer}

from rlhf_minimal.tasks import get_task

TASK = get_task({recipe.task.name!r})
PROMPTS = {recipe.config.prompts}  # a step
STEPS = {recipe.config.steps}
PROBLEMS = TASK.problems("train", PROMPTS * STEPS, seed={recipe.config.seed})
SETTINGS = {pprint.pformat(arguments, sort_dicts=False, width=100)}


def reward(prompts, completions, number, **columns):
    """The task's verifier."""
    return [float(TASK.verify({text}, PROBLEMS[n])) for text, n in zip(completions, number, strict=True)]


def main(**changes):
    """Trains; `main(max_steps=2, use_cpu=True)` changes settings. Returns the trainer."""
    folder = Path(__file__).parent
    rows = [{{"prompt": {prompt}, "number": n}} for n, problem in enumerate(PROBLEMS)]
    trainer = {words.trainer}(
        model=AutoModelForCausalLM.from_pretrained(folder / "model"),
        args={kind}(output_dir=str(folder / "runs"), **{{**SETTINGS, **changes}}),
        reward_funcs=reward,
        train_dataset=Dataset.from_list(rows),
        processing_class=AutoTokenizer.from_pretrained(folder / "model"),{lora}
    )
    trainer.train()
    trainer.save_model(str(folder / "trained"))
    return trainer


if __name__ == "__main__":
    main()
'''

    def write(new: Path) -> None:
        (new / "model").mkdir()
        save_policy(new / "model", policy, vocabulary)
        (new / "train.py").write_text(script, encoding="utf-8")
        mixed = "bf16" if recipe.config.precision == "bfloat16" else "no"
        (new / "fsdp.yaml").write_text(FSDP.format(mixed_precision=mixed), encoding="utf-8")

    write_folder(out, write)


def export_verl(
    recipe: Recipe, policy: PreTrainedModel, vocabulary: Vocabulary | TokenizerVocabulary, out: Path
) -> None:
    """Writes a folder from which `bash train.sh` runs this recipe with verl, on a machine with a GPU.

        model/           the start
        data.py          writes train.parquet and test.parquet from this library's task
        reward.py        its verifier in verl's calling form
        train.sh         both of the above, and verl's `main_ppo` with the overrides

    Args:
        recipe: Algorithm, task and numbers; its reward has to be the task's verifier.
        policy: The start.
        vocabulary: Its vocabulary.
        out: The folder; replaced if it exists.

    Raises:
        ValueError: As `verl_settings` and `check_exportable`.
    """
    check_exportable(recipe)
    config, words = recipe.config, verl_settings(recipe.algorithm, recipe.budget)
    if config.prompts % config.minibatches:
        raise ValueError(
            f"verl cuts a step between prompts, and {config.prompts} prompts are not {config.minibatches} equal parts"
        )
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    rows = config.prompts * config.group_size // config.minibatches
    overrides = {
        **words.settings,
        "data.train_files": "$HERE/train.parquet",
        "data.val_files": "$HERE/test.parquet",
        "data.train_batch_size": config.prompts,
        "data.max_response_length": recipe.budget,
        "data.shuffle": False,
        "actor_rollout_ref.model.path": "$HERE/model",
        f"{actor}.ppo_epochs": config.epochs,
        f"{actor}.ppo_mini_batch_size": config.prompts // config.minibatches,
        f"{actor}.ppo_micro_batch_size_per_gpu": -(-rows // config.micro_batches),
        f"{actor}.optim.lr": config.lr,
        f"{actor}.optim.weight_decay": 0.0,
        f"{actor}.grad_clip": config.grad_clip,
        f"{rollout}.n": config.group_size,
        f"{rollout}.temperature": config.temperature,
        f"{rollout}.log_prob_micro_batch_size_per_gpu": -(-rows // config.micro_batches),
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
        overrides |= {
            "actor_rollout_ref.model.lora_rank": config.lora_rank,
            "actor_rollout_ref.model.lora_alpha": config.lora_alpha,
            "actor_rollout_ref.model.target_modules": "all-linear",
        }
    if words.trainer == "gae":
        overrides |= {"critic.model.path": "$HERE/model", "critic.optim.lr": config.value_lr}
    lines = " \\\n".join(f"    {name}={_shell(value)}" for name, value in overrides.items())
    notes = "".join(f"# {sentence}\n" for sentence in words.differs)
    script = f"""# {_title(recipe)}, by verl 0.9. The tests of rlhf_minimal hold the loss that these settings name
# to this row's; they do not run this script.
{notes}set -e
HERE=$(cd "$(dirname "$0")" && pwd)
python "$HERE/data.py"
python -m verl.trainer.main_ppo \\
{lines}
"""
    data = f'''"""Prompts for verl, as parquet files beside this script."""

from pathlib import Path

from datasets import Dataset

from rlhf_minimal.tasks import get_task

TASK, HERE = get_task({recipe.task.name!r}), Path(__file__).parent

for name, split, size in (("train", "train", {config.prompts * config.steps}), ("test", "held_out", 1000)):
    problems = TASK.problems(split, size, seed={config.seed})
    Dataset.from_list(
        [
            {{
                "data_source": TASK.name,
                "prompt": {_conversation(recipe)},
                "reward_model": {{"style": "rule", "ground_truth": problem.answer}},
                "extra_info": {{"split": split, "number": n}},
            }}
            for n, problem in enumerate(problems)
        ]
    ).to_parquet(str(HERE / f"{{name}}.parquet"))
'''
    reward = f'''"""The task's verifier in verl's calling form."""

from functools import cache

from rlhf_minimal.tasks import get_task

SIZES = {{"train": {config.prompts * config.steps}, "held_out": 1000}}


@cache
def problems(name, split):
    """Those of data.py, with all that the verifier needs."""
    return get_task(name).problems(split, SIZES[split], seed={config.seed})


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **others):
    """One completion's reward."""
    problem = problems(data_source, extra_info["split"])[extra_info["number"]]
    return float(get_task(data_source).verify(solution_str, problem))
'''

    def write(new: Path) -> None:
        (new / "model").mkdir()
        save_policy(new / "model", policy, vocabulary)
        for name, text in {"train.sh": script, "data.py": data, "reward.py": reward}.items():
            (new / name).write_text(text, encoding="utf-8")

    write_folder(out, write)


def _conversation(recipe: Recipe) -> str:
    """The expression for a problem's prompt as a conversation."""
    system = f'{{"role": "system", "content": {recipe.task.instruction!r}}}, ' if recipe.task.instruction else ""
    return f'[{system}{{"role": "user", "content": problem.prompt}}]'


def _title(recipe: Recipe) -> str:
    return f"Task {recipe.task.name}, seed {recipe.config.seed}"


def _sentences(differs: tuple[str, ...]) -> str:
    lines = "".join(f"- {sentence}\n" for sentence in differs)
    return f"What is not the same as in rlhf_minimal:\n{lines}" if lines else ""


def _shell(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def _cell(function: Callable[..., Any]) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The function of a cell and what is fixed of it."""
    return (function.func, function.keywords) if isinstance(function, partial) else (function, {})


def _main(algorithm: Algorithm) -> tuple[Callable[..., Any], ...]:
    return algorithm.advantage, algorithm.ratio, algorithm.gate, algorithm.aggregate


def _lacks(library: str, column: str, cell: Callable[..., Any], why: str) -> ValueError:
    return ValueError(f"the export to {library} cannot express this row's {column}, {cell.__name__}: {why}")


def _check_columns(algorithm: Algorithm, library: str) -> None:
    """Refuses the columns that no export translates, whether or not the library has something like them."""
    for column in ("correct", "trust", "targets", "entropy_aggregate"):
        if (cell := getattr(algorithm, column)) is not None:
            raise _lacks(library, column, _cell(cell)[0], "it translates no such cell; take it out with replace()")
    if algorithm.entropy:
        raise ValueError(f"the export to {library} knows no entropy bonus: take a row without one")
    if any(kl.place == "advantage" and kl.coef for kl in algorithm.kl):
        raise ValueError(f"the export to {library} knows no KL in the advantage: put it into the reward or the loss")


def _left_out(algorithm: Algorithm, library: str, *, filters_groups: bool) -> Iterator[str]:
    """What is left out of the export, since it is no part of the loss."""
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
            f"the export to {library} cannot express this row's kl: beside groups it has {' or '.join(kinds)} per "
            "token, in the loss, against the reference, averaged as the policy term is; take --kl-coef 0"
        )
    if library == "verl" and kl.weighted:
        raise ValueError("the export to verl cannot express this row's kl: it is not weighted by the ratio there")
    if library == "verl":
        return {"beta": kl.coef, "type": kinds[str(kl.estimator)]}
    return {"beta": kl.coef, "use_bias_correction_kl": kl.weighted}


def _reward_kl(algorithm: Algorithm, library: str) -> float:
    terms = [kl for kl in algorithm.kl if kl.coef]
    if any((kl.estimator, kl.place, kl.against) != ("k1", "reward", "reference") for kl in terms) or len(terms) > 1:
        raise ValueError(f"the export to {library} cannot express this row's kl: it has k1 in the reward here")
    return float(terms[0].coef) if terms else 0.0
