"""The state of a DeepSpeed run in files that do not depend on the stage or on the number of ranks.

DeepSpeed's own checkpoints hold each rank's shard: they go on with the same number of ranks, and reading them runs what is
pickled in them. Here rank 0 writes whole tensors as safetensors (numbers only), in the form that transformers reads too.
It takes the memory of one rank for weights and moments, 12 bytes a parameter: enough for what a workshop trains.
"""

import json
import shutil
from pathlib import Path

from pi2zero.requirements import require_package

SPECIAL = {
    "pad_token": "<pad>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
}  # numbers 0, 1, 2, as T5 has them
MOMENTS = ("exp_avg", "exp_avg_sq")  # Adam's
MOST_LAYERS = 1000  # of T5 with 11 billion parameters: 24
require_package("transformers", "deepspeed")
LONGEST = 300  # characters of what a library says

__all__ = ["Unreadable", "find", "fresh", "load", "restore", "save", "set_rate"]


class Unreadable(Exception):
    """A checkpoint that is not there, or a file of it is missing, cut short, or not what its name says."""


def find(folder: str | Path) -> Path | None:
    """The folder of the last whole checkpoint in `folder`, or None."""
    latest = Path(folder) / "latest"
    return Path(folder) / latest.read_text(errors="replace") if latest.exists() else None


def load(start: str | Path):
    """(tokenizer, T5 in float32) of a checkpoint's folder, or of a name at the Hugging Face hub. No code from there is run."""
    import torch
    from transformers import AutoTokenizer, T5ForConditionalGeneration

    is_ours = Path(start).is_dir() or isinstance(start, Path)
    try:
        if is_ours:
            if not Path(start).is_dir():
                raise ValueError("there is no such folder")
            _describes_what_is_there(Path(start))
        tokenizer = AutoTokenizer.from_pretrained(start, trust_remote_code=False)
        model, found = T5ForConditionalGeneration.from_pretrained(
            start,
            use_safetensors=True,
            dtype=torch.float32,
            output_loading_info=True,
            local_files_only=is_ours,
        )
        if lacking := sorted(found["missing_keys"]):
            raise ValueError(f"model.safetensors lacks {lacking[0]}")
        if other := sorted(found["mismatched_keys"]):
            raise ValueError(
                f"model.safetensors has {other[0][0]} in another shape than config.json describes"
            )
    except Exception as error:  # each of three libraries has its own
        why = str(error).strip().partition("\n")[0][:LONGEST]
        why = "".join(sign if sign.isprintable() else "?" for sign in why)
        raise Unreadable(
            f"{start} is damaged ({why})" if is_ours else f"There is no model {start} ({why})"
        ) from error
    return tokenizer, model


def _describes_what_is_there(folder):
    """ValueError if config.json describes a model that the weights beside it cannot be: a large number in it would take all of
    the memory, or many layers all of the time, before anybody looks at the weights."""
    import torch
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config.from_pretrained(folder)
    if (layers := max(config.num_layers, config.num_decoder_layers)) > MOST_LAYERS:
        raise ValueError(f"config.json: at most {MOST_LAYERS} layers; got {layers:,}")
    with torch.device("meta"):  # shapes, and no memory
        numbers = sum(
            parameter.numel() for parameter in T5ForConditionalGeneration(config).parameters()
        )
    held = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    if numbers > held > 0:
        raise ValueError(
            f"config.json describes {numbers:,} numbers, in all {held:,} bytes of weights are there"
        )


def fresh(stories, words: int = 1000):
    """(tokenizer, model) from scratch: byte pairs of the first training stories, the same on every rank, and a T5."""
    tokenizer = _reader(stories, words)
    return tokenizer, _network(tokenizer)


def _reader(stories, words):
    import torch.distributed as dist
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE(unk_token="<unk>"))  # noqa: S106  (no password: a word)
    cuts = [
        pre_tokenizers.Metaspace(),
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.Punctuation(),
    ]
    made.pre_tokenizer, made.decoder = pre_tokenizers.Sequence(cuts), decoders.Metaspace()
    texts = (
        f"{story['article']} {story['highlights']}"
        for story in stories.select(range(min(2000, len(stories))))
    )
    made.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=words, special_tokens=list(SPECIAL.values()), show_progress=False
        ),
    )
    made.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    box = [made.to_str()]
    dist.broadcast_object_list(box)
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(box[0]), **SPECIAL)


def _network(tokenizer):
    """A T5 of a quarter of a million parameters."""
    from transformers import T5Config, T5ForConditionalGeneration

    shape = {
        "d_model": 64,
        "d_kv": 16,
        "d_ff": 128,
        "num_heads": 4,
        "num_layers": 2,
        "num_decoder_layers": 2,
    }
    tokens = {
        "vocab_size": len(tokenizer),
        "pad_token_id": 0,
        "eos_token_id": 1,
        "decoder_start_token_id": 0,
    }
    return T5ForConditionalGeneration(
        T5Config(**shape, **tokens, dropout_rate=0.0, feed_forward_proj="gated-gelu")
    )


def save(engine, tokenizer, folder: str | Path, progress: dict) -> str | None:
    """Write model, tokenizer, Adam's moments and `progress` (JSON, with "step") to folder/step<step>. All ranks call it.

    The new one is written beside the former, then the file `latest` names it: a kill at any moment leaves one whole. Returns
    what went wrong on rank 0 (a full disk), on every rank, or None.
    """
    import torch.distributed as dist

    weights, moments = {}, {}
    for name, parameter in engine.module.named_parameters():
        master, *both = [
            _whole(engine, parameter, key) for key in (None, *MOMENTS)
        ]  # every rank asks for each, in one order
        if dist.get_rank() == 0:
            weights[name] = master.detach().cpu().clone()
            moments |= {
                f"{key}/{name}": moment.cpu().clone()
                for key, moment in zip(MOMENTS, both, strict=True)
            }
    problem = [None]
    if dist.get_rank() == 0:
        try:
            _write(Path(folder), weights, moments, engine.module.config, tokenizer, progress)
        except Exception as error:  # the others wait for the answer, whatever it is
            problem = [
                f"Cannot write the checkpoint {folder}/step{progress['step']}: {error}. The former one, if any, is whole."
            ]
    dist.broadcast_object_list(problem)
    return problem[0]


def _write(folder, weights, moments, config, tokenizer, progress):
    from safetensors.torch import save_file

    part, done = folder / "writing", folder / f"step{progress['step']}"
    if find(folder) != done:
        for old in (
            part,
            done,
        ):  # of a run that was killed before it could name them in `latest`, perhaps with other options
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
        if old.name.removeprefix("step").isdecimal():  # else it is somebody's own
            shutil.rmtree(
                old, ignore_errors=True
            )  # NFS keeps a file that somebody has open: the new one is whole all the same


def restore(engine, checkpoint: Path, batch: dict) -> dict:
    """Give every rank its shard of the state in a checkpoint; returns its `progress`. All ranks call it.

    engine: fresh, its model read from the same checkpoint (transformers' `from_pretrained`). batch: any arguments of the model.
    """
    from deepspeed import utils
    from safetensors import SafetensorError, safe_open

    wanted = {f"{key}/{name}" for name, _ in engine.module.named_parameters() for key in MOMENTS}
    try:
        weights, moments = (
            safe_open(checkpoint / f"{name}.safetensors", "pt") for name in ("model", "moments")
        )
        progress = progress_in(checkpoint / "progress.json")
        if lacking := sorted(wanted - set(moments.keys())):
            raise ValueError(f"moments.safetensors lacks {lacking[0]}")
    except (OSError, ValueError, SafetensorError) as error:
        raise Unreadable(f"{checkpoint} is damaged ({error})") from error
    set_rate(
        engine, 0.0
    )  # a step that changes no weight: after it Adam has moments, which can be filled
    engine.backward(engine(**batch).loss)
    engine.step()
    for name, parameter in engine.module.named_parameters():
        if _is_dealt(parameter):  # in bf16 the master copies have more digits than the model
            utils.safe_set_full_fp32_param(parameter, weights.get_tensor(name).to(parameter.device))
        for key in MOMENTS:
            value = moments.get_tensor(f"{key}/{name}").to(parameter.device)
            if _is_dealt(parameter):
                utils.safe_set_full_optimizer_state(parameter, value, key)
            else:
                engine.optimizer.state[parameter][key].copy_(value)
    for state in getattr(engine.optimizer, "optimizer", engine.optimizer).state.values():
        state["step"].fill_(progress["step"])  # Adam's bias correction counts on
    return progress


def progress_in(path: Path) -> dict:
    """What `save` was given, with its "step". Raises ValueError if the file is not that, OSError if it cannot be read."""
    try:
        progress = json.loads(path.read_text())
    except RecursionError as error:
        raise ValueError(f"{path.name} is nested too deeply") from error
    if (
        not isinstance(progress, dict)
        or type(progress.get("step")) is not int
        or not 0 <= progress["step"] < 2**53
    ):
        raise ValueError(f"{path.name} has no number of steps")
    return progress


def set_rate(engine, rate: float) -> None:
    """The learning rate of the next step, for all parameters."""
    for group in engine.optimizer.param_groups:
        group["lr"] = rate


def _is_dealt(parameter):
    """Whether its optimizer state is dealt out to the ranks (stages 1 to 3), or in a flat copy (bf16)."""
    return hasattr(parameter, "ds_id") or hasattr(parameter, "_hp_mapping")


def _whole(engine, parameter, key=None):
    """The whole fp32 tensor of a parameter, or of one of its moments, on every rank."""
    from deepspeed import utils

    if _is_dealt(parameter):
        return (
            utils.safe_get_full_optimizer_state(parameter, key)
            if key
            else utils.safe_get_full_fp32_param(parameter)
        )
    return engine.optimizer.state[parameter][key] if key else parameter
