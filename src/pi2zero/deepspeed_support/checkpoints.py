"""The state of a DeepSpeed run in files that do not depend on the stage or the number of ranks.

DeepSpeed's own checkpoints hold each rank's shard: they need the same number of ranks again, and
reading them runs what is pickled in them. Here rank 0 writes whole tensors as safetensors (numbers
only), in the form that transformers reads too. Rank 0 needs 12 bytes a parameter for weights and
moments: enough memory for what a workshop trains.
"""

import json
import shutil
from pathlib import Path
from typing import Any

from pi2zero.requirements import require_package

require_package("transformers", "deepspeed")

SPECIAL = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}  # 0, 1, 2 as in T5
MOMENTS = ("exp_avg", "exp_avg_sq")  # Adam's
MOST_LAYERS = 1000  # T5 with 11 billion parameters has 24
MESSAGE_CHARS = 300  # of a library's error

__all__ = ["UnreadableError", "find", "fresh", "load", "restore", "save", "set_rate"]


class UnreadableError(Exception):
    """A checkpoint that is missing, cut short, or not what its name says."""


def find(folder: str | Path) -> Path | None:
    """The folder of the last whole checkpoint in `folder`, or None."""
    latest = Path(folder) / "latest"
    return Path(folder) / latest.read_text(errors="replace") if latest.exists() else None


def load(start: str | Path):
    """(tokenizer, T5 in float32) of a checkpoint's folder, or of a name at the Hugging Face hub.

    No code from there is run. Raises UnreadableError.
    """
    import torch
    from transformers import AutoTokenizer, T5ForConditionalGeneration

    is_local = Path(start).is_dir() or isinstance(start, Path)
    try:
        if is_local:
            _check_size(Path(start))
        tokenizer = AutoTokenizer.from_pretrained(start, trust_remote_code=False)
        model, report = T5ForConditionalGeneration.from_pretrained(  # pyright: ignore
            start,
            use_safetensors=True,
            dtype=torch.float32,
            output_loading_info=True,
            local_files_only=is_local,
        )
        if missing := sorted(report["missing_keys"]):
            raise ValueError(f"model.safetensors lacks {missing[0]}")
        if other := sorted(report["mismatched_keys"]):
            raise ValueError(
                f"model.safetensors has {other[0][0]} in another shape than config.json describes"
            )
    except Exception as error:  # each of three libraries has its own
        why = str(error).strip().partition("\n")[0][:MESSAGE_CHARS]
        why = "".join(char if char.isprintable() else "?" for char in why)
        raise UnreadableError(
            f"{start} is damaged ({why})" if is_local else f"There is no model {start} ({why})"
        ) from error
    return tokenizer, model


def _check_size(folder: Path) -> None:
    """Raise ValueError if config.json describes a larger model than the weights can be.

    A large number in it would take all memory, or many layers all time, before the weights are
    read.
    """
    import torch
    from transformers import T5Config, T5ForConditionalGeneration

    if not folder.is_dir():
        raise ValueError("there is no such folder")
    config = T5Config.from_pretrained(folder)
    if (layers := max(config.num_layers, config.num_decoder_layers or 0)) > MOST_LAYERS:
        raise ValueError(f"config.json: at most {MOST_LAYERS} layers; got {layers:,}")
    with torch.device("meta"):  # shapes without memory
        numbers = sum(p.numel() for p in T5ForConditionalGeneration(config).parameters())
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    if numbers > size > 0:
        raise ValueError(
            f"config.json describes {numbers:,} numbers, in all {size:,} bytes of weights are there"
        )


def fresh(stories, words: int = 1000):
    """(tokenizer, T5) from scratch, the same on every rank. words: the vocabulary's size."""
    tokenizer = _train_tokenizer(stories, words)
    return tokenizer, _small_t5(tokenizer)


def _train_tokenizer(stories, words: int):
    """Byte pairs of the first training stories, learnt on every rank, taken from rank 0."""
    import torch.distributed as dist
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))  # noqa: S106  (no password: a word)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Metaspace(),
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.Punctuation(),
        ]
    )
    tokenizer.decoder = decoders.Metaspace()
    first = stories.select(range(min(2000, len(stories))))
    trainer = trainers.BpeTrainer(
        vocab_size=words, special_tokens=list(SPECIAL.values()), show_progress=False
    )
    texts = (f"{story['article']} {story['highlights']}" for story in first)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    box = [tokenizer.to_str()]
    dist.broadcast_object_list(box)
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(box[0]), **SPECIAL)


def _small_t5(tokenizer):
    """A T5 of a quarter of a million parameters."""
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        d_model=64,
        d_kv=16,
        d_ff=128,
        num_heads=4,
        num_layers=2,
        num_decoder_layers=2,
        vocab_size=len(tokenizer),
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,  # pyright: ignore[reportCallIssue]
        dropout_rate=0.0,
        feed_forward_proj="gated-gelu",
    )
    return T5ForConditionalGeneration(config)


def save(engine, tokenizer, folder: str | Path, progress: dict) -> str | None:
    """Write model, tokenizer, Adam's moments and `progress` (JSON) to folder/step<step>.

    All ranks call it. progress has "step". The new checkpoint is written next to the former one,
    then the file `latest` names it: a kill at any moment leaves a whole one. Returns on every rank
    what went wrong on rank 0 (a full disk), or None.
    """
    import torch.distributed as dist

    weights, moments = {}, {}
    for name, parameter in engine.module.named_parameters():
        # Every rank gathers each tensor, in one order.
        full, *both = [_gather_full(engine, parameter, key) for key in (None, *MOMENTS)]
        if dist.get_rank() == 0:
            weights[name] = full.detach().cpu().clone()
            for key, moment in zip(MOMENTS, both, strict=True):
                moments[f"{key}/{name}"] = moment.cpu().clone()
    problem = [None]
    if dist.get_rank() == 0:
        try:
            _write(Path(folder), weights, moments, engine.module.config, tokenizer, progress)
        except Exception as error:  # the others wait for the answer, whatever it is
            problem = [
                f"Cannot write the checkpoint {folder}/step{progress['step']}: {error}. "
                "The former one, if any, is whole."
            ]
    dist.broadcast_object_list(problem)
    return problem[0]


def _write(folder: Path, weights, moments, config, tokenizer, progress) -> None:
    from safetensors.torch import save_file

    part, done = folder / "writing", folder / f"step{progress['step']}"
    if find(folder) != done:
        for old in (part, done):  # of a run that was killed before `latest` named them
            shutil.rmtree(old, ignore_errors=True)
        part.mkdir(parents=True)
        save_file(weights, part / "model.safetensors", metadata={"format": "pt"})
        save_file(moments, part / "moments.safetensors")
        config.save_pretrained(part)
        tokenizer.save_pretrained(part)
        (part / "progress.json").write_text(json.dumps(progress))
        part.rename(done)
    (folder / "latest.part").write_text(done.name)
    (folder / "latest.part").replace(folder / "latest")
    for old in set(folder.glob("step*")) - {done}:
        if old.name.removeprefix("step").isdecimal():  # else it is a user's own
            # On NFS a file that is open elsewhere stays; the new checkpoint is whole anyway.
            shutil.rmtree(old, ignore_errors=True)


def restore(engine, checkpoint: Path, batch: dict) -> dict:
    """Give every rank its shard of a checkpoint's state; returns its `progress`.

    All ranks call it. engine: fresh, its model read from the same checkpoint. batch: any arguments
    of the model. Raises UnreadableError.
    """
    from deepspeed import utils
    from safetensors import SafetensorError, safe_open

    wanted = {f"{key}/{name}" for name, _ in engine.module.named_parameters() for key in MOMENTS}
    try:
        weights, moments = (
            safe_open(checkpoint / f"{name}.safetensors", "pt") for name in ("model", "moments")
        )
        progress = read_progress(checkpoint / "progress.json")
        if missing := sorted(wanted - set(moments.keys())):
            raise ValueError(f"moments.safetensors lacks {missing[0]}")
    except (OSError, ValueError, SafetensorError) as error:
        raise UnreadableError(f"{checkpoint} is damaged ({error})") from error
    # After a step that changes no weight, Adam has moments, which can be filled.
    set_rate(engine, 0.0)
    engine.backward(engine(**batch).loss)
    engine.step()
    for name, parameter in engine.module.named_parameters():
        if _is_sharded(parameter):  # in bf16 the master copies have more digits than the model
            utils.safe_set_full_fp32_param(parameter, weights.get_tensor(name).to(parameter.device))
        for key in MOMENTS:
            value = moments.get_tensor(f"{key}/{name}").to(parameter.device)
            if _is_sharded(parameter):
                utils.safe_set_full_optimizer_state(parameter, value, key)
            else:
                engine.optimizer.state[parameter][key].copy_(value)
    for state in getattr(engine.optimizer, "optimizer", engine.optimizer).state.values():
        state["step"].fill_(progress["step"])  # Adam's bias correction counts on
    return progress


def read_progress(path: Path) -> dict:
    """What `save` was given, with its "step". Raises ValueError or OSError."""
    try:
        progress = json.loads(path.read_text())
    except RecursionError as error:
        raise ValueError(f"{path.name} is nested too deeply") from error
    step = progress.get("step") if isinstance(progress, dict) else None
    if type(step) is not int or not 0 <= step < 2**53:
        raise ValueError(f"{path.name} has no number of steps")
    return progress


def set_rate(engine, rate: float) -> None:
    """The learning rate of the next step, for all parameters."""
    for group in engine.optimizer.param_groups:
        group["lr"] = rate


def _is_sharded(parameter) -> bool:
    """Whether its optimizer state is sharded (stages 1 to 3), or in a flat copy (bf16)."""
    return hasattr(parameter, "ds_id") or hasattr(parameter, "_hp_mapping")


def _gather_full(engine, parameter, key: str | None = None) -> Any:
    """The full fp32 tensor of a parameter, or of one of its moments, on every rank."""
    from deepspeed import utils

    if not _is_sharded(parameter):
        return engine.optimizer.state[parameter][key] if key else parameter
    if key:
        return utils.safe_get_full_optimizer_state(parameter, key)
    return utils.safe_get_full_fp32_param(parameter)
