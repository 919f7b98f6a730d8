"""`export`: a member of a stored run as a folder for peft, vLLM or the Hugging Face hub."""

from __future__ import annotations

import shutil
from pathlib import Path

from safetensors import SafetensorError

from evo_hpo.config.errors import UserError
from evo_hpo.policy.exchange import export
from evo_hpo.runtime.members import finished, stored_member


def export_member(run: Path, member: str, target: Path) -> None:
    """Write a member as a peft adapter folder, or as a whole model where the base itself was trained.

    The base is named in it as the config names it (`builtin:tiny`, a hub name), so load it with the base in hand:
    `PeftModel.from_pretrained(base, target)`.

    Args:
        run: a run folder, finished or not; of an unfinished one, the newest intact checkpoint counts.
        member: "best" or a number.
        target: a folder that is empty or not there yet.
    Raises:
        UserError: no such member, nothing intact to take it from, or `target` cannot be written or holds something.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UserError(f"{target} holds something already; name a folder that is empty or does not exist")
    folder = finished(run, member)
    try:
        if folder is not None:
            shutil.copytree(folder, target, dirs_exist_ok=True)
        else:
            export(stored_member(run, member).policy, 0, target)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{target} could not be written ({error}); free some space, or name another folder") from error
