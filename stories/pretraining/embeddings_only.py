"""The control "embeddings only": petit's word embeddings, all layers random.

    python stories/pretraining/embeddings_only.py embeddings-only

What is left of petit's advantage with these weights is what fine-tuning can use of its word embeddings through layers
that have to be learnt; it is not all that these embeddings know (stories/simple_baselines.py: their cosine).
"""

import argparse
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForMaskedLM

from encodery.models.locate import SHIPPED


def main() -> None:
    """Draw the layers, and keep what belongs to single words."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    trained = AutoModelForMaskedLM.from_pretrained(SHIPPED, dtype=torch.float32)
    drawn = AutoModelForMaskedLM.from_config(AutoConfig.from_pretrained(SHIPPED))
    drawn.model.embeddings.load_state_dict(trained.model.embeddings.state_dict())
    args.out.mkdir(parents=True, exist_ok=True)
    for file in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(SHIPPED / file, args.out / file)
    weights = {name: tensor.contiguous() for name, tensor in drawn.model.state_dict(prefix="model.").items()}
    save_file(weights, args.out / "model.safetensors", metadata={"format": "pt"})
    print(f"{args.out}: {len(weights)} tensors, layers drawn with seed {args.seed}")


if __name__ == "__main__":
    main()
